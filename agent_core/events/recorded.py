"""Events of a conversation that took place elsewhere, kept in a log here as they were recorded."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent
from agent_core.events.schema import Observation


class RecordedResult(Observation):
    """What came of a call, as it was recorded."""


class Recorded(Event):
    """One event of an imported conversation: it is shown, and told to a model, but nothing is done because of it.

    Such events stand at the beginning of a log, before any of its own.

    Attributes:
        record: its public form, without what the event itself has; opaque in here.
        told: what a model is told of it, under the ids of the log: a message, or a call together with its result.
    """

    kind: Literal["Recorded"] = "Recorded"
    record: dict[str, Any]
    told: list[MessageEvent | ActionEvent | ObservationEvent] = Field(default_factory=list)
