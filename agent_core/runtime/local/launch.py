"""Program that starts one local sandbox and ends at once; it reads its order, JSON, from its standard input.

Nothing of a multi-threaded process is forked so, and what it starts has a session of its own and outlives the server.
Writes a record of it, ``process.json``. Standard library only.
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
_MTU = 65520
_LINK = "link.sock"
_READY = b"1"  # as slirp4netns says it
_REASON = 500
_LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
INFO_MARK = "@info-fd@"
SOCKET_MARK = "@socket-fd@"
SOCKET_NAME = "runner.sock"
FILTER_MARK = "@filter-fd@"
MISSING = "no-network"
"""File in a sandbox's folder that says why it has no network, where it was to have one."""


def main(order: dict[str, Any]) -> None:
    """Carry out an order of `launch_order`.

    ``argv`` and ``env`` are the program's; ``view`` has bubblewrap's arguments, which go through a descriptor so that
    no path of the host shows in its command line (empty: no bubblewrap, and ``cwd`` is where it starts); ``folder`` is
    where ``process.json`` and the log are written; ``uid`` is whom to run as, or None; ``mounts`` are folders and the
    places where a root server shows them to that user; ``joins`` are files of control groups; ``limits`` resource
    limits by name; ``network`` (empty: none) has the ``program`` slirp4netns, our programs ``link`` and ``border``
    (empty: the host may be reached), and what the border takes; ``filter`` is the program for seccomp in hexadecimal
    digits; ``guard`` has the ``program`` that ends the sandbox with its owner, and its ``order`` (empty: it outlives
    the owner).
    """
    _close_inherited()
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


def _start_guard(guard: dict[str, Any]) -> None:
    if os.fork() != 0:
        return
    try:
        os.setsid()
        os.chdir("/")
        for stream in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        words = [sys.executable, "-I", "-S", guard["program"], json.dumps(guard["order"])]
        os.execve(words[0], words, {})  # noqa: S606 - becoming the program is the purpose
    finally:
        os._exit(127)


def _close_inherited() -> None:
    """Close all but the standard streams: what is started would hold open what an event loop has handed on."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
                os.close(int(name))


def _write_record(order: dict[str, Any], processes: dict[str, int]) -> None:
    record = dict(processes)
    record.update({f"{role}_start": _start_time(pid) for role, pid in processes.items()})
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
        link = _load(order["network"]["link"])  # before the user changes, who may not read our files
        border = _load(order["network"]["border"]) if order["network"]["border"] else None
        _enter_link_folder(order)
        # slirp4netns hides the host's folders from itself, and where a mount is shared with the host (an engine's
        # containers are) it would take it away from everybody: not so from a view of its own.
        with contextlib.suppress(OSError):
            _show({})
            _make_tun()
        if order["uid"] is not None:
            _change_user(order["uid"])
        _enter(owner, _CLONE_NEWUSER, "the sandbox's users")
        words = ["--disable-host-loopback", "--enable-sandbox", "--enable-seccomp", f"--mtu={_MTU}"]
        if _has_tun():
            _prepare_network(order, namespace, border, None)
            os.chdir("/")
            os.set_inheritable(namespace, True)
            words += ["--configure", "--netns-type=path", f"/proc/self/fd/{namespace}", "tap0"]
        else:
            _prepare_network(order, namespace, border, link)
            words += ["--target-type=bess", _LINK]
        os.set_inheritable(ready, True)
        argv = [order["network"]["program"], f"--ready-fd={ready}", *words]
        os.execve(argv[0], argv, {})  # noqa: S606 - becoming the program is the purpose
    except OSError as error:
        os.write(ready, str(error).encode("utf-8", "replace")[:_REASON])
    finally:
        os._exit(127)


def _prepare_network(order: dict[str, Any], namespace: int, border: Any, link: Any) -> None:
    """Set the border in the sandbox's network and, with `link`, its device, for which a process of ours stays."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _call("the end of its parent", lambda libc: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))
            _enter(namespace, _CLONE_NEWNET, "the sandbox's network")
            if border is not None:
                border.keep_in(order["network"]["resolver"], order["network"]["refused"])
            frames = link.make_link() if link is not None else None
            os.write(writing, _READY)
            os.close(writing)
            if link is not None:
                link.relay(frames, link.connect(_LINK, _NETWORK_SECONDS))
        except (OSError, ValueError) as error:
            os.write(writing, str(error).encode()[:_REASON])
        finally:
            os._exit(0)
    os.close(writing)
    reason = os.read(reading, _REASON) if select.select([reading], [], [], _NETWORK_SECONDS)[0] else b"no answer"
    os.close(reading)
    if link is None:
        os.waitpid(child, 0)
    if reason != _READY:
        raise OSError(reason.decode("utf-8", "replace") or "the network could not be prepared")


def _load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - it is a file of Python
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _enter_link_folder(order: dict[str, Any]) -> None:
    folder = os.path.join(order["folder"], "network")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    if order["uid"] is not None:
        os.chown(folder, order["uid"], order["uid"])
    os.chdir(folder)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_LINK)


def _make_tun() -> None:
    """A device for networks that the sandbox's user may open, in this process's own view only; needs root."""
    _call("a folder for /dev/net/tun", lambda libc: libc.mount(b"tmpfs", _DEV_NET, b"tmpfs", _MS_NOEXEC, b"mode=755"))
    os.mknod(_TUN, 0o666 | stat.S_IFCHR, os.makedev(10, 200))
    os.chmod(_TUN, 0o666)  # noqa: S103 - whatever the umask says; nobody else sees this one


def _has_tun() -> bool:
    try:
        os.close(os.open(_TUN, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _enter(namespace: int, kind: int, subject: str) -> None:
    _call(subject, lambda libc: libc.setns(namespace, kind))


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
        file.write(str(order["oom_score_adj"]))


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
            os.chdir(order["cwd"])
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


def _start_time(pid: int) -> int:
    """When a process began, in clock ticks since boot (0: it is gone); tells a reused id apart."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    main(json.load(sys.stdin))
