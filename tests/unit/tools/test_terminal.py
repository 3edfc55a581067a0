"""The terminal tool: what a model is told of a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import ValidationError

from agent_core.events.messages import TextContent
from agent_core.tools.terminal import (
    FreshTerminalAction,
    NamedTerminalAction,
    TerminalAction,
    TerminalExecutor,
    TerminalObservation,
    TerminalTool,
)
from tests.answering_sandbox import AnsweringSandbox, Asked, FakeCall

RESULT: dict[str, Any] = {
    "status": "completed",
    "exit_code": 0,
    "prefix": "",
    "output": "",
    "omitted": 0,
    "working_dir": "/workspace",
    "pid": -1,
    "python": None,
    "username": "me",
    "hostname": "here",
    "running": False,
    "notice": "",
}


@dataclass
class Sandbox(AnsweringSandbox):
    """A sandbox whose shell always answers the same."""

    result: dict[str, Any]

    def answer(self, asked: Asked) -> dict[str, Any]:
        return self.result


async def observe(action: TerminalAction, **changes: Any) -> TerminalObservation:
    return await TerminalExecutor().acall(action, FakeCall(Sandbox({**RESULT, **changes})))


def told(observation: TerminalObservation) -> str:
    *_, content = observation.to_llm_content
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.parametrize(
    ("session", "named", "asked_for"),
    [
        ("default", "default", "default"),
        ("default", "two", "two"),
        ("child", "default", "child"),
        ("child", "two", "child.two"),
    ],
)
async def test_terminals_with_names_are_each_session_of_their_own(session: str, named: str, asked_for: str) -> None:
    sandbox = Sandbox(RESULT)
    action = NamedTerminalAction(command="ls", terminal=named)
    await TerminalExecutor(session=session).acall(action, FakeCall(sandbox))
    assert sandbox.asked[0].args["session"] == asked_for


@pytest.mark.parametrize("status", ["completed", "soft_timeout"])
def test_of_a_command_whose_exit_code_is_unknown_none_is_told(status: Any) -> None:
    assert TerminalObservation(status=status, working_dir="/w").suffix == "[Current working directory: /w]"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"output": "a\n", "python": "/usr/bin/python"},
            "a\n[The command completed with exit code 0.]\n[Current working directory: /workspace]\n"
            "[Python interpreter: /usr/bin/python]\n[Command finished with exit code 0]",
        ),
        (
            {"output": "^C\n", "exit_code": 130, "notice": "CTRL+C was sent.", "prefix": "[Below.]\n"},
            "[Below.]\n^C\n[The command completed with exit code 130. CTRL+C was sent.]\n"
            "[Current working directory: /workspace]\n[Command finished with exit code 130]",
        ),
        (
            {"status": "soft_timeout", "exit_code": -1, "notice": "The command has no new output."},
            "[The command has no new output.]\n[Current working directory: /workspace]",
        ),
        (
            {"status": "interrupted", "exit_code": 130, "output": "begun"},
            "begun\n[Current working directory: /workspace]\n[Command finished with exit code 130]",
        ),
    ],
)
async def test_a_model_is_told_the_output_and_what_became_of_the_command(changes: dict[str, Any], text: str) -> None:
    assert told(await observe(TerminalAction(command="x"), **changes)) == text


async def test_a_bare_reset_is_shown_as_such() -> None:
    observation = await observe(TerminalAction(command="", reset=True), status="reset", notice="A new shell.")
    assert (observation.command, observation.exit_code, observation.is_error) == ("[RESET]", 0, False)
    observation = await observe(TerminalAction(command="ls", reset=True))
    assert observation.command == "ls"


@pytest.mark.parametrize("status", ["not_executed", "shell_lost"])
async def test_a_command_that_did_not_run_to_its_end_is_an_error_and_said_to_be_one_first(status: str) -> None:
    observation = await observe(TerminalAction(command="x"), status=status, exit_code=-1, notice="Why.", output="a\n")
    assert observation.is_error
    header, text = (part.text for part in observation.to_llm_content if isinstance(part, TextContent))
    assert header == "[An error occurred during execution.]"
    assert text == "a\n[Why.]\n[Current working directory: /workspace]"


async def test_a_command_is_given_the_secrets_that_it_names_and_input_is_not() -> None:
    sandbox = Sandbox(RESULT)
    for action in (
        TerminalAction(command="echo $TOKEN"),
        TerminalAction(command="ls"),
        TerminalAction(command="token", is_input=True),
    ):
        await TerminalExecutor().acall(action, FakeCall(sandbox))
    assert [asked.args.get("env") for asked in sandbox.asked] == [{"TOKEN": "s3cret"}, None, None]


async def test_what_a_hidden_command_prints_is_not_cut_for_a_model() -> None:
    sandbox = Sandbox(RESULT)
    for hidden in (False, True):
        await TerminalExecutor().acall(TerminalAction(command="cat log"), FakeCall(sandbox, hidden=hidden))
    assert [asked.args["max_output"] for asked in sandbox.asked] == [30_000, 2 * 1024 * 1024]


async def test_a_command_in_a_shell_of_its_own_disturbs_nobody_and_ends() -> None:
    (tool,) = TerminalTool.create()
    sandbox = Sandbox(RESULT)
    for action, limit in (
        (FreshTerminalAction(command="a", cwd="/src"), None),
        (FreshTerminalAction(command="a"), 5.0),
    ):
        await tool.acall(action, FakeCall(sandbox, hard_timeout=limit))
        assert (tool.declared_resources(action).keys, tool.declared_resources(action).declared) == ((), True)
    given = [{name: asked.args.get(name) for name in ("session", "fresh", "cwd", "timeout")} for asked in sandbox.asked]
    assert given == [
        {"session": None, "fresh": True, "cwd": "/src", "timeout": 120.0},
        {"session": None, "fresh": True, "cwd": None, "timeout": 5.0},
    ]


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_a_limit_that_is_no_number_of_seconds_is_refused_by_its_name(seconds: float) -> None:
    with pytest.raises(ValidationError, match="timeout"):
        TerminalAction(command="x", timeout=seconds)


@pytest.mark.parametrize(
    ("own", "given", "limit", "outer"),
    [(None, None, None, None), (5.0, None, 5.0, 35.0), (None, 7.0, 7.0, 37.0), (0.0, 7.0, 0.0, 30.0)],
)
async def test_a_commands_own_limit_counts_before_that_of_its_event_and_the_server_waits_longer(
    own: float | None, given: float | None, limit: float | None, outer: float | None
) -> None:
    sandbox = Sandbox(RESULT)
    for executor in (TerminalExecutor(), TerminalExecutor(soft_timeout=2.5)):
        await executor.acall(TerminalAction(command="x", timeout=own), FakeCall(sandbox, hard_timeout=given))
    assert [(asked.args["timeout"], asked.limit_seconds) for asked in sandbox.asked] == [(limit, outer)] * 2
    assert [asked.args["soft_timeout"] for asked in sandbox.asked] == [30.0, 2.5]


async def test_an_observation_has_what_the_shell_says_of_itself() -> None:
    facts = {"pid": 42, "username": "me", "hostname": "here", "working_dir": "/w", "omitted": 7, "python": "/p"}
    observation = await observe(TerminalAction(command="sleep 9 &"), **facts)
    assert observation.model_dump(include=set(facts)) == facts


async def test_a_reset_takes_no_input() -> None:
    with pytest.raises(ValueError, match="reset and is_input"):
        await observe(TerminalAction(command="x", reset=True, is_input=True))


@pytest.mark.parametrize(("seconds", "runs"), [(None, True), (90.0, True), (91.0, False)])
async def test_a_command_that_would_outlast_an_idle_runtime_is_not_run(
    monkeypatch: pytest.MonkeyPatch, seconds: float | None, runs: bool
) -> None:
    monkeypatch.setenv("OH_RUNTIME_IDLE_TIMEOUT_SECONDS", "100")
    sandbox = Sandbox(RESULT)
    observation = await TerminalExecutor().acall(TerminalAction(command="x", timeout=seconds), FakeCall(sandbox))
    assert bool(sandbox.asked) is runs
    assert observation.is_error is not runs
    assert ("at most 90 seconds" in told(observation)) is not runs


@pytest.mark.parametrize("idle", ["0", "-1", "", "soon"])
async def test_a_runtime_without_an_idle_limit_sets_none(monkeypatch: pytest.MonkeyPatch, idle: str) -> None:
    monkeypatch.setenv("OH_RUNTIME_IDLE_TIMEOUT_SECONDS", idle)
    assert not (await observe(TerminalAction(command="x", timeout=86_400))).is_error


async def test_several_terminals_are_told_apart_by_name() -> None:
    (tool,) = TerminalTool.create(several=True)
    assert set(tool.parameters["properties"]) == {"command", "is_input", "timeout", "reset", "terminal"}
    sandbox = Sandbox(RESULT)
    keys = []
    for arguments in ({"command": "a"}, {"command": "b", "terminal": "server"}):
        action = tool.action_from_arguments(arguments)
        await tool.acall(action, FakeCall(sandbox))
        keys.append(tool.declared_resources(action).keys)
    assert [asked.args["session"] for asked in sandbox.asked] == ["default", "server"]
    assert keys == [("terminal:session",), ("terminal:server",)]
    with pytest.raises(ValueError, match="terminal"):
        tool.action_from_arguments({"command": "a", "terminal": "../x"})


def test_one_terminal_is_the_default() -> None:
    (tool,) = TerminalTool.create()
    assert set(tool.parameters["properties"]) == {"command", "is_input", "timeout", "reset"}
