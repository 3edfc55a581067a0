"""Hooks about messages, the agent's coming to rest, sessions, and hooks that ask a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState, HookExecutionEvent
from agent_core.events.llm_events import AgentErrorEvent, MessageEvent, ObservationEvent, UserRejectObservation
from agent_core.events.masking import MASK
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.runtime.hook_calls import MAX_FIELD_CHARS, STOP_PREFIX
from agent_core.security.confirmation import AlwaysConfirm
from agent_core.security.hooks import HookConfig, HookEvent
from agent_core.session.hooks import MAX_CALLS, home_hooks
from agent_core.testing.fake_sandbox import FakeAnswer, FakeRequest
from tests.unit.controller.stage import REPLIES, Stage
from tests.unit.controller.test_answers import is_in, until
from tests.unit.controller.test_confirmation_flow import FINISHED, calls
from tests.unit.controller.test_tool_hooks import hooked, hooks, load

AT_REST = is_in(AgentState.FINISHED, AgentState.AWAITING_USER_INPUT, AgentState.ERROR)


async def say(stage: Stage, text: str) -> None:
    await stage.session.send(MessageEvent(source="user", llm_message=Message.user(text)))


def executions(events: list[AnyEvent]) -> list[HookExecutionEvent]:
    return [event for event in events if isinstance(event, HookExecutionEvent)]


def printing(stage: Stage, output: str) -> None:
    """Have all commands print this."""
    shell = stage.sandbox.runner.handlers["shell.run"]

    async def run(call: FakeRequest) -> FakeAnswer:
        answer = await shell(call)
        is_hook = bool(call.args.get("fresh"))
        return answer if is_hook or isinstance(answer, tuple) else {**answer, "output": output}

    stage.sandbox.runner.handlers["shell.run"] = run


# --- messages of the user ---


async def test_a_blocked_message_ends_in_finished_without_a_question_to_the_model_that_never_sees_it() -> None:
    refusing = hooks("UserPromptSubmit", 'grep -q "secret plan" && { echo "not that" >&2; exit 2; }; exit 0')
    async with hooked(refusing, says=False) as stage:
        await say(stage, "Tell the secret plan.")
        events = await until(stage, FINISHED)
        assert not stage.model.prompts
        (execution,) = executions(events)
        assert (execution.source, execution.hook_event_type) == ("hook", "UserPromptSubmit")
        assert (execution.blocked, execution.reason, execution.exit_code) == (True, "not that", 2)
        assert events[execution.message_id or 0].kind == "MessageEvent"
        await say(stage, "Then sing.")
        await until(stage, lambda log: FINISHED(log) and bool(stage.model.prompts), [REPLIES["finish"]])
        prompt = str(stage.model.prompts[-1])
    assert "Then sing." in prompt
    assert "secret plan" not in prompt
    assert "Machine: Linux" in prompt, "the first message that counts brings the facts of the workspace"


async def test_a_message_blocked_while_the_agent_works_does_not_disturb_it() -> None:
    refusing = hooks("UserPromptSubmit", "grep -q forbidden && exit 2; exit 0")
    async with hooked(refusing, says=False) as stage:
        await say(stage, "Go.")
        await until(stage, lambda _: stage.model.asking == 1)
        await say(stage, "forbidden")
        await until(stage, lambda log: any(event.blocked for event in executions(log)))
        events = await until(stage, AT_REST, [calls("ls"), REPLIES["finish"]])
    assert any(isinstance(event, ObservationEvent) for event in events)
    assert "forbidden" not in str(stage.model.prompts[-1])
    assert len(stage.model.prompts) == 2


async def test_a_hook_may_add_to_a_message_what_the_model_is_told_with_it() -> None:
    adding = hooks("user_prompt_submit", 'echo "{\\"additionalContext\\": \\"It is raining.\\"}"')
    async with hooked(adding) as stage:
        events = await until(stage, FINISHED, [REPLIES["finish"]])
    assert "It is raining." in str(stage.model.prompts[0])
    (added,) = [event for event in events if isinstance(event, MessageEvent) and event.source == "environment"]
    assert isinstance(events[added.cause or 0], MessageEvent)


async def test_of_a_blocked_message_nothing_is_added_for_the_model() -> None:
    said = json.dumps({"decision": "deny", "reason": "not that", "additionalContext": "psst"})
    async with hooked(hooks("UserPromptSubmit", f"echo '{said}'")) as stage:
        events = await until(stage, FINISHED)
    assert [event.reason for event in executions(events)] == ["not that"]
    assert [event.source for event in events if isinstance(event, MessageEvent)] == ["user"]


async def test_a_message_stays_blocked_when_the_log_cannot_take_the_word_of_the_hook_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_core.controller.agent_controller.STORE_RETRY_SECONDS", 0.01)
    async with hooked(hooks("UserPromptSubmit", "exit 2"), says=False) as stage:
        shell, asked = stage.sandbox.runner.handlers["shell.run"], 0

        async def run(call: FakeRequest) -> FakeAnswer:
            nonlocal asked
            asked += 1
            stage.store.failures = 1 if asked == 1 else 0
            return await shell(call)

        stage.sandbox.runner.handlers["shell.run"] = run
        await say(stage, "Tell the secret plan.")
        events = await until(stage, FINISHED)
        assert (stage.model.prompts, asked) == ([], 2)
        assert [event.blocked for event in executions(events)] == [True]


async def test_a_pause_while_a_hook_looks_at_a_message_is_kept() -> None:
    async with hooked(hooks("UserPromptSubmit", "exit 0"), says=False) as stage:
        await say(stage, "Go.")
        await stage.session.send(ChangeAgentState(agent_state=AgentState.PAUSED))
        await until(stage, lambda log: bool(executions(log)) and is_in(AgentState.PAUSED)(log))
        assert not stage.model.prompts
        await stage.session.send(ChangeAgentState(agent_state=AgentState.RUNNING))
        await until(stage, FINISHED, [REPLIES["finish"]])


# --- the agent's end ---


async def test_a_hook_that_refuses_the_end_lets_the_agent_go_on_with_its_reason(tmp_path: Path) -> None:
    once = f"test -e {tmp_path}/asked || {{ touch {tmp_path}/asked; echo 'run the tests' >&2; exit 2; }}"
    async with hooked(hooks("Stop", once)) as stage:
        events = await until(stage, FINISHED, [REPLIES["finish"]])
    said = [event for event in events if isinstance(event, MessageEvent) and event.source == "environment"]
    assert [event.llm_message.text for event in said] == [f"{STOP_PREFIX}run the tests"]
    assert f"{STOP_PREFIX}run the tests" in str(stage.model.prompts[-1])
    assert len(stage.model.prompts) == 2
    assert [event.blocked for event in executions(events)] == [True, False]


async def test_an_agent_that_speaks_is_asked_about_too_and_the_hook_knows_its_words(tmp_path: Path) -> None:
    async with hooked(hooks("Stop", f"cat > {tmp_path}/told")) as stage:
        waits = is_in(AgentState.AWAITING_USER_INPUT)
        await until(stage, lambda log: bool(executions(log)) and waits(log), [REPLIES["text"]])
    assert load(tmp_path / "told")["message"] == "Which one?"
    assert len(stage.model.prompts) == 1


async def test_a_hook_that_never_lets_the_agent_stop_is_ended_by_the_limit_of_iterations() -> None:
    async with hooked(hooks("Stop", "exit 2"), max_iterations=3) as stage:
        events = await until(stage, is_in(AgentState.ERROR), [REPLIES["finish"]])
    assert len(stage.model.prompts) == 3
    assert isinstance(events[-1], AgentStateChanged)


async def test_the_user_may_interrupt_a_hook_that_does_not_let_go() -> None:
    async with hooked(hooks("Stop", "hang for ever")) as stage:
        await until(stage, lambda log: any(event.kind == "ObservationEvent" for event in log), [REPLIES["finish"]])
        await stage.session.send(ChangeAgentState(agent_state=AgentState.PAUSED))
        await until(stage, is_in(AgentState.PAUSED))


# --- sessions ---


async def test_hooks_hear_of_the_beginning_and_the_end_of_a_session(tmp_path: Path) -> None:
    config = {
        **hooks("SessionStart", f"echo start >> {tmp_path}/told"),
        **hooks("SessionEnd", f"echo end >> {tmp_path}/told"),
    }
    async with hooked(config) as stage:
        events = await until(stage, FINISHED, [REPLIES["finish"]])
        kinds = [event.kind for event in events]
        assert kinds.index("HookExecutionEvent") < kinds.index("MessageEvent"), "the agent begins after its hooks"
        assert (tmp_path / "told").read_text() == "start\n"
    log = [event async for event in stage.session.stream.history()]
    assert (tmp_path / "told").read_text() == "start\nend\n"
    assert [event.hook_event_type for event in executions(log)] == ["SessionStart", "SessionEnd"]


# --- configuration and record ---


async def test_the_users_home_is_asked_where_the_project_has_no_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".openhands").mkdir()
    home = {"hooks": hooks("PreToolUse", "echo home says no; exit 2", "terminal")}
    (tmp_path / ".openhands/hooks.json").write_text(json.dumps(home))

    async def reasons(project: str) -> list[str]:
        async with hooked({}, project=project) as stage:
            events = await until(stage, FINISHED, [calls("ls"), REPLIES["finish"]])
        return [event.rejection_reason for event in events if isinstance(event, UserRejectObservation)]

    assert await reasons("") == ["home says no"]
    assert await reasons(json.dumps({"hooks": {}})) == [], "the project's own file counts instead"


def test_a_broken_file_in_the_home_is_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert home_hooks(tmp_path) == HookConfig()
    (tmp_path / ".openhands").mkdir()
    (tmp_path / ".openhands/hooks.json").write_text('{"Nonsense": []}')
    assert home_hooks(tmp_path) == HookConfig()
    assert "Nonsense" in caplog.text


async def test_what_a_hook_was_told_and_said_is_in_the_log_within_limits() -> None:
    command = f"python3 -c \"print('y' * {MAX_FIELD_CHARS + 9})\"; echo oops >&2"
    async with hooked(hooks("PostToolUse", command, "terminal")) as stage:
        events = await until(stage, FINISHED, [calls("ls"), REPLIES["finish"]])
    (execution,) = executions(events)
    assert len(execution.stdout) == MAX_FIELD_CHARS
    assert execution.stderr.strip() == "oops"
    assert (execution.success, execution.tool_name, execution.hook_command) == (True, "terminal", command)
    assert events[execution.action_id or 0].kind == "ActionEvent"
    assert json.loads(execution.hook_input)["tool_response"]["content"][0]["text"].startswith("ran ls")


async def test_a_hook_is_told_of_a_result_with_half_characters_and_the_call_has_gone_well(tmp_path: Path) -> None:
    async with hooked(hooks("PostToolUse", f"cat > {tmp_path}/told", "terminal")) as stage:
        printing(stage, "a file \udcff")
        events = await until(stage, FINISHED, [calls("ls"), REPLIES["finish"]])
    assert not [event for event in events if isinstance(event, AgentErrorEvent)]
    assert "a file \ufffd" in str(load(tmp_path / "told")["tool_response"])
    assert "a file \ufffd" in executions(events)[0].hook_input


# --- hooks that ask a model ---


def judging(kind: str, event: HookEvent = HookEvent.PRE_TOOL_USE) -> dict[str, Any]:
    return hooks(event.value, "", "terminal", type=kind, prompt="Nothing may be listed.")


def without_command(config: dict[str, Any]) -> dict[str, Any]:
    for matchers in config.values():
        for matcher in matchers:
            for hook in matcher["hooks"]:
                del hook["command"]
    return config


DENY = ('Well: ```{"decision": "deny", "reason": "no lists"}```', ())


async def test_a_prompt_hook_asks_the_model_once_and_may_block() -> None:
    async with hooked(without_command(judging("prompt"))) as stage:
        events = await until(stage, FINISHED, [calls("ls"), DENY, REPLIES["finish"]])
    (refused,) = [event for event in events if isinstance(event, UserRejectObservation)]
    assert refused.rejection_reason == "no lists"
    question = str(stage.model.prompts[1])
    assert "Nothing may be listed." in question
    assert '"command": "ls"' in question.replace('\\"', '"').replace('":"', '": "')
    assert not stage.model.requests[1].tools
    assert [event.hook_command for event in executions(events)] == ["Nothing may be listed."]


async def test_a_model_that_does_not_judge_lets_the_call_run() -> None:
    async with hooked(without_command(judging("prompt"))) as stage:
        events = await until(stage, FINISHED, [calls("ls"), ("I do not know.", ()), REPLIES["finish"]])
    assert not any(isinstance(event, UserRejectObservation) for event in events)
    (execution,) = executions(events)
    assert (execution.success, execution.blocked) == (False, False)
    assert "no judgement" in execution.error


async def test_an_agent_hook_looks_around_before_it_judges() -> None:
    async with hooked(without_command(judging("agent"))) as stage:
        events = await until(stage, FINISHED, [calls("ls"), calls("cat rules"), DENY, REPLIES["finish"]])
    assert [event.rejection_reason for event in events if isinstance(event, UserRejectObservation)] == ["no lists"]
    offered = {tool["function"]["name"] for tool in stage.model.requests[1].tools}
    assert "terminal" in offered
    assert not offered & {"finish", "think"}
    assert "ran cat rules" in str(stage.model.prompts[2])


async def test_the_model_of_an_agent_hook_calls_nothing_that_would_be_asked_about() -> None:
    judge = without_command(hooks("UserPromptSubmit", "", "*", type="agent", prompt="Look whether it may be said."))
    async with hooked(judge, policy=AlwaysConfirm()) as stage:
        await until(stage, FINISHED, [calls("cat rules"), ('{"decision": "allow"}', ()), REPLIES["finish"]])
    told = str(stage.model.prompts[1])
    assert "the user decides about such calls" in told
    assert "ran cat rules" not in told


async def test_an_agent_hook_that_names_tools_has_no_others() -> None:
    looking = judging("agent")
    looking["PreToolUse"][0]["hooks"][0]["tools"] = ["TerminalTool"]
    async with hooked(without_command(looking)) as stage:
        await until(stage, FINISHED, [calls("ls"), DENY, REPLIES["finish"]])
    assert [tool["function"]["name"] for tool in stage.model.requests[1].tools] == ["terminal"]
    assert len(stage.model.requests[0].tools) > 1


@pytest.mark.parametrize("kind", ["prompt", "agent"])
async def test_a_model_that_judges_is_told_no_secret(kind: str) -> None:
    judge = without_command(judging(kind, HookEvent.POST_TOOL_USE))
    async with hooked(judge, named_secrets={"TOKEN": "sesame"}) as stage:
        printing(stage, "sesame")
        looking = [calls("look")] if kind == "agent" else []
        await until(stage, FINISHED, [calls("ls"), *looking, DENY, REPLIES["finish"]])
    assert len(stage.model.prompts) == 3 + len(looking)
    for prompt in stage.model.prompts[1:]:
        assert MASK in str(prompt[-1])
        assert "sesame" not in str(prompt)


async def test_of_the_calls_of_an_agent_hook_so_many_are_made_and_no_more() -> None:
    many = calls(*[f"cat {number}" for number in range(MAX_CALLS + 1)])
    async with hooked(without_command(judging("agent"))) as stage:
        await until(stage, FINISHED, [calls("ls"), many, DENY, REPLIES["finish"]])
    told = stage.model.prompts[2]
    assert [message["role"] for message in told] == ["user", "assistant", *["tool"] * MAX_CALLS]
    assert len(told[1]["tool_calls"]) == MAX_CALLS


async def test_an_agent_hook_has_so_many_answers_and_no_more() -> None:
    looking = without_command(judging("agent"))
    async with hooked(looking) as stage:
        events = await until(stage, FINISHED, [calls("ls"), *[calls("cat rules")] * 3, REPLIES["finish"]])
    assert any(isinstance(event, ObservationEvent) for event in events), "it fails open"
    assert not stage.model.requests[3].tools, "the last answer has to be the judgement"
    assert executions(events)[0].error
