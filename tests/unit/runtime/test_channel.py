"""The channel to a runner: requests, answers, output, cancelling, and streams that end or carry nonsense."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_core.errors import SandboxError, SandboxLostError, ToolError
from agent_core.runtime.channel.channel import ChannelLimits, RunnerChannel
from agent_core.runtime.channel.frame_reader import ChannelClosedError
from agent_core.runtime.sandbox import Attachment
from agent_core.testing.fake_sandbox import FakeAnswer, FakeRequest, FakeRunner, FakeRunnerError
from runtime_images.runner import wire
from tests.waiting import until


async def echo(call: FakeRequest) -> FakeAnswer:
    return {"args": dict(call.args)}


async def forever(call: FakeRequest) -> FakeAnswer:
    await asyncio.Event().wait()
    return {}


async def refuse(call: FakeRequest) -> FakeAnswer:
    raise FakeRunnerError(call.args["code"], call.args["message"])


async def talk(call: FakeRequest) -> FakeAnswer:
    for word in call.args["words"]:
        call.output(word)
    return {"blob back": True}, call.blob or b""


@asynccontextmanager
async def open_channel(runner: FakeRunner, **limits: Any) -> AsyncIterator[RunnerChannel]:
    channel = await RunnerChannel.open(await runner.connect(), ChannelLimits(**limits))
    try:
        yield channel
    finally:
        await channel.close()
        await runner.close()


def fake(**hello: Any) -> FakeRunner:
    return FakeRunner(handlers={"echo": echo, "forever": forever, "refuse": refuse, "talk": talk}, hello=hello)


async def test_a_request_gets_its_own_answer() -> None:
    async with open_channel(fake()) as channel:
        replies = await asyncio.gather(*(channel.request("echo", {"n": n}) for n in range(50)))
    assert [reply.result["args"]["n"] for reply in replies] == list(range(50))


async def test_the_greeting_says_who_runs_there() -> None:
    async with open_channel(fake(boot="first", programs=False)) as channel:
        hello = channel.hello
        assert (hello.boot, hello.workspace, hello.tunnels, hello.programs) == ("first", "/workspace", False, False)


async def test_output_arrives_in_order_before_the_answer_and_blobs_go_both_ways() -> None:
    heard: list[str] = []
    async with open_channel(fake()) as channel:
        reply = await channel.request(
            "talk", {"words": ["a", "b", "c"]}, on_output=heard.append, blob=bytes(range(256))
        )
    assert heard == ["a", "b", "c"]
    assert reply.blob == bytes(range(256))


async def test_a_listener_that_fails_does_not_harm_the_request(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_text: str) -> None:
        raise RuntimeError("listener is broken")

    async with open_channel(fake()) as channel:
        reply = await channel.request("talk", {"words": ["a"]}, on_output=broken)
    assert reply.result == {"blob back": True}
    assert "listener to live output failed" in caplog.text


@pytest.mark.parametrize("code", ["bad_request", "not_found", "too_large"])
async def test_what_the_caller_did_wrong_is_a_tool_error(code: str) -> None:
    async with open_channel(fake()) as channel:
        with pytest.raises(ToolError, match="no such file"):
            await channel.request("refuse", {"code": code, "message": "no such file"})


async def test_what_the_runner_failed_at_is_a_sandbox_error_with_its_code() -> None:
    async with open_channel(fake()) as channel:
        with pytest.raises(SandboxError, match="disk is full") as caught:
            await channel.request("refuse", {"code": "internal", "message": "the disk is full"})
        assert caught.value.code == "internal"
        assert (await channel.request("echo", {})).result == {"args": {}}


@pytest.mark.parametrize("code", ["interrupted", "forgotten"])
async def test_an_outcome_that_nobody_knows_is_a_lost_sandbox(code: str) -> None:
    async with open_channel(fake()) as channel:
        with pytest.raises(SandboxLostError, match="It was done in part"):
            await channel.request("refuse", {"code": code, "message": "it was done in part"})


async def test_cancelling_the_caller_cancels_the_operation() -> None:
    runner = fake()
    async with open_channel(runner) as channel:
        task = asyncio.create_task(channel.request("forever", {}, key="c:1"))
        await until(lambda: runner.ran)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: runner.cancelled == ["c:1"])
        assert (await channel.request("echo", {})).result == {"args": {}}


async def test_a_stream_that_ends_fails_what_is_under_way_and_what_comes_after() -> None:
    runner = fake()
    async with open_channel(runner) as channel:
        task = asyncio.create_task(channel.request("forever", {}))
        await until(lambda: runner.ran)
        await runner.drop()
        with pytest.raises(ChannelClosedError):
            await task
        with pytest.raises(ChannelClosedError):
            await channel.request("echo", {})
        assert not channel.is_open


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">I", wire.MAX_JSON + 1),
        struct.pack(">I", 3) + b"[1]",
        struct.pack(">I", 2) + b"\xff\xff",
        wire.encode({"id": 1, "ok": "maybe"}),
        struct.pack(">I", 29) + json.dumps({"id": 1, "blob": 99999999999}).encode()[:29].ljust(29),
    ],
    ids=["http", "oversized", "list", "not text", "unknown form", "huge blob"],
)
async def test_nonsense_from_the_sandbox_closes_the_channel_with_a_reason(garbage: bytes) -> None:
    runner = fake()
    async with open_channel(runner) as channel:
        task = asyncio.create_task(channel.request("forever", {}))
        await until(lambda: runner.ran)
        await runner.send_raw(garbage)
        with pytest.raises(ChannelClosedError, match=r"no answer|unknown form"):
            await task


async def test_a_stream_cut_inside_a_frame_says_so() -> None:
    runner = fake()
    async with open_channel(runner) as channel:
        task = asyncio.create_task(channel.request("forever", {}))
        await until(lambda: runner.ran)
        await runner.send_raw(wire.encode({"id": 1, "ok": True, "result": {}})[:-3])
        await runner.drop()
        with pytest.raises(ChannelClosedError, match="in the middle of an answer"):
            await task


@pytest.mark.parametrize(
    ("hello", "code"), [({"protocol": 99}, "protocol_version"), ({"boot": 7}, "protocol")], ids=["version", "form"]
)
async def test_a_wrong_greeting_is_refused(hello: dict[str, Any], code: str) -> None:
    runner = fake(**hello)
    with pytest.raises(SandboxError) as caught:
        await RunnerChannel.open(await runner.connect())
    assert caught.value.code == code
    await runner.close()


async def test_a_runner_that_does_not_greet_is_given_up_in_time() -> None:
    ours, theirs = socket.socketpair()
    attachment = Attachment(*await asyncio.open_connection(sock=ours))
    with pytest.raises(SandboxError) as caught:
        await RunnerChannel.open(attachment, ChannelLimits(hello_seconds=0.05))
    assert caught.value.code == "start_timeout"
    theirs.close()


async def test_a_silent_runner_that_owes_an_answer_is_found_dead() -> None:
    runner = fake()
    async with open_channel(runner, silence_seconds=0.05) as channel:
        runner.mute = True
        with pytest.raises(ChannelClosedError, match="no sign of life"):
            await channel.request("echo", {})


async def test_a_runner_that_works_long_without_a_word_is_not_found_dead() -> None:
    async def slow(call: FakeRequest) -> FakeAnswer:
        await asyncio.sleep(0.6)
        return {}

    runner = fake()
    runner.handlers["slow"] = slow
    async with open_channel(runner, silence_seconds=0.2) as channel:
        assert (await channel.request("slow", {})).result == {}


async def test_a_frozen_sandbox_may_be_silent() -> None:
    runner = fake()
    async with open_channel(runner, silence_seconds=0.02) as channel:
        channel.suspended = True
        runner.mute = True
        task = asyncio.create_task(channel.request("echo", {}))
        done, _ = await asyncio.wait({task}, timeout=0.2)
        assert not done
        assert channel.is_open
        task.cancel()
        await asyncio.wait({task})


async def test_a_request_that_is_too_large_is_the_callers_fault() -> None:
    async with open_channel(fake()) as channel:
        with pytest.raises(ToolError, match="cannot be sent"):
            await channel.request("echo", {}, blob=bytes(wire.MAX_BLOB + 1))
        with pytest.raises(ToolError, match="cannot be sent"):
            await channel.request("echo", {"text": "x" * (wire.MAX_JSON + 1)})
        assert (await channel.request("echo", {})).result == {"args": {}}


async def test_requests_beyond_the_bound_are_refused() -> None:
    runner = fake()
    async with open_channel(runner, pending=2) as channel:
        tasks = [asyncio.create_task(channel.request("forever", {})) for _ in range(2)]
        await until(lambda: len(runner.ran) == 2)
        with pytest.raises(SandboxError) as caught:
            await channel.request("echo", {})
        assert caught.value.code == "busy"
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_what_may_be_forgotten_is_said_with_the_next_request_before_it() -> None:
    runner = fake()
    async with open_channel(runner, forget_seconds=60) as channel:
        channel.forget(["c:1"])
        channel.forget(["c:2"])
        await channel.request("ping", {})
        assert runner.acked == ["c:1", "c:2"]


async def test_what_may_be_forgotten_is_said_in_time_without_a_request_too() -> None:
    runner = fake()
    async with open_channel(runner, forget_seconds=0.01) as channel:
        channel.forget(["c:1"])
        await until(lambda: runner.acked == ["c:1"])


async def test_what_may_be_forgotten_is_said_when_the_channel_is_closed() -> None:
    runner = fake()
    async with open_channel(runner, forget_seconds=60) as channel:
        channel.forget(["c:1"])
        await channel.close()
        await until(lambda: runner.acked == ["c:1"])
        channel.forget(["c:2"])
    assert runner.acked == ["c:1"]
