"""A request of OpenAI's chat completions, as far as it has a meaning here, and the history in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

MODEL: Final = "drydock"
"""The one model of this door: the agent, with whatever model its user has set up."""

MAX_METADATA: Final = 1_000
MAX_MESSAGES: Final = 10_000

_NOT_HERE: Final = {
    "tools": "the agent has tools of its own",
    "functions": "the agent has tools of its own",
    "response_format": "the agent answers in plain text",
    "logprobs": "there is no one model call behind an answer",
    "audio": "the agent answers in plain text",
}


class ImageUrl(BaseModel):
    """Where an image is; a ``data:`` URL has it whole."""

    url: str

    @field_validator("url")
    @classmethod
    def _is_an_image(cls, value: str) -> str:
        if not value.lower().startswith(("data:image/", "https://", "http://")):
            raise ValueError("is the address of no image; send https://… or data:image/…;base64,…")
        return value


class Part(BaseModel):
    """A part of a message's content."""

    type: Literal["text", "image_url", "refusal"]
    text: str = ""
    refusal: str = ""
    image_url: ImageUrl | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.type == "image_url" and self.image_url is None:
            raise ValueError("image_url is missing; send {'url': …}, or text")
        return self


Parts = Annotated[list[Part], Field(fail_fast=True)]


class ChatMessage(BaseModel):
    """A message of the chat's history."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Parts | None = None

    @property
    def text(self) -> str:
        """Its text, without surrounding space: clients trim what they send back."""
        if isinstance(self.content, list):
            return "\n".join(filter(None, (part.text or part.refusal for part in self.content))).strip()
        return (self.content or "").strip()

    @property
    def images(self) -> list[str]:
        parts = self.content if isinstance(self.content, list) else []
        return [part.image_url.url for part in parts if part.image_url is not None]


class StreamOptions(BaseModel, strict=True):
    """What a stream is to end with."""

    include_usage: bool = False


class ChatRequest(BaseModel, extra="ignore", strict=True):
    """The body of ``POST /v1/chat/completions``.

    How the model is asked is set for the agent, not here: temperature, length and the like are read and left alone.
    What would change the form of the answer is refused. ``conversation_id`` (or one in ``metadata``) is an addition:
    the conversation to go on with, whatever the history says. ``user`` and ``safety_identifier`` tell apart the chats
    of those for whom one client speaks.
    """

    model: str = Field(json_schema_extra={"enum": [MODEL]})
    messages: list[ChatMessage] = Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, json_schema_extra={"enum": [1, None]})
    tools: Any = None
    functions: Any = None
    response_format: Any = None
    logprobs: Any = None
    audio: Any = None
    user: Any = None
    safety_identifier: Any = None
    metadata: dict[str, str] | None = None
    conversation_id: str | None = None

    @field_validator("metadata", mode="before")
    @classmethod
    def _is_small(cls, value: object) -> object:
        if isinstance(value, dict) and len(value) > MAX_METADATA:
            raise ValueError(f"has {len(value)} entries; send at most {MAX_METADATA}")
        return value

    @field_validator("n")
    @classmethod
    def _is_one(cls, value: int | None) -> int | None:
        if value not in (None, 1):
            raise ValueError("an agent gives one answer; leave it out or send 1")
        return value

    @field_validator(*_NOT_HERE)
    @classmethod
    def _is_absent(cls, value: Any, info: Any) -> Any:
        plain = info.field_name == "response_format" and isinstance(value, dict) and value.get("type") == "text"
        if value and not plain:
            raise ValueError(f"{_NOT_HERE[info.field_name]}; leave it out")
        return None

    @property
    def chosen_conversation(self) -> str | None:
        return self.conversation_id or (self.metadata or {}).get("conversation_id")

    @property
    def speaker(self) -> str:
        named = [self.user, self.safety_identifier]
        return json.dumps(named) if any(named) else ""


_SPEAKERS = {"user": "User", "assistant": "Assistant"}
PlainMessage = tuple[str, str, list[str]]
"""A message as it is digested: role, text, images."""


class NoUserMessageError(ValueError):
    """The history does not end with a word of the user's."""


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """The history of a chat request: the `past` up to the last answer, and what the user says now."""

    past: tuple[ChatMessage, ...]
    text: str
    images: tuple[str, ...]
    instructions: str
    speaker: str = ""

    @classmethod
    def of(cls, messages: Sequence[ChatMessage], *, speaker: str = "") -> ChatHistory:
        dialogue = [message for message in messages if message.role in _SPEAKERS]
        if not dialogue or dialogue[-1].role != "user":
            raise NoUserMessageError("messages: the last one must be the user's")
        answered = max((at for at, message in enumerate(dialogue) if message.role == "assistant"), default=-1)
        now = dialogue[answered + 1 :]
        text = "\n\n".join(message.text for message in now if message.text)
        images = tuple(url for message in now for url in message.images)
        if not text and not images:
            raise NoUserMessageError("messages: the user's last one is empty")
        instructions = (message.text for message in messages if message.role in ("system", "developer"))
        return cls(tuple(dialogue[: answered + 1]), text, images, "\n\n".join(filter(None, instructions)), speaker)

    @property
    def digests(self) -> list[str]:
        """Of the past, the one to go by first in front; none at the beginning of a chat.

        The second is without the instructions, which tell apart chats that begin alike, but may change in the middle.
        """
        return self._digests(*map(_plain, self.past)) if self.past else []

    def digests_after(self, answer: str) -> list[str]:
        now = ("user", self.text, list(self.images))
        return self._digests(*map(_plain, self.past), now, ("assistant", answer.strip(), []))

    def _digests(self, *messages: PlainMessage) -> list[str]:
        speaker: list[PlainMessage] = [("speaker", self.speaker, [])] if self.speaker else []
        instructions: list[PlainMessage] = [("system", self.instructions, [])] if self.instructions else []
        return list(dict.fromkeys((_digest(*speaker, *instructions, *messages), _digest(*speaker, *messages))))

    @property
    def whole_text(self) -> str:
        if not self.past:
            return self.text
        before = "\n\n".join(f"{_SPEAKERS[message.role]}: {message.text}" for message in self.past)
        return f"[What was said in this chat before]\n{before}\n\n[Now]\n{self.text}"


def _plain(message: ChatMessage) -> PlainMessage:
    return (message.role, message.text, message.images)


def _digest(*messages: PlainMessage) -> str:
    joined: list[PlainMessage] = []
    for role, text, images in messages:
        if joined and role == "user" == joined[-1][0]:  # clients may join or divide neighbouring messages of the user
            _, before, shown = joined.pop()
            text, images = f"{before}\n\n{text}".strip(), [*shown, *images]
        joined.append((role, text, images))
    return hashlib.sha256(json.dumps(joined).encode()).hexdigest()
