"""What a user types while something runs: input reaches it at once, and other commands do not wait for its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agent_core.events.control import AgentState, ChangeAgentState
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent
from agent_core.events.serialization import AnyEvent
from agent_core.runtime import runtime
from agent_core.testing.fake_sandbox import FakeAnswer, FakeRequest, FakeRunnerError, command_result
from agent_core.tools.file_editor import FileEditorAction
from agent_core.tools.terminal import TerminalAction, TerminalObservation
from tests.unit.controller.stage import REPLIES, Reply, Stage
from tests.unit.controller.test_answers import is_in
from tests.waiting import ticks, until

LIMIT_SECONDS = 60.0
SLEEP: Reply = ("I wait.", [("terminal", '{"command": "sleep", "security_risk": "LOW"}')])


class Terminal:
    """Commands that end when they are told to, by name; input to them is kept."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Event] = {}
        self.typed: list[str] = []
        self.most_at_once = self._typing = 0
        self.hold: asyncio.Event | None = None

    async def __call__(self, call: FakeRequest) -> FakeAnswer:
        given = call.args
        command = str(given["command"])
        if given["is_input"]:
            return await self._type(command)
        if self.running and given.get("at_once"):
            return {**self._told("not_executed"), "notice": "still running"}
        ended = self.running[command] = asyncio.Event()
        try:
            await ended.wait()
            return command_result(f"ran {command}\n", 130 if "C-c" in self.typed else 0)
        finally:
            del self.running[command]

    async def _type(self, text: str) -> FakeAnswer:
        self._typing += 1
        self.most_at_once = max(self.most_at_once, self._typing)
        try:
            self.typed.append(text)
            if self.hold is not None:
                await self.hold.wait()
            if not self.running:
                return {**self._told("not_executed"), "notice": "nothing runs"}
            if text == "C-c":
                next(iter(self.running.values())).set()
            return self._told("soft_timeout")
        finally:
            self._typing -= 1

    def _told(self, status: str) -> dict[str, Any]:
        return {**dict(command_result("")), "status": status, "exit_code": -1}  # type: ignore[arg-type]


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
async def stage(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(runtime, "USERS_WAIT_SECONDS", 0.02)
    stage = Stage()
    stage.sandbox.runner.handlers["shell.run"] = terminal
    await stage.begin()
    yield stage
    await stage.end()


async def types(stage: Stage, command: str, *, is_input: bool = False) -> int:
    action = TerminalAction(command=command, is_input=is_input)
    return (await stage.session.send(ActionEvent(source="user", action=action, tool_name="terminal"))).id


def answers_in(log: list[AnyEvent]) -> list[ObservationEvent | AgentErrorEvent]:
    return [event for event in log if isinstance(event, ObservationEvent | AgentErrorEvent)]


async def logged(stage: Stage, done: Callable[[list[AnyEvent]], bool]) -> list[AnyEvent]:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not done(log := await stage.log()):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)
    return log


async def answered(stage: Stage, *ids: int) -> list[AnyEvent]:
    """The log once all of these have their answer, each exactly one."""
    log = await logged(stage, lambda log: set(ids) <= {event.cause for event in answers_in(log)})
    causes = [event.cause for event in answers_in(log)]
    assert len(causes) == len(set(causes)), causes
    return log


def seen(log: list[AnyEvent], ident: int) -> TerminalObservation:
    (found,) = [
        event.observation for event in answers_in(log) if isinstance(event, ObservationEvent) and event.cause == ident
    ]
    assert isinstance(found, TerminalObservation)
    return found


async def agent_runs(stage: Stage, terminal: Terminal, reply: Reply = SLEEP) -> int:
    await stage.say()
    await until(lambda: stage.model.asking == 1)
    stage.model.gate.open(reply)
    await until(lambda: bool(terminal.running))
    return next(event.id for event in await stage.log() if isinstance(event, ActionEvent))


async def test_input_reaches_a_users_own_command_before_that_has_ended(stage: Stage, terminal: Terminal) -> None:
    command = await types(stage, "cat")
    await until(lambda: "cat" in terminal.running)
    text = await types(stage, "hello", is_input=True)
    log = await answered(stage, text)
    assert (terminal.typed, seen(log, text).status) == (["hello"], "soft_timeout")
    assert command not in [event.cause for event in answers_in(log)], "it goes on"
    key = await types(stage, "C-c", is_input=True)
    log = await answered(stage, command, key)
    assert seen(log, command).exit_code == 130
    given = [call.args for call in stage.sandbox.runner.ran if call.op == "shell.run"]
    assert [args.get("at_once") for args in given] == [True] * 3
    assert [args["soft_timeout"] for args in given] == [30.0, 2.0, 2.0], "who types does not look on for long"


async def test_input_reaches_the_agents_command_and_the_agent_goes_on(stage: Stage, terminal: Terminal) -> None:
    command = await agent_runs(stage, terminal)
    key = await types(stage, "C-c", is_input=True)
    log = await answered(stage, command, key)
    assert seen(log, command).exit_code == 130
    await until(lambda: stage.model.asking == 1)
    roles = [message["role"] for message in stage.model.prompts[-1]]
    assert roles[roles.index("tool") - 1] == "assistant", "the call has its result, and nothing between them"
    stage.model.gate.open(REPLIES["finish"])
    await logged(stage, is_in(AgentState.FINISHED))
    assert not next(iter(call.args for call in stage.sandbox.runner.ran if call.op == "shell.run")).get("at_once")


async def test_a_command_is_answered_while_another_runs_and_the_agent_waits_for_its_end(
    stage: Stage, terminal: Terminal
) -> None:
    command = await agent_runs(stage, terminal, REPLIES["three"])
    refused = await types(stage, "ls")
    log = await answered(stage, refused)
    assert (seen(log, refused).status, seen(log, refused).is_error) == ("not_executed", True)
    assert list(terminal.running) == ["a"]
    terminal.running["a"].set()
    await until(lambda: list(terminal.running) == ["c"])
    terminal.running["c"].set()
    await until(lambda: stage.model.asking == 1)
    assert [event.cause for event in answers_in(await stage.log())] == [refused, command, command + 1, command + 2]


async def test_what_else_a_user_wants_is_done_beside_a_long_command_and_before_the_agents_next(
    stage: Stage, terminal: Terminal
) -> None:
    opened = asyncio.Event()

    async def edit(call: FakeRequest) -> FakeAnswer:
        await opened.wait()
        raise FakeRunnerError("not_found", "there is no such file")

    stage.sandbox.runner.handlers["file.edit"] = edit
    await agent_runs(stage, terminal, REPLIES["three"])
    look = FileEditorAction(command="view", path="/workspace/x")
    ident = (await stage.session.send(ActionEvent(source="user", action=look, tool_name="file_editor"))).id
    await until(lambda: any(call.op == "file.edit" for call in stage.sandbox.runner.ran))
    terminal.running["a"].set()
    await until(lambda: not terminal.running)
    await ticks(50)
    assert not terminal.running, "the agent's next call waits for what the user has begun"
    opened.set()
    await until(lambda: list(terminal.running) == ["c"])
    await answered(stage, ident)


async def test_commands_that_are_quick_run_one_after_the_other_as_they_were_typed(
    stage: Stage, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "USERS_WAIT_SECONDS", 3600.0)
    idents = [await types(stage, name) for name in ("one", "two", "three")]
    text = await types(stage, "for three", is_input=True)
    for name in ("one", "two"):
        await until(lambda name=name: list(terminal.running) == [name])  # type: ignore[misc]
        assert not terminal.typed, "it is for what was typed before it"
        terminal.running[name].set()
    await until(lambda: terminal.typed == ["for three"])
    terminal.running["three"].set()
    log = await answered(stage, *idents, text)
    assert [seen(log, ident).status for ident in idents] == ["completed"] * 3


async def test_a_hundred_inputs_are_typed_in_order_so_many_at_a_time(stage: Stage, terminal: Terminal) -> None:
    command = await types(stage, "cat")
    await until(lambda: "cat" in terminal.running)
    terminal.hold = asyncio.Event()
    idents = [await types(stage, str(number), is_input=True) for number in range(100)]
    await until(lambda: len(terminal.typed) == runtime.MAX_BESIDE)
    await ticks(50)
    assert terminal.most_at_once == runtime.MAX_BESIDE
    terminal.hold.set()
    await answered(stage, *idents)
    assert terminal.typed == [str(number) for number in range(100)]
    terminal.running["cat"].set()
    await answered(stage, command)


async def test_input_when_nothing_runs_is_answered(stage: Stage, terminal: Terminal) -> None:
    key = await types(stage, "C-c", is_input=True)
    log = await answered(stage, key)
    assert (seen(log, key).status, seen(log, key).notice) == ("not_executed", "nothing runs")


async def test_a_stop_ends_both_and_each_has_one_answer(stage: Stage, terminal: Terminal) -> None:
    command = await agent_runs(stage, terminal)
    terminal.hold = asyncio.Event()
    text = await types(stage, "hello", is_input=True)
    await until(lambda: terminal.typed == ["hello"])
    await stage.session.send(ChangeAgentState(agent_state=AgentState.STOPPED))
    log = await answered(stage, command, text)
    assert [event.classification for event in answers_in(log) if isinstance(event, AgentErrorEvent)] == [
        "interrupted"
    ] * 2
    await ticks(50)
    await answered(stage, command, text)


async def test_after_a_crash_input_is_not_typed_again_and_what_was_not_typed_reaches_the_command(
    stage: Stage, terminal: Terminal
) -> None:
    command = await types(stage, "cat")
    await until(lambda: "cat" in terminal.running)
    terminal.hold = asyncio.Event()
    text = await types(stage, "once", is_input=True)
    await until(lambda: terminal.typed == ["once"])
    await stage.crash()
    await stage.begin()
    terminal.hold.set()
    await answered(stage, text)
    assert terminal.typed == ["once"]
    assert list(terminal.running) == ["cat"]
    key = await types(stage, "C-c", is_input=True)
    log = await answered(stage, key, command)
    assert seen(log, command).exit_code == 130


async def test_input_is_typed_while_the_agent_is_paused(stage: Stage, terminal: Terminal) -> None:
    command = await types(stage, "cat")
    await until(lambda: "cat" in terminal.running)
    await stage.session.send(ChangeAgentState(agent_state=AgentState.PAUSED))
    await answered(stage, command)
    second = await types(stage, "again")
    await until(lambda: "again" in terminal.running)
    text = await types(stage, "hello", is_input=True)
    log = await answered(stage, text)
    assert seen(log, text).status == "soft_timeout"
    terminal.running["again"].set()
    await answered(stage, second)
