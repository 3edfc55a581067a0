"""The connection to a sandbox: lazy start, one start for many, attaching again, nothing twice, clear ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from agent_core.errors import SandboxAwayError, SandboxClosedError, SandboxError, SandboxLostError, ToolError
from agent_core.runtime.channel.channel import ChannelLimits
from agent_core.runtime.channel.connection import ConnectionLimits, SandboxConnection
from agent_core.runtime.sandbox import SandboxLimits, SandboxSpec, SandboxStatus
from agent_core.testing.fake_sandbox import (
    BROKEN,
    NEVER_READY,
    SLOW,
    FakeAnswer,
    FakeBehaviour,
    FakeHandler,
    FakeRequest,
    FakeRunner,
    FakeSandbox,
)
from agent_core.tools.context import SandboxAccess
from tests.waiting import ticks, until

QUICK = ConnectionLimits(
    request_seconds=5, reattach_seconds=1, ping_seconds=0.2, channel=ChannelLimits(hello_seconds=1, silence_seconds=5)
)


class Gate:
    """An operation that ends when the test says so."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, call: FakeRequest) -> FakeAnswer:
        call.output("begun")
        await self.open.wait()
        return {"status": "completed", "output": "done"}


async def echo(call: FakeRequest) -> FakeAnswer:
    return {"args": dict(call.args)}


async def frozen(call: FakeRequest) -> FakeAnswer:
    return {"frozen": True}


def spec(**changes: Any) -> SandboxSpec:
    values: dict[str, Any] = {"limits": SandboxLimits(start_seconds=0.1), **changes}
    return SandboxSpec("conversation", "instance", "image", "/nowhere", **values)


class Rig:
    """A connection to a fake sandbox and what was told of it."""

    def __init__(self, behaviour: FakeBehaviour | None = None, limits: ConnectionLimits = QUICK) -> None:
        self.gate = Gate()
        self.sandbox = FakeSandbox(spec(), {"echo": echo, "file.read": echo, "shell.run": self.gate}, behaviour)
        self.told: list[tuple[str, str]] = []
        self.connection = SandboxConnection(
            self.sandbox, on_status=lambda status, text: self.told.append((status, text)), limits=limits
        )

    @property
    def statuses(self) -> list[str]:
        return [status for status, _ in self.told]

    async def until_running(self, count: int = 1) -> None:
        await until(lambda: len(self.sandbox.runner.ran) >= count)


@asynccontextmanager
async def rig(behaviour: FakeBehaviour | None = None, limits: ConnectionLimits = QUICK) -> AsyncIterator[Rig]:
    made = Rig(behaviour, limits)
    try:
        yield made
    finally:
        made.sandbox.runner.mute = False
        await made.connection.close()
        await made.sandbox.kill()


async def test_the_first_request_starts_the_sandbox_and_tells_the_steps() -> None:
    async with rig() as it:
        assert not it.connection.is_ready
        reply = await it.connection.request("echo", {"n": 1})
        assert reply.result == {"args": {"n": 1}}
        assert it.statuses == ["STATUS$STARTING_RUNTIME", "STATUS$RUNTIME_STARTED", "STATUS$READY"]
        assert it.connection.is_ready


async def test_many_requests_at_once_share_one_slow_start() -> None:
    async with rig(SLOW) as it:
        await asyncio.gather(*(it.connection.request("echo", {"n": n}) for n in range(20)), it.connection.start())
        assert it.sandbox.starts == 1
        assert it.sandbox.attaches == 1


async def test_a_caller_that_gives_up_does_not_end_the_start_for_others() -> None:
    async with rig(SLOW) as it:
        first = asyncio.create_task(it.connection.request("echo", {}))
        second = asyncio.create_task(it.connection.request("echo", {}))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).result == {"args": {}}
        assert it.sandbox.starts == 1


async def test_an_extra_listener_hears_the_start_it_asked_for() -> None:
    async with rig() as it:
        heard: list[str] = []
        await it.connection.start(lambda status, _text: heard.append(status))
        assert heard[-1] == "STATUS$READY"
        await it.connection.stop()
        assert heard[-1] == "STATUS$READY"


async def test_a_start_that_fails_says_why_to_all_and_the_next_request_tries_again() -> None:
    async with rig(BROKEN) as it:
        with pytest.raises(SandboxError, match=r"on fire.*water") as caught:
            await it.connection.request("echo", {})
        assert caught.value.code == "engine_unavailable"
        assert it.told[-1] == ("STATUS$ERROR", "The engine is on fire. Fetch some water.")
        it.sandbox.behaviour = FakeBehaviour()
        assert (await it.connection.request("echo", {})).result == {"args": {}}


async def test_a_sandbox_that_never_gets_ready_ends_in_a_named_cause() -> None:
    async with rig(NEVER_READY) as it:
        with pytest.raises(SandboxError) as caught:
            await it.connection.start()
        assert caught.value.code == "start_timeout"


async def test_a_dropped_stream_is_replaced_and_the_operation_is_not_run_again() -> None:
    async with rig() as it:
        heard: list[str] = []
        asked = asyncio.create_task(it.connection.request("shell.run", {}, key="c:1", on_output=heard.append))
        await it.until_running()
        await it.sandbox.runner.drop()
        await until(lambda: it.sandbox.attaches == 2)
        it.gate.open.set()
        assert (await asked).result["output"] == "done"
        assert len(it.sandbox.runner.ran) == 1
        assert it.sandbox.starts == 1


def drop_in_each(runner: FakeRunner) -> None:
    """Have the stream drop while an operation runs, each time."""
    drops: set[asyncio.Task[None]] = set()

    def lossy(handler: FakeHandler) -> FakeHandler:
        async def run(call: FakeRequest) -> FakeAnswer:
            drops.add(asyncio.create_task(runner.drop()))
            return await handler(call)

        return run

    runner.handlers.update({name: lossy(handler) for name, handler in runner.handlers.items()})


async def test_a_lossy_stream_still_gives_each_result_once() -> None:
    async with rig() as it:
        drop_in_each(it.sandbox.runner)
        it.gate.open.set()
        for number in range(5):
            reply = await it.connection.request("shell.run", {}, key=f"c:{number}")
            assert reply.result["output"] == "done"
        assert [call.key for call in it.sandbox.runner.ran] == [f"c:{number}" for number in range(5)]


async def test_a_request_without_a_key_is_not_run_twice_either() -> None:
    async with rig() as it:
        asked = asyncio.create_task(it.connection.request("shell.run", {}))
        await it.until_running()
        await it.sandbox.runner.drop()
        it.gate.open.set()
        await asked
        assert len(it.sandbox.runner.ran) == 1
        key = it.sandbox.runner.ran[0].key
        assert key is not None
        await it.connection.request("file.read", {})
        assert it.sandbox.runner.acked == [key]


async def test_a_sandbox_that_ends_fails_what_is_under_way_and_is_replaced_for_the_next() -> None:
    async with rig() as it:
        asked = asyncio.create_task(it.connection.request("shell.run", {}, key="c:1"))
        await it.until_running()
        await it.sandbox.kill(SandboxStatus.ABSENT)
        with pytest.raises(SandboxLostError):
            await asked
        assert it.statuses[-1] == "STATUS$ERROR_RUNTIME_DISCONNECTED"
        assert (await it.connection.request("echo", {})).result == {"args": {}}
        assert it.sandbox.starts == 2
        assert it.statuses[-1] == "STATUS$READY"


async def test_a_runner_that_was_restarted_does_not_run_an_unfinished_operation_again() -> None:
    async with rig() as it:
        asked = asyncio.create_task(it.connection.request("shell.run", {}, key="c:1"))
        await it.until_running()
        await it.sandbox.runner.restart()
        with pytest.raises(SandboxLostError, match="started anew"):
            await asked
        assert len(it.sandbox.runner.ran) == 1


async def test_a_runner_that_was_restarted_still_gives_a_finished_result() -> None:
    async with rig() as it:
        it.gate.open.set()
        await it.connection.request("shell.run", {}, key="c:1")
        await it.sandbox.runner.restart()
        assert await it.connection.lookup("c:1") == "done"
        assert (await it.connection.request("shell.run", {}, key="c:1")).result["output"] == "done"
        assert len(it.sandbox.runner.ran) == 1


async def test_an_idle_sandbox_that_ends_unnoticed_is_replaced_without_an_error() -> None:
    async with rig() as it:
        await it.connection.start()
        await it.sandbox.kill()
        assert (await it.connection.request("echo", {})).result == {"args": {}}


async def test_a_sandbox_that_has_started_anew_is_prepared_before_the_request_that_woke_it() -> None:
    async with rig() as one:
        await one.connection.start()
        order: list[str] = []

        async def prepare(sandbox: SandboxAccess) -> None:
            assert (await sandbox.request("echo", {"a": 1})).result == {"args": {"a": 1}}
            order.append("prepared")

        async def ask(word: str) -> None:
            await one.connection.request("echo", {"word": word})
            order.append(word)

        one.connection.prepare = prepare
        await ask("before")
        await one.sandbox.stop()
        await asyncio.gather(ask("after"), ask("after"))
        assert order == ["before", "prepared", "after", "after"]


async def test_a_sandbox_that_ends_while_it_is_prepared_is_lost() -> None:
    async with rig() as one:
        await one.connection.start()

        async def prepare(sandbox: SandboxAccess) -> None:
            await one.sandbox.stop()
            await sandbox.request("echo", {})

        one.connection.prepare = prepare
        await one.sandbox.stop()
        with pytest.raises(SandboxLostError, match="lost while it was set up"):
            await one.connection.request("echo", {})
        one.connection.prepare = None
        assert (await one.connection.request("echo", {})).result == {"args": {}}


async def test_a_sandbox_that_cannot_be_reached_again_counts_as_lost_in_time() -> None:
    async with rig(limits=ConnectionLimits(reattach_seconds=0.2, channel=ChannelLimits(hello_seconds=0.05))) as it:
        asked = asyncio.create_task(it.connection.request("shell.run", {}, key="c:1"))
        await it.until_running()
        it.sandbox.behaviour = FakeBehaviour(attach_seconds=60)
        await it.sandbox.runner.drop()
        began = time.monotonic()
        with pytest.raises(SandboxLostError, match="could not be reached again"):
            await asked
        assert time.monotonic() - began < 50
        it.sandbox.behaviour = FakeBehaviour()
        assert await it.connection.lookup("c:1") == "lost"  # it was stopped: nobody attaches to a silent one again
        assert it.sandbox.starts == 2


async def test_a_server_that_takes_over_is_not_fought_with() -> None:
    async with rig() as it:
        asked = asyncio.create_task(it.connection.request("shell.run", {}, key="c:1"))
        await it.until_running()
        other = SandboxConnection(it.sandbox, limits=QUICK)
        await other.start()
        with pytest.raises(SandboxLostError, match="Another server"):
            await asked
        assert await other.lookup("c:1") == "running"
        assert it.sandbox.attaches == 2
        await other.close()


async def test_lookup_tells_running_done_and_lost_apart() -> None:
    async with rig() as it:
        assert await it.connection.lookup("c:1") == "lost"
        assert it.sandbox.starts == 0
        asked = asyncio.create_task(it.connection.request("shell.run", {}, key="c:1"))
        await it.until_running()
        assert await it.connection.lookup("c:1") == "running"
        it.gate.open.set()
        await asked
        assert await it.connection.lookup("c:1") == "done"
        await it.connection.ack(["c:1"])
        assert await it.connection.lookup("c:1") == "lost"


async def test_only_a_sandbox_that_was_at_work_all_the_time_knows_that_something_never_began() -> None:
    async with rig() as it:
        await it.connection.start()
        for left, known in ((None, "unknown"), (SandboxStatus.STOPPED, "lost"), (SandboxStatus.ABSENT, "lost")):
            await it.connection.close()
            if left is not None:
                await it.sandbox.kill(left)
            it.connection = SandboxConnection(it.sandbox, limits=QUICK)
            await it.connection.start()
            assert await it.connection.lookup("c:1") == known


@pytest.mark.parametrize("left", [SandboxStatus.STOPPED, SandboxStatus.ABSENT])
async def test_what_was_found_begun_is_not_begun_again_in_another_sandbox(left: SandboxStatus) -> None:
    async with rig() as it:
        first = asyncio.create_task(it.connection.request("shell.run", {}, key="c:1"))
        await it.until_running()
        second = SandboxConnection(it.sandbox, limits=QUICK)
        assert await second.lookup("c:1") == "running"
        with pytest.raises(SandboxLostError, match="Another server"):
            await first
        await it.sandbox.kill(left)
        with pytest.raises(SandboxLostError):
            await second.request("shell.run", {}, key="c:1")
        await second.request("echo", {}, key="c:2")
        with pytest.raises(SandboxLostError):
            await second.request("shell.run", {}, key="c:1")
        assert [call.key for call in it.sandbox.runner.ran].count("c:1") == 1
        await second.close()


async def test_cancelling_the_caller_interrupts_what_runs() -> None:
    async with rig() as it:
        asked = asyncio.create_task(it.connection.request("shell.run", {}, key="c:1"))
        await it.until_running()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (await it.connection.request("shell.run", {}, key="c:1")).result["status"] == "interrupted"


async def test_cancel_by_key_gives_the_caller_what_there_is() -> None:
    async with rig() as it:
        asked = asyncio.create_task(it.connection.request("shell.run", {}, key="c:1"))
        await it.until_running()
        await it.connection.cancel("c:1")
        assert (await asked).result["status"] == "interrupted"


async def test_the_outer_limit_stops_the_operation_of_a_living_runner() -> None:
    async with rig() as it:
        with pytest.raises(SandboxError, match=r"did not finish shell\.run") as caught:
            await it.connection.request("shell.run", {}, key="c:1", limit_seconds=0.05)
        assert caught.value.code == "request_timeout"
        assert it.sandbox.runner.cancelled == ["c:1"]
        assert it.connection.is_ready


async def test_a_runner_without_a_sign_of_life_is_stopped_and_started_again() -> None:
    async with rig() as it:
        await it.connection.start()
        it.sandbox.runner.mute = True
        with pytest.raises(SandboxLostError, match="did not answer"):
            await it.connection.request("echo", {}, limit_seconds=0.05)
        assert it.sandbox.status is SandboxStatus.STOPPED
        assert (await it.connection.request("echo", {})).result == {"args": {}}
        assert it.sandbox.starts == 2


async def test_a_paused_sandbox_goes_on_with_the_next_request() -> None:
    async with rig() as it:
        await it.connection.start()
        await it.connection.pause()
        assert it.sandbox.status is SandboxStatus.PAUSED
        assert not it.connection.is_ready
        assert (await it.connection.request("echo", {})).result == {"args": {}}
        assert it.sandbox.starts == 1
        assert it.sandbox.attaches == 1


async def test_a_sandbox_that_ended_while_paused_is_started_again() -> None:
    async with rig() as it:
        await it.connection.start()
        await it.connection.pause()
        await it.sandbox.kill(SandboxStatus.ABSENT)
        assert (await it.connection.request("echo", {})).result == {"args": {}}


async def test_stop_fails_what_is_under_way_and_the_next_request_starts_again() -> None:
    async with rig() as it:
        asked = asyncio.create_task(it.connection.request("shell.run", {}, key="c:1"))
        await it.until_running()
        await it.connection.stop()
        with pytest.raises(SandboxLostError):
            await asked
        assert it.statuses[-1] == "STATUS$STOPPED"
        assert (await it.connection.request("echo", {})).result == {"args": {}}


async def test_what_is_asked_while_the_sandbox_is_being_stopped_waits_and_starts_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as it:
        await it.connection.request("echo", {})
        ended, goes_on, stop = asyncio.Event(), asyncio.Event(), it.sandbox.stop

        async def slowly() -> None:
            ended.set()
            await goes_on.wait()
            await stop()

        monkeypatch.setattr(it.sandbox, "stop", slowly)
        stopping = asyncio.create_task(it.connection.stop())
        await ended.wait()
        asked = asyncio.create_task(it.connection.request("echo", {"n": 1}))
        await ticks(20)
        assert it.sandbox.starts == 1  # not attached to what is about to end
        goes_on.set()
        await stopping
        assert (await asked).result == {"args": {"n": 1}}
        assert it.sandbox.starts == 2


async def test_who_waits_for_a_start_that_the_close_ends_is_told_that_it_is_closed() -> None:
    async with rig(NEVER_READY, replace(QUICK, channel=ChannelLimits(hello_seconds=60))) as it:
        asked = asyncio.create_task(it.connection.request("echo", {}))
        while not it.statuses:  # noqa: ASYNC110 - the start tells nobody else
            await asyncio.sleep(0)
        await it.connection.close()
        with pytest.raises(SandboxClosedError):
            await asked


async def test_close_leaves_the_sandbox_running_for_another_connection() -> None:
    async with rig() as it:
        asked = asyncio.create_task(it.connection.request("shell.run", {}, key="c:1"))
        await it.until_running()
        await it.connection.close()
        with pytest.raises(SandboxLostError):
            await asked
        with pytest.raises(SandboxLostError, match="closed"):
            await it.connection.request("echo", {})
        assert it.sandbox.status is SandboxStatus.RUNNING
        other = SandboxConnection(it.sandbox, limits=QUICK)
        assert await other.lookup("c:1") == "running"
        it.gate.open.set()
        assert (await other.request("shell.run", {}, key="c:1")).result["output"] == "done"
        assert len(it.sandbox.runner.ran) == 1
        await other.close()


async def test_closing_during_a_start_ends_the_start_and_its_callers() -> None:
    async with rig(SLOW) as it:
        asked = asyncio.create_task(it.connection.request("echo", {}))
        await ticks(20)
        await it.connection.close()
        with pytest.raises(SandboxLostError):
            await asked


async def test_a_runner_of_another_protocol_version_is_restarted_once() -> None:
    async with rig() as it:
        it.sandbox.runner.hello = {"protocol": 99}
        with pytest.raises(SandboxError) as caught:
            await it.connection.start()
        assert caught.value.code == "protocol_version"
        assert it.sandbox.starts == 2
        it.sandbox.runner.hello = {}
        await it.connection.start()


async def test_a_refused_request_is_the_callers_error_and_nothing_else_suffers() -> None:
    async with rig() as it:
        with pytest.raises(ToolError, match="unknown operation"):
            await it.connection.request("no.such.operation", {})
        assert it.connection.is_ready


async def test_a_listener_that_fails_does_not_stop_the_start(caplog: pytest.LogCaptureFixture) -> None:
    async with rig() as it:

        def broken(_status: str, _text: str) -> None:
            raise RuntimeError("no")

        await it.connection.start(broken)
        assert it.connection.is_ready
        assert "listener to the sandbox's status failed" in caplog.text


async def test_a_stream_that_drops_for_every_attempt_ends_as_lost() -> None:
    async with rig(limits=ConnectionLimits(attempts=2, reattach_seconds=1)) as it:
        drop_in_each(it.sandbox.runner)
        it.sandbox.runner.handlers["file.read"] = it.sandbox.runner.handlers["shell.run"]  # never ends, always drops
        with pytest.raises(SandboxLostError, match="dropped 2 times"):
            await it.connection.request("file.read", {})


async def test_while_it_is_frozen_actions_wait_reads_are_answered_and_the_rest_is_refused() -> None:
    async with rig(limits=replace(QUICK, frozen_seconds=0.2)) as it:
        it.sandbox.runner.handlers |= {"processes.freeze": frozen, "processes.thaw": echo}
        await it.connection.request("echo", {})
        await it.connection.freeze("The disk is nearly full.")
        ran = len(it.sandbox.runner.ran)
        assert (await it.connection.request("file.read", {"path": "a"})).result["eof"]
        with pytest.raises(SandboxError, match="nearly full") as refused:
            await it.connection.request("echo", {})
        assert refused.value.code == "disk_reserve"
        with pytest.raises(SandboxError, match="nearly full"):
            await it.connection.connect_port(80)
        with pytest.raises(SandboxError, match="nearly full"):
            await it.connection.request("echo", {}, key="c:1")  # as long as it waits for that
        action = asyncio.create_task(it.connection.request("echo", {"n": 1}, key="c:2"))
        await ticks(10)
        assert (action.done(), len(it.sandbox.runner.ran)) == (False, ran + 1)
        await it.connection.resume()
        assert (await action).result == {"args": {"n": 1}}


async def test_what_has_begun_in_it_is_not_answered_before_it_goes_on_where_its_stream_is_lost() -> None:
    async with rig() as it:
        running = asyncio.create_task(it.connection.request("shell.run", {}, key="c:1"))
        await it.until_running()
        await it.connection.freeze("The disk is nearly full.")
        await it.sandbox.runner.drop()
        it.gate.open.set()
        await asyncio.sleep(0.05)
        assert not running.done()
        await it.connection.resume()
        assert (await running).result["output"] == "done"
        held = asyncio.create_task(it.connection.request("echo", {}, key="c:2"))
        await it.connection.freeze("The disk is nearly full.")
        await it.connection.close()
        with pytest.raises(SandboxClosedError):
            await asyncio.gather(held, it.connection.request("echo", {}, key="c:3"))


async def test_what_a_sandbox_runs_on_is_waited_for_and_what_ran_there_is_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away() -> SandboxStatus:
        raise SandboxAwayError("It is off.")

    async with rig(limits=replace(QUICK, reattach_seconds=0.1)) as it:
        command = asyncio.create_task(it.connection.request("shell.run", {}, key="k"))
        await it.until_running()
        with monkeypatch.context() as patch:
            patch.setattr(it.sandbox, "poll", away)
            await it.sandbox.runner.drop()
            await until(lambda: ("STATUS$WAITING_FOR_ENGINE", "Waiting for the Docker host. It is off.") in it.told)
            await asyncio.sleep(0.3)  # longer than a stream is tried again that merely broke
            assert not command.done()
        it.gate.open.set()
        assert (await command).result["output"] == "done"
        assert (len(it.sandbox.runner.ran), it.sandbox.starts) == (1, 1)
        assert it.statuses[-1] == "STATUS$READY"


async def test_a_host_that_stays_away_for_too_long_is_a_lost_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> SandboxStatus:
        raise SandboxAwayError("It is off.")

    async with rig(limits=replace(QUICK, away_seconds=0.1)) as it:
        command = asyncio.create_task(it.connection.request("shell.run", {}, key="k"))
        await it.until_running()
        monkeypatch.setattr(it.sandbox, "poll", away)
        await it.sandbox.runner.drop()
        with pytest.raises(SandboxLostError, match="It is off"):
            await command
