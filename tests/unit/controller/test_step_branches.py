"""The rarer ways that a step goes."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.controller.guards import MAX_EMPTY_REPLIES
from agent_core.controller.state import EXIT
from agent_core.errors import LLMContentPolicyError
from agent_core.events.control import AgentState, AgentStateChanged, ConversationError
from agent_core.events.llm_events import ActionEvent, MessageEvent, SystemPromptEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.version import VERSION
from tests.unit.controller.stage import REPLIES, StageModel
from tests.unit.controller.test_answers import is_in, until
from tests.unit.controller.test_confirmation_flow import FINISHED, staged


class Refusing(StageModel):
    """Refuses the first so many requests by its content policy."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    async def stream(self, request: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise LLMContentPolicyError("the provider refused")
        async for chunk in super().stream(request):
            yield chunk


def said(events: list[AnyEvent], source: str) -> list[str]:
    return [event.llm_message.text for event in events if isinstance(event, MessageEvent) and event.source == source]


async def test_exit_ends_the_task_without_a_question_to_the_model_and_the_next_message_goes_on() -> None:
    async with staged() as stage:
        await stage.session.send(MessageEvent(source="user", llm_message=Message.user(f" {EXIT}\n")))
        await until(stage, FINISHED)
        assert not stage.model.prompts
        await stage.say()
        await until(stage, lambda log: FINISHED(log) and bool(stage.model.prompts), [REPLIES["finish"]])
        assert len(stage.model.prompts) == 1


async def test_an_agent_without_that_word_asks_its_model_about_it() -> None:
    async with staged(agent_class="Agent") as stage:
        await stage.session.send(MessageEvent(source="user", llm_message=Message.user(EXIT)))
        await until(stage, FINISHED, [REPLIES["finish"]])
        assert stage.model.prompts


async def test_a_refused_request_is_put_again_with_a_word_to_the_agent() -> None:
    async with staged(model=Refusing(1)) as stage:
        await stage.say()
        events = await until(stage, FINISHED, [REPLIES["finish"]])
    (word,) = said(events, "environment")
    assert "content policy" in word
    assert word in str(stage.model.prompts[-1])


async def test_a_model_that_refuses_everything_ends_in_an_error_that_says_so() -> None:
    model = Refusing(1000)
    async with staged(model=model) as stage:
        await stage.say()
        events = await until(stage, is_in(AgentState.ERROR))
    assert model.left == 1000 - MAX_EMPTY_REPLIES
    (last,) = [event for event in events if isinstance(event, AgentStateChanged)][-1:]
    assert last.reason == "STATUS$ERROR_LLM_CONTENT_POLICY_VIOLATION"


@pytest.mark.parametrize("blind", [True, False])
async def test_images_for_a_model_that_cannot_see_are_answered_without_it(blind: bool) -> None:
    async with staged(llm_fields={"disable_vision": blind}) as stage:
        image = "data:image/png;base64,AAAA"
        await stage.session.send(MessageEvent(source="user", llm_message=Message.user("See?", image_urls=[image])))
        waits = is_in(AgentState.AWAITING_USER_INPUT)
        events = await until(stage, lambda log: waits(log) and bool(said(log, "agent")), [REPLIES["text"]])
        assert bool(stage.model.prompts) is not blind
        assert ("cannot see images" in said(events, "agent")[0]) is blind
        await stage.say()
        await until(stage, lambda log: FINISHED(log) and bool(stage.model.prompts), [REPLIES["finish"]])


async def test_a_reply_of_blanks_is_an_empty_one() -> None:
    async with staged() as stage:
        await stage.say()
        events = await until(stage, FINISHED, [(" \n\t", ()), REPLIES["finish"]])
    (word,) = said(events, "environment")
    assert "neither text nor a tool call" in word


async def test_in_every_batch_only_the_first_call_has_the_thought_even_when_it_is_no_good() -> None:
    text, calls = REPLIES["garbage"]
    del text
    async with staged() as stage:
        await stage.say()
        events = await until(stage, FINISHED, [("I try.", calls), REPLIES["finish"]])
    batch = [event for event in events if isinstance(event, ActionEvent)][: len(calls)]
    assert [bool(event.thought) for event in batch] == [True] + [False] * (len(calls) - 1)
    assert [bool(event.reasoning_content) for event in batch] == [True] + [False] * (len(calls) - 1)


async def test_a_log_begins_with_one_system_prompt_however_often_it_is_opened() -> None:
    async with staged() as stage:
        await stage.crash()
        await stage.begin()
        await stage.say()
        events = await until(stage, FINISHED, [REPLIES["finish"]])
    (prompt,) = [event for event in events if isinstance(event, SystemPromptEvent)]
    assert (prompt.id, prompt.version) == (1, VERSION)


@pytest.mark.parametrize(
    ("limits", "code"), [({"max_iterations": 2}, "MaxIterationsReached"), ({"max_budget": 0.2}, "MaxBudgetReached")]
)
async def test_a_limit_ends_a_run_with_an_error_that_programs_can_tell(limits: dict[str, Any], code: str) -> None:
    async with staged(**limits) as stage:
        await stage.say()
        events = await until(stage, is_in(AgentState.ERROR), [REPLIES["one"]])
    (error,) = [event for event in events if isinstance(event, ConversationError)]
    assert error.code == code
    assert "maximum" in error.detail
    assert isinstance(events[error.id + 1], AgentStateChanged)


async def test_any_other_failure_is_called_by_its_class() -> None:
    async with staged() as stage:
        await stage.say()
        await until(stage, lambda _: stage.model.asking == 1)
        stage.model.gate.open(None)
        events = await until(stage, is_in(AgentState.ERROR))
    assert [event.code for event in events if isinstance(event, ConversationError)] == ["LLMBadRequestError"]
