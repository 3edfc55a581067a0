"""Risks and the user's word: what waits, what runs, and what the log remembers of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ChangeAgentState,
    ConfirmationPolicyChanged,
    InterruptEvent,
    PauseEvent,
)
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.messages import Message
from agent_core.events.risk import SecurityRisk
from agent_core.events.serialization import AnyEvent
from agent_core.security.analyzer import LLMSecurityAnalyzer, SecurityAnalyzer
from agent_core.security.analyzers import get_default_analyzer
from agent_core.security.confirmation import AlwaysConfirm, ConfirmRisky, NeverConfirm
from agent_core.security.shell_rules import ShellRuleAnalyzer
from tests.unit.controller.stage import REPLIES, Reply, Stage, StageModel
from tests.unit.controller.test_answers import is_in, until
from tests.waiting import ticks

RISKY: dict[str, Any] = {"policy": ConfirmRisky(), "analyzer": ShellRuleAnalyzer()}


def calls(*commands: str, risk: str = "LOW") -> Reply:
    return "", [("terminal", f'{{"command": "{command}", "security_risk": "{risk}"}}') for command in commands]


class Broken(SecurityAnalyzer):
    """Fails on every action."""

    def security_risk(self, action: ActionEvent) -> SecurityRisk:
        raise RuntimeError("no policy server")


class Slow(SecurityAnalyzer):
    """Does not come to an end."""

    def security_risk(self, action: ActionEvent) -> SecurityRisk:
        return SecurityRisk.LOW

    async def asecurity_risk(self, action: ActionEvent) -> SecurityRisk:
        await asyncio.Event().wait()
        return SecurityRisk.LOW


@asynccontextmanager
async def staged(
    *, model: StageModel | None = None, llm_fields: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Stage]:
    stage = Stage(settings=settings, model=model or StageModel(), llm_fields=llm_fields or {})
    await stage.begin()
    try:
        yield stage
    finally:
        await stage.end()


async def wish(stage: Stage, state: AgentState, *, remember: bool = False) -> None:
    await stage.session.send(ChangeAgentState(agent_state=state, remember=remember))


def asks(stage: Stage) -> bool:
    assert stage.session.running is not None
    return stage.session.step.gate(stage.session.running.controller.state).is_confirmation_mode_active


def actions(events: list[AnyEvent]) -> list[ActionEvent]:
    return [event for event in events if isinstance(event, ActionEvent)]


def ran(events: list[AnyEvent]) -> list[int]:
    return [event.cause for event in events if isinstance(event, ObservationEvent)]


def waits(count: int) -> Callable[[list[AnyEvent]], bool]:
    def check(events: list[AnyEvent]) -> bool:
        changes = [event.agent_state for event in events if isinstance(event, AgentStateChanged)]
        asked = [event for event in actions(events) if event.awaits_confirmation]
        return changes[-1] is AgentState.AWAITING_USER_CONFIRMATION and len(asked) == count

    return check


FINISHED = is_in(AgentState.FINISHED)


async def test_the_analyzers_risk_stands_in_the_event_and_decides() -> None:
    async with staged(**RISKY) as stage:
        await stage.say()
        events = await until(stage, waits(1), [calls("ls"), calls("rm -rf /")])
    assert [(action.security_risk, action.awaits_confirmation) for action in actions(events)] == [
        (SecurityRisk.LOW, False),
        (SecurityRisk.HIGH, True),
    ]


async def test_one_risky_call_makes_its_whole_batch_wait_and_one_word_lets_all_run_in_order() -> None:
    async with staged(**RISKY) as stage:
        await stage.say()
        events = await until(stage, waits(3), [calls("ls", "rm -rf /", "pwd")])
        assert not ran(events)
        await wish(stage, AgentState.USER_CONFIRMED)
        events = await until(stage, FINISHED, [REPLIES["finish"]])
    assert ran(events)[:3] == [action.id for action in actions(events)[:3]]


async def test_errors_of_other_calls_of_an_answer_come_before_what_the_user_is_asked_about() -> None:
    _, (risky,) = calls("rm -rf /")
    reply: Reply = ("I try both.", [risky, ("terminal", "{"), ("no_such_tool", "{}")])
    async with staged(**RISKY) as stage:
        await stage.say()
        events = await until(stage, waits(1), [reply])
        assert [event.kind for event in events[-6:]] == [
            *("ActionEvent", "ActionEvent", "AgentErrorEvent", "AgentErrorEvent"),
            *("AgentStateChanged", "ActionEvent"),
        ]
        first, second, asked = actions(events)
        assert [event.cause for event in events if isinstance(event, AgentErrorEvent)] == [first.id, second.id]
        assert (first.thought_text, asked.thought_text) == ("I try both.", "")
        assert (first.reasoning_content, asked.reasoning_content) == ("Hm", None)
        await wish(stage, AgentState.USER_CONFIRMED)
        await until(stage, FINISHED, [REPLIES["finish"]])
    # The model is told one answer with three calls, and what became of each.
    told = stage.model.prompts[-1][-4:]
    assert [message["role"] for message in told] == ["assistant", "tool", "tool", "tool"]
    assert [call["function"]["name"] for call in told[0]["tool_calls"]] == ["terminal", "no_such_tool", "terminal"]
    assert [call["id"] for call in told[0]["tool_calls"]] == [message["tool_call_id"] for message in told[1:]]


async def test_a_rejected_batch_is_answered_call_by_call_and_nothing_of_it_runs() -> None:
    async with staged(**RISKY) as stage:
        await stage.say()
        await until(stage, waits(2), [calls("rm -rf /", "ls")])
        await wish(stage, AgentState.USER_REJECTED)
        events = await until(stage, is_in(AgentState.AWAITING_USER_INPUT))
    assert not ran(events)
    refused = [event.cause for event in events if isinstance(event, UserRejectObservation)]
    assert refused == [action.id for action in actions(events)]
    assert {event.source for event in events if isinstance(event, UserRejectObservation)} == {"environment"}


async def test_a_message_while_calls_wait_refuses_them_with_that_message_as_the_reason() -> None:
    async with staged(**RISKY) as stage:
        await stage.say()
        await until(stage, waits(1), [calls("rm -rf /")])
        await stage.session.send(MessageEvent(source="user", llm_message=Message.user("Only below /tmp, please.")))
        events = await until(stage, FINISHED, [REPLIES["finish"]])
    (refused,) = [event for event in events if isinstance(event, UserRejectObservation)]
    assert "Only below /tmp, please." in refused.rejection_reason
    states = [event.agent_state for event in events if isinstance(event, AgentStateChanged)]
    rest_of_it = states[states.index(AgentState.USER_REJECTED) :]
    assert rest_of_it == [AgentState.USER_REJECTED, AgentState.RUNNING, AgentState.FINISHED], "it never rests meanwhile"
    told = [message for message in stage.model.prompts[-1] if message["role"] == "tool"]
    assert "Only below /tmp, please." in str(told)


async def test_who_approves_for_the_rest_of_the_conversation_is_never_asked_again_not_even_after_a_crash() -> None:
    async with staged(**RISKY) as stage:
        await stage.say()
        await until(stage, waits(1), [calls("rm -rf /")])
        await wish(stage, AgentState.USER_CONFIRMED, remember=True)
        events = await until(stage, FINISHED, [calls("rm -rf /usr"), REPLIES["finish"]])
        assert [action.awaits_confirmation for action in actions(events)] == [True, False, False]
        assert len([event for event in events if isinstance(event, ActionDecision)]) == 1
        await stage.crash()
        await stage.begin()
        assert not asks(stage)
        await stage.say()
        replies = [calls("rm -rf /bin"), REPLIES["finish"]]
        again = await until(stage, lambda log: len(actions(log)) == 5 and FINISHED(log), replies)
    assert not actions(again)[3].awaits_confirmation


@pytest.mark.parametrize("wished", [ChangeAgentState(agent_state=AgentState.PAUSED), PauseEvent(), InterruptEvent()])
async def test_a_pause_is_no_answer_to_what_the_user_is_asked(wished: ChangeAgentState) -> None:
    async with staged(**RISKY) as stage:
        await stage.say()
        await until(stage, waits(2), [calls("rm -rf /", "ls")])
        await stage.session.send(wished)
        await wish(stage, AgentState.USER_CONFIRMED)
        events = await until(stage, FINISHED, [REPLIES["finish"]])
    assert ran(events)[:2] == [action.id for action in actions(events)[:2]]
    assert AgentState.PAUSED not in [event.agent_state for event in events if isinstance(event, AgentStateChanged)]


async def test_a_pause_while_the_conversation_is_loaded_again_leaves_the_question_open() -> None:
    async with staged(**RISKY) as stage:
        await stage.say()
        await until(stage, waits(1), [calls("rm -rf /")])
        await stage.crash()
        await stage.begin(asking_for=AgentState.PAUSED)
        await until(stage, waits(1))
        await wish(stage, AgentState.USER_CONFIRMED)
        events = await until(stage, FINISHED, [REPLIES["finish"]])
    assert ran(events)[0] == actions(events)[0].id


async def test_a_refusal_is_never_remembered_as_an_approval() -> None:
    async with staged(**RISKY) as stage:
        await stage.say()
        await until(stage, waits(1), [calls("rm -rf /")])
        await wish(stage, AgentState.USER_REJECTED, remember=True)
        events = await until(stage, is_in(AgentState.AWAITING_USER_INPUT))
        assert not any(isinstance(event, ConfirmationPolicyChanged) for event in events)
        assert asks(stage)


async def test_a_policy_that_is_set_later_decides_from_then_on() -> None:
    async with staged(analyzer=ShellRuleAnalyzer()) as stage:
        before = asks(stage)
        await stage.session.send(ConfirmationPolicyChanged(policy=AlwaysConfirm().model_dump(mode="json")))
        await stage.say()
        events = await until(stage, waits(1), [calls("ls")])
        assert (before, asks(stage)) == (False, True)
    assert actions(events)[0].security_risk is SecurityRisk.LOW


@pytest.mark.parametrize("kind", ["NoSuchPolicy", ""])
async def test_a_stored_policy_that_cannot_be_read_lets_nothing_pass_unasked(kind: str) -> None:
    async with staged(analyzer=ShellRuleAnalyzer()) as stage:
        await stage.session.send(ConfirmationPolicyChanged(policy={"kind": kind}))
        await stage.say()
        await until(stage, waits(1), [calls("ls")])


async def test_without_an_analyzer_risks_are_asked_for_but_not_believed_and_always_confirm_asks() -> None:
    async with staged(policy=AlwaysConfirm()) as stage:
        await stage.say()
        events = await until(stage, waits(1), [calls("ls", risk="nonsense")])
        assert not asks(stage)
    assert actions(events)[0].security_risk is SecurityRisk.UNKNOWN
    assert "security_risk" in str(stage.model.requests[-1].tools), "so an analyzer can be set at any time"
    assert "security_risk" not in str(stage.model.prompts[-1])


async def test_with_an_analyzer_the_model_is_asked_for_risks_and_a_wrong_one_is_an_error_that_it_can_mend() -> None:
    async with staged(analyzer=LLMSecurityAnalyzer()) as stage:
        await stage.say()
        events = await until(stage, FINISHED, [calls("ls", risk="nonsense"), REPLIES["finish"]])
    assert actions(events)[0].action is None
    assert "security_risk" in str(stage.model.requests[0].tools)
    assert "`security_risk`" in str(stage.model.prompts[0])


async def test_a_medium_risk_runs_at_once_and_leaves_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with staged(policy=ConfirmRisky(), analyzer=LLMSecurityAnalyzer()) as stage:
        await stage.say()
        with caplog.at_level(logging.WARNING, "agent_core.controller.step"):
            events = await until(stage, FINISHED, [calls("make", risk="MEDIUM"), REPLIES["finish"]])
    assert actions(events)[0].id in ran(events)
    lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert lines == ["conversation c: a call of terminal is of MEDIUM risk"]


async def test_a_medium_risk_leaves_a_warning_also_where_nothing_is_confirmed(caplog: pytest.LogCaptureFixture) -> None:
    async with staged(policy=NeverConfirm(), analyzer=LLMSecurityAnalyzer()) as stage:
        await stage.say()
        with caplog.at_level(logging.WARNING, "agent_core.controller.step"):
            events = await until(stage, FINISHED, [calls("make", risk="MEDIUM"), REPLIES["finish"]])
    assert actions(events)[0].security_risk is SecurityRisk.MEDIUM
    lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert lines == ["conversation c: a call of terminal is of MEDIUM risk"]


async def test_an_analyzer_that_fails_counts_as_high() -> None:
    async with staged(policy=ConfirmRisky(), analyzer=Broken()) as stage:
        await stage.say()
        events = await until(stage, waits(1), [calls("ls")])
    assert actions(events)[0].security_risk is SecurityRisk.HIGH


async def test_a_stop_does_not_wait_for_the_analyzer() -> None:
    async with staged(policy=ConfirmRisky(), analyzer=Slow()) as stage:
        await stage.say()
        await until(stage, lambda _: stage.model.asking == 1)
        stage.model.gate.open(calls("ls"))
        await until(stage, lambda _: stage.model.asking == 0)
        await ticks(20)
        await wish(stage, AgentState.STOPPED)
        events = await until(stage, is_in(AgentState.STOPPED))
    assert not actions(events)


async def test_risky_calls_wait_by_rules_and_by_the_models_word() -> None:
    async with staged(policy=ConfirmRisky(), analyzer=get_default_analyzer()) as stage:
        assert asks(stage)
        await stage.say()
        await until(stage, waits(1), [calls("ls"), calls("rm -rf /")])
        await wish(stage, AgentState.USER_CONFIRMED)
        await until(stage, waits(2), [calls("ls", risk="HIGH")])


async def test_a_call_of_unknown_risk_waits_by_default() -> None:
    silent: Reply = ("", [("terminal", '{"command": "ls"}')])
    async with staged(policy=ConfirmRisky(), analyzer=get_default_analyzer()) as stage:
        await stage.say()
        events = await until(stage, waits(1), [silent])
    assert actions(events)[0].security_risk is SecurityRisk.UNKNOWN


async def test_never_confirm_lets_everything_run_and_still_says_the_risk() -> None:
    async with staged(policy=NeverConfirm(), analyzer=get_default_analyzer()) as stage:
        await stage.say()
        events = await until(stage, FINISHED, [calls("rm -rf /"), REPLIES["finish"]])
    assert actions(events)[0].security_risk is SecurityRisk.HIGH
    assert actions(events)[0].id in ran(events)
