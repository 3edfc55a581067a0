"""Condensers that choose or fill in with a model, and how condensers are configured."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from agent_core.errors import NoCondensationError
from agent_core.events.control import Condensation, CondensationRequest
from agent_core.events.llm_events import CondensationSummaryEvent, SystemPromptEvent
from agent_core.events.messages import TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM
from agent_core.llm.registry import LLMRegistry
from agent_core.memory.condenser import Condenser, NoOpCondenser, PipelineCondenser
from agent_core.memory.condensers import (
    FORM,
    TOOL,
    AmortizedForgettingCondenser,
    LLMAttentionCondenser,
    LLMSummarizingCondenser,
    StructuredSummaryCondenser,
)
from agent_core.memory.view import View
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import Turn, call, fail, say
from tests.unit.memory.test_condensers import asked, condensed, model, talk
from tests.unit.memory.test_view import call as called
from tests.unit.memory.test_view import result, user

GIVEN = LLM(model="openai/given")


def ranking(*ids: object) -> Turn:
    return say(json.dumps({"ids": ids}))


async def test_the_most_important_events_stay_with_the_first_and_the_newest_fill_up() -> None:
    async with ModelServer([ranking(4, 0, "x", 77, 6, True), ranking(2, 3, 4, 5)]) as server:
        condenser = LLMAttentionCondenser(llm=model(server), max_size=10)
        view = View.from_log(talk(11))
        after = await condensed(condenser, view)
        assert [event.id for event in after.events] == [0, 4, 6, 9, 10]
        asked_for = server.last_request.json
        assert asked_for["response_format"]["json_schema"]["schema"]["required"] == ["ids"]
        assert "<EVENT id=7>" in str(asked_for["messages"])
        after = await condensed(condenser, view)
        assert [event.id for event in after.events] == [0, 2, 3, 4, 5]
        small = View.from_log(talk(10))
        assert await condenser.acondense(small) is small
        assert server.request_count == 2


async def test_what_belongs_together_is_chosen_together_and_open_calls_stay() -> None:
    log = [*talk(2), called(2, "r1"), result(3, 2), *(user(n, "x") for n in range(4, 11)), called(11, "r2")]
    async with ModelServer([ranking(3)]) as server:
        after = await condensed(LLMAttentionCondenser(llm=model(server), max_size=6), View.from_log(log))
    assert [event.id for event in after.events] == [0, 2, 3, 11]


@pytest.mark.parametrize("turn", [say("I like number four"), fail(400, "no"), say('{"ids": 3}'), say('{"no": []}')])
async def test_without_a_ranking_a_long_view_stays_and_a_request_fails(turn: Turn) -> None:
    async with ModelServer(lambda request: turn) as server:
        condenser = LLMAttentionCondenser(llm=model(server), max_size=10)
        long = View.from_log(talk(11))
        if "3" in turn.text:  # nothing can be read from it, so the newest are taken
            assert [event.id for event in (await condensed(condenser, long)).events] == [0, 7, 8, 9, 10]
            return
        assert await condenser.acondense(long) is long
        with pytest.raises(NoCondensationError, match="the ranking"):
            await condenser.acondense(asked(talk(11)))


class Ranked(LLMAttentionCondenser):
    """Knows already what its model will name."""

    ids: list[int] = Field(default_factory=list)

    async def _ranking(self, view: View, context: object) -> tuple[list[Any], str]:
        return self.ids, "r"


@given(st.lists(st.integers(-1, 40)), st.integers(2, 30))
def test_whatever_a_model_ranks_the_view_stays_whole_and_gets_shorter(ids: list[int], pairs: int) -> None:
    log: list[AnyEvent] = [*talk(2)]
    for number in range(pairs):
        log += [called(2 + 2 * number, f"r{number}"), result(3 + 2 * number, 2 + 2 * number)]
    view = asked(log)
    try:
        outcome = Ranked(llm=GIVEN, max_size=20, ids=ids).condense(view)
    except NoCondensationError:
        return
    assert isinstance(outcome, Condensation)
    after = View.from_log([*log, outcome.stored_as(1000)])
    assert after.events[0] == log[0]
    assert len(after) < len(log)
    assert {event.id for event in after.events} | set(outcome.forgotten_event_ids) == {event.id for event in log}
    calls = {event.id for event in after.events if event.kind == "ActionEvent"}
    assert calls == {event.cause for event in after.events if event.kind == "ObservationEvent"}


def test_a_model_that_cannot_do_what_is_asked_of_it_is_refused() -> None:
    weak = LLM(
        model="x/y", capability_overrides={"supports_response_schema": False, "supports_function_calling": False}
    )
    with pytest.raises(ValidationError, match="cannot answer in a given form"):
        LLMAttentionCondenser(llm=weak)
    with pytest.raises(ValidationError, match="takes no tools"):
        StructuredSummaryCondenser(llm=weak)
    with pytest.raises(ValidationError, match="keep_first: 5 must be less than half"):
        LLMAttentionCondenser(llm=LLM(), max_size=10, keep_first=5)


async def test_a_summary_of_named_fields_is_filled_in_by_a_call_and_shown_under_headings() -> None:
    filled = {"user_context": "A boat", "current_state": "half built", "branch_name": "boat", "tests_passing": ""}
    async with ModelServer([call(TOOL, filled)]) as server:
        condenser = StructuredSummaryCondenser(llm=model(server), max_size=10)
        after = await condensed(condenser, View.from_log(talk(11)))
        asked_for = server.last_request.json
    assert asked_for["tool_choice"] == {"type": "function", "function": {"name": TOOL}}
    (tool,) = asked_for["tools"]
    names = [name for _, names in FORM.values() for name in names]
    assert list(tool["function"]["parameters"]["properties"]) == names
    assert len(names) == 18
    assert len(after) == 5
    summary = after.events[1]
    assert isinstance(summary, CondensationSummaryEvent)
    assert summary.summary.splitlines() == [
        "## Task",
        "**User context**: A boat",
        "**Current state**: half built",
        "## Version control",
        "**Branch name**: boat",
    ]


async def test_a_form_that_cannot_be_read_is_replaced_by_what_was_said_or_by_nothing() -> None:
    async with ModelServer([call(TOOL, '{"user_con', text="A boat."), call(TOOL, "[1]")]) as server:
        condenser = StructuredSummaryCondenser(llm=model(server), max_size=10)
        view = View.from_log(talk(11))
        outcome = await condenser.acondense(view)
        assert isinstance(outcome, Condensation)
        assert outcome.summary == "A boat."
        assert await condenser.acondense(view) is view


async def test_the_metadata_of_a_summary_names_condenser_and_model() -> None:
    async with ModelServer([say("s")]) as server:
        pipeline = PipelineCondenser(condensers=[LLMSummarizingCondenser(llm=model(server, usage_id="c"), max_size=10)])
        outcome = await pipeline.acondense(View.from_log(talk(11)))
    assert isinstance(outcome, Condensation)
    told = {"condenser": "LLMSummarizingCondenser", "model": "openai/scripted", "usage_id": "c"}
    assert outcome.metadata == told


@pytest.mark.parametrize(
    ("config", "made"),
    [
        ({"type": "noop"}, NoOpCondenser()),
        ({"type": "amortized", "max_size": 30}, AmortizedForgettingCondenser(max_size=30)),
        (
            {"type": "llm", "llm_config": {"model": "openai/a"}},
            LLMSummarizingCondenser(llm=LLM(model="openai/a"), max_size=100, keep_first=1, max_event_length=10_000),
        ),
        ({"type": "llm_summarizing"}, LLMSummarizingCondenser(llm=GIVEN, max_size=240)),
        (
            {"type": "structured", "keep_first": 3},
            StructuredSummaryCondenser(llm=GIVEN, keep_first=3),
        ),
        (
            {"type": "pipeline", "condensers": [{"type": "noop"}, {"type": "llm_attention"}]},
            PipelineCondenser(condensers=[NoOpCondenser(), LLMAttentionCondenser(llm=GIVEN)]),
        ),
    ],
)
def test_a_condenser_is_made_from_its_configuration(config: dict[str, Any], made: Condenser) -> None:
    assert Condenser.from_config(config, GIVEN) == made
    assert Condenser.from_config(made) is made


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"type": "magic"}, "type: 'magic' is no type of condenser; there are .*'amortized'"),
        ({}, "type: None is no type"),
        ({"type": "amortized", "keep_first": 60}, "keep_first: 60 must be less than half"),
        ({"type": "amortized", "max_size": 0}, "max_size"),
        ({"type": "recent", "keep_first": -1}, "keep_first"),
        ({"type": "amortized", "size": 3}, "size"),
        ({"type": "llm"}, "llm"),
        ({"type": "llm", "llm_config": "cheap"}, "there is no registry"),
        ({"type": "pipeline", "condensers": [{"type": "pipeline", "condensers": []}]}, "condensers"),
    ],
)
def test_a_configuration_that_cannot_be_says_what_is_wrong_with_it(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Condenser.from_config(config)


def test_a_registry_has_the_models_that_configurations_name() -> None:
    registry = LLMRegistry()
    for usage_id in ("agent", "condenser", "cheap"):
        registry.add(LLM(model=f"openai/{usage_id}", usage_id=usage_id))
    named = Condenser.from_config({"type": "llm", "llm_config": "cheap"}, registry)
    usual = Condenser.from_config({"type": "llm"}, registry)
    assert isinstance(named, LLMSummarizingCondenser)
    assert isinstance(usual, LLMSummarizingCondenser)
    assert (named.llm.usage_id, usual.llm.usage_id) == ("cheap", "condenser")


def test_two_condensers_cannot_have_the_same_type() -> None:
    with pytest.raises(ValueError, match="condensers of type 'noop' are made by NoOpCondenser already"):

        class Another(NoOpCondenser):
            config_types = {"noop": {}}  # noqa: RUF012 - as its base has it


def test_programs_that_are_not_asynchronous_can_condense_a_view_or_a_whole_log() -> None:
    log = talk(11)
    condenser = AmortizedForgettingCondenser(max_size=10)
    assert isinstance(condenser.condense(View.from_log(log)), Condensation)
    assert isinstance(condenser.condensed_history(log), Condensation)
    shown = condenser.condensed_history(log[:5])
    assert isinstance(shown, View)
    assert shown.events == log[:5]


def test_a_condenser_is_known_by_its_names_also_where_nobody_has_needed_it_before() -> None:
    program = """
import os
from agent_core import Condenser
if os.fork() == 0:
    print(Condenser.model_validate({"kind": "AmortizedForgettingCondenser"}).kind, flush=True)
    os._exit(0)
os.wait()
print(Condenser.from_config({"type": "amortized"}).kind)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["AmortizedForgettingCondenser"] * 2, done.stderr


def test_every_condenser_is_known_where_an_agent_is_read_back() -> None:
    names = sorted({one.__name__ for one in Condenser.makers.values() if one.__module__.startswith("agent_core.")})
    assert len(names) == 10
    program = (
        "from agent_core import AgentBase; from agent_core.memory.condenser import Condenser\n"
        f"assert set({names}) <= set(Condenser.classes), Condenser.classes.keys()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_tokens_of_a_view_count_the_tools_and_are_the_same_however_the_view_came_about() -> None:
    tools = [{"type": "function", "function": {"name": "terminal", "description": "x" * 4000}}]
    prompt = SystemPromptEvent(id=0, system_prompt=TextContent(text="be good"), tools=tools)
    log: list[AnyEvent] = [prompt, *talk(9)[1:]]
    view = View()
    for event in log:
        view.add(event)
        assert view.token_estimate() == View(view.events).token_estimate()
    assert view.token_estimate() > 1000
    view.add(Condensation(id=50, forgotten_event_ids=[3, 4], summary="s", summary_offset=3))
    assert view.token_estimate() == View(view.events).token_estimate()
    view.add(CondensationRequest(id=51))
    view.add(called(52, "r"))
    view.token_estimate()
    view.add(talk(3)[2].stored_as(53))  # the agent speaks: the call is not shown any more
    assert view.token_estimate() == View(view.events).token_estimate()
