"""The agent: one question to the model, its answer as events (agent-core 2.4)."""

from __future__ import annotations

from typing import Any

from agent_core.agent.base import AgentBase, StepInput, StepOutcome
from agent_core.agent.tool_calls import parse_call
from agent_core.events.llm_events import ActionEvent, MessageEvent
from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLMResponse

MAX_CALLS_IN_RESPONSE = 128
NUDGE = (
    "Your last reply held neither text nor a tool call. Go on with the task: call a tool, or call finish with what you"
    " have to say."
)


class Agent(AgentBase):
    """Reasons and acts through the tools it is given."""

    async def astep(self, step: StepInput) -> StepOutcome:
        response = await self.llm.acompletion(
            step.prompt, step.tool_schemas, on_delta=step.on_delta, on_retry=step.on_retry, context=step.context
        )
        message = response.message
        if message.tool_calls:
            return self._calls(message.tool_calls, response, step)
        if message.text.strip():
            return StepOutcome([_spoken(message, response)], response)
        nudge = MessageEvent(source="environment", llm_message=Message.user(NUDGE), llm_response_id=response.id)
        return StepOutcome([nudge], response)

    def _calls(self, calls: list[MessageToolCall], response: LLMResponse, step: StepInput) -> StepOutcome:
        message = response.message
        thought = [part for part in message.content if isinstance(part, TextContent)]
        kept = _until_finish(calls[:MAX_CALLS_IN_RESPONSE])
        events: list[AnyEvent] = []
        errors: dict[int, str] = {}
        for position, call in enumerate(kept):
            parsed = parse_call(call, step.tools)
            first: dict[str, Any] = {}
            if position == 0:
                first = {
                    "thought": thought,
                    "reasoning_content": message.reasoning_content,
                    "thinking_blocks": message.thinking_blocks,
                }
            events.append(
                ActionEvent(
                    action=parsed.action,
                    tool_name=parsed.tool_name,
                    tool_call_id=parsed.call.id,
                    tool_call=parsed.call,
                    llm_response_id=response.id,
                    calls_in_response=len(kept),
                    security_risk=parsed.security_risk,
                    summary=parsed.summary,
                    **first,
                )
            )
            if parsed.action is None:
                errors[position] = parsed.error
        return StepOutcome(events, response, errors)


def _until_finish(calls: list[MessageToolCall]) -> list[MessageToolCall]:
    """Calls after a finish are dropped before they reach the log: nothing may run once the agent said it is done."""
    for position, call in enumerate(calls):
        if call.name == "finish":
            return calls[: position + 1]
    return calls


def _spoken(message: Message, response: LLMResponse) -> MessageEvent:
    return MessageEvent(
        source="agent",
        llm_message=message.model_copy(update={"tool_calls": None}),
        llm_response_id=response.id,
        wait_for_response=True,
    )
