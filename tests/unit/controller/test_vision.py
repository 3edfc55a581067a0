"""A model that sees no images has another one look at them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.agent.agent import Agent
from agent_core.agent.vision import newest_images, renderer, with_references
from agent_core.events.branches import Rewind
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import ImageContent, Message, MessageToolCall, TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import InMemoryEventStore
from agent_core.events.stream import EventStream
from agent_core.llm.llm import LLM
from agent_core.llm.registry import ProfileStore
from agent_core.llm.router import RandomRouter
from agent_core.tools.spec import Tool
from agent_core.tools.vision_inspect import VisionInspectObservation, VisionInspectTool
from tests.unit.controller.stage import REPLIES, Reply, Stage
from tests.unit.controller.test_answers import until
from tests.unit.controller.test_confirmation_flow import FINISHED

KEY = "key-of-the-one-that-sees"
FIRST, SECOND, THIRD = (f"data:image/png;base64,{letter * 8}" for letter in "ABC")
NAME = VisionInspectTool.tool_name
BLIND: dict[str, Any] = {"model": "openai/blind", "disable_vision": True, "num_retries": 1}


def store(name: str, **fields: Any) -> None:
    ProfileStore().save(name, LLM(model=f"openai/{name}", num_retries=1, **fields), include_secrets=True)


@pytest.fixture(autouse=True)
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRYDOCK_HOME", str(tmp_path))
    store("also-blind", disable_vision=True)
    store("seeing", disable_vision=False, api_key=SecretStr(KEY))
    store("watching", disable_vision=False)
    (tmp_path / "profiles/broken.json").write_text("{")


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage()
    monkeypatch.setattr("agent_core.llm.llm.transport_of", lambda model, record_to: stage.model)
    stage.settings = {"agent": Agent(llm=LLM(**BLIND))}
    return stage


def look(index: int = 0, **more: Any) -> Reply:
    arguments = {"image_index": index, "question": "What is it?", **more}
    return "", [(NAME, str(arguments).replace("'", '"'))]


def pictures(text: str, *urls: str) -> MessageEvent:
    return MessageEvent(source="user", llm_message=Message.user(text, image_urls=list(urls)))


def seen(events: list[AnyEvent]) -> list[VisionInspectObservation]:
    results = [event.observation for event in events if isinstance(event, ObservationEvent)]
    return [result for result in results if isinstance(result, VisionInspectObservation)]


async def test_the_model_is_told_of_the_images_and_has_one_looked_at(stage: Stage) -> None:
    await stage.begin()
    await stage.session.send(pictures("See?", FIRST, SECOND))
    events = await until(stage, FINISHED, [look(1), ("A cat.", ()), REPLIES["finish"]])
    asked, looked, told = stage.model.requests
    assert [request.endpoint.model for request in stage.model.requests] == [
        "openai/blind",
        "openai/seeing",
        "openai/blind",
    ]
    assert NAME in str(asked.tools)
    assert "- seeing\\n- watching" in str(asked.tools)
    shown = str(asked.messages[-1]["content"])
    assert "See?" in shown
    assert f"[Image 0: you do not see it; ask about it with {NAME}]" in shown
    assert "[Image 1:" in shown
    assert "base64" not in shown
    (question,) = looked.messages
    assert [part["type"] for part in question["content"]] == ["text", "image_url"]
    assert question["content"][1]["image_url"]["url"] == SECOND
    assert "What is it?" in question["content"][0]["text"]
    assert not looked.tools
    (result,) = seen(events)
    assert (result.text, result.answer, result.is_error) == ("A cat.", "A cat.", False)
    assert (result.image_index, result.question) == (1, "What is it?")
    assert (result.profile_name, result.model) == ("seeing", "openai/seeing")
    assert "A cat." in str(told.messages[-1])
    spent = [event.metrics for event in events if isinstance(event, ActionEvent)][-1]
    assert spent is not None
    assert spent.by_usage_id["vision-profile:seeing"].usage.prompt_tokens == 10
    assert KEY not in stage.session.stream.secrets.text(KEY)
    await stage.end()


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (look(2), "image_index is 2, but there is no such image: there are 2, counted from 0"),
        (look(profile_name="also-blind"), "profile_name is 'also-blind', which is no stored model that sees images"),
        (look(profile_name="nonesuch"), "there are: seeing, watching"),
        (look(profile_name="broken"), "there are: seeing, watching"),
    ],
)
async def test_what_is_not_there_is_an_error_that_says_what_is(stage: Stage, call: Reply, problem: str) -> None:
    await stage.begin()
    await stage.session.send(pictures("See?", FIRST, SECOND))
    (result,) = seen(await until(stage, FINISHED, [call, REPLIES["finish"]]))
    assert result.is_error
    assert problem in result.text
    assert len(stage.model.requests) == 2
    await stage.end()


async def test_another_model_may_be_named_and_one_that_fails_is_an_error(stage: Stage) -> None:
    await stage.begin()
    await stage.session.send(pictures("See?", FIRST))
    named = look(profile_name="watching")
    events = await until(stage, FINISHED, [named, None, named, ("", ()), REPLIES["finish"]])  # type: ignore[list-item] # a refusal
    failed, silent = seen(events)
    assert failed.is_error
    assert "the model of 'watching' could not be asked" in failed.text
    assert silent.is_error
    assert "gave no answer" in silent.text
    assert stage.model.requests[1].endpoint.model == "openai/watching"
    await stage.end()


async def test_a_number_means_what_the_model_was_shown_not_what_came_meanwhile(stage: Stage) -> None:
    await stage.begin()
    await stage.session.send(pictures("See?", FIRST))
    await until(stage, lambda log: len(stage.model.requests) == 1)
    await stage.session.send(pictures("And this?", SECOND))
    events = await until(stage, FINISHED, [look(1), look(1), ("A dog.", ()), REPLIES["finish"]])
    before, after = seen(events)
    assert "there are 1, counted from 0" in before.text
    assert after.text == "A dog."
    asked, looked = stage.model.requests[1:3]
    assert "[Image 1:" in str(list(asked.messages))
    assert SECOND in str(looked.messages)
    await stage.end()


async def test_without_images_it_says_so(stage: Stage) -> None:
    await stage.begin()
    await stage.say()
    (result,) = seen(await until(stage, FINISHED, [look(), REPLIES["finish"]]))
    assert "the user has attached none" in result.text
    await stage.end()


def names(llm: LLM, *tools: Tool) -> list[str]:
    return sorted(Agent(llm=llm, tools=list(tools)).initialize())


def test_the_tool_is_there_for_models_that_do_not_see_where_one_is_stored_that_does() -> None:
    assert names(LLM(**BLIND)) == ["finish", NAME, "think"]
    assert names(LLM(**BLIND), Tool(name="VisionInspectTool")) == ["finish", NAME, "think"]
    assert names(LLM(**{**BLIND, "disable_vision": False})) == ["finish", "think"]
    assert names(RandomRouter(llms_for_routing={"a": LLM(**BLIND)})) == ["finish", "think"]
    for name in ("seeing", "watching"):
        ProfileStore().delete(name)
    assert names(LLM(**BLIND)) == ["finish", "think"]


def test_a_filter_of_names_does_not_take_it_away() -> None:
    assert NAME in Agent(llm=LLM(**BLIND), filter_tools_regex="terminal").initialize()


async def test_alone_the_tool_says_that_it_needs_a_conversation() -> None:
    (tool,) = VisionInspectTool.create()
    result = await tool.acall(tool.action_from_arguments({"image_index": 0, "question": "?"}))
    assert result.is_error
    assert "works inside a conversation only" in result.text


def test_only_messages_of_users_get_references() -> None:
    picture = ImageContent(image_urls=[FIRST, SECOND])
    assert with_references(Message.user("text")) == Message.user("text")
    told = with_references(Message(role="user", content=[picture, TextContent(text="and"), picture]))
    texts = [part.text[:8] for part in told.content if isinstance(part, TextContent)]
    assert texts == ["[Image 0", "[Image 1", "and", "[Image 2", "[Image 3"]
    result = Message(role="tool", content=[picture], tool_call_id="1", name="x")
    assert with_references(result) is result


def test_only_a_model_that_does_not_see_and_has_the_tool_is_shown_references() -> None:
    blind, seeing = LLM(**BLIND), LLM(**{**BLIND, "disable_vision": False})
    message = Message.user("See?", image_urls=[FIRST])
    assert "[Image 0" in str(renderer(blind, {NAME})(message))
    assert "[Image 0" not in str(renderer(blind, {"think"})(message))
    assert FIRST in str(renderer(seeing, {NAME})(message))
    assert FIRST in str(renderer(seeing, set())(message))


# --- which images are meant ---


def said() -> MessageEvent:
    return MessageEvent(source="agent", llm_message=Message.assistant("Well."))


def called(**fields: Any) -> ActionEvent:
    call = MessageToolCall(id="1", name="terminal", arguments="{}")
    return ActionEvent(tool_name="terminal", tool_call_id="1", tool_call=call, llm_response_id="r", **fields)


async def newest(*events: AnyEvent) -> list[str]:
    stream = await EventStream.open("c", InMemoryEventStore())
    stored = [await stream.add_event(event) for event in events]
    return await newest_images(stream, stored[-1].id + 1)


async def test_messages_between_which_the_model_said_nothing_count_as_one() -> None:
    typed = ActionEvent(source="user", tool_name="terminal")
    blank = MessageEvent(source="agent", llm_message=Message.assistant("  "))
    assert await newest(pictures("a", FIRST), typed, pictures("b", SECOND, THIRD), blank, pictures("c")) == [
        FIRST,
        SECOND,
        THIRD,
    ]


@pytest.mark.parametrize("between", [said(), called()])
async def test_older_images_count_until_there_are_newer_ones(between: AnyEvent) -> None:
    assert await newest(pictures("a", FIRST), between, pictures("b"), said()) == [FIRST]
    assert await newest(pictures("a", FIRST), between, pictures("b", SECOND), said()) == [SECOND]
    assert await newest(pictures("a", FIRST)) == [FIRST]


async def test_what_was_undone_does_not_count() -> None:
    assert await newest(pictures("a", FIRST), said(), pictures("b", SECOND), Rewind(to=1), said()) == [FIRST]
    assert await newest(pictures("a", FIRST), Rewind(to=-1), pictures("b")) == []


async def test_far_back_is_looked_for_too() -> None:
    assert await newest(pictures("a", FIRST), *[pictures("b") for _ in range(250)]) == [FIRST]
