from __future__ import annotations

import pytest

from agent_core.errors import LLMAuthenticationError, LLMError
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM, CallContext
from server.errors import SessionError
from server.routes.conversations.microagents import MAX_EVENT_CHARS, remember_prompt
from tests.unit.server.scripted_llm import Model, using


def said(event_id: int, text: str) -> AnyEvent:
    return MessageEvent(id=event_id, source="user", llm_message=Message.user(text))


EVENTS = [said(1, "Build a boat"), said(4, "Use make, not cmake"), said(5, "Thanks")]


async def test_the_model_is_shown_what_was_said_with_the_event_in_question_marked() -> None:
    model = Model(" Remember to use make. ")
    assert await remember_prompt(EVENTS, 4, using(model), CallContext()) == "Remember to use make."
    (request,) = model.requests
    text = str(request.messages)
    assert "THIS_ONE\\nuser: Use make, not cmake\\nTHIS_ONE" in text
    assert "Build a boat" in text


async def test_long_events_are_cut() -> None:
    model = Model("x")
    await remember_prompt([said(1, "long " * 10_000)], 1, using(model), CallContext())
    assert len(str(model.requests[0].messages)) < MAX_EVENT_CHARS + 2000


async def test_the_demo_proposes_the_events_own_words_or_the_nearest_before_it() -> None:
    for event_id, words in ((4, "Use make, not cmake"), (3, "Build a boat"), (0, "Build a boat")):
        assert words in await remember_prompt(EVENTS, event_id, LLM(model="demo/tour"), CallContext())


async def test_an_empty_answer_is_an_error_and_so_is_none() -> None:
    with pytest.raises(SessionError, match="empty answer"):
        await remember_prompt(EVENTS, 4, using(Model(" ")), CallContext())
    with pytest.raises(LLMError, match="no key"):
        await remember_prompt(EVENTS, 4, using(Model(error=LLMAuthenticationError("no key"))), CallContext())
