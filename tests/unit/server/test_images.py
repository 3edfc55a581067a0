"""Images for models that cannot see are refused in the protocol's words (wire-protocol 2.2)."""

from __future__ import annotations

import pytest

from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM
from server.session.images import ImagesRefusedError, check_images

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
