"""Program that starts one local sandbox and ends at once; it reads its order, JSON, from its standard input.

Nothing of a multi-threaded process is forked so, and what it starts has a session of its own and outlives the server.
Writes a record of it, ``process.json``. With an order as its argument it is the `guard` of a sandbox. Standard library
only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import importlib.util
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

_INFO_SECONDS = 10.0
_LOOPBACK_SECONDS = 10.0
_LOOK_SECONDS = 0.001
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_MS_NOEXEC = 0x8
_PR_SET_PDEATHSIG = 1
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 1 << 18
_NS_GET_USERNS = 0xB701
_NETWORK_SECONDS = 15.0
_DEV_NET = b"/dev/net"
_TUN = "/dev/net/tun"
_OOM_SCORE = "500"
_LINK = "link.sock"
_READY = b"1"  # as slirp4netns says it
_REASON = 500
_LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW

_DEVICE, _OUTER = "tap0", "tap0-out"
_ADDRESS, _MASK, _GATEWAY = "10.0.2.100", "255.255.255.0", "10.0.2.2"
_MTU = 65520
_FRAME = _MTU + 14
_ALL_PROTOCOLS = 0x0003
_IGNORE_OUTGOING = 23
_SOL_PACKET = 263
_NEW_LINK = 16
_REQUEST, _ACK, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_INTERFACE_NAME, _LINK_INFO, _INFO_KIND, _INFO_DATA, _VETH_PEER = 3, 18, 1, 2, 1
_ADD_ROUTE, _SET_FLAGS, _SET_ADDRESS, _SET_MASK, _SET_MTU, _ETHTOOL = 0x890B, 0x8914, 0x8916, 0x891C, 0x8922, 0x8946
_UP_AND_RUNNING = 0x41
_ROUTE_UP_BY_GATEWAY = 0x3
_CHECKSUMS, _TCP_SEGMENTS, _SEGMENTS = 0x17, 0x1F, 0x24

_GRACE_SECONDS = 2.0
_END_SECONDS = 0.02
_ROUNDS = 100

INFO_MARK = "@info-fd@"
SOCKET_MARK = "@socket-fd@"
SOCKET_NAME = "runner.sock"
FILTER_MARK = "@filter-fd@"
MISSING = "no-network"
"""File in a sandbox's folder that says why it has no network, where it was to have one."""


def main(order: dict[str, Any]) -> None:
    """Carry out an order of `launch_order`.

    ``argv`` and ``env`` are the program's; ``view`` has bubblewrap's arguments, which go through a descriptor so that
    no path of the host shows in its command line (empty: no bubblewrap); ``folder`` is where ``process.json`` and the
    log are written, and where it starts without bubblewrap; ``uid`` is whom to run as, or None; ``mounts`` are folders
    and the places where a root server shows them to that user; ``joins`` are files of control groups; ``limits``
    resource limits by name; ``network`` (empty: none) has the ``program`` slirp4netns, our program ``border`` (empty:
    the host may be reached), and what that takes; ``filter`` is the program for seccomp in hexadecimal digits;
    ``guard`` is the order of the `guard` (empty: the sandbox outlives its owner).
    """
    for name in os.listdir("/proc/self/fd"):  # what is started would hold open what an event loop has handed on
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
                os.close(int(name))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _become(order, writing)
    os.close(writing)
    record = {"outer": child, "init": child}
    _write_record(order, record)  # at once: whatever happens next, what was started can be found and ended
    if order["view"]:
        record["init"] = int(_read_info(reading).get("child-pid", child))
        _write_record(order, record)
        if order["network"] and record["init"] != child:
            if has_loopback(record["init"], _LOOPBACK_SECONDS):
                _start_network(order, record)
            else:
                _note_missing(order, b"the sandbox did not set up its loopback interface")
    if order["guard"]:
        _start_guard(order["guard"])


def _start_guard(order: dict[str, Any]) -> None:
    if os.fork() != 0:
        return
    try:
        os.setsid()
        os.chdir("/")
        for stream in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        words = [sys.executable, "-I", "-S", __file__, json.dumps(order)]
        os.execve(words[0], words, {})  # noqa: S606 - becoming the program is the purpose
    finally:
        os._exit(127)


def _write_record(order: dict[str, Any], processes: dict[str, int]) -> None:
    record = {**processes, **{f"{role}_start": _stat(pid)[0] for role, pid in processes.items()}}
    path = os.path.join(order["folder"], "process.json")
    private = functools.partial(os.open, mode=0o600)
    with open(path + ".new", "w", encoding="utf-8", opener=private) as file:
        json.dump(record, file)
    os.replace(path + ".new", path)


def _start_network(order: dict[str, Any], record: dict[str, int]) -> None:
    namespace = os.open(f"/proc/{record['init']}/ns/net", os.O_RDONLY)
    owner = fcntl.ioctl(namespace, _NS_GET_USERNS)  # not the namespace of the first process: that one is nested in it
    reading, writing = os.pipe()
    helper = os.fork()
    if helper == 0:
        os.close(reading)
        _become_network(order, namespace, owner, writing)
    os.close(writing)
    _write_record(order, {**record, "network": helper})
    if not select.select([reading], [], [], _NETWORK_SECONDS)[0]:
        reason = b"slirp4netns did not answer in time"
    else:
        reason = os.read(reading, _REASON) or b"slirp4netns ended at once"
    if reason != _READY:
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)
        _write_record(order, record)
        _note_missing(order, reason)


def has_loopback(pid: int, seconds: float) -> bool:
    """Wait for a network's loopback address: bubblewrap fails if slirp4netns, which puts it there too, comes first."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/net/fib_trie", "rb") as file:
                if b" 127.0.0.1\n" in file.read():
                    return True
        except OSError:  # the process has ended
            return False
        time.sleep(_LOOK_SECONDS)
    return False


def _become_network(order: dict[str, Any], namespace: int, owner: int, ready: int) -> None:
    """In the child: turn into slirp4netns, as the sandbox's user and in its user namespace; never returns.

    There it has no right on this host. It cannot enter by itself: as an ordinary user it would take its own group for
    root's too early.
    """
    try:
        _detach(order)
        # Before the user changes, who may not read our files.
        border = _load(order["network"]["border"]) if order["network"]["border"] else None
        folder = os.path.join(order["folder"], "network")
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        if order["uid"] is not None:
            os.chown(folder, order["uid"], order["uid"])
        os.chdir(folder)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_LINK)
        # slirp4netns hides the host's folders from itself, and where a mount is shared with the host (an engine's
        # containers are) it would take it away from everybody: not so from a view of its own.
        with contextlib.suppress(OSError):
            _show({})
            # A device for networks that the sandbox's user may open, in this process's own view only; needs root.
            _call("/dev/net", lambda libc: libc.mount(b"tmpfs", _DEV_NET, b"tmpfs", _MS_NOEXEC, b"mode=755"))
            os.mknod(_TUN, 0o666 | stat.S_IFCHR, os.makedev(10, 200))
            os.chmod(_TUN, 0o666)  # noqa: S103 - whatever the umask says; nobody else sees this one
        if order["uid"] is not None:
            _change_user(order["uid"])
        _call("the sandbox's users", lambda libc: libc.setns(owner, _CLONE_NEWUSER))
        words = ["--disable-host-loopback", "--enable-sandbox", "--enable-seccomp", f"--mtu={_MTU}"]
        if _has_tun():
            _prepare_network(order, namespace, border, with_link=False)
            os.chdir("/")
            os.set_inheritable(namespace, True)
            words += ["--configure", "--netns-type=path", f"/proc/self/fd/{namespace}", _DEVICE]
        else:
            _prepare_network(order, namespace, border, with_link=True)
            words += ["--target-type=bess", _LINK]
        os.set_inheritable(ready, True)
        argv = [order["network"]["program"], f"--ready-fd={ready}", *words]
        os.execve(argv[0], argv, {})  # noqa: S606 - becoming the program is the purpose
    except OSError as error:
        os.write(ready, str(error).encode("utf-8", "replace")[:_REASON])
    finally:
        os._exit(127)


def _prepare_network(order: dict[str, Any], namespace: int, border: Any, *, with_link: bool) -> None:
    """Set the border in the sandbox's network and, `with_link`, its device, for which a process of ours stays.

    That is a pair of devices and a relay to slirp4netns, where nobody gives us /dev/net/tun.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _call("the end of its parent", lambda libc: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))
            _call("the sandbox's network", lambda libc: libc.setns(namespace, _CLONE_NEWNET))
            if border is not None:
                border.keep_in(order["network"]["resolver"], order["network"]["refused"])
            frames = _make_link() if with_link else None
            os.write(writing, _READY)
            os.close(writing)
            if frames is not None:
                _relay(frames, _connect(_LINK, _NETWORK_SECONDS))
        except (OSError, ValueError) as error:
            os.write(writing, str(error).encode()[:_REASON])
        finally:
            os._exit(0)
    os.close(writing)
    reason = os.read(reading, _REASON) if select.select([reading], [], [], _NETWORK_SECONDS)[0] else b"no answer"
    os.close(reading)
    if not with_link:
        os.waitpid(child, 0)
    if reason != _READY:
        raise OSError(reason.decode("utf-8", "replace") or "the network could not be prepared")


def _make_link() -> socket.socket:
    """Give this network its device, with address and route; returns the other end, which carries whole frames."""
    _make_pair()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for setting in (_CHECKSUMS, _TCP_SEGMENTS, _SEGMENTS):  # slirp4netns wants them done, and no piece too large
            off = ctypes.create_string_buffer(struct.pack("=II", setting, 0))
            request = struct.pack("16sP16x", _DEVICE.encode(), ctypes.addressof(off))
            with contextlib.suppress(OSError):  # it has no such thing to switch off
                fcntl.ioctl(control, _ETHTOOL, request)
        for device in (_OUTER, _DEVICE):
            fcntl.ioctl(control, _SET_MTU, struct.pack("16si20x", device.encode(), _MTU))
            fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH22x", device.encode(), _UP_AND_RUNNING))
        for kind, value in ((_SET_ADDRESS, _ADDRESS), (_SET_MASK, _MASK)):
            fcntl.ioctl(control, kind, struct.pack("16s16s8x", _DEVICE.encode(), _address(value)))
        anywhere = _address("0.0.0.0")  # noqa: S104 - a route to everywhere
        route = struct.pack("=Q16s16s16sH", 0, anywhere, _address(_GATEWAY), anywhere, _ROUTE_UP_BY_GATEWAY)
        fcntl.ioctl(control, _ADD_ROUTE, route + bytes(120 - len(route)))
    frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    frames.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    frames.bind((_OUTER, _ALL_PROTOCOLS))
    return frames


def _connect(path: str, seconds: float) -> socket.socket:
    """The connection to slirp4netns, once it listens, within so many `seconds`."""
    deadline = time.monotonic() + seconds
    program = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while True:
        try:
            program.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_SECONDS)
        else:
            return program


def _relay(frames: socket.socket, program: socket.socket) -> None:
    """Carry frames between the device and slirp4netns until that ends; what does not fit is dropped, as on a wire."""
    for end in (frames, program):
        end.setblocking(False)
    waiting = select.poll()
    ways = {frames.fileno(): (frames, program), program.fileno(): (program, frames)}
    for descriptor in ways:
        waiting.register(descriptor, select.POLLIN)
    while True:
        for descriptor, _ in waiting.poll():
            source, target = ways[descriptor]
            with contextlib.suppress(BlockingIOError):
                frame = source.recv(_FRAME)
                if not frame and source is program:
                    return
                with contextlib.suppress(OSError):
                    target.send(frame)


def _make_pair() -> None:
    peer = bytes(16) + _attribute(_INTERFACE_NAME, _OUTER.encode() + b"\0")
    info = _attribute(_INFO_KIND, b"veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, peer))
    body = bytes(16) + _attribute(_INTERFACE_NAME, _DEVICE.encode() + b"\0") + _attribute(_LINK_INFO, info)
    flags = _REQUEST | _ACK | _CREATE | _EXCLUSIVE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.bind((0, 0))
        netlink.send(struct.pack("=IHHII", 16 + len(body), _NEW_LINK, flags, 1, 0) + body)
        (error,) = struct.unpack_from("=i", netlink.recv(1 << 16), 16)
    if error:
        raise OSError(-error, f"no pair of network devices: {os.strerror(-error)}")


def _address(text: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))


def _attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def _load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - it is a file of Python
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _has_tun() -> bool:
    try:
        os.close(os.open(_TUN, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _note_missing(order: dict[str, Any], reason: bytes) -> None:
    note = os.open(os.path.join(order["folder"], MISSING), _LOG_FLAGS, 0o600)
    try:
        os.write(note, reason)
    finally:
        os.close(note)


def _detach(order: dict[str, Any]) -> None:
    os.setsid()
    os.umask(0o022)
    log = os.open(os.path.join(order["folder"], "log"), _LOG_FLAGS, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for path in order["joins"]:
        with open(path, "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(_OOM_SCORE)


def _change_user(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _become(order: dict[str, Any], info: int) -> None:
    try:
        _detach(order)
        for name, value in order["limits"].items():
            kind = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(kind)[1]
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (bound, bound))
        listening = _listen(order["folder"])
        if order["uid"] is not None:
            if order["mounts"]:
                _show(order["mounts"])
            _change_user(order["uid"])
        os.set_inheritable(listening, True)
        argv = [word.replace(SOCKET_MARK, str(listening)) for word in order["argv"]]
        if order["view"]:
            os.chdir("/")
            os.set_inheritable(info, True)
            marks = {INFO_MARK: str(info), FILTER_MARK: str(_descriptor_of(bytes.fromhex(order["filter"])))}
            view = _descriptor_of(b"".join(os.fsencode(marks.get(word, word)) + b"\0" for word in order["view"]))
            argv = [argv[0], "--args", str(view), *argv[1:]]
        else:
            os.close(info)
            os.chdir(order["folder"])
        os.execve(argv[0], argv, order["env"])  # noqa: S606 - becoming the program is the purpose
    except OSError as error:
        os.write(2, f"cannot start {order['argv'][0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _listen(folder: str) -> int:
    os.chdir(folder)  # the path of a socket may be only so long
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        listener.bind(SOCKET_NAME)
    finally:
        os.umask(mask)
    listener.listen(8)
    return listener.detach()


def _descriptor_of(content: bytes) -> int:
    descriptor = os.memfd_create("order", 0)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _show(mounts: dict[str, str]) -> None:
    """Mount folders at places for this process and its children only: its user may not walk the way to them."""
    _call("a namespace for mounts", lambda libc: libc.unshare(_CLONE_NEWNS))
    _call("/", lambda libc: libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    for folder, place in mounts.items():
        words = (os.fsencode(folder), os.fsencode(place), None, _MS_BIND | _MS_REC, None)
        _call(place, functools.partial(lambda words, libc: int(libc.mount(*words)), words))


def _call(subject: str, call: Callable[[Any], int]) -> None:
    if call(ctypes.CDLL(None, use_errno=True)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), subject)


def _read_info(reading: int) -> dict[str, Any]:
    text = b""
    while select.select([reading], [], [], _INFO_SECONDS)[0]:
        piece = os.read(reading, 4096)
        text += piece
        if not piece or b"}" in piece:
            break
    try:
        info = json.loads(text)
    except ValueError:
        return {}
    return info if isinstance(info, dict) else {}


def _stat(pid: int) -> tuple[int, bool]:
    """When a process began, in clock ticks since boot (tells a reused id apart; 0: it is gone), and if it runs."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[19]), fields[0] not in (b"Z", b"X")
    except (OSError, ValueError, IndexError):
        return 0, False


def guard(order: dict[str, Any]) -> None:
    """End a sandbox with its owner's process: wait, and clean up.

    `order`: ``owner``, its process id and start time; ``folder`` of the sandbox, with ``process.json``; ``joins``, the
    files of its control groups; ``scratch``, the folder that is removed in the end.
    """
    import shutil  # it takes longer than all the rest; who starts a sandbox does not wait for it

    record = _record(order)
    if _wait_for_first([order["owner"], _process(record, "init")]) == 1:
        return  # the sandbox: its owner has ended it, and cleans up itself
    record = _record(order)
    init = _process(record, "init")
    if _lives(init):  # the runner: it ends its shells, and what they have started
        _send(init[0], signal.SIGINT)
        deadline = time.monotonic() + _GRACE_SECONDS
        while _lives(init) and time.monotonic() < deadline:
            time.sleep(_END_SECONDS)
    for role in ("init", "outer", "network"):
        process = _process(record, role)
        if _lives(process):
            _send(process[0], signal.SIGKILL)
    for _ in range(_ROUNDS):
        left: set[int] = set()
        for path in order["joins"]:
            with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
                left.update(int(line) for line in file.read().split())
        left.discard(os.getpid())
        if not left:
            break
        for pid in left:
            _send(pid, signal.SIGKILL)
        time.sleep(_END_SECONDS)
    for group in {os.path.dirname(path) for path in order["joins"]}:
        with contextlib.suppress(OSError):
            os.rmdir(group)
    shutil.rmtree(order["scratch"], ignore_errors=True)


def _record(order: dict[str, Any]) -> dict[str, Any]:
    try:
        with open(os.path.join(order["folder"], "process.json"), encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _process(record: dict[str, Any], role: str) -> list[int]:
    return [int(record.get(role, 0)), int(record.get(f"{role}_start", 0))]


def _wait_for_first(processes: list[list[int]]) -> int:
    waiting = select.poll()
    found: dict[int, int] = {}
    for index, process in enumerate(processes):
        try:
            descriptor = os.pidfd_open(process[0])
        except OSError:
            return index
        if not _lives(process):
            return index
        found[descriptor] = index
        waiting.register(descriptor, select.POLLIN)
    return found[waiting.poll()[0][0]]


def _lives(process: list[int]) -> bool:
    return _stat(process[0]) == (process[1], True)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        guard(json.loads(sys.argv[1]))
    else:
        main(json.load(sys.stdin))
