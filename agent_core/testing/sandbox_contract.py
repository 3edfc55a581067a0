"""The conformance suite of sandboxes: tests inherit from it and give it a fixture ``kit`` (see `SandboxKit`)."""

# ruff: noqa: S101 - these are tests, with a home that users of the library can import

from __future__ import annotations

import asyncio
import random
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent_core.errors import SandboxError, SandboxLostError, ToolError
from agent_core.runtime.channel.connection import ConnectionLimits, SandboxConnection
from agent_core.runtime.channel.tunnels import PortError
from agent_core.runtime.docker.images import DEFAULT_IMAGE
from agent_core.runtime.sandbox import (
    SandboxLimits,
    SandboxProvider,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
    TellsRunning,
)
from agent_core.runtime.snapshots import plant
from agent_core.runtime.transfers import list_folder, reading

LIMITS = SandboxLimits(
    memory=512 * 1024**2, cpus=2.0, processes=100, tmp_size=16 * 1024**2, start_seconds=30.0, stop_seconds=3.0
)


_ODD_FILES = r"""
mkdir -p a/b/empty 'odd
name' node_modules/x .git/objects locked; printf x > .git/objects/o; chmod 0444 .git/objects/o
head -c 9000000 /dev/urandom > large; : > empty; printf 1 > -dash; printf 2 > 'odd
name/ spaced  "quoted" \'; printf 3 > $'not-utf8-\xff\xfe'; printf 4 > "$(printf 'n%.0s' $(seq 200))"
printf 5 > a/tool; chmod 0751 a/tool; ln a/tool a/b/same; ln -s /etc/passwd out; ln -s a/tool in; ln -s nowhere lost
mkfifo pipe; printf 6 > locked/file; chmod 0400 locked/file; chmod 0555 locked; chmod 0711 a
printf 7 > node_modules/x/y; touch -d '2001-02-03 04:05:06' a/tool; touch -d '2002-02-03 04:05:06' a/b
"""
_LISTED = r"""
find . -mindepth 1 -type d -printf '%m %p\n' -o -type l -printf '%l %p\n' | LC_ALL=C sort; stat -c %Y a/b
find . -type f -printf '%m %n %Ts %p\n' | LC_ALL=C sort; find . -type f -print0 | LC_ALL=C sort -z | xargs -0 cksum
"""


async def _nothing() -> None:
    """It goes on as it is."""


@dataclass(eq=False)
class SandboxKit:
    """Makes connections for conversations of an instance of its own, and removes everything in the end.

    `confined` is False for a provider without isolation; `notices` holds ``(conversation, status id, text)``.
    """

    provider: SandboxProvider
    data_dir: str
    image: str = DEFAULT_IMAGE
    confined: bool = True
    instance: str = field(default_factory=lambda: f"test-{secrets.token_hex(6)}")
    notices: list[tuple[str, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._connections: list[SandboxConnection] = []

    def spec(self, conversation: str = "first", **changes: Any) -> SandboxSpec:
        spec = SandboxSpec(
            conversation, self.instance, image=self.image, data_dir=self.data_dir, network="none", limits=LIMITS
        )
        return replace(spec, **changes)

    def connect(
        self,
        conversation: str = "first",
        *,
        state: SandboxState | None = None,
        patience: ConnectionLimits | None = None,
        provider: SandboxProvider | None = None,
        **changes: Any,
    ) -> SandboxConnection:
        maker = provider or self.provider
        spec = self.spec(conversation, **changes)
        sandbox = maker.create(spec) if state is None else maker.restore(spec, state)

        def note(status: str, text: str) -> None:
            self.notices.append((conversation, status, text))

        connection = SandboxConnection(sandbox, on_status=note, limits=patience)
        self._connections.append(connection)
        return connection

    def statuses(self, conversation: str = "first") -> list[str]:
        return [status for name, status, _ in self.notices if name == conversation]

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
        await self.provider.reap(self.instance, [])
        await self.provider.close()


async def run(connection: SandboxConnection, command: str, **options: Any) -> dict[str, Any]:
    """Run a command in the default shell, for at most 30 seconds, and return the runner's result."""
    args = {"session": "default", "command": command, "timeout": 30, **options.pop("args", {})}
    return (await connection.request("shell.run", args, limit_seconds=60, **options)).result


async def output(connection: SandboxConnection, command: str) -> str:
    """What a command that must succeed prints, without surrounding space."""
    result = await run(connection, command)
    if result["exit_code"] != 0:
        raise AssertionError(f"{command!r} ended with {result}")
    return str(result["output"]).strip()


def drop_stream(connection: SandboxConnection) -> None:
    """Cut the stream of a connection, as a network does."""
    if connection._open_channel is not None:
        connection._open_channel._writer.transport.abort()


async def eventually(condition: Callable[[], Any], *, limit: float = 60.0) -> None:
    """Wait until a condition holds (it may be a coroutine function), looking often."""
    async with asyncio.timeout(limit):
        while True:
            is_true = condition()
            if asyncio.iscoroutine(is_true):
                is_true = await is_true
            if is_true:
                return
            await asyncio.sleep(0.01)


class SandboxLifecycleContract:
    """Start, find again, pause, stop, remove."""

    async def test_a_provider_says_that_it_works_here(self, kit: SandboxKit) -> None:
        found = await kit.provider.check()
        assert found.ok, found

    async def test_the_first_command_starts_the_sandbox_and_its_steps_are_told(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        assert await sandbox.sandbox.poll() is SandboxStatus.ABSENT
        assert await output(sandbox, "pwd") == sandbox.working_dir
        assert await sandbox.sandbox.poll() is SandboxStatus.RUNNING
        assert sandbox.hello is not None
        assert sandbox.hello.workspace == sandbox.working_dir
        assert kit.statuses()[0] == "STATUS$STARTING_RUNTIME"
        assert kit.statuses()[-2:] == ["STATUS$RUNTIME_STARTED", "STATUS$READY"]

    async def test_starts_at_the_same_time_make_one_sandbox(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        greetings = await asyncio.gather(*(sandbox.start() for _ in range(5)))
        assert len({greeting.boot for greeting in greetings}) == 1
        assert kit.statuses().count("STATUS$READY") == 1

    async def test_another_object_finds_the_sandbox_again_by_its_state(self, kit: SandboxKit) -> None:
        first = kit.connect()
        assert await output(first, "echo kept > file; KEPT=variable; echo $$") == await output(first, "echo $$")
        boot = first.hello.boot if first.hello else ""
        await first.close()
        second = kit.connect(state=dict(first.sandbox.state))
        assert await output(second, "cat file; echo $KEPT") == "kept\nvariable"
        assert second.hello is not None
        assert second.hello.boot == boot
        assert await second.lookup("first:never") == "unknown"

    async def test_an_object_made_anew_takes_over_the_sandbox_of_its_conversation(self, kit: SandboxKit) -> None:
        first = kit.connect()
        await output(first, "echo kept > file")
        await first.close()
        assert await output(kit.connect(), "cat file") == "kept"

    async def test_the_newest_stream_wins(self, kit: SandboxKit) -> None:
        first, second = kit.connect(), kit.connect()
        await first.start()
        pending = asyncio.create_task(run(first, "sleep 5", key="first:1"))
        await eventually(lambda: _is_running(first, "first:1"))
        await second.start()
        assert (await run(second, "echo second", args={"session": "second"}))["output"].strip() == "second"
        with pytest.raises(SandboxLostError, match="Another server"):
            await pending

    async def test_a_stopped_sandbox_keeps_its_workspace_and_starts_again(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=replace(LIMITS, stop_seconds=600.0))
        await output(sandbox, "mkdir -p a/b && echo kept > a/b/file && chmod 500 a; sleep 1000 &")
        await output(sandbox, "cat a/b/file")
        async with asyncio.timeout(60):  # what is asked to end does so, and need not be killed
            await sandbox.stop()
        assert await sandbox.sandbox.poll() is SandboxStatus.STOPPED
        assert kit.statuses()[-1] == "STATUS$STOPPED"
        assert await output(sandbox, "cat a/b/file; stat -c %a a; echo more > more; cat more") == "kept\n500\nmore"
        assert await sandbox.sandbox.poll() is SandboxStatus.RUNNING

    async def test_a_stopped_sandbox_is_found_again_too(self, kit: SandboxKit) -> None:
        first = kit.connect()
        await output(first, "echo kept > file")
        await first.stop()
        await first.close()
        second = kit.connect(state=dict(first.sandbox.state))
        assert await second.sandbox.poll() is SandboxStatus.STOPPED
        assert await output(second, "cat file") == "kept"

    async def test_a_paused_sandbox_does_nothing_until_it_is_needed(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        loop = "while :; do date +%s.%N >> ticks; sleep 0.01; done"
        await output(sandbox, f"({loop}) & until test -s ticks; do sleep 0.01; done")
        await sandbox.pause()
        await sandbox.pause()
        await asyncio.sleep(0.5)
        ticks = await output(sandbox, "wc -l < ticks")
        await output(sandbox, f"until test $(wc -l < ticks) -gt {ticks}; do sleep 0.01; done")
        gaps = "NR > 1 && $1 - last > longest {longest = $1 - last} {last = $1} END {print longest}"
        assert float(await output(sandbox, f"awk '{gaps}' ticks")) > 0.4

    async def test_what_is_frozen_for_want_of_room_stays_so_while_its_files_are_read(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        loop = "while :; do echo tick >> ticks; sleep 0.01; done"
        await output(sandbox, f"git init -q .; ({loop}) & until test -s ticks; do sleep 0.01; done")
        await sandbox.freeze("The disk is nearly full.")
        file = f"{sandbox.working_dir}/ticks"
        ticks = (await sandbox.request("file.read", {"path": file})).blob
        assert "ticks" in str((await sandbox.request("git.status", {"directory": "", "since": "commit"})).result)
        assert (await sandbox.request("search.grep", {"pattern": "tick", "limit": 9, "timeout": 9.0})).result["files"]
        assert [one["name"] for one in (await list_folder(sandbox))["entries"]] == [".git", "ticks"]
        async with reading(sandbox, "ticks") as ticking:
            assert b"".join([part async for part in ticking.parts()]) == ticks
        with pytest.raises(SandboxError, match="nearly full"):
            await sandbox.request("file.write", {"path": "other"}, blob=b"more")
        waiting = asyncio.create_task(run(sandbox, "tail -1 ticks", key="c:1"))
        await asyncio.sleep(0.1)
        assert (await sandbox.request("file.read", {"path": file})).blob == ticks
        await sandbox.resume()
        assert (await waiting)["output"].strip() == "tick"

    async def test_a_sandbox_that_its_provider_has_frozen_goes_on_when_it_is_needed(self, kit: SandboxKit) -> None:
        first = kit.connect()
        await output(first, "sleep 500 &")
        await first.close()
        await first.sandbox.pause()
        assert await first.sandbox.poll() is SandboxStatus.PAUSED
        second = kit.connect(state=dict(first.sandbox.state))
        assert await output(second, "jobs | wc -l") == "1"
        assert await second.sandbox.poll() is SandboxStatus.RUNNING

    async def test_a_server_that_is_gone_leaves_no_sandbox_frozen_for_the_next(self, kit: SandboxKit) -> None:
        first = kit.connect()
        await output(first, "sleep 500 &")
        await first.pause()
        await first.close()
        second = kit.connect(state=dict(first.sandbox.state))
        assert await output(second, "cut -d' ' -f3 /proc/$(jobs -p)/stat") == "S"

    async def test_a_paused_sandbox_can_be_stopped_and_removed(self, kit: SandboxKit) -> None:
        first, second = kit.connect("first"), kit.connect("second")
        await asyncio.gather(output(first, "echo kept > file"), second.start())
        await first.pause()
        await second.pause()
        await first.stop()
        assert await first.sandbox.poll() is SandboxStatus.STOPPED
        await second.destroy()
        assert await second.sandbox.poll() is SandboxStatus.ABSENT
        assert await output(first, "cat file") == "kept"

    async def test_removing_leaves_nothing_and_may_be_repeated(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        await output(sandbox, "echo gone > file")
        await sandbox.destroy()
        await sandbox.sandbox.destroy()
        await sandbox.sandbox.stop()
        assert await sandbox.sandbox.poll() is SandboxStatus.ABSENT
        with pytest.raises(SandboxLostError):
            await sandbox.request("ping", {})
        assert await kit.provider.reap(kit.instance, []) == []
        assert (await run(kit.connect(), "cat file"))["exit_code"] != 0

    async def test_reaping_removes_what_nobody_keeps_and_nothing_else(self, kit: SandboxKit) -> None:
        kept, lost, stopped = kit.connect("kept"), kit.connect("lost"), kit.connect("stopped")
        await asyncio.gather(*(output(each, "echo x > file") for each in (kept, lost, stopped)))
        await stopped.stop()
        if isinstance(kit.provider, TellsRunning):
            assert set(await kit.provider.running(kit.instance)) == {"kept", "lost"}
            assert not await kit.provider.running("some-other-instance")
        assert await kit.provider.reap("some-other-instance", []) == []
        assert await kit.provider.reap(kit.instance, ["kept"]) == ["lost", "stopped"]
        assert await lost.sandbox.poll() is SandboxStatus.ABSENT
        assert await output(kept, "cat file") == "x"

    async def test_a_snapshot_is_a_copy_with_a_name(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        await output(sandbox, "mkdir folder; echo x > folder/file; ln -s folder/file link; mkfifo pipe")
        first = await sandbox.sandbox.snapshot()
        second = await sandbox.sandbox.snapshot()
        assert first
        assert first != second
        assert await output(sandbox, "cat link") == "x"

    async def test_its_workspace_can_be_read_whatever_it_does_and_planted_in_another(
        self, kit: SandboxKit, tmp_path: Path
    ) -> None:
        first = kit.connect()
        await output(first, _ODD_FILES)
        wanted = await output(first, _LISTED)
        assert wanted.count("\n") > 12
        archives: list[Path] = []
        for settle in (_nothing, first.sandbox.pause, first.stop):
            await settle()
            status = await first.sandbox.poll()
            with (tmp_path / f"{len(archives)}.tar").open("wb") as file:
                assert await kit.provider.restore(kit.spec(), first.sandbox.state).archive(file) == []
            assert await first.sandbox.poll() is status
            archives.append(Path(file.name))
        assert {archive.read_bytes() for archive in archives} == {archives[0].read_bytes()}
        second = kit.connect("second")
        for attempt in archives[:2]:  # what was broken off is done again
            await plant(attempt, second)
            assert not attempt.exists()
            assert await output(second, _LISTED) == wanted
        await second.stop()
        await second.sandbox.destroy()
        with pytest.raises(SandboxError, match="gone"), (tmp_path / "none").open("wb") as file:
            await second.sandbox.archive(file)

    async def test_a_start_that_takes_too_long_ends_with_the_reason_and_leaves_nothing(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(limits=replace(LIMITS, start_seconds=0.001))
        began = time.monotonic()
        with pytest.raises(SandboxError) as caught:
            await sandbox.start()
        assert caught.value.code == "start_timeout"
        assert time.monotonic() - began < 25
        assert kit.statuses()[-1] == "STATUS$ERROR"
        await sandbox.close()
        assert await output(kit.connect(), "echo fine") == "fine"

    async def test_no_sandbox_is_made_to_look_something_up(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        assert await sandbox.lookup("first:1") == "lost"
        await sandbox.cancel("first:1")
        await sandbox.ack(["first:1"])
        assert await sandbox.sandbox.poll() is SandboxStatus.ABSENT


class SandboxRequestContract:
    """Commands, keys, output and cancelling over a real stream."""

    async def test_an_operation_with_a_key_runs_once(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        first = await run(sandbox, "echo x >> count; wc -l < count", key="first:1")
        again = await run(sandbox, "echo x >> count; wc -l < count", key="first:1")
        assert first["output"].strip() == again["output"].strip() == "1"
        assert await output(sandbox, "wc -l < count") == "1"
        assert await sandbox.lookup("first:1") == "done"
        await sandbox.ack(["first:1"])
        assert await sandbox.lookup("first:1") == "lost"

    async def test_a_stream_that_drops_loses_and_repeats_nothing(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        await sandbox.start()
        task = asyncio.create_task(run(sandbox, "echo x >> count; sleep 0.5; cat count", key="first:1"))
        await eventually(lambda: _is_running(sandbox, "first:1"))
        drop_stream(sandbox)
        result = await task
        assert result["output"].strip() == "x"
        assert await output(sandbox, "wc -l < count") == "1"

    async def test_a_result_that_nobody_fetched_is_still_there_after_a_restart_of_the_sandbox(
        self, kit: SandboxKit
    ) -> None:
        first = kit.connect()
        await run(first, "echo result", key="first:1")
        await first.stop()
        await first.close()
        second = kit.connect(state=dict(first.sandbox.state))
        assert await second.lookup("first:1") == "done"
        assert (await run(second, "echo something else", key="first:1"))["output"].strip() == "result"

    async def test_output_arrives_while_the_command_runs(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        chunks: list[str] = []
        task = asyncio.create_task(run(sandbox, "echo early; read line; echo late $line", on_output=chunks.append))
        await eventually(lambda: "early" in "".join(chunks))
        assert not task.done()
        await sandbox.request("shell.run", {"session": "default", "command": "now", "is_input": True}, limit_seconds=30)
        await task
        assert await output(sandbox, "echo still here") == "still here"

    async def test_a_hundred_megabytes_of_output_are_cut_and_cost_little(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        await sandbox.start()
        chunks = 0

        def listen(text: str) -> None:
            nonlocal chunks
            chunks += len(text)

        before = _resident()
        result = await run(sandbox, f"yes {'x' * 99} | head -c 100000000", on_output=listen)
        assert result["exit_code"] == 0
        assert len(result["output"]) < 60_000
        assert result["omitted"] > 90_000_000
        assert _resident() - before < 64 * 1024 * 1024
        assert await output(sandbox, "echo still here") == "still here"

    async def test_binary_output_does_no_harm(self, kit: SandboxKit) -> None:
        # The same bytes every time: one stream in thirty moves the cursor up last, and its END then stands in between.
        sandbox = kit.connect()
        noise = random.Random(1).randbytes(200_000)  # noqa: S311 - nothing secret
        path = f"{sandbox.working_dir}/noise"
        await sandbox.request("file.write", {"path": path}, blob=noise, limit_seconds=30)
        result = await run(sandbox, "cat noise; echo; echo END")
        assert result["exit_code"] == 0
        assert result["output"].rstrip().endswith("END")
        assert await output(sandbox, "echo still here") == "still here"

    async def test_files_of_any_bytes_go_both_ways(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        content = bytes(range(256)) * 4096
        path = f"{sandbox.working_dir}/deep/data.bin"
        await sandbox.request("file.write", {"path": path}, blob=content, limit_seconds=30)
        assert (await sandbox.request("file.read", {"path": path}, limit_seconds=30)).blob == content
        with pytest.raises(ToolError):
            await sandbox.request("file.read", {"path": f"{sandbox.working_dir}/none"}, limit_seconds=30)

    async def test_a_command_that_ignores_every_request_to_end_is_ended_at_once(self, kit: SandboxKit) -> None:
        sandbox = kit.connect()
        await output(sandbox, "true")
        mark = f"9{time.time_ns() % 10**8}"
        command = f"bash -c 'trap \"\" INT TERM HUP QUIT; while :; do sleep {mark}; done'"
        task = asyncio.create_task(run(sandbox, command, key="first:1"))
        count = f"pgrep -cfx 'sleep {mark}' || true"
        await eventually(lambda: _prints(sandbox, "second", count, "1"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: _prints(sandbox, "second", count, "0"))
        assert await output(sandbox, "echo still here") == "still here"

    async def test_an_unknown_operation_is_refused_in_words(self, kit: SandboxKit) -> None:
        with pytest.raises(ToolError, match="not known"):
            await kit.connect().request("no.such.thing", {}, limit_seconds=30)


class SandboxTogetherContract:
    """Requests beside one another; programs and ports beside requests."""

    async def test_requests_that_do_not_disturb_one_another_run_together_and_each_has_its_own_answer(
        self, kit: SandboxKit
    ) -> None:
        sandbox = kit.connect()
        await sandbox.start()
        waits = run(sandbox, "until [ -e flag ]; do sleep 0.02; done; echo seen", args={"session": "waiting"})
        waiting = asyncio.create_task(waits)
        edits = [
            {"command": "create", "path": f"{sandbox.working_dir}/file{number}", "file_text": f"text {number}\n"}
            for number in range(30)
        ]
        shells = [run(sandbox, f"echo shell {number}", args={"session": f"s{number}"}) for number in range(6)]
        pending = [sandbox.request("file.edit", edit) for edit in edits]
        done = await asyncio.gather(*pending, *shells)
        assert [reply.result["path"] for reply in done[: len(edits)]] == [edit["path"] for edit in edits]
        assert [shell["output"].strip() for shell in done[len(edits) :]] == [f"shell {number}" for number in range(6)]
        assert await output(sandbox, "cat file0 file29; touch flag") == "text 0\ntext 29"
        assert (await waiting)["output"].strip() == "seen"

    async def test_a_program_in_the_sandbox_can_be_spoken_to_and_ends_with_its_connection(
        self, kit: SandboxKit
    ) -> None:
        sandbox = kit.connect()
        order = {"command": ["sh", "-c", 'echo "$$ $OWN $PWD"; exec cat'], "env": {"OWN": "yes"}}
        program = await sandbox.start_program(order)
        data = bytes(range(256)) * 1000
        await program.write(data)
        received = b""
        while len(received) < len(data) or not received.endswith(data):
            received += await program.read()
        pid, own, place = received.removesuffix(data).decode().split()
        assert (own, place) == ("yes", sandbox.working_dir)
        program.close()
        gone = f"for i in $(seq 50); do kill -0 {pid} 2>&- || break; sleep 0.1; done; kill -0 {pid} 2>&- || echo gone"
        assert await output(sandbox, gone) == "gone"

    async def test_what_listens_is_listed_and_reached_without_any_network(self, kit: SandboxKit) -> None:
        sandbox = kit.connect(network="none")
        with pytest.raises(SandboxLostError):
            await sandbox.connect_port(80)  # no sandbox is made for it
        serve = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=0, bind='127.0.0.1')"
        await output(sandbox, "echo served > file")
        pid = int((await output(sandbox, f'python3 -c "{serve}" > log 2>&1 & echo $!')).split()[-1])

        async def port() -> int:
            found = (await sandbox.request("ports.list", {}, limit_seconds=30)).result["ports"]
            return next((int(one["port"]) for one in found if "http.server" in (one["command"] or "")), 0)

        async with asyncio.timeout(30):
            while not (number := await port()):  # noqa: ASYNC110 - a program says nothing when it listens
                await asyncio.sleep(0.05)
        connection = await sandbox.connect_port(number)
        await connection.write(b"GET /file HTTP/1.0\r\n\r\n")
        received = b""
        while data := await connection.read():
            received += data
        assert received.endswith(b"\r\n\r\nserved\n")
        await output(sandbox, f"kill {pid}; wait {pid}; true")
        with pytest.raises(PortError):
            await sandbox.connect_port(number)


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


class SandboxBoundsContract:
    """What a confined sandbox cannot take."""

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


async def _is_running(sandbox: SandboxConnection, key: str) -> bool:
    return await sandbox.lookup(key) == "running"


async def _prints(sandbox: SandboxConnection, session: str, command: str, text: str) -> bool:
    return bool((await run(sandbox, command, args={"session": session}))["output"].strip() == text)


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
