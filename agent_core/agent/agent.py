"""The agent: one question to the model, its answer as events."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from agent_core.agent.base import AgentBase
from agent_core.agent.critic import CriticMixin
from agent_core.agent.step import StepInput, StepOutcome
from agent_core.agent.tool_calls import parse_call
from agent_core.errors import FunctionCallValidationError
from agent_core.events.llm_events import ActionEvent, MessageEvent
from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLMResponse
from agent_core.tools.builtin import FinishAction

_MARKS = r"<\|?tool_calls?\|?>|<function_calls?>|\[TOOL_CALLS\]|<function=|<invoke\s+name=|<\|python_tag\|>"
_NEAR = 200
MAX_CALLS_IN_RESPONSE = 512
NUDGE = (
    "Your last reply held neither text nor a tool call. Go on with the task: call a tool, or call finish with what you"
    " have to say."
)
TEXT_CALL_NUDGE = (
    "Your last reply wrote a tool call as text, so nothing was run. Make the call through the tool interface; if you"
    " meant no call, say so without its syntax."
)
CUT_OFF = (
    "The reply was cut off at the model's output limit: do it in smaller parts, for example one call at a time, and a"
    " long file in several pieces."
)
TOO_MANY = (
    "Not run: the reply held {count} calls, and only the first {most} of a reply are run. Make"
    " this one and those after it again in later replies, as far as they are still needed."
)
AFTER_FINISH = "Not run: the call of finish before it in the same reply ended the task."


class Agent(CriticMixin, AgentBase):
    """Reasons and acts through the tools it is given."""

    async def astep(self, step: StepInput) -> StepOutcome:
        try:
            response = await self.llm.acompletion(
                step.prompt, step.tool_schemas, on_delta=step.on_delta, on_retry=step.on_retry, context=step.context
            )
        except FunctionCallValidationError as error:
            if not isinstance(error.response, LLMResponse):
                raise
            response = error.response
            nudge = _nudge(f"Your call could not be read, so nothing was run: {error}", response)
            replies = [_message_event(response.message, response, waits=False)] if response.message.text.strip() else []
            return StepOutcome([*replies, nudge], response)
        return outcome_of(response, step)


def outcome_of(response: LLMResponse, step: StepInput) -> StepOutcome:
    """What the agent makes of a model's answer; calls beyond `MAX_CALLS_IN_RESPONSE` get one error together."""
    message = response.message
    if message.tool_calls:
        return _calls(message.tool_calls, response, step)
    if is_call_in_text(message.text, step.tools):
        event = _message_event(message, response, waits=False)
        return StepOutcome([event, _nudge(TEXT_CALL_NUDGE, response)], response)
    if message.text.strip():
        return StepOutcome([_message_event(message, response)], response)
    nudge = _nudge(f"{NUDGE} {CUT_OFF}" if _is_cut(response) else NUDGE, response)
    return StepOutcome([_message_event(message, response, waits=False), nudge], response)


def is_call_in_text(text: str, tools: Collection[str]) -> bool:
    """Whether the text is, or ends with, a call of one of these tools in a form that models are trained on."""
    if not tools:
        return False
    stripped = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    if stripped.startswith("{"):
        with suppress(ValueError, RecursionError):
            value = json.loads(stripped)
            inner = value.get("function")
            call = inner if isinstance(inner, dict) else value
            if call.get("name") in tools and ("arguments" in call or "parameters" in call):
                return True
    names = "|".join(map(re.escape, sorted(tools)))
    marks = list(re.finditer(_MARKS, text))
    return bool(marks) and re.match(rf"[\s\S]{{0,{_NEAR}}}?\b(?:{names})\b", text[marks[-1].start() :]) is not None


def _calls(calls: list[MessageToolCall], response: LLMResponse, step: StepInput) -> StepOutcome:
    message = response.message
    thought = [part for part in message.content if isinstance(part, TextContent)]
    taken = calls[: MAX_CALLS_IN_RESPONSE + 1]
    events: list[AnyEvent] = []
    errors: dict[int, str] = {}
    has_finished = False
    for position, call in enumerate(taken):
        parsed = parse_call(call, step.tools, predicts_risk=step.predicts_risk)
        if has_finished:
            parsed = replace(parsed, action=None, error=AFTER_FINISH)
        elif position == MAX_CALLS_IN_RESPONSE:
            # One error for all of them: as many as there are calls would look like an agent that repeats itself.
            text = TOO_MANY.format(count=len(calls), most=MAX_CALLS_IN_RESPONSE)
            parsed = replace(parsed, action=None, error=text)
        has_finished = has_finished or isinstance(parsed.action, FinishAction)
        is_first = position == 0
        events.append(
            ActionEvent(
                thought=thought if is_first else [],
                reasoning_content=message.reasoning_content if is_first else None,
                thinking_blocks=message.thinking_blocks if is_first else [],
                action=parsed.action,
                tool_name=parsed.tool_name,
                tool_call_id=parsed.call.id,
                tool_call=parsed.call,
                llm_response_id=response.id,
                calls_in_response=len(taken),
                security_risk=parsed.security_risk,
                summary=parsed.summary,
            )
        )
        if parsed.action is None:
            is_half = position == len(calls) - 1 and _is_cut(response)
            errors[position] = f"{parsed.error} {CUT_OFF}" if is_half else parsed.error
    return StepOutcome(events, response, errors)


def _is_cut(response: LLMResponse) -> bool:
    return response.finish_reason in ("length", "max_tokens")


def _nudge(text: str, response: LLMResponse) -> MessageEvent:
    return MessageEvent(source="environment", llm_message=Message.user(text), llm_response_id=response.id)


def _message_event(message: Message, response: LLMResponse, *, waits: bool = True) -> MessageEvent:
    return MessageEvent(
        source="agent",
        llm_message=message.model_copy(update={"tool_calls": None}),
        llm_response_id=response.id,
        wait_for_response=waits,
    )
