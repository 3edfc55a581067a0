"""Transient notices: seen live by whoever follows the stream, never stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the model's answer `response_id`; superseded by the event that carries that answer."""

    response_id: str
    text: str
    channel: Literal["message", "reasoning"] = "message"

    @property
    def content(self) -> str | None:
        """What is more of the message, by the name that other programs know."""
        return self.text if self.channel == "message" else None

    @property
    def reasoning_content(self) -> str | None:
        """What is more of the reasoning, likewise."""
        return self.text if self.channel == "reasoning" else None

    @property
    def choices(self) -> tuple[TextChoice, ...]:
        """The piece itself, likewise."""
        return (TextChoice(self),)


class TextChoice(NamedTuple):
    """A piece of text in the place where programs find it that know the chunks of a model's answer."""

    delta: TextDelta


@dataclass(frozen=True, slots=True)
class TextDiscarded:
    """The answer `response_id` broke off and is asked for again: its text so far is void."""

    response_id: str


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """More output of the running action `cause`; superseded by that action's observation."""

    cause: int
    text: str


@dataclass(frozen=True, slots=True)
class StatusNotice:
    """Progress or trouble to show to people: a status id of docs/protocol.md and a text.

    With `start_failed` the trouble is that there is no session: sandbox or agent could not be started.
    """

    status_id: str
    message: str
    level: Literal["info", "error"] = "info"
    start_failed: bool = False


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A client is to carry out the call `cause` of one of its tools until `deadline`; answered by a `ClientToolResult`.

    With `is_over` nobody waits for the answer any more.
    """

    cause: int
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    deadline: datetime | None = None
    is_over: bool = False


Transient = ClientCall | TextDelta | TextDiscarded | OutputDelta | StatusNotice
