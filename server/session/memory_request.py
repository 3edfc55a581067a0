"""Words with which a user can ask the agent to remember something of a conversation, for the page to propose."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeGuard

from agent_core.events.llm_events import (
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM, CallContext
from agent_core.memory.transcript import ViewEvent, as_text, shortened, tagged
from server.errors import SessionError
from server.session.user_settings import DEMO_PREFIX

AROUND: Final = 50
"""So many events before and after the one in question are shown to the model."""

MAX_EVENT_CHARS: Final = 2000
MAX_PROMPT_CHARS: Final = 4000
ANSWER_SECONDS: Final = 60.0

_SAID = (MessageEvent, ActionEvent, ObservationEvent, AgentErrorEvent, UserRejectObservation)

_QUESTION = (
    "Below is a part of the conversation of a user with an agent that works in a code repository. The user wants the "
    "agent to remember, for all later work in this repository, what can be learned from the part around the event "
    "between the marks THIS_ONE.\n\n"
    "Write the request with which the user asks the agent to note it in the repository: what is to be remembered, when "
    "it matters, and what to do or to avoid then. At most five sentences that stand for themselves, without anything "
    "that holds for this one conversation only. Answer with the request alone, in the user's language.\n\n"
)


async def remember_prompt(events: Sequence[AnyEvent], event_id: int, llm: LLM, context: CallContext) -> str:
    """A request to remember what the event of this id shows; of the demo model the event's words.

    Raises `SessionError` where the model gives none in time, `LLMError` where it cannot be asked.
    """
    texts = {one.id: shortened(as_text(one), MAX_EVENT_CHARS) for one in events if _counts(one)}
    if llm.model.startswith(DEMO_PREFIX):
        return f"Remember for this repository:\n\n{texts.get(event_id) or _nearest(texts, event_id)}".strip()
    if event_id in texts:
        texts[event_id] = f"THIS_ONE\n{texts[event_id]}\nTHIS_ONE"
    llm = llm.model_copy(update={"num_retries": 1, "usage_id": "remember", "max_output_tokens": None})
    llm.reset_metrics()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            response = await llm.acompletion([Message.user(_QUESTION + tagged(texts.values()))], context=context)
    except TimeoutError:
        raise SessionError(f"the model gave no answer within {ANSWER_SECONDS:.0f} s; try again") from None
    answer = response.message.text.strip()
    if not answer:
        raise SessionError("the model gave an empty answer; try again")
    return answer[:MAX_PROMPT_CHARS]


def _counts(event: AnyEvent) -> TypeGuard[ViewEvent]:
    return isinstance(event, _SAID) and not getattr(event, "hidden", False)


def _nearest(texts: dict[int, str], event_id: int) -> str:
    before = [text for place, text in texts.items() if place <= event_id]
    return before[-1] if before else next(iter(texts.values()), "")
