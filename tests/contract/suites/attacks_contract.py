"""Attacks on the confinement of Drydock's own sandboxes, by programs that run in them."""

from __future__ import annotations

from agent_core.testing.sandbox_contract import SandboxKit, drop_stream, output, run

_CALLS = """
import ctypes, mmap, os, platform, socket

for family in range(50):
    for protocol in range(30) if family == 16 else (0,):
        for kind in (1, 2, 3, 5):
            for half in (0, 1 << 32):  # the kernel looks at half of the register only
                found = ctypes.CDLL(None).syscall({"x86_64": 41, "aarch64": 198}[platform.machine()],
                    ctypes.c_long(family | half), ctypes.c_long(kind), ctypes.c_long(protocol))
                if found >= 0:
                    os.close(found)
                    break
            else:
                continue
            print(f"socket:{family}" + f":{protocol}" * (family == 16))
            break
libc = ctypes.CDLL(None, use_errno=True)
refused = {"x86_64": {"syslog": 103, "fanotify_init": 300, "bpf": 321, "userfaultfd": 323, "mount_setattr": 442},
    "aarch64": {"syslog": 116, "fanotify_init": 262, "bpf": 280, "userfaultfd": 282, "mount_setattr": 442}}
calls = {**refused[platform.machine()], "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427}
for name, number in calls.items():
    ctypes.set_errno(0)
    if libc.syscall(number, 3, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (1, 38):
        print(name)
if platform.machine() == "x86_64":
    # The same through the doors for programs of 32 bits, from machine code.
    place = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, mmap.PROT_READ | mmap.PROT_WRITE | 4)
    at = ctypes.addressof(ctypes.c_char.from_buffer(place))
    place[2048:2060] = b"".join(number.to_bytes(4, "little") for number in (40, 1, 0))
    for name, number, one in (("socket", 359, 40), ("socketcall", 102, 1), ("io_uring", 425, 3)):
        second = at + 2048 if name == "socketcall" else 1
        code = b"\\x53" + b"".join(
            op + value.to_bytes(4, "little") for op, value in ((b"\\xb8", number), (b"\\xbb", one), (b"\\xb9", second))
        ) + b"\\x31\\xd2\\xcd\\x80\\x5b\\xc3"
        place[: len(code)] = code
        child = os.fork()
        if child == 0:
            os._exit(0 if ctypes.CFUNCTYPE(ctypes.c_int)(at)() >= 0 else 9)
        if os.waitpid(child, 0)[1] == 0:
            print(f"32-bit {name}")
    if libc.syscall(0x40000000 + 41, 40, 1, 0) >= 0:
        print("x32")
"""

_LOOK = """
import os

for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        is_runner = b"\\0serve\\0" in open(f"/proc/{pid}/cmdline", "rb").read() and pid != "1"
        is_runner = is_runner or open(f"/proc/{pid}/comm").read().startswith("python") and int(pid) != os.getpid()
    except OSError:
        continue
    if is_runner:
        print("runner found")
        for name in ("mem", "environ", "maps", "auxv", "fd/0", "fdinfo/0", "map_files", "task/" + pid + "/mem"):
            try:
                path = f"/proc/{pid}/{name}"
                print("read of the runner:", name, os.listdir(path) if name == "map_files" else open(path, "rb"))
            except OSError:
                pass
        for name in os.listdir(f"/proc/{pid}/fd") if os.access(f"/proc/{pid}/fd", os.R_OK) else ():
            print("read of the runner: descriptor", name)
    for name in ("cwd", "root", "exe"):
        try:
            print(os.readlink(f"/proc/{pid}/{name}"))
        except OSError:
            pass
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            print(os.readlink(f"/proc/{pid}/fd/{name}"))
    except OSError:
        pass
"""
_IMPOSTOR = """
import os, select, socket

folder = "/.drydock/state"
for name in ("runner.sock", "runner.sock+"):
    stranger = socket.socket(socket.AF_UNIX)
    stranger.settimeout(5)
    try:
        stranger.connect(f"{folder}/{name}")
        if stranger.recv(1):
            print("the runner speaks to strangers")
    except OSError:
        pass
listening = []
for name in ("runner.sock", "runner.sock+"):
    if os.path.exists(f"{folder}/{name}"):
        os.unlink(f"{folder}/{name}")
    listening.append(socket.socket(socket.AF_UNIX))
    listening[-1].bind(f"{folder}/{name}")
    listening[-1].listen()
if os.fork():
    print("in its place")
    os._exit(0)
os.setsid()
null = os.open("/dev/null", os.O_RDWR)
for stream in range(3):
    os.dup2(null, stream)
while True:
    for listener in select.select(listening, [], [])[0]:
        caught, _ = listener.accept()
        hello = b'{"hello": {"protocol": 1, "boot": "another"}}'
        try:
            caught.send(len(hello).to_bytes(4, "big") + hello)
            caught.settimeout(5)
            if caught.recv(1):
                open("/workspace/caught", "a").write("somebody has spoken to a stranger")
        except OSError:
            pass  # whoever came has looked who listens, and has gone without a word
"""


class SandboxAttacksContract:
    """What a program in a confined sandbox tries, and does not get."""

    async def test_the_hypervisor_and_the_kernels_own_ways_cannot_be_called(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        await sandbox.request("file.write", {"path": "/workspace/attack.py", "mode": 0o600}, blob=_CALLS.encode())
        allowed = (await output(sandbox, "python3 attack.py")).split()
        assert [word for word in allowed if word.startswith("socket:")] == [
            *("socket:1", "socket:2", "socket:10"),
            *("socket:16:0", "socket:16:4"),
        ]
        assert [word for word in allowed if not word.startswith("socket:")] == []
        # What programs need goes on working.
        assert await output(sandbox, "python3 -c 'import socket; print(socket.if_nameindex())'") == "[(1, 'lo')]"

    async def test_nobody_inside_looks_into_the_runner_or_sees_where_the_host_keeps_things(
        self, kit: SandboxKit
    ) -> None:
        sandbox = kit.connect()
        await run(sandbox, "echo $LENT", args={"env": {"LENT": "a secret of another command"}})
        await sandbox.request("file.write", {"path": "/workspace/attack.py", "mode": 0o600}, blob=_LOOK.encode())
        seen = await output(sandbox, "python3 attack.py")
        assert "runner found" in seen
        assert "read of the runner" not in seen
        assert kit.data_dir not in seen

    async def test_the_runners_socket_is_the_servers_alone(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        await sandbox.request("file.write", {"path": "/workspace/attack.py", "mode": 0o600}, blob=_IMPOSTOR.encode())
        assert await output(sandbox, "python3 attack.py") == "in its place"
        assert sandbox.hello is not None
        boot = sandbox.hello.boot
        drop_stream(sandbox)
        assert await output(sandbox, "ls; cat caught 2>/dev/null || [ 1 ]") == "attack.py"
        assert sandbox.hello.boot == boot
