"""A prompt that is too long, or that the provider cannot read: a condensation is asked for, and it always ends."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.errors import LLMContextWindowError, LLMError, LLMMalformedHistoryError
from agent_core.events.control import AgentState, Condensation, CondensationRequest, ConversationError
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM
from agent_core.llm.transport.exchange import CompletionRequest
from agent_core.memory.condenser import Condenser, NoOpCondenser
from agent_core.memory.condensers import ConversationWindowCondenser, get_default_condenser
from agent_core.session.settings import AgentOptions
from tests.unit.controller.stage import REPLIES, Stage, StageModel
from tests.unit.controller.test_answers import is_in, until
from tests.unit.controller.test_usage import Beside


class Short(StageModel):
    """Refuses prompts of more than so many messages."""

    def __init__(self, longest: int, error: type[LLMError]) -> None:
        super().__init__()
        self.longest = longest
        self.error = error
        self.refused = 0

    async def stream(self, request: CompletionRequest) -> Any:
        if len(request.messages) > self.longest:
            self.refused += 1
            raise self.error("too long")
        async for chunk in super().stream(request):
            yield chunk


async def played(
    condenser: Condenser | None, longest: int, error: type[LLMError], **settings: Any
) -> tuple[Short, list[AnyEvent]]:
    model = Short(longest, error)
    stage = Stage(model=model, settings={"condenser": condenser, **settings})
    await stage.begin()
    try:
        await stage.say()
        ended = is_in(AgentState.FINISHED, AgentState.ERROR)
        return model, await until(stage, ended, [*[REPLIES["one"]] * 3, REPLIES["finish"]])
    finally:
        await stage.end()


def count(log: list[AnyEvent], kind: type) -> int:
    return sum(isinstance(event, kind) for event in log)


@pytest.mark.parametrize("error", [LLMContextWindowError, LLMMalformedHistoryError])
async def test_an_overflow_is_answered_by_one_request_and_one_condensation_and_the_work_goes_on(
    error: type[LLMError],
) -> None:
    model, log = await played(ConversationWindowCondenser(), 7, error)
    assert is_in(AgentState.FINISHED)(log)
    assert model.refused == count(log, CondensationRequest) == count(log, Condensation) == 1


@pytest.mark.parametrize("condenser", [None, NoOpCondenser()])
async def test_nothing_is_asked_of_a_condenser_that_answers_no_requests(condenser: Condenser | None) -> None:
    model, log = await played(condenser, 5, LLMContextWindowError)
    assert is_in(AgentState.ERROR)(log)
    assert (model.refused, count(log, CondensationRequest)) == (1, 0)


async def test_an_agent_without_history_truncation_ends_in_the_error_instead() -> None:
    options = {"agent_options": AgentOptions(enable_history_truncation=False)}
    model, log = await played(ConversationWindowCondenser(), 7, LLMContextWindowError, **options)
    assert is_in(AgentState.ERROR)(log)
    assert (model.refused, count(log, CondensationRequest)) == (1, 0)


async def test_an_agent_may_ask_for_a_condensation_itself() -> None:
    options = AgentOptions(enable_condensation_request=True)
    stage = Stage(settings={"condenser": ConversationWindowCondenser(), "agent_options": options})
    await stage.begin()
    try:
        await stage.say()
        asked = ("", [("request_condensation", "{}")])
        log = await until(stage, is_in(AgentState.FINISHED), [*[REPLIES["one"]] * 3, asked, REPLIES["finish"]])
    finally:
        await stage.end()
    kinds = [type(event) for event in log]
    assert kinds.index(CondensationRequest) < kinds.index(Condensation)
    assert kinds.count(Condensation) == 1


@pytest.mark.parametrize("longest", [0, 1])
async def test_a_prompt_that_can_never_be_short_enough_ends_in_an_error(longest: int) -> None:
    condenser = get_default_condenser(LLM(model="openai/sum").using(Beside()))
    model, log = await played(condenser, longest, LLMContextWindowError)
    assert is_in(AgentState.ERROR)(log)
    assert model.refused <= 12
    (error,) = [event for event in log if isinstance(event, ConversationError)]
    assert error.code == "NoCondensationError"
    assert "use one with a larger context window, or begin a new conversation" in error.detail
    assert count(log, CondensationRequest) >= count(log, Condensation)
