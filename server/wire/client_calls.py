"""What clients answer to the calls that they carry out (an addition to the protocol)."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Annotated, Final, Literal

from pydantic import Field

from agent_core.events.control import ClientToolResult
from agent_core.events.messages import ImageContent, TextContent
from agent_core.mcp.results import IMAGE_TYPES, MAX_IMAGE_BYTES, MAX_IMAGES
from server.wire.errors import WireError
from server.wire.fields import Fields

MAX_TEXT_CHARS: Final = 1_000_000


class TextBlock(Fields):
    """A text of a result."""

    type: Literal["text"]
    text: str


class ImageBlock(Fields):
    """An image of a result, in base64."""

    type: Literal["image"]
    data: str
    mimeType: str  # noqa: N815 - as MCP spells it


Block = Annotated[TextBlock | ImageBlock, Field(discriminator="type")]


class ResultArgs(Fields):
    """What a client answers: a text, or blocks as MCP has them."""

    content: str | list[Block]
    is_error: bool = False


class ClientToolResultArgs(ResultArgs):
    """`client_tool_result`."""

    call_id: int = Field(ge=0)


def result_event(call_id: int, args: ResultArgs) -> ClientToolResult:
    """The event that an answer stands for.

    Raises:
        WireError: it is too large, or holds an image that is none.
    """
    blocks = [TextBlock(type="text", text=args.content)] if isinstance(args.content, str) else args.content
    size = sum(len(block.text) for block in blocks if isinstance(block, TextBlock))
    if size > MAX_TEXT_CHARS:
        raise WireError(f"args.content has {size} characters of text; at most {MAX_TEXT_CHARS} are taken")
    if sum(isinstance(block, ImageBlock) for block in blocks) > MAX_IMAGES:
        raise WireError(f"args.content has more than {MAX_IMAGES} images; leave some out")
    content: list[TextContent | ImageContent] = [_part(place, block) for place, block in enumerate(blocks)]
    return ClientToolResult(cause=call_id, content=content, is_error=args.is_error)


def _part(place: int, block: TextBlock | ImageBlock) -> TextContent | ImageContent:
    if isinstance(block, TextBlock):
        return TextContent(text=block.text)
    if block.mimeType not in IMAGE_TYPES:
        known = ", ".join(sorted(IMAGE_TYPES))
        raise WireError(f"args.content.{place}.mimeType: is none of {known}")
    try:
        size = len(b64decode(block.data, validate=True))
    except (binascii.Error, ValueError):
        raise WireError(f"args.content.{place}.data: is not base64") from None
    if size > MAX_IMAGE_BYTES:
        raise WireError(f"args.content.{place}.data: has {size} bytes; an image may have {MAX_IMAGE_BYTES}")
    return ImageContent(image_urls=[f"data:{block.mimeType};base64,{block.data}"])
