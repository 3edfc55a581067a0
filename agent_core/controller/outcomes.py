"""What a step came to, made fit for the log: agents of programs may leave out what ours never do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from agent_core.agent.step_form import StepOutcome
from agent_core.errors import DrydockError
from agent_core.events.llm_events import ActionEvent, MessageEvent
from agent_core.events.messages import Message, MessageToolCall
from agent_core.events.serialization import AnyEvent

NOTHING_DONE: Final = "Your last step came to nothing: say something, make a call, or finish."


def completed(outcome: StepOutcome) -> StepOutcome:
    """The outcome with all that the log needs to count steps, and to tell the calls of one answer.

    Where nothing came of the step, that is what the agent is told next; it counts as an empty reply.

    Raises:
        DrydockError: a call that is not the first of its response has a thought.
    """
    events = outcome.events or [MessageEvent(llm_message=Message.user(NOTHING_DONE))]
    if not outcome.events or not all(map(_is_complete, events)):
        response_id = f"step-{uuid4().hex}"
        named = [_named(event, response_id) for event in events]
        sizes = Counter(event.llm_response_id for event in named if isinstance(event, ActionEvent))
        events = [_counted(event, sizes) for event in named]
    _check_thoughts(events)
    return outcome if events is outcome.events else replace(outcome, events=events)


def _is_complete(event: AnyEvent) -> bool:
    if isinstance(event, ActionEvent):
        return bool(event.llm_response_id and event.calls_in_response and event.tool_call and event.tool_call_id)
    return not isinstance(event, MessageEvent) or bool(event.llm_response_id)


def _named(event: AnyEvent, response_id: str) -> AnyEvent:
    if isinstance(event, MessageEvent):
        return event.model_copy(update={"llm_response_id": event.llm_response_id or response_id})
    if not isinstance(event, ActionEvent):
        return event
    call_id = event.tool_call_id or (event.tool_call.id if event.tool_call else "") or f"call-{uuid4().hex}"
    call = event.tool_call or MessageToolCall(id=call_id, name=event.tool_name, arguments=_arguments_of(event))
    said: dict[str, Any] = {"tool_call": call, "tool_call_id": call_id}
    return event.model_copy(update={**said, "llm_response_id": event.llm_response_id or response_id})


def _arguments_of(event: ActionEvent) -> str:
    return "{}" if event.action is None else event.action.model_dump_json(exclude={"kind"}, exclude_none=True)


def _counted(event: AnyEvent, sizes: Counter[str]) -> AnyEvent:
    if not isinstance(event, ActionEvent) or event.calls_in_response:
        return event
    return event.model_copy(update={"calls_in_response": sizes[event.llm_response_id]})


def _check_thoughts(events: list[AnyEvent]) -> None:
    begun: set[str] = set()
    for event in events:
        if not isinstance(event, ActionEvent):
            continue
        if event.llm_response_id in begun and (event.thought or event.reasoning_content or event.thinking_blocks):
            raise DrydockError(
                f"the call of {event.tool_name!r} is not the first of its response and has a thought; only the first"
                " may have one"
            )
        begun.add(event.llm_response_id)
