"""What a server answered, as an observation: texts and images, cut to what a model can use."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from agent_core.events.messages import ImageContent, TextContent
from agent_core.events.schema import Observation
from agent_core.tools.truncation import maybe_truncate

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock

MAX_TEXT_CHARS = 30_000
MAX_IMAGES = 10
MAX_IMAGE_BYTES = 5 * 1024 * 1024
_BEGINNINGS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
"""How images begin, whatever type a server says they have: models' servers refuse one whose type is wrong."""
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What the models' providers take."""

_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


class MCPToolObservation(Observation):
    """The result of a call of a remote tool. The first text of its content names the tool that was executed."""

    name: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)

    def to_result(self) -> dict[str, Any]:
        """The result in the form in which the protocol's servers give it, less what was left out of it."""
        blocks: list[dict[str, Any]] = []
        for part in self.content[1:]:
            if isinstance(part, TextContent):
                blocks.append({"type": "text", "text": part.text})
                continue
            for url in part.image_urls:
                match = _DATA_URL.fullmatch(url)
                blocks.append(
                    {"type": "image", "data": match[2], "mimeType": match[1]}
                    if match
                    else {"type": "text", "text": url}
                )
        return {"content": blocks, "isError": self.is_error}


def observation_of(name: str, arguments: Mapping[str, Any], result: CallToolResult) -> MCPToolObservation:
    """The observation for a server's answer to the call of the tool `name` with the model's `arguments`."""
    parts = [part for block in result.content for part in _parts_of(block)]
    if not result.content and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    texts = [part for part in parts if isinstance(part, str)]
    images = [part for part in parts if isinstance(part, ImageContent)]
    if len(images) > MAX_IMAGES:
        texts.append(f"[{len(images) - MAX_IMAGES} of {len(images)} images were left out.]")
    if sum(map(len, texts)) > MAX_TEXT_CHARS:
        texts = [maybe_truncate("\n".join(texts), MAX_TEXT_CHARS)]
    return MCPToolObservation(
        content=[
            TextContent(text=f"[Tool '{name}' executed.]"),
            *(TextContent(text=text) for text in texts),
            *images[:MAX_IMAGES],
        ],
        is_error=bool(result.is_error),
        name=name,
        arguments=dict(arguments),
    )


def failed_observation(name: str, arguments: Mapping[str, Any], text: str) -> MCPToolObservation:
    """The observation for a call that the server could not answer."""
    content = [TextContent(text=f"[Tool '{name}' failed.]"), TextContent(text=maybe_truncate(text, MAX_TEXT_CHARS))]
    return MCPToolObservation(content=list(content), is_error=True, name=name, arguments=dict(arguments))


def _parts_of(block: ContentBlock) -> list[str | ImageContent]:
    match block.type:
        case "text":
            return [block.text]
        case "image":
            return [_image(block.data, block.mime_type)]
        case "audio":
            return [f"[Audio of type {block.mime_type} was left out: it cannot be shown here.]"]
        case "resource_link":
            described = f" ({block.description})" if block.description else ""
            return [f"[Resource {block.name}{described}: {block.uri}]"]
        case "resource":
            return [_resource(block.resource)]


def _resource(resource: Any) -> str | ImageContent:
    text = getattr(resource, "text", None)
    if isinstance(text, str):
        return f"[Resource {resource.uri}]\n{text}"
    kind = resource.mime_type or "an unknown type"
    if kind in IMAGE_TYPES:
        return _image(resource.blob, kind)
    return f"[Resource {resource.uri} of type {kind} was left out: it is no text.]"


def _image(data: str, kind: str) -> str | ImageContent:
    if kind not in IMAGE_TYPES:
        return f"[An image of type {kind} was left out; models take {', '.join(sorted(IMAGE_TYPES))}.]"
    if len(data) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        return f"[An image was left out: it is larger than {MAX_IMAGE_BYTES} bytes.]"
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return "[An image was left out: it is not valid base64.]"
    seen = next((known for begin, known in _BEGINNINGS if content.startswith(begin)), kind)
    return ImageContent(image_urls=[f"data:{seen};base64,{data}"])
