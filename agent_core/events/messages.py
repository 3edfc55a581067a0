"""What is said to and by a model: messages, their content, and the calls in them (agent-core 1.2, 9.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Frozen(BaseModel):
    """Base of every value that goes into the log: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TextContent(Frozen):
    """A piece of text. `cache_prompt` marks the end of a prefix worth caching at the provider."""

    type: Literal["text"] = "text"
    text: str
    cache_prompt: bool = False


class ImageContent(Frozen):
    """One or more images, each an http(s) or data URL."""

    type: Literal["image"] = "image"
    image_urls: list[str]
    cache_prompt: bool = False


Content = Annotated[TextContent | ImageContent, Field(discriminator="type")]


class MessageToolCall(Frozen):
    """One tool call as the model made it. `arguments` is the JSON text, valid JSON once it is in the log."""

    id: str
    name: str
    arguments: str
    origin: Literal["completion", "responses"] = "completion"
    responses_item_id: str | None = None


def _as_parts(given: Any) -> Any:
    if isinstance(given, str):
        return [TextContent(text=given)]
    return [] if given is None else given


class Message(Frozen):
    """One message of a model conversation.

    A ``tool`` message answers exactly one call (`tool_call_id`, `name`). An ``assistant`` message may carry
    several `tool_calls`; its content may then be empty. A text given as `content` is one part, None is none.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: Annotated[list[Content], BeforeValidator(_as_parts)] = Field(default_factory=list)
    tool_calls: list[MessageToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    thinking_blocks: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def text(self) -> str:
        """All text parts, joined by newlines."""
        return "\n".join(part.text for part in self.content if isinstance(part, TextContent))

    @classmethod
    def user(cls, text: str, *, image_urls: list[str] | None = None) -> Message:
        """A user message of one text and, if any, the given images."""
        content: list[TextContent | ImageContent] = [TextContent(text=text)]
        if image_urls:
            content.append(ImageContent(image_urls=image_urls))
        return cls(role="user", content=content)

    @classmethod
    def assistant(cls, text: str) -> Message:
        """An assistant message of one text and no calls."""
        return cls(role="assistant", content=[TextContent(text=text)])


def content_to_str(contents: Sequence[TextContent | ImageContent]) -> list[str]:
    """One text for each part, for people: an image is named, not shown."""
    return [
        part.text if isinstance(part, TextContent) else f"[Image: {len(part.image_urls)} URLs]" for part in contents
    ]
