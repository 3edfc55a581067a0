"""Images in messages: refused where the conversation's model cannot see."""

from __future__ import annotations

from agent_core.errors import DrydockError
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import ImageContent
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM

DISABLED = "Support for images is disabled for this model, try without an image."
UNSUPPORTED = "Model does not support image upload, change to a different model or try without an image."


class ImagesRefusedError(DrydockError):
    """The message has images and the model of the conversation cannot see; it was not stored."""


def check_images(event: AnyEvent, llm: LLM, *, inspected: bool = False) -> None:
    """Raise `ImagesRefusedError` if the model cannot see a message's images and no other looks at them."""
    if not isinstance(event, MessageEvent):
        return
    has_images = any(isinstance(part, ImageContent) and part.image_urls for part in event.llm_message.content)
    if has_images and not llm.features.vision and not inspected:
        raise ImagesRefusedError(DISABLED if llm.disable_vision else UNSUPPORTED)
