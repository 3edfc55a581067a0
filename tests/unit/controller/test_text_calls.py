"""The whole loop with a model that writes its calls as text."""

from __future__ import annotations

from agent_core.events.control import AgentState
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent
from tests.unit.controller.stage import Reply
from tests.unit.controller.test_answers import is_in, until
from tests.unit.controller.test_confirmation_flow import staged

IN_TEXT = {"capability_overrides": {"supports_function_calling": False}}
BAD: Reply = ("<function=terminal>\n<parameter=speed>9</parameter>\n</function>", ())
GOOD: Reply = ("I look.\n<function=terminal>\n<parameter=command>ls</parameter>\n", ())
FINISH: Reply = ("<function=finish>\n<parameter=message>done</parameter>\n</function>", ())


async def test_a_call_in_text_is_run_and_one_that_cannot_be_is_corrected_by_the_environment() -> None:
    async with staged(llm_fields=IN_TEXT) as stage:
        await stage.say()
        events = await until(stage, is_in(AgentState.FINISHED), [BAD, GOOD, FINISH])
    (told,) = [event for event in events if isinstance(event, MessageEvent) and event.source == "environment"]
    assert told.llm_message.role == "user"
    assert "no parameter 'speed'" in told.llm_message.text
    calls = [event for event in events if isinstance(event, ActionEvent)]
    assert [(call.tool_name, call.tool_call_id) for call in calls] == [("terminal", "toolu_01"), ("finish", "toolu_02")]
    assert calls[0].thought_text == "I look."
    assert any(isinstance(event, ObservationEvent) and event.cause == calls[0].id for event in events)
    last = stage.model.prompts[-1]
    assert {message["role"] for message in last} == {"system", "user", "assistant"}
    assert last[-1]["content"].startswith("EXECUTION RESULT of [terminal]:\n")
    assert not stage.model.requests[-1].tools


async def test_a_model_whose_calls_never_can_be_is_stopped_in_bounds() -> None:
    async with staged(llm_fields=IN_TEXT) as stage:
        await stage.say()
        await until(stage, is_in(AgentState.ERROR), [BAD])
    assert len(stage.model.prompts) <= 25
