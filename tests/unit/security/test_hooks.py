"""Hooks: what is configured, what they are told, and what their answers mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import SandboxError
from agent_core.security.hook_runner import MAX_BACKGROUND_HOOKS, CommandOutcome, HookResult, Hooks, decide, read_result
from agent_core.security.hooks import AgentHook, CommandHook, HookConfig, HookEvent, HookInput, HookMatcher, event_named

BLOCKING = {HookEvent.PRE_TOOL_USE, HookEvent.USER_PROMPT_SUBMIT, HookEvent.STOP}


class Runner:
    """Answers each command as told; remembers what it was given."""

    def __init__(self, **outcomes: CommandOutcome | Exception | None) -> None:
        self.outcomes = outcomes
        self.ran: list[tuple[str, dict[str, object], dict[str, str], float]] = []
        self.cancelled: list[str] = []
        self.has_begun = asyncio.Event()

    async def run(
        self, command: str, *, stdin: str, environment: Mapping[str, str], limit_seconds: float
    ) -> CommandOutcome:
        self.ran.append((command, json.loads(stdin), dict(environment), limit_seconds))
        self.has_begun.set()
        outcome = self.outcomes.get(command, CommandOutcome(0))
        if outcome is None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(command)
                raise
        if isinstance(outcome, Exception):
            raise outcome
        assert outcome is not None
        return outcome


def config(*hooks: object, event: str = "PreToolUse", matcher: str = "*") -> HookConfig:
    return HookConfig.from_json(json.dumps({"hooks": {event: [{"matcher": matcher, "hooks": list(hooks)}]}}))


TOLD = HookInput(
    event_type=HookEvent.PRE_TOOL_USE,
    tool_name="terminal",
    tool_input={"command": "ls"},
    session_id="s1",
    working_dir="/workspace",
)


@pytest.mark.parametrize(
    ("matcher", "matching", "other"),
    [
        ("*", ["terminal", "", "x y"], []),
        ("", ["terminal", ""], []),
        ("terminal", ["terminal"], ["Terminal", "terminal2", "my_terminal", ""]),
        ("/term.*/", ["terminal", "term"], ["my_terminal"]),
        ("term.*", ["terminal"], ["a_terminal"]),
        ("terminal|file_editor", ["terminal", "file_editor"], ["terminal|file_editor", "xterminal"]),
        ("browser_?(click|type)", ["browser_click", "browsertype"], ["browser_"]),
    ],
)
def test_a_matcher_names_tools_exactly_or_by_a_whole_regular_expression(
    matcher: str, matching: list[str], other: list[str]
) -> None:
    found = HookMatcher(matcher=matcher)
    assert all(found.matches(name) for name in matching)
    assert not any(found.matches(name) for name in other)


@given(st.from_regex(r"[a-z_]{1,20}", fullmatch=True), st.from_regex(r"[a-z_]{1,20}", fullmatch=True))
def test_a_plain_matcher_matches_its_own_name_only(matcher: str, tool: str) -> None:
    assert HookMatcher(matcher=matcher).matches(tool) == (matcher == tool)


@pytest.mark.parametrize("event", list(HookEvent))
def test_event_keys_are_read_in_both_spellings(event: HookEvent) -> None:
    snake = "".join("_" + letter.lower() if letter.isupper() else letter for letter in event.value).strip("_")
    assert event_named(event.value) is event
    assert event_named(snake) is event
    assert config({"command": "x"}, event=snake).for_event(event) == (CommandHook(command="x"),)
    assert event.can_block == (event in BLOCKING)


def test_both_spellings_of_one_event_add_up_and_the_outer_key_may_be_left_out() -> None:
    text = json.dumps({"PreToolUse": [{"hooks": [{"command": "a"}]}], "pre_tool_use": [{"hooks": [{"command": "b"}]}]})
    for read in (HookConfig.from_json(text), HookConfig.model_validate_json(text)):
        found = read.for_event(HookEvent.PRE_TOOL_USE, "x")
        assert [hook.command for hook in found if isinstance(hook, CommandHook)] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "no JSON"),
        ("[]", "must be an object, not list"),
        ('{"hooks": {"PreToolUs": []}}', "'PreToolUs' is not known; known are"),
        ('{"hooks": {"Stop": {}}}', "'Stop' must be a list"),
        ('{"hooks": {"Stop": [{"hooks": [{"type": "command"}]}]}}', "command: Field required"),
        ('{"hooks": {"Stop": [{"hooks": [{"type": "magic"}]}]}}', "magic"),
        ('{"hooks": {"Stop": [{"hooks": [{"command": "x", "timeout": 0}]}]}}', "timeout"),
        ('{"hooks": {"Stop": [{"hooks": [{"type": "prompt", "prompt": "x", "async": true}]}]}}', "async"),
        ('{"hooks": {"Stop": [{"matcher": "/(/", "hooks": []}]}}', "no regular expression"),
        ('{"hooks": {"Stop": [{"matcher": "/(a|aa)+$/", "hooks": []}]}}', "takes too long"),
        (json.dumps({"Stop": [{"matcher": "/x/", "hooks": []}] * 201}), "at most 200"),
    ],
)
def test_what_is_wrong_in_a_configuration_is_named(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match="hook") as caught:
        HookConfig.from_json(text)
    assert problem in str(caught.value)


def test_a_matcher_that_takes_too_long_for_a_name_has_its_hooks_asked() -> None:
    read = HookConfig.from_dict({"PreToolUse": [{"matcher": "(b|bb)+c", "hooks": [{"command": "x"}]}]})
    assert read.for_event(HookEvent.PRE_TOOL_USE, "b" * 60) == (CommandHook(command="x"),)
    assert read.for_event(HookEvent.PRE_TOOL_USE, "terminal") == ()


def test_what_other_programs_write_of_their_own_does_not_undo_a_hook() -> None:
    block = {"matcher": "terminal", "comment": "ours", "hooks": [{"command": "x", "statusMessage": "…", "name": "n"}]}
    read = HookConfig.from_dict({"description": "rules", "hooks": {"PreToolUse": [block]}})
    assert read.for_event(HookEvent.PRE_TOOL_USE, "terminal") == (CommandHook(command="x", name="n"),)


def test_a_question_may_come_with_the_empty_fields_of_other_kinds_but_not_with_a_command() -> None:
    empty = {"command": "", "async": False, "prompt": None}
    read = config({**empty, "type": "agent", "system_prompt": "Judge.", "tools": ["terminal"], "max_iterations": 2})
    assert read.for_event(HookEvent.PRE_TOOL_USE) == (
        AgentHook(prompt="Judge.", tools=("terminal",), max_iterations=2),
    )
    with pytest.raises(ValueError, match="command: only hooks of type 'command' have it"):
        config({"type": "prompt", "prompt": "p", "command": "x"})


def test_hooks_are_read_from_a_file_or_from_the_project_or_from_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, command: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"Stop": [{"hooks": [{"command": command}]}]}))

    def commands(**where: Path) -> list[str]:
        found = HookConfig.load(**where).for_event(HookEvent.STOP)
        return [hook.command for hook in found if isinstance(hook, CommandHook)]

    home, project = tmp_path / "home", tmp_path / "project"
    monkeypatch.setenv("HOME", str(home))
    assert commands(working_dir=project) == []
    write(home / ".openhands/hooks.json", "home")
    assert commands(working_dir=project) == ["home"]
    write(project / ".openhands/hooks.json", "project")
    assert commands(working_dir=project) == ["project"]
    monkeypatch.chdir(project)
    assert commands() == ["project"]
    write(tmp_path / "mine.json", "mine")
    assert commands(path=tmp_path / "mine.json", working_dir=project) == ["mine"]
    assert commands(path=tmp_path / "none.json", working_dir=project) == []


def test_defaults_and_json_of_the_kinds_of_hooks() -> None:
    read = config({"command": "x", "async": True}, {"type": "prompt", "prompt": "p"}, {"type": "agent", "prompt": "p"})
    command, prompt, agent = read.for_event(HookEvent.PRE_TOOL_USE)
    assert isinstance(command, CommandHook)
    assert command.is_async
    assert command.timeout == prompt.timeout == agent.timeout == 60
    assert isinstance(agent, AgentHook)
    assert agent.max_iterations == 3
    assert HookConfig.model_validate_json(read.model_dump_json()) == read
    assert '"async":true' in read.model_dump_json()


def test_hooks_of_a_plugin_come_after_those_that_are_configured() -> None:
    both = config({"command": "own"}).followed_by(config({"command": "plugin"})).followed_by(config(event="Stop"))
    assert [getattr(hook, "command", "") for hook in both.for_event(HookEvent.PRE_TOOL_USE)] == ["own", "plugin"]
    assert HookEvent.STOP in both.hooks


@pytest.mark.parametrize(
    ("exit_code", "stdout", "stderr", "expected"),
    [
        (0, "", "", HookResult()),
        (0, "all fine", "", HookResult()),
        (0, '{"decision": "allow"}', "", HookResult()),
        (0, '{"decision": "deny", "reason": "no"}', "", HookResult(True, "no")),
        (0, '{"decision": "deny"}', "why", HookResult(True, "why")),
        (0, '{"continue": false}', "", HookResult(True, "blocked by a hook")),
        (0, '{"continue": true, "additionalContext": "more"}', "", HookResult(additional_context="more")),
        (2, "", "stop it", HookResult(True, "stop it")),
        (2, "from stdout", "", HookResult(True, "from stdout")),
        (2, '{"reason": "r", "additionalContext": "c"}', "e", HookResult(True, "r", "c")),
        (2, '{"decision": "allow"}', "", HookResult(True, "blocked by a hook")),
        (0, '["deny"]', "", HookResult()),
        (1, '{"decision": "deny"}', "boom", HookResult(error="the hook ended with exit code 1: boom")),
        (127, "", "", HookResult(error="the hook ended with exit code 127: ")),
    ],
)
def test_the_answer_of_a_hook_is_its_exit_code_and_its_json(
    exit_code: int, stdout: str, stderr: str, expected: HookResult
) -> None:
    assert read_result(exit_code, stdout, stderr) == expected


@given(st.integers(-300, 300), st.text(max_size=50), st.text(max_size=50))
def test_only_zero_and_two_are_not_errors(exit_code: int, stdout: str, stderr: str) -> None:
    result = read_result(exit_code, stdout, stderr)
    assert bool(result.error) == (exit_code not in {0, 2})
    assert result.blocked <= (not result.error)
    assert exit_code != 2 or result.blocked


@pytest.mark.parametrize("event", list(HookEvent))
def test_the_first_block_wins_where_an_event_can_be_blocked(event: HookEvent) -> None:
    results = [HookResult(additional_context="a"), HookResult(True, "first", "b"), HookResult(True, "second", "c")]
    decision = decide(event, results)
    assert decision.blocked == (event in BLOCKING)
    assert decision.reason == ("first" if decision.blocked else "")
    assert decision.additional_context == (("a", "b") if decision.blocked else ("a", "b", "c"))


async def test_hooks_are_told_what_happens_and_run_in_order_until_one_blocks() -> None:
    runner = Runner(second=CommandOutcome(2, "", "no"))
    read = config({"command": "first", "timeout": 5}, {"command": "second"}, {"command": "third"})
    async with Hooks(read, runner) as hooks:
        decision = await hooks.run(TOLD)
    assert decision.blocked
    assert decision.reason == "no"
    assert [ran[0] for ran in runner.ran] == ["first", "second"]
    _, told, environment, limit = runner.ran[0]
    assert told["tool_input"] == {"command": "ls"}
    assert told["event_type"] == "PreToolUse"
    assert environment == {
        "OPENHANDS_PROJECT_DIR": "/workspace",
        "OPENHANDS_SESSION_ID": "s1",
        "OPENHANDS_EVENT_TYPE": "PreToolUse",
        "OPENHANDS_TOOL_NAME": "terminal",
    }
    assert limit == 5


async def test_where_nothing_can_be_blocked_every_hook_is_run() -> None:
    runner = Runner(first=CommandOutcome(2, "", "no"))
    read = config({"command": "first"}, {"command": "second"}, event="PostToolUse")
    async with Hooks(read, runner) as hooks:
        decision = await hooks.run(TOLD.model_copy(update={"event_type": HookEvent.POST_TOOL_USE}))
    assert not decision.blocked
    assert [ran[0] for ran in runner.ran] == ["first", "second"]


async def test_a_hook_that_fails_or_is_late_blocks_nothing_and_is_named() -> None:
    runner = Runner(
        late=None, broken=SandboxError("no sandbox"), missing=FileNotFoundError("gone"), bad=CommandOutcome(1)
    )
    read = config({"command": "late", "timeout": 0.01}, *({"command": name} for name in ("broken", "missing", "bad")))
    async with Hooks(read, runner) as hooks:
        decision = await hooks.run(TOLD)
    assert not decision.blocked
    assert [
        part in error for part, error in zip(("0.01 s", "no sandbox", "gone", "code 1"), decision.errors, strict=True)
    ]
    assert runner.cancelled == ["late"]


async def test_hooks_that_need_a_model_fail_open() -> None:
    runner = Runner()
    async with Hooks(config({"type": "prompt", "prompt": "ok?"}, {"command": "x"}), runner) as hooks:
        decision = await hooks.run(TOLD)
    assert not decision.blocked
    assert "prompt" in decision.errors[0]
    assert [ran[0] for ran in runner.ran] == ["x"]


async def test_hooks_in_the_background_are_not_waited_for_and_end_with_their_owner() -> None:
    runner = Runner(slow=None)
    async with Hooks(config({"command": "slow", "async": True, "timeout": 86400}), runner) as hooks:
        assert await hooks.run(TOLD) == decide(HookEvent.PRE_TOOL_USE, [])
        async with asyncio.timeout(30):
            await runner.has_begun.wait()
        for _ in range(MAX_BACKGROUND_HOOKS - 1):
            await hooks.run(TOLD)
        assert "passed over" in (await hooks.run(TOLD)).errors[0]
        await asyncio.sleep(0)
    assert runner.cancelled == ["slow"] * MAX_BACKGROUND_HOOKS


async def test_only_hooks_whose_matcher_fits_are_run() -> None:
    runner = Runner()
    async with Hooks(config({"command": "x"}, matcher="file_editor"), runner) as hooks:
        await hooks.run(TOLD)
    assert runner.ran == []
