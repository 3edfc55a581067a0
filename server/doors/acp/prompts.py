"""Prompts of an editor's user as messages to an agent; and back."""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from acp import image_block, text_block
from acp.schema import AudioContentBlock as Audio
from acp.schema import BlobResourceContents
from acp.schema import EmbeddedResourceContentBlock as Embedded
from acp.schema import ImageContentBlock as Image
from acp.schema import ResourceContentBlock as Link
from acp.schema import TextContentBlock as Text

from server.doors.acp.json_rpc import invalid

PromptBlock = Text | Image | Audio | Link | Embedded

_JPEG: Final = "/9j/"
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)
_IMAGE_TYPE: Final = re.compile(r"image/[\w.+-]+")
_BACKTICKS: Final = re.compile("`+")


class PromptMessage(NamedTuple):
    """A message: its text, and its images as data URLs."""

    text: str
    images: list[str]


def message_from(blocks: Sequence[PromptBlock]) -> PromptMessage:
    """One message of a prompt's blocks: links in angle brackets, embedded texts in fences; raises `RequestError`."""
    parts: list[str] = []
    images: list[str] = []
    for number, block in enumerate(blocks):
        where = f"prompt.{number}"
        match block:
            case Text():
                parts.append(_sendable(block.text, f"{where}.text"))
            case Image():
                images.append(_picture(block, where))
            case Link():
                parts.append(f" <{_sendable(block.uri, f'{where}.uri')}> ")
            case Embedded():
                parts.append(_embedded(block, where))
            case Audio():
                raise invalid(f"{where}.type", "is audio, which agents here do not hear; send it as text")
    text = "".join(parts).strip()
    if not text and not images:
        raise invalid("prompt", "says nothing; send text or an image")
    return PromptMessage(text, images)


def blocks_of(text: str, images: Sequence[str]) -> list[Text | Image]:
    """A message as blocks; an image that is no data URL is named by its address."""
    found: list[Text | Image] = [text_block(text)] if text else []
    for url in images:
        match = _DATA_URL.match(url)
        found.append(image_block(match[2], _type(*match.groups())) if match else text_block(f" <{url}> "))
    return found


def _type(label: str, data: str) -> str:
    """What a picture is: a screenshot says PNG for the sake of browser clients (docs/protocol.md), and is a JPEG."""
    return "image/jpeg" if data.startswith(_JPEG) else label


def fenced(text: str, kind: str = "") -> str:
    """Text in a Markdown fence that nothing in it can end."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def _picture(block: Image, where: str) -> str:
    if not _IMAGE_TYPE.fullmatch(block.mime_type):
        raise invalid(
            f"{where}.mimeType", f"{block.mime_type[:100]!r} is no type of images; give one such as image/png"
        )
    try:
        binascii.a2b_base64(block.data, strict_mode=True)
    except ValueError as error:
        raise invalid(f"{where}.data", f"is no base64: {error}; give the image's bytes in base64") from None
    return f"data:{block.mime_type};base64,{block.data}"


def _embedded(block: Embedded, where: str) -> str:
    resource = block.resource
    if isinstance(resource, BlobResourceContents):
        raise invalid(f"{where}.resource.blob", "is binary; send text, or an image as a block of its own")
    uri = _sendable(resource.uri, f"{where}.resource.uri")
    return f"\n\n<{uri}>:\n{fenced(_sendable(resource.text, f'{where}.resource.text'))}\n\n"


def _sendable(text: str, field: str) -> str:
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise invalid(field, "has NUL characters or lone surrogates, which no agent can read; leave them out")
    return text
