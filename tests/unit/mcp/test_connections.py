"""Connections to MCP servers: programs that do what they should, and programs that do not."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import cast

import pytest
from anyio import BrokenResourceError
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification

from agent_core.mcp import program
from agent_core.mcp.config import McpServer
from agent_core.mcp.servers import PROGRAMS_REFUSED, McpServers
from agent_core.spans import Span, watched_by
from tests.answering_sandbox import AnsweringSandbox, FakeCall
from tests.unit.mcp.conftest import call, fake, is_running, running, servers, tool
from tests.waiting import ticks, until


async def test_the_tools_of_all_servers_are_there_and_can_be_called() -> None:
    async with running(servers(one=fake("echo"), two=fake("count", "fail"))) as found:
        assert [one.name for one in found.tools()] == ["echo", "count", "fail"]
        assert not found.problems()
        said = await call(found, "echo", text="hello")
        assert [part.text for part in said.content if part.type == "text"] == ["[Tool 'echo' executed.]", "hello"]
        assert (said.is_error, said.name, said.arguments) == (False, "echo", {"text": "hello"})
        failed = await call(found, "fail")
        assert failed.is_error
        assert failed.text.endswith("it did not work")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (fake(silent=True, server_timeout=0.2), "it was not ready within 0.2 s"),
        (fake(delay=600, server_timeout=0.2), "it was not ready within 0.2 s"),
        (fake(exit=3), "it ended. It said: the wheel is gone"),
        (fake(fussy=True), "it ended. It said: no list today"),
        (fake(noise=500), program.GARBAGE),
        ({"command": "yes"}, program.GARBAGE),
        ({"command": "no-such-program"}, "its command 'no-such-program' was not found on this host"),
        ({"command": str(Path(__file__))}, "was not found on this host"),
        (
            {"command": "cat", "cwd": "/proc/no-such-folder"},
            "its command 'cat' cannot be started: No such file or directory",
        ),
        ({"url": "http://127.0.0.1:1/mcp"}, "nothing answers at its address"),
        ({"url": "http://127.0.0.1:1/mcp", "transport": "sse"}, "nothing answers at its address"),
        ({"url": "ws://127.0.0.1:1/mcp"}, "WebSockets are not supported"),
        ({"command": "cat", "env": {"A": "${NOBODY_KNOWS_IT:-x}"}}, "it answered with an error"),
    ],
)
async def test_a_server_that_cannot_be_used_is_reported_and_the_others_are_used(
    server: dict[str, object], reason: str
) -> None:
    async with running(servers(bad=server, good=fake("echo"))) as found:
        (problem,) = found.problems()["bad"]
        assert problem.startswith("it cannot be used: ")
        assert reason in problem
        assert not (await call(found, "echo", text="still here")).is_error


class Refusing:
    """A pipe that refuses what it is given, as the one to a program that is gone does on some event loops."""

    def write(self, data: bytes) -> None:
        raise RuntimeError(f"the handler is closed; {len(data)} bytes are lost")

    def close(self) -> None:
        """It is closed already."""


async def test_a_pipe_that_refuses_to_be_written_to_means_that_the_program_is_gone() -> None:
    gone = await program.HostPrograms().start(McpServer(command="true"))
    writer, gone._input = gone._input, cast("asyncio.StreamWriter", Refusing())
    outgoing = program.ProgramInput(gone)
    with pytest.raises(BrokenResourceError):
        await outgoing.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")))
    writer.close()
    await gone.stop()


async def test_noise_before_the_first_answer_is_passed_over() -> None:
    async with running(servers(noisy=fake("echo", noise=50))) as found:
        assert (await call(found, "echo", text="hello")).text.endswith("hello")


async def test_a_server_that_knows_the_newest_protocol_only_is_spoken_to_in_that() -> None:
    async with running(servers(new=fake("echo", modern=True))) as found:
        assert not found.problems()
        assert (await call(found, "echo", text="hello")).text.endswith("hello")


class Telling:
    """A watcher whose spans tell servers of themselves that are programs."""

    def begun(self, span: Span) -> None:
        span.tell = lambda host: {} if host else {"traceparent": f"of {span.name}"}

    def ended(self, span: Span) -> None:
        """Nothing is kept."""


async def test_a_server_is_told_of_the_trace_where_that_is_wished() -> None:
    async with running(servers(one=fake("told"))) as found:
        assert "traceparent" not in (await call(found, "told")).text
        with watched_by(Telling()), Span("tool_call"):
            assert '"traceparent": "of tool_call"' in (await call(found, "told")).text


@pytest.mark.usefixtures("impatient")
async def test_a_line_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MAX_BYTES", 100_000)
    endless = {"command": "sh", "args": ["-c", "cat /dev/zero | tr '\\0' x"]}
    async with running(servers(endless=endless)) as found:
        assert program.TOO_LONG in found.problems()["endless"][0]


@pytest.mark.usefixtures("impatient")
async def test_a_line_whose_parsing_would_hold_up_everybody_is_given_up() -> None:
    begin, end = '{"jsonrpc":"2.0","id":0,"result":{"x":[', "0]}}"
    script = f"print({begin!r} + '0,' * {program.MAX_VALUES} + {end!r})"
    many = {"command": sys.executable, "args": ["-c", script]}
    async with running(servers(many=many)) as found:
        assert program.TOO_MANY in found.problems()["many"][0]


@pytest.mark.usefixtures("impatient")
async def test_a_hanging_server_holds_up_a_step_no_longer_than_the_limit() -> None:
    found = servers(hanging=fake(silent=True), good=fake("echo"))
    found.start()
    await until(lambda: bool(found.tools()))
    assert found.pending == ["hanging"]
    async with asyncio.timeout(60):
        await found.settled(limit_seconds=0.1)
    assert [one.name for one in found.tools()] == ["echo"]
    async with asyncio.timeout(60):
        await found.close()


@pytest.mark.usefixtures("impatient")
async def test_nothing_of_a_server_is_left_when_it_is_closed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    stubborn = {"command": "sh", "args": ["-c", f"trap '' TERM; echo $$ >> {pids}; while :; do sleep 0.1; done"]}
    async with running(servers(good=fake("echo", pids=str(pids)), stubborn={**stubborn, "timeout": 0.2})):
        await until(lambda: pids.exists() and len(pids.read_text().split()) == 3)
        found = [int(pid) for pid in pids.read_text().split()]
        assert sum(map(is_running, found)) >= 2
    await until(lambda: not any(map(is_running, found)))  # a killed process takes a moment to be gone


async def test_a_program_gets_its_own_variables_and_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRYDOCK_TEST_SECRET", "do-not-tell")
    async with running(servers(one=fake("environment", server_env={"MINE": "yes"}))) as found:
        text = (await call(found, "environment")).text
        assert '"MINE": "yes"' in text
        assert f'"PATH": "{os.environ["PATH"]}"' in text
        assert "do-not-tell" not in text


async def test_a_server_that_ended_is_started_again_by_the_next_call_and_the_lost_one_is_not_made_twice(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    async with running(servers(one=fake("echo", "die", pids=str(pids)))) as found:
        lost = await call(found, "die")
        assert lost.is_error
        assert len(pids.read_text().split()) == 2, "one program with its child"
        assert "unknown whether the call took effect" in lost.text
        assert (await call(found, "echo", text="again")).text.endswith("again")


async def test_a_call_that_only_reads_is_made_once_more_and_no_more(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with running(servers(one=fake("die_reading", pids=str(pids)))) as found:
        lost = await call(found, "die_reading")
        assert "unknown whether the call took effect" in lost.text
        assert len(pids.read_text().split()) == 4, "two programs with a child each"


async def test_a_server_that_does_not_come_back_is_an_error_of_each_call(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    server = fake("echo", "die")
    wrapped = {"command": "sh", "args": ["-c", f'[ -e {gate} ] && exec "$0" "$@"', server["command"], *server["args"]]}
    async with running(servers(one=wrapped)) as found:
        gate.unlink()
        await call(found, "die")
        for _ in range(2):
            failed = await call(found, "echo", text="hello?")
            assert failed.is_error
            assert "The MCP server 'one' did not do it: it ended" in failed.text


async def test_a_call_that_takes_too_long_is_cancelled_and_the_server_goes_on(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with running(servers(one=fake("echo", "slow", notes=str(notes)))) as found:
        definition = tool(found, "slow")

        context = FakeCall(AnsweringSandbox(), hard_timeout=0.2)
        late = await definition.acall(definition.action_from_arguments({}), context)
        assert "did not answer within 0.2 s; the call was cancelled" in late.text
        await until(lambda: "notifications/cancelled" in notes.read_text())
        assert (await call(found, "echo", text="well")).text.endswith("well")


async def test_a_cancelled_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    async with running(servers(one=fake("slow", "echo", notes=str(notes)))) as found:
        calling = asyncio.create_task(call(found, "slow"))
        await until(lambda: "tools/call" in notes.read_text())
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await until(lambda: "notifications/cancelled" in notes.read_text())
        assert (await call(found, "echo", text="well")).text.endswith("well")


async def test_an_answer_that_cannot_be_read_is_an_error_at_once() -> None:
    async with running(servers(one=fake("unreadable", "echo"))) as found:
        seen = await call(found, "unreadable")
        assert seen.is_error
        assert "its answer cannot be read" in seen.text
        assert (await call(found, "echo", text="well")).text.endswith("well")


@pytest.mark.usefixtures("impatient")
async def test_a_cancelled_call_does_not_wait_for_a_server_that_reads_no_more() -> None:
    async with running(servers(one=fake("echo", deaf=True))) as found:
        calling = asyncio.create_task(call(found, "echo", text="x" * 1_000_000))
        (connection,) = found._connections
        await until(lambda: bool(connection._calls))
        await ticks(50)  # what is written fills the pipe
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert connection._calls, "it is still trying to tell the server"
    assert not connection._calls


async def test_tools_that_change_are_taken_in_at_once() -> None:
    async with running(servers(one=fake("grow"), two=fake("echo"))) as found:
        assert [one.name for one in found.tools()] == ["grow", "echo"]
        found.changed.clear()
        await call(found, "grow")
        await until(lambda: [one.name for one in found.tools()] == ["grow", "huge", "echo"])
        assert found.changed.is_set()


async def test_of_two_tools_with_one_name_the_first_servers_is_taken_and_the_other_is_reported() -> None:
    async with running(servers(one=fake("echo", delay=0.1), two=fake("count", "echo"))) as found:
        taken = [(one.name, one.server) for one in found.tools(taken={"count"})]
        assert taken == [("echo", "one")]
        assert found.problems(taken={"count"}) == {
            "two": [
                "its tool 'count' is left out: the agent itself has one of that name",
                "its tool 'echo' is left out: the MCP server 'one' has one of that name",
            ]
        }
        assert not found.problems(lets_through=lambda name: False)


async def test_a_tool_with_an_unusable_schema_is_left_out_and_reported() -> None:
    async with running(servers(one=fake("broken", "echo"))) as found:
        assert [one.name for one in found.tools()] == ["echo"]
        (problem,) = found.problems()["one"]
        assert problem.startswith("its tool 'broken' is left out: its inputSchema is no valid JSON schema")


async def test_a_connection_that_is_not_kept_is_made_for_each_call(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with running(servers(one=fake("echo", pids=str(pids), server_keep_alive=False))) as found:
        for _ in range(2):
            assert not (await call(found, "echo", text="hello")).is_error
        started = [int(pid) for pid in pids.read_text().split()]
        assert len(started) == 6
        await until(lambda: not any(map(is_running, started)))


async def test_a_server_that_is_not_enabled_is_left_alone(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with running(servers(one=fake("echo", pids=str(pids), server_enabled=False))) as found:
        assert found.is_empty
    assert not pids.exists()


async def test_programs_of_those_who_may_not_start_any_are_refused(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    config = {"one": McpServer.model_validate(fake("echo", pids=str(pids)))}
    async with running(McpServers(config, refused_programs={"one"})) as found:
        assert found.problems() == {"one": [f"it cannot be used: {PROGRAMS_REFUSED}"]}
    assert not pids.exists()


async def test_references_in_a_configuration_are_looked_up_in_their_order() -> None:
    order = {"env": {"A": "$ONE", "B": "${TWO}", "C": "$THREE", "D": "${FOUR:-four}", "E": "$FIVE"}}
    found = McpServers(
        {"one": McpServer.model_validate({**fake("environment"), **order})},
        variables={"ONE": "variable"},
        environment={"ONE": "environment", "TWO": "environment", "THREE": "environment"},
    )

    async def secrets(text: str) -> dict[str, str]:
        assert all(name in text for name in ("ONE", "TWO", "THREE", "FOUR", "FIVE"))
        return {"ONE": "secret", "TWO": "secret", "THREE_MORE": "x"}

    try:
        found.start(secrets)
        await found.all_settled()
        text = (await call(found, "environment")).text
        for expected in ('"A": "variable"', '"B": "secret"', '"C": "environment"', '"D": "four"', '"E": "$FIVE"'):
            assert expected in text
    finally:
        await found.close()


async def test_what_a_server_says_of_its_progress_is_shown_while_the_call_runs_in_bounds() -> None:
    async with running(servers(one=fake("steps"))) as found:
        steps = tool(found, "steps")
        context = FakeCall(AnsweringSandbox())
        shown = context.shown
        assert (await steps.acall(steps.action_from_arguments({"n": 3}), context)).text.endswith("there")
        assert shown == ["[1 of 3] step 1\n", "[2 of 3] step 2\n", "[3 of 3] step 3\n"]
        shown.clear()
        await steps.acall(steps.action_from_arguments({"n": 1500}), context)
        assert len(shown) == 1000
        assert not (await steps.acall(steps.action_from_arguments({"n": 2}))).is_error
