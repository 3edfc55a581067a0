"""What the user said while the agent was at work is never forgotten before the model has read it."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.errors import NoCondensationError
from agent_core.events.control import Condensation, CondensationRequest
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM
from agent_core.memory.condenser import Condenser
from agent_core.memory.condensers import (
    AmortizedForgettingCondenser,
    ConversationWindowCondenser,
    LLMAttentionCondenser,
    LLMSummarizingCondenser,
    RecentEventsCondenser,
)
from agent_core.memory.view import View
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import Turn
from tests.unit.memory.test_condensers import model, talk
from tests.unit.memory.test_view import agent, call, result, user


def at_work() -> list[AnyEvent]:
    """The user says two things while three calls of one answer are carried out, and one more behind them."""
    calls = [call(n, "r", of=3).model_copy(update={"seen": 9}) for n in (10, 11, 12)]
    results = [result(15, 10), result(16, 11), result(18, 12)]
    return [*talk(10), *calls, user(13, "wait"), results[0], user(14, "not so"), *results[1:], user(19, "like this")]


def test_only_what_came_after_the_newest_answers_prompt_is_unread() -> None:
    view = View.from_log(at_work())
    assert view.unread() == {13, 14, 19}
    assert View.from_log(talk(10)).unread() == frozenset(), "nobody says what the model was shown"
    assert view.showing(view.events[1:]).unread() == {13, 14, 19}
    view.add(call(20, "s").model_copy(update={"seen": 14}))
    assert view.unread() == {19}
    view.add(agent(21, "what the agent says itself"))
    view.add(user(22, "a nudge").model_copy(update={"source": "environment"}))
    assert view.unread() == {19}, "only the user's words"


SUMMARIZING = 3


def condensers(llm: LLM) -> list[Condenser]:
    small: dict[str, Any] = {"max_size": 6, "keep_first": 1}
    return [
        ConversationWindowCondenser(),
        AmortizedForgettingCondenser(**small),
        LLMAttentionCondenser(llm=llm, **small),
        LLMSummarizingCondenser(llm=llm, **small),
        RecentEventsCondenser(max_events=2),
    ]


@pytest.mark.parametrize("index", range(5))
async def test_whatever_condenses_the_view_what_is_unread_stays_in_it(index: int) -> None:
    async with ModelServer(lambda request: Turn(text='{"ids": [1]}')) as server:
        view = View.from_log([*at_work(), CondensationRequest(id=20)])
        outcome = await condensers(model(server))[index].acondense(view)
        prompt = str(server.last_request.messages) if server.request_count else ""
    if index == SUMMARIZING:
        assert not any(said in prompt for said in ("wait", "not so", "like this")), "nor is it summed up"
    if isinstance(outcome, Condensation):
        assert len(outcome.forgotten_event_ids) >= 1
        view.add(outcome.stored_as(1000))
        outcome = view
    assert {13, 14, 19} <= {event.id for event in outcome.events}
    assert len(outcome) < len(at_work())


async def test_the_last_resort_sums_up_all_but_what_is_unread() -> None:
    async with ModelServer(lambda request: Turn(text="all of it")) as server:
        condenser = LLMSummarizingCondenser(llm=model(server), keep_first=9)
        view = View.from_log([*at_work(), CondensationRequest(id=20)])
        outcome = await condenser.acondense(view)
        assert isinstance(outcome, Condensation)
        view.add(outcome.stored_as(1000))
        assert [event.id for event in view.events] == [0, 1000, 13, 14, 19]
        view.add(CondensationRequest(id=1001))
        with pytest.raises(NoCondensationError):
            await condenser.acondense(view)
        assert server.request_count == 1


@pytest.mark.parametrize(
    ("condenser", "left"),
    [
        (AmortizedForgettingCondenser(max_size=6), [0, 20, 21, 22, 23, 24, 25]),
        (RecentEventsCondenser(max_events=3), [0, 20, 21, 22, 23, 24, 25]),
        (RecentEventsCondenser(keep_first=3, max_events=3), [0, 1, 2]),
    ],
    ids=str,
)
async def test_a_batch_that_is_longer_than_the_tail_stays_where_it_is_all_that_is_left(
    condenser: Condenser, left: list[int]
) -> None:
    batch: list[AnyEvent] = [*(call(n, "r", of=3) for n in (20, 21, 22)), *(result(n + 3, n) for n in (20, 21, 22))]
    view = View.from_log([*talk(10), *batch])
    outcome = await condenser.acondense(view)
    if isinstance(outcome, Condensation):
        view.add(outcome.stored_as(1000))
        outcome = view
    assert [event.id for event in outcome.events] == left
