"""The part of the sandboxes' conformance suite that is about isolation; for all providers that confine."""

# ruff: noqa: S101 - these are tests, with a home that users of the library can import

from __future__ import annotations

import asyncio
import re

import pytest

from agent_core.errors import SandboxError
from agent_core.testing.sandbox_kit import SandboxKit, output, run


class SandboxIsolationContract:
    """What a confined sandbox cannot see or do."""

    async def test_nothing_of_the_servers_environment_gets_in(
        self, kit: SandboxKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DRYDOCK_SECRET_OF_THE_SERVER", "5ecret")
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:1")
        sandbox = kit.connect(environment={"MINE": "given to it"})
        environment = await output(sandbox, "env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
        assert "5ecret" not in environment
        assert "proxy.invalid" not in environment
        assert "MINE=given to it" in environment

    async def test_its_user_has_no_privileges_and_cannot_get_any(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        assert await output(sandbox, "id -u") == "1000"
        status = await output(sandbox, "grep -E '^(Cap|NoNewPrivs)' /proc/self/status")
        assert re.findall(r"Cap(?:Inh|Prm|Eff|Bnd|Amb):\s+0+$", status, re.MULTILINE) == re.findall(
            r"Cap\w+:.*$", status, re.MULTILINE
        )
        assert "NoNewPrivs:\t1" in status
        assert (await run(sandbox, "unshare -Urm true || mount -t tmpfs none /mnt || chroot / true"))["exit_code"] != 0

    async def test_system_calls_are_filtered(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        assert await output(sandbox, "grep ^Seccomp: /proc/self/status") == "Seccomp:\t2"
        add_key = {"x86_64": 248, "aarch64": 217}
        probe = (
            "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); "
            f"number = {add_key}[os.uname().machine]; "
            "print(libc.syscall(number, b'user', b'name', b'x', 1, -3), ctypes.get_errno())"
        )
        assert await output(sandbox, f'python3 -c "{probe}"') == "-1 1"

    async def test_the_host_is_not_in_sight(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        assert (await run(sandbox, f"ls {kit.data_dir}"))["exit_code"] != 0
        assert (await run(sandbox, "ls /var/run/docker.sock /run/docker.sock 2>/dev/null"))["output"].strip() == ""
        assert (await run(sandbox, "cat /etc/shadow"))["exit_code"] != 0
        assert (await run(sandbox, "ls /root/* 2>/dev/null"))["exit_code"] != 0
        assert "pytest" not in await output(sandbox, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")

    async def test_system_folders_and_the_runners_code_cannot_be_changed(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        for path in ("/usr/x", "/etc/x", "/x", "/.drydock/x", "/.drydock/runner/x", "/.drydock/runner/wire.py"):
            assert (await run(sandbox, f"echo x >> {path}"))["exit_code"] != 0, path

    async def test_two_conversations_share_nothing(self, kit: SandboxKit) -> None:
        one, two = kit.connect("one"), kit.connect("two")
        for place in ("/tmp", "/workspace", "~", "/dev/shm"):  # noqa: S108 - inside the sandbox
            await output(one, f"echo secret > {place}/of-one")
            assert (await run(two, f"cat {place}/of-one"))["exit_code"] != 0, place
        await output(one, "sleep 4711 &")
        assert "4711" not in await output(two, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")

    async def test_no_network_means_no_network(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(network="none")
        devices = await output(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1")
        assert devices.split() == ["lo"]

    async def test_a_service_on_the_hosts_loopback_cannot_be_reached(self, kit: SandboxKit) -> None:
        async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"the server itself")
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            sandbox = kit.connect(network="full")
            reached = await run(sandbox, f"timeout 2 bash -c 'cat < /dev/tcp/127.0.0.1/{port}'")
            assert reached["exit_code"] != 0
            assert "server itself" not in reached["output"]
        finally:
            server.close()

    async def test_temporary_files_are_bounded(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        full = await run(sandbox, "head -c 100000000 /dev/zero > /tmp/big")
        assert full["exit_code"] != 0
        assert "No space left" in full["output"]
        assert await output(sandbox, "rm /tmp/big; echo x > file; cat file") == "x"

    async def test_memory_is_bounded(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        greedy = await run(sandbox, "python3 -c 'b = bytearray(700 * 1024**2); print(len(b))'")
        assert greedy["exit_code"] != 0
        assert str(700 * 1024**2) not in greedy["output"]
        assert await output(sandbox, "python3 -c 'b = bytearray(100 * 1024**2); print(len(b))'") == str(100 * 1024**2)

    async def test_memory_file_systems_cannot_be_used_without_bound(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        for place in ("/dev/shm", "/dev", "/run", "/"):  # noqa: S108 - inside the sandbox
            filled = await run(sandbox, f"head -c 600000000 /dev/zero > {place}/big")
            assert filled["exit_code"] != 0, place
        assert await output(sandbox, "rm -f /dev/shm/big; echo fine") == "fine"

    async def test_a_fork_bomb_ends_in_errors_and_the_sandbox_goes_on(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        await output(sandbox, "echo kept > file")
        bomb = "bomb() { bomb | bomb & }; bomb"
        try:
            await sandbox.request("shell.run", {"session": "default", "command": bomb, "timeout": 2}, limit_seconds=20)
        except SandboxError:
            await sandbox.stop()  # its runner could not do without another process: a defined end
        await asyncio.sleep(0.5)
        try:
            assert await output(sandbox, "cat file") == "kept"
        except (SandboxError, AssertionError):
            await sandbox.stop()
            assert await output(sandbox, "cat file") == "kept"
