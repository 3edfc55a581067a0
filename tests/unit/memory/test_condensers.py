"""Condensers: when each acts, what it forgets, and what happens when it cannot."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from agent_core.errors import NoCondensationError
from agent_core.events.control import Condensation, CondensationRequest, RecallObservation
from agent_core.events.llm_events import CondensationSummaryEvent, ObservationEvent, SystemPromptEvent
from agent_core.events.messages import TextContent
from agent_core.events.schema import Observation
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM, CallContext
from agent_core.memory.condenser import (
    AnyCondenser,
    Condenser,
    NoOpCondenser,
    PipelineCondenser,
    Requirement,
    RollingCondenser,
)
from agent_core.memory.condensers import (
    AmortizedForgettingCondenser,
    BrowserOutputCondenser,
    ConversationWindowCondenser,
    LLMSummarizingCondenser,
    ObservationMaskingCondenser,
    RecentEventsCondenser,
    get_default_condenser,
)
from agent_core.memory.transcript import shortened
from agent_core.memory.view import View
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import Turn, fail
from tests.unit.memory.test_view import agent, call, result, user


def talk(count: int) -> list[AnyEvent]:
    """A system prompt and messages, `count` events in all, ids from 0."""
    prompt = SystemPromptEvent(id=0, system_prompt=TextContent(text="be good"))
    return [prompt, *((user if n % 2 else agent)(n, f"message {n}") for n in range(1, count))]


def asked(log: Iterable[AnyEvent]) -> View:
    events = list(log)
    return View.from_log([*events, CondensationRequest(id=900)])


def model(server: ModelServer, **options: Any) -> LLM:
    return LLM(model="openai/scripted", base_url=server.url, api_key=SecretStr("k"), num_retries=1, **options)


async def condensed(condenser: Condenser, view: View, agent_llm: LLM | None = None) -> View:
    """The view after the condensation that the condenser is expected to make."""
    outcome = await condenser.acondense(view, agent_llm)
    assert isinstance(outcome, Condensation)
    after = View(view.events)
    after.add(outcome.stored_as(1000))
    return after


@pytest.mark.parametrize(("max_size", "keep_first", "left"), [(240, 2, 120), (80, 4, 40), (120, 4, 60)])
async def test_a_summary_stands_for_the_middle_once_the_view_is_too_long(
    max_size: int, keep_first: int, left: int
) -> None:
    async with ModelServer(lambda request: Turn(text="the short of it")) as server:
        condenser = LLMSummarizingCondenser(llm=model(server), max_size=max_size, keep_first=keep_first)
        full = View.from_log(talk(max_size))
        assert await condenser.acondense(full) is full
        view = View.from_log(talk(max_size + 1))
        after = await condensed(condenser, view)
    assert len(after) == left
    assert after.events[:keep_first] == view.events[:keep_first]
    assert isinstance(after.events[keep_first], CondensationSummaryEvent)
    assert after.events[keep_first + 1 :] == view.events[-(left - keep_first - 1) :]


async def test_no_summary_is_made_of_the_system_prompt() -> None:
    async with ModelServer(lambda request: Turn(text="the short of it")) as server:
        condenser = LLMSummarizingCondenser(llm=model(server), max_size=10, keep_first=0)
        view = View.from_log(talk(11))
        after = await condensed(condenser, view)
        assert "be good" not in str(server.last_request.messages)
        assert "message 1" in str(server.last_request.messages)
    assert after[0] == view[0]
    assert isinstance(after[1], CondensationSummaryEvent)
    assert after[2:] == view[-4:]


async def test_a_summary_is_asked_for_in_the_name_of_the_conversation_and_counted_there() -> None:
    spent: list[str] = []
    context = CallContext(prompt_cache_key="c1", on_response=lambda response, usage_id: spent.append(usage_id))
    async with ModelServer(lambda request: Turn(text="the short of it")) as server:
        condenser = LLMSummarizingCondenser(llm=model(server, usage_id="condenser"), max_size=10)
        assert isinstance(await condenser.acondense(asked(talk(11)), None, context), Condensation)
    assert spent == ["condenser"]


async def test_a_former_summary_is_part_of_the_next_one() -> None:
    async with ModelServer(lambda request: Turn(text="the short of it")) as server:
        condenser = LLMSummarizingCondenser(llm=model(server), max_size=10, keep_first=2)
        view = await condensed(condenser, View.from_log(talk(11)))
        for event in [user(100 + n, "more") for n in range(10)]:
            view.add(event)
        await condensed(condenser, view)
        assert "the short of it" in str(server.last_request.messages)


async def test_a_request_condenses_a_short_view_and_its_absence_does_not() -> None:
    async with ModelServer(lambda request: Turn(text="s")) as server:
        condenser = LLMSummarizingCondenser(llm=model(server))
        after = await condensed(condenser, asked(talk(20)))
    assert len(after) == 2 + 1 + (20 // 2 - 2 - 1)


async def test_of_several_reasons_the_one_that_keeps_least_counts() -> None:
    async with ModelServer(lambda request: Turn(text="s")) as server:
        condenser = LLMSummarizingCondenser(llm=model(server), max_size=20)
        assert len(await condensed(condenser, View.from_log(talk(30)))) == 2 + 1 + (20 // 2 - 2 - 1)
        assert len(await condensed(condenser, asked(talk(30)))) == 2 + 1 + (20 // 2 - 2 - 1)
        assert len(await condensed(condenser, asked(talk(16)))) == 2 + 1 + (16 // 2 - 2 - 1)


async def test_too_little_progress_is_none() -> None:
    async with ModelServer(lambda request: Turn(text="s")) as server:
        eager = LLMSummarizingCondenser(llm=model(server), max_size=20, minimum_progress=0.5)
        view = View.from_log(talk(21))
        assert len(await condensed(eager, view)) == 10, "12 of 21 events are enough"
        reluctant = eager.model_copy(update={"minimum_progress": 0.6})
        assert await reluctant.acondense(view) is view
        assert server.request_count == 1


async def test_too_many_tokens_condense_to_about_half_of_the_limit() -> None:
    async with ModelServer(lambda request: Turn(text="s")) as server:
        condenser = LLMSummarizingCondenser(llm=model(server))
        log = [*talk(3), *(user(n, "x" * 4000) for n in range(3, 23))]
        after = await condensed(condenser, View.from_log(log), model(server, max_input_tokens=16_000))
    assert 5 <= len(after) - 3 <= 9


def thousands(count: int) -> View:
    """So many events of a thousand tokens each, ids from 0."""
    prompt = SystemPromptEvent(id=0, system_prompt=TextContent(text="x" * (4000 - len("system: "))))
    return View.from_log([prompt, *(user(n, "x" * (4000 - len("user: "))) for n in range(1, count))])


@pytest.mark.parametrize(("max_tokens", "of_model"), [(8000, 100_000), (100_000, 8000), (None, 8000)])
async def test_of_too_many_tokens_the_shortest_stretch_goes_that_leaves_less_than_half_of_the_smaller_limit(
    max_tokens: int | None, of_model: int
) -> None:
    async with ModelServer(lambda request: Turn(text="s")) as server:
        condenser = LLMSummarizingCondenser(llm=model(server), keep_first=1, max_tokens=max_tokens)
        agent_llm = model(server, max_input_tokens=of_model)
        outcome = await condenser.acondense(thousands(10), agent_llm)
        assert isinstance(outcome, Condensation)
        assert outcome.forgotten_event_ids == [1, 2, 3, 4, 5, 6, 7], "6,000 tokens are not yet more than needed"
        enough = thousands(8)
        assert await condenser.acondense(enough, agent_llm) is enough, "a limit may be reached"
        assert isinstance(await condenser.acondense(thousands(9), agent_llm), Condensation)
        long = thousands(20)
        assert await condenser.acondense(long) is long, "tokens are those of the agent's model"


def test_the_defaults_of_a_summarising_condenser() -> None:
    fields = LLMSummarizingCondenser(llm=LLM()).model_dump(exclude={"llm", "kind", "max_event_length"})
    assert fields == {
        "max_size": 240,
        "max_tokens": None,
        "keep_first": 2,
        "minimum_progress": 0.1,
        "hard_context_reset_max_retries": 5,
        "hard_context_reset_context_scaling": 0.8,
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"max_size": 0},
        {"keep_first": -1},
        {"max_size": 6, "keep_first": 2},
        {"minimum_progress": 0},
        {"minimum_progress": 1},
        {"hard_context_reset_context_scaling": 0},
        {"hard_context_reset_context_scaling": 1},
    ],
    ids=str,
)
def test_what_a_summarising_condenser_cannot_be_made_of_is_refused_by_its_field(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(reversed(fields))):
        LLMSummarizingCondenser(llm=LLM(), **fields)


async def test_the_last_resort_waits_until_no_call_is_open() -> None:
    async with ModelServer(lambda request: Turn(text="s")) as server:
        view = asked([*talk(2), call(2, "r")])
        with pytest.raises(NoCondensationError):
            await LLMSummarizingCondenser(llm=model(server)).acondense(view)
        assert server.request_count == 0


async def test_a_single_event_is_worth_a_summary_where_there_are_too_many_tokens_and_it_is_none() -> None:
    async with ModelServer(lambda request: Turn(text="s")) as server:
        condenser = LLMSummarizingCondenser(llm=model(server), keep_first=1)
        small = model(server, max_input_tokens=16_000)
        log = [*talk(1), user(1, "x" * 400_000), agent(2, "ok"), user(3, "next"), agent(4, "done")]
        after = await condensed(condenser, View.from_log(log), small)
        assert [event.id for event in after.events] == [0, 1000, 2, 3, 4]
        summed_up = Condensation(id=5, forgotten_event_ids=[1], summary="x" * 400_000, summary_offset=1)
        after = await condensed(condenser, View.from_log([*log, summed_up]), small)
        assert [event.id for event in after.events] == [0, 1000], "a summary of a summary alone is no progress"


async def test_when_the_summary_cannot_be_had_a_long_view_stays_and_a_request_fails() -> None:
    async with ModelServer(lambda request: fail(400, "no")) as server:
        condenser = LLMSummarizingCondenser(llm=model(server), max_size=10, hard_context_reset_max_retries=2)
        long = View.from_log(talk(11))
        assert await condenser.acondense(long) is long
        assert server.request_count == 1
        with pytest.raises(NoCondensationError):
            await condenser.acondense(asked(talk(11)))
        assert server.request_count == 1 + 1 + 3


async def test_a_summary_that_need_not_be_and_cannot_be_had_is_asked_for_again_only_after_a_while() -> None:
    async with ModelServer(lambda request: Turn(text=" ")) as server:
        summing = LLMSummarizingCondenser(llm=model(server), max_size=20)
        condenser = PipelineCondenser(condensers=[BrowserOutputCondenser(attention_window=0), summing])
        view = View.from_log([*talk(15), *page(15)])
        for number in range(17, 40):
            view.add(user(number, "more"))
            await condenser.acondense(view)
        asked_at_first = server.request_count
        assert asked_at_first == 6  # with 21, 24, 27, 30, 33 and 37 events
        view.add(Condensation(id=50, forgotten_event_ids=[3]))
        await condenser.acondense(view)
        assert server.request_count == asked_at_first + 1


async def test_a_request_on_a_very_short_view_sums_up_everything_but_the_system_prompt() -> None:
    async with ModelServer(lambda request: Turn(text="all of it")) as server:
        after = await condensed(LLMSummarizingCondenser(llm=model(server)), asked(talk(4)))
    assert [type(event) for event in after.events] == [SystemPromptEvent, CondensationSummaryEvent]


@pytest.mark.parametrize("has_prompt", [True, False])
async def test_the_last_resort_sums_up_everything_but_the_system_prompt(has_prompt: bool) -> None:
    log = talk(5) if has_prompt else talk(5)[1:]
    async with ModelServer(lambda request: Turn(text="all of it")) as server:
        outcome = await LLMSummarizingCondenser(llm=model(server)).acondense(asked(log))
    assert isinstance(outcome, Condensation)
    assert set(outcome.forgotten_event_ids) == {1, 2, 3, 4}
    assert outcome.summary_offset == int(has_prompt), "the summary follows the system prompt"


async def test_the_last_resort_cuts_long_events_shorter_at_each_attempt() -> None:
    def answer(request: Any) -> Turn:
        size = len(str(request.messages))
        return Turn(text="at last") if size < 6_000 else fail(400, "prompt is too long")

    async with ModelServer(answer) as server:
        condenser = LLMSummarizingCondenser(llm=model(server), hard_context_reset_context_scaling=0.5)
        await condensed(condenser, asked([*talk(3), user(3, "x" * 20_000)]))
        assert server.request_count > 2


def test_a_summarising_condenser_needs_room_for_a_tail() -> None:
    with pytest.raises(ValidationError, match="keep_first: 4 leaves no room"):
        LLMSummarizingCondenser(llm=LLM(), max_size=10, keep_first=4)


async def test_the_window_keeps_the_essential_events_and_the_newer_half_of_the_rest() -> None:
    facts = RecallObservation(id=2, cause=1, recall_type="workspace_context", working_dir="/w")
    log = [*talk(2), facts, *(user(n, str(n)) for n in range(3, 13))]
    assert await ConversationWindowCondenser().acondense(view := View.from_log(log)) is view
    after = await condensed(ConversationWindowCondenser(), asked(log))
    assert [event.id for event in after.events] == [0, 1, 2, 8, 9, 10, 11, 12]


async def test_the_first_message_of_the_user_is_kept_wherever_it_stands() -> None:
    facts = RecallObservation(id=5, cause=4, recall_type="workspace_context", working_dir="/w")
    log = [*talk(1), agent(1, "hello"), call(2, "r"), result(3, 2), user(4, "go"), facts]
    after = await condensed(ConversationWindowCondenser(), asked([*log, *(agent(n, str(n)) for n in range(6, 13))]))
    assert [event.id for event in after.events] == [0, 4, 5, 8, 9, 10, 11, 12]


async def test_the_window_keeps_the_summary_of_what_is_not_in_the_view_any_more() -> None:
    summed_up = Condensation(id=50, forgotten_event_ids=[*range(1, 12)], summary="all of it", summary_offset=1)
    log = [*talk(12), summed_up, *(agent(n, str(n)) for n in range(60, 70))]
    after = await condensed(ConversationWindowCondenser(), asked(log))
    assert [event.id for event in after.events] == [0, 50, 65, 66, 67, 68, 69]


async def test_a_window_without_a_word_of_the_user_forgets_nothing() -> None:
    with pytest.raises(NoCondensationError, match="no message of the user"):
        await ConversationWindowCondenser().acondense(asked([*talk(1), *(agent(n, str(n)) for n in range(1, 12))]))


async def test_the_window_does_not_begin_with_a_result_without_its_call() -> None:
    log = [*talk(2), user(2, "x"), call(3, "r"), result(4, 3), user(5, "y")]
    after = await condensed(ConversationWindowCondenser(), asked(log))
    assert [event.id for event in after.events] == [0, 1, 5]


@pytest.mark.parametrize("count", [2, 3])
async def test_a_window_with_nothing_to_spare_says_so_instead_of_condensing_nothing(count: int) -> None:
    with pytest.raises(NoCondensationError):
        await ConversationWindowCondenser().acondense(asked(talk(count)))


class Page(Observation):
    """What a browser showed."""

    url: str = ""


def page(event_id: int) -> list[AnyEvent]:
    shown = Page(content=[TextContent(text=f"page {event_id}")], url=f"http://h/{event_id}")
    return [
        call(event_id, f"r{event_id}"),
        ObservationEvent(id=event_id + 1, cause=event_id, observation=shown, tool_name="browser"),
    ]


async def test_only_the_newest_pages_are_shown_and_the_older_ones_stay_results_of_their_calls() -> None:
    view = View.from_log([*page(0), *page(2), *page(4), user(6, "and?")])
    shown = await BrowserOutputCondenser(attention_window=2).acondense(view)
    assert isinstance(shown, View)
    texts = [message.text for message in shown.messages() if message.role == "tool"]
    assert texts[0].startswith("Visited http://h/0")
    assert texts[1:] == ["page 2", "page 4"]
    assert [m.tool_call_id for m in shown.messages()] == [m.tool_call_id for m in view.messages()]


async def test_a_view_without_old_pages_is_not_even_copied() -> None:
    view = View.from_log(page(0))
    assert await BrowserOutputCondenser().acondense(view) is view


async def test_observations_outside_the_window_are_masked() -> None:
    view = View.from_log([user(0, "go"), call(1, "r1"), result(2, 1), call(3, "r2"), result(4, 3)])
    shown = await ObservationMaskingCondenser(attention_window=2).acondense(view)
    assert isinstance(shown, View)
    assert [m.text for m in shown.messages() if m.role == "tool"] == ["<MASKED>", "out"]


@pytest.mark.parametrize(("keep_first", "max_events", "ids"), [(1, 4, [0, 7, 8, 9]), (3, 3, [0, 1, 2]), (0, 2, [8, 9])])
async def test_only_the_first_and_the_newest_events_are_shown(keep_first: int, max_events: int, ids: list[int]) -> None:
    shown = await RecentEventsCondenser(keep_first=keep_first, max_events=max_events).acondense(View.from_log(talk(10)))
    assert isinstance(shown, View)
    assert [event.id for event in shown.events] == ids


async def test_the_middle_is_forgotten_so_that_half_is_left() -> None:
    condenser = AmortizedForgettingCondenser(max_size=10, keep_first=2)
    after = await condensed(condenser, View.from_log(talk(11)))
    assert [event.id for event in after.events] == [0, 1, 8, 9, 10]


@pytest.mark.parametrize(("count", "left"), [(3, [0, 2]), (4, [0, 3]), (6, [0, 4, 5])])
async def test_a_request_on_a_short_view_leaves_half_of_it_and_the_newest_event(count: int, left: list[int]) -> None:
    after = await condensed(AmortizedForgettingCondenser(), asked(talk(count)))
    assert [event.id for event in after.events] == left
    with pytest.raises(NoCondensationError, match="of 2 events none can be spared"):
        await AmortizedForgettingCondenser().acondense(asked(talk(2)))


class Resetting(RollingCondenser):
    """Can do nothing but by its last resort, which fails in its own way."""

    def requirement(self, view: View, agent_llm: LLM | None) -> Requirement | None:
        return Requirement.HARD

    async def condensation(self, view: View, agent_llm: LLM | None, context: CallContext | None) -> Condensation:
        raise NoCondensationError("no place")

    async def hard_context_reset(
        self, view: View, agent_llm: LLM | None, context: CallContext | None
    ) -> Condensation | None:
        raise OSError("the disk is full")


async def test_what_the_last_resort_fails_with_names_why_it_was_needed() -> None:
    with pytest.raises(OSError, match="the disk is full") as caught:
        await Resetting().acondense(View.from_log(talk(3)))
    assert isinstance(caught.value.__cause__, NoCondensationError)


async def test_a_pipeline_hands_the_view_on_until_somebody_condenses() -> None:
    view = View.from_log([*page(0), *page(2), *(user(n, "x") for n in range(4, 12))])
    masks = PipelineCondenser(condensers=[NoOpCondenser(), BrowserOutputCondenser()])
    assert await masks.acondense(view) is not view
    assert not masks.handles_condensation_requests()
    both = PipelineCondenser(condensers=[BrowserOutputCondenser(), AmortizedForgettingCondenser(max_size=10)])
    assert both.handles_condensation_requests()
    assert isinstance(await both.acondense(view), Condensation)


class KeepsTwo(Condenser):
    """Of a program that is not asynchronous."""

    threads: ClassVar[list[threading.Thread]] = []

    def condense(
        self, view: View, agent_llm: LLM | None = None, context: CallContext | None = None
    ) -> View | Condensation:
        self.threads.append(threading.current_thread())
        return view.showing(view.events[-2:])


async def test_a_condenser_may_define_the_form_that_is_not_asynchronous_and_runs_beside_the_loop() -> None:
    keeps = KeepsTwo()  # type: ignore[abstract] # the other form is there once the class is made
    pipeline = PipelineCondenser(condensers=[keeps, NoOpCondenser()])
    shown = await pipeline.acondense(View.from_log(talk(9)))
    assert isinstance(shown, View)
    assert [event.id for event in shown.events] == [7, 8]
    assert KeepsTwo.threads != [threading.current_thread()]
    assert Condenser.model_validate(keeps.model_dump()) == keeps


def test_a_condenser_without_either_form_cannot_be_made() -> None:
    class Neither(Condenser):
        """Does nothing."""

    with pytest.raises(TypeError, match="acondense"):
        Neither()  # type: ignore[abstract] # that is the point


def test_a_pipeline_is_not_part_of_a_pipeline() -> None:
    with pytest.raises(ValidationError, match="cannot be part of a pipeline"):
        PipelineCondenser(condensers=[PipelineCondenser(condensers=[NoOpCondenser()])])


class Holder(BaseModel):
    condenser: AnyCondenser


def test_condensers_are_configuration_that_can_be_stored_and_read_back() -> None:
    pipeline = PipelineCondenser(
        condensers=[ConversationWindowCondenser(), LLMSummarizingCondenser(llm=LLM(), max_size=120, keep_first=4)]
    )
    holder = Holder(condenser=pipeline)
    assert Holder.model_validate_json(holder.model_dump_json()) == holder
    with pytest.raises(ValidationError, match="kind: 'Magic' is none of"):
        Holder.model_validate({"condenser": {"kind": "Magic"}})


def test_the_default_answers_requests_first_then_leaves_out_old_pages_then_sums_up() -> None:
    condenser = get_default_condenser(LLM(model="openai/x"))
    assert isinstance(condenser, PipelineCondenser)
    window, pages, summary = condenser.condensers
    assert isinstance(window, ConversationWindowCondenser)
    assert isinstance(pages, BrowserOutputCondenser)
    assert pages.attention_window == 2
    assert isinstance(summary, LLMSummarizingCondenser)
    assert (summary.keep_first, summary.max_size, summary.llm.usage_id) == (4, 120, "condenser")
    assert not summary.llm.caching_prompt
    longer = get_default_condenser(LLM(model="openai/x"), 200)
    assert isinstance(longer, PipelineCondenser)
    assert isinstance(longer.condensers[2], LLMSummarizingCondenser)
    assert longer.condensers[2].max_size == 200


@pytest.mark.parametrize("limit", [20, 50, 51, 99])
def test_a_long_text_is_cut_in_its_middle(limit: int) -> None:
    text = "a" * 50 + "b" * 50
    short = shortened(text, limit)
    assert len(short) == limit
    assert 0 <= short.count("a") - short.count("b") <= 1 + "\n[… cut …]\n".count("a")
    assert (short[0], short[-1]) == ("a", "b")


async def test_a_pipeline_none_of_whose_condensers_can_do_what_was_asked_says_so() -> None:
    pipeline = PipelineCondenser(condensers=[ConversationWindowCondenser(), BrowserOutputCondenser()])
    with pytest.raises(NoCondensationError, match="of 2 events none can be spared"):
        await pipeline.acondense(asked(talk(2)))


@pytest.mark.parametrize("keep_first", [0, 1])
async def test_no_model_goes_without_its_prompt_and_the_users_first_words_where_no_summary_stands_for_them(
    keep_first: int,
) -> None:
    view = View.from_log(talk(40))
    recent = await RecentEventsCondenser(keep_first=keep_first, max_events=10).acondense(view)
    assert isinstance(recent, View)
    amortized = await condensed(AmortizedForgettingCondenser(keep_first=keep_first, max_size=20), view)
    for left in (recent, amortized):
        assert left.events[keep_first].id > 1, "the condenser forgot it"
        assert [message.role for message in left.messages()[:2]] == ["system", "user"]
        assert left.messages()[1].text.startswith("message 1")
    view.add(Condensation(id=900, forgotten_event_ids=list(range(20)), summary="the short of it", summary_offset=0))
    system, said, *_ = view.messages()
    assert system.role == "system"
    assert said.text.startswith("the short of it") or "the short of it" in said.text
    assert "message 1" not in [part.text for part in said.content if isinstance(part, TextContent)]
