"""Messages out of their wire form, for whoever wants to look into a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from agent_core.events.messages import ImageContent, Message, MessageToolCall, TextContent
from agent_core.llm.render import WireMessage


class ReadBack(Sequence[Message]):
    """The messages of a prompt, each made when it is looked at: a prompt is long, and most of it is of no interest.

    Attributes:
        wire: the prompt itself.
    """

    def __init__(self, wire: Sequence[WireMessage]) -> None:
        self.wire = wire

    def __len__(self) -> int:
        return len(self.wire)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return ReadBack(self.wire[index])
        return message_of(self.wire[index])


def message_of(wire: WireMessage) -> Message:
    """The message that was rendered so, as far as its wire form tells."""
    content = wire.get("content") or []
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return Message(
        role=wire["role"],
        content=[_part(part) for part in parts],
        tool_calls=[_call(call) for call in wire.get("tool_calls") or ()] or None,
        tool_call_id=wire.get("tool_call_id"),
        name=wire.get("name"),
        reasoning_content=wire.get("reasoning_content"),
        thinking_blocks=wire.get("thinking_blocks") or [],
    )


def _part(part: dict[str, Any]) -> TextContent | ImageContent:
    if part.get("type") == "image_url":
        return ImageContent(image_urls=[part["image_url"]["url"]])
    return TextContent(text=part.get("text") or "", cache_prompt="cache_control" in part)


def _call(call: dict[str, Any]) -> MessageToolCall:
    function = call["function"]
    return MessageToolCall(
        id=call["id"],
        name=function["name"],
        arguments=function["arguments"],
        responses_item_id=call.get("item_id"),
    )
