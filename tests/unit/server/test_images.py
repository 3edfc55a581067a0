"""Images for models that cannot see are refused in the protocol's words."""

from __future__ import annotations

import pytest

from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM
from agent_core.session.settings import SessionSettings
from server.session.images import ImagesRefusedError, check_images
from tests.unit.server.conftest import House, hello

IMAGE = "data:image/png;base64,iVBORw0KGgo="


def message(*image_urls: str) -> MessageEvent:
    return MessageEvent(source="user", llm_message=Message.user("look", image_urls=list(image_urls)))


def test_a_model_without_vision_refuses_images() -> None:
    with pytest.raises(ImagesRefusedError) as refused:
        check_images(message(IMAGE), LLM(model="openai/gpt-3.5-turbo"))
    expected = "Model does not support image upload, change to a different model or try without an image."
    assert str(refused.value) == expected


def test_vision_that_is_disabled_is_told_so() -> None:
    with pytest.raises(ImagesRefusedError) as refused:
        check_images(message(IMAGE), LLM(model="openai/gpt-4o", disable_vision=True))
    assert str(refused.value) == "Support for images is disabled for this model, try without an image."


def test_a_model_that_sees_takes_images_and_every_model_takes_text() -> None:
    check_images(message(IMAGE), LLM(model="openai/gpt-4o"))
    check_images(message(), LLM(model="openai/no-such-model"))


def test_images_that_another_model_looks_at_are_taken() -> None:
    check_images(message(IMAGE), LLM(model="openai/gpt-3.5-turbo"), inspected=True)


async def test_a_conversation_takes_images_for_a_model_that_does_not_see_where_they_are_looked_at(house: House) -> None:
    await house.new("a")
    await house.manager.send("a", hello())
    (agent,) = house.agents.made
    agent.settings = SessionSettings(llm=LLM(model="openai/gpt-3.5-turbo"))
    with pytest.raises(ImagesRefusedError):
        await house.manager.send("a", message(IMAGE))
    agent.has_images_inspected = True
    await house.manager.send("a", message(IMAGE))
    assert IMAGE in str([event async for event in agent.stream.history()])
