"""Messages in the form in which OpenAI-compatible servers take them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Sequence
from operator import is_not
from typing import Any

from agent_core.destinations import DestinationError, Destinations, DirectClient
from agent_core.events.messages import ImageContent, Message, MessageToolCall
from agent_core.llm.features import ModelFeatures
from agent_core.llm.tool_schemas import safe_name, sent_arguments

MAX_TOOL_TEXT = 50_000
TEXT_SLACK = 500
CACHE_MARK = {"type": "ephemeral"}

WireMessage = dict[str, Any]


def render_message(
    message: Message, features: ModelFeatures, *, vision: bool, cache_marks: bool, max_text: int = MAX_TOOL_TEXT
) -> WireMessage:
    """One message in wire form: a function of its arguments alone, so its result can be kept.

    Of a tool's result each text is cut to `max_text` characters, and all together to `MAX_TOOL_TEXT`. Only system
    messages are marked here; the mark that moves along with the end of the history is `mark_cache`'s.
    """
    wire: WireMessage = {"role": message.role}
    content = _content(message, vision=vision, marks=cache_marks and message.role == "system", max_text=max_text)
    if features.string_content and isinstance(content, list):
        content = message.text
    if message.role == "assistant":
        if message.tool_calls:
            wire["tool_calls"] = [_call(call, features) for call in message.tool_calls]
        if features.echo_reasoning and message.reasoning_content:
            wire["reasoning_content"] = message.reasoning_content
        blocks = _blocks_of(message.thinking_blocks, features)
        if blocks and (features.thinking_blocks or features.responses):
            wire["thinking_blocks"] = blocks
        if message.tool_calls and not message.text.strip():
            return wire
    if message.role == "tool":
        wire["tool_call_id"] = message.tool_call_id or ""
        if message.name:
            wire["name"] = safe_name(message.name)
    wire["content"] = content
    return wire


def _blocks_of(blocks: Sequence[dict[str, Any]], features: ModelFeatures) -> list[dict[str, Any]]:
    """Those of the model's own API: the reasoning of one means nothing to the other."""
    return [block for block in blocks if (block.get("type") == "reasoning") is features.responses]


def _call(call: MessageToolCall, features: ModelFeatures) -> dict[str, Any]:
    arguments = sent_arguments(call.arguments or "{}", features.tools)
    wire = {"id": call.id, "type": "function", "function": {"name": safe_name(call.name), "arguments": arguments}}
    return {**wire, "item_id": call.responses_item_id} if features.responses and call.responses_item_id else wire


def _content(message: Message, *, vision: bool, marks: bool, max_text: int) -> str | list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    is_plain = True
    left = MAX_TOOL_TEXT if message.role == "tool" else None
    for part in message.content:
        if isinstance(part, ImageContent):
            if vision:
                parts += [{"type": "image_url", "image_url": {"url": url}} for url in part.image_urls]
                is_plain = False
            continue
        text = part.text
        if left is not None:
            # A text that is hardly longer stays whole: with what a tool says after its output, for one.
            text = cut_middle(text, left if len(text) <= max_text + TEXT_SLACK else min(left, max_text))
            left = max(0, left - len(text))
        item: dict[str, Any] = {"type": "text", "text": text}
        if marks and part.cache_prompt:
            item["cache_control"] = CACHE_MARK
            is_plain = False
        parts.append(item)
    return "\n".join(item["text"] for item in parts) if is_plain else parts


def cut_middle(text: str, limit: int, notice: str = "") -> str:
    """The text with its middle left out where it is longer than `limit`, and a notice in its place."""
    if len(text) <= limit:
        return text
    notice = notice or f"\n[… {len(text) - limit} characters left out …]\n"
    if limit <= len(notice):
        return notice[:limit]
    head = (limit - len(notice) + 1) // 2
    tail = limit - len(notice) - head
    return text[:head] + notice + (text[-tail:] if tail else "")


def mark_cache(messages: Sequence[WireMessage]) -> list[WireMessage]:
    """The messages with marks on the first system block and the last user or tool message; these alone are copied."""
    marked = list(messages)
    if marked and marked[0]["role"] == "system":
        marked[0] = _with_mark(marked[0], first=True)
    for index in reversed(range(len(marked))):
        if marked[index]["role"] in ("user", "tool"):
            marked[index] = _with_mark(marked[index], first=False)
            break
    return marked


def _with_mark(message: WireMessage, *, first: bool) -> WireMessage:
    content = message.get("content")
    if message["role"] == "tool":
        return {**message, "cache_control": CACHE_MARK} if content else message
    if isinstance(content, str):
        if not content:
            return message
        content = [{"type": "text", "text": content}]
    if not content or any("cache_control" in item for item in content):
        return message
    at = 0 if first else len(content) - 1
    items = [{**item, "cache_control": CACHE_MARK} if index == at else item for index, item in enumerate(content)]
    return {**message, "content": items}


def without_marks(message: WireMessage) -> WireMessage:
    """The message without cache marks; unchanged where it has none."""
    content = message.get("content")
    if isinstance(content, list) and any("cache_control" in item for item in content):
        content = [{key: value for key, value in item.items() if key != "cache_control"} for item in content]
        return {**message, "content": content}
    return message


def hoist_images(messages: Sequence[WireMessage]) -> list[WireMessage]:
    """Images of tool results, for which OpenAI's protocol has no place, moved into a user message after the batch."""
    if not any(has_images(message) for message in messages if message["role"] == "tool"):
        return list(messages)
    hoisted: list[WireMessage] = []
    waiting: list[dict[str, Any]] = []
    for message in messages:
        if waiting and message["role"] != "tool":
            hoisted.append({"role": "user", "content": waiting})
            waiting = []
        if message["role"] == "tool" and isinstance(message.get("content"), list):
            images = [item for item in message["content"] if item.get("type") == "image_url"]
            if images:
                texts = [item.get("text", "") for item in message["content"] if item.get("type") == "text"]
                message = {**message, "content": "\n".join(texts) or "(see the image below)"}
                waiting += [{"type": "text", "text": f"Image of the result of {message['tool_call_id']}:"}, *images]
        hoisted.append(message)
    if waiting:
        hoisted.append({"role": "user", "content": waiting})
    return hoisted


def adapted(message: WireMessage, features: ModelFeatures) -> WireMessage:
    """A message that was rendered for another model, as this one wants it; unchanged where it does not matter."""
    wire = message
    if blocks := wire.get("thinking_blocks"):
        wire = {**wire, "thinking_blocks": _blocks_of(blocks, features)}
    taken = {
        "reasoning_content": features.echo_reasoning,
        "thinking_blocks": features.thinking_blocks or features.responses,
    }
    if any(key in wire and not is_taken for key, is_taken in taken.items()):
        wire = {key: value for key, value in wire.items() if taken.get(key, True)}
    if calls := wire.get("tool_calls"):
        fitting = [_adapted_call(call, features) for call in calls]
        wire = {**wire, "tool_calls": fitting} if any(map(is_not, fitting, calls)) else wire
    content = wire.get("content")
    if not isinstance(content, list):
        return wire
    items = [item for item in content if features.vision or item.get("type") != "image_url"]
    if not features.prompt_cache_marks:
        items = without_marks({"content": items})["content"]
    is_plain = all(item.keys() == {"type", "text"} for item in items)
    if is_plain or features.string_content:
        return {**wire, "content": "\n".join(item["text"] for item in items if item.get("type") == "text")}
    return {**wire, "content": items}


def _adapted_call(call: dict[str, Any], features: ModelFeatures) -> dict[str, Any]:
    function = call["function"]
    arguments = sent_arguments(function["arguments"], features.tools)
    if arguments != function["arguments"]:
        call = {**call, "function": {**function, "arguments": arguments}}
    if not features.responses and "item_id" in call:
        return {key: value for key, value in call.items() if key != "item_id"}
    return call


def has_images(message: WireMessage) -> bool:
    """Whether an image is in its content."""
    content = message.get("content")
    return isinstance(content, list) and any(item.get("type") == "image_url" for item in content)


def texts_of(messages: Sequence[WireMessage]) -> Iterator[str]:
    """What a prompt says, piece by piece: texts, and names and arguments of calls, without images."""
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            yield content
        elif content:
            for item in content:
                yield item.get("text") or ""
        for call in message.get("tool_calls") or ():
            yield call["function"]["name"]
            yield call["function"]["arguments"]


MAX_IMAGE_BYTES = 20 * 1024 * 1024
IMAGE_SECONDS = 30.0
MAX_CACHED_IMAGES = 16
"""How many fetched images are kept for the next requests."""
MAX_CACHED_CHARS = 64 * 1024 * 1024
"""How long they may be together."""

PUBLIC = Destinations()
"""Nobody is to look into this host's networks through a message."""

_images: dict[str, str] = {}


async def with_images(messages: Sequence[WireMessage], destinations: Destinations = PUBLIC) -> list[WireMessage]:
    """The messages with images in place of their addresses, for models that take images only within the request.

    One that is not to be had or not allowed becomes a text of that.
    """
    client = DirectClient(destinations, IMAGE_SECONDS)
    try:
        return [
            {**message, "content": [await _with_image(part, client) for part in message["content"]]}
            if has_images(message)
            else message
            for message in messages
        ]
    finally:
        await client.aclose()


async def _with_image(part: dict[str, Any], client: DirectClient) -> dict[str, Any]:
    url = part.get("image_url", {}).get("url", "") if part.get("type") == "image_url" else ""
    if not url.lower().startswith(("http://", "https://")):
        return part
    try:
        async with asyncio.timeout(IMAGE_SECONDS):
            data = _images.get(url) or await _fetched(url, client)
    except Exception as error:  # noqa: BLE001 - whatever the client raises: the model is told, and goes on
        cause = str(error) if isinstance(error, (_UnfetchedError, DestinationError)) else type(error).__name__
        if isinstance(error, DestinationError) and error.not_public:
            cause = "its address is not one of the public internet"
        return {"type": "text", "text": f"[The image at {url[:200]} could not be fetched: {cause}]"}
    _images[url] = data
    while len(_images) > MAX_CACHED_IMAGES or (len(_images) > 1 and sum(map(len, _images.values())) > MAX_CACHED_CHARS):
        del _images[next(iter(_images))]
    return {**part, "image_url": {**part["image_url"], "url": data}}


class _UnfetchedError(Exception):
    """Why an image was not fetched."""


async def _fetched(url: str, client: DirectClient) -> str:
    """The image as a data URL. It is taken as it comes: what is compressed may be of any size."""
    async with client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
        if response.status_code != 200:
            raise _UnfetchedError(f"the server answered {response.status_code}")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not kind.startswith("image/"):
            raise _UnfetchedError(f"it is {kind or 'of no type'}, not an image")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise _UnfetchedError("the server compressed it, which it was asked not to do")
        content = bytearray()
        async for piece in response.aiter_raw():
            content += piece
            if len(content) > MAX_IMAGE_BYTES:
                raise _UnfetchedError(f"it is larger than {MAX_IMAGE_BYTES // 1024 // 1024} MiB")
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
