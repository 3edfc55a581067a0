"""The base of all events with integer ids 0, 1, 2, … per conversation."""

from __future__ import annotations

from abc import abstractmethod
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, Self

from pydantic import AwareDatetime, Field

from agent_core.events.messages import Kindred, Lean, Message
from agent_core.events.plain_text import one_line

Source = Literal["agent", "user", "environment", "hook"]

UNSTORED = -1


def utc_now() -> datetime:
    """The present aware time in UTC."""
    return datetime.now(UTC)


class Event(Lean, Kindred):
    """One entry of a conversation's log; never changed once it is stored.

    Attributes:
        id: position in the log, 0, 1, 2, … without gaps; `UNSTORED` before it is added.
        timestamp: aware UTC time at which it was handed to the stream.
        cause: id of the event that it answers, if any.
        client_key: the name that a client gave what it sent, so that it can tell whether it is here.
    """

    id: int = UNSTORED
    timestamp: AwareDatetime = Field(default_factory=utc_now)
    source: Source = "environment"
    cause: int | None = None
    client_key: str | None = Field(default=None, exclude_if=lambda value: value is None)

    kinds: ClassVar[dict[str, type[Event]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if (kind := cls.model_fields.get("kind")) is not None:
            Event.kinds[str(kind.default)] = cls

    @classmethod
    def member(cls, kind: str) -> type[Event] | None:
        return Event.kinds.get(kind)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        if "kind" in cls.model_fields:
            return super(Kindred, cls).model_validate_json(json_data, **options)
        return super().model_validate_json(json_data, **options)

    def __str__(self) -> str:
        """One readable line: its place in the log, whose it is, and what it says; `repr` shows every field."""
        place = f"[{self.id}] " if self.id != UNSTORED else ""
        return f"{place}{self.source}: {one_line(self.headline)}"

    @property
    def headline(self) -> str:
        """What the event says, in short and in any number of lines; here: the name of its class."""
        return type(self).__name__

    def stored_as(self, event_id: int) -> Self:
        return self.model_copy(update={"id": event_id})


class LLMConvertibleEvent(Event):
    """Base of the events that a model sees; a view joins what belongs together (the calls of one answer)."""

    @abstractmethod
    def to_llm_message(self) -> Message:
        """The event as the model sees it, by itself."""
