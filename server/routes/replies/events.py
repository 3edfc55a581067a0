"""The log of a conversation as it is read."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class WireEvent(BaseModel):
    """An event of the log: an action, or an observation. Its type says which `args` or `extras` it has."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"oneOf": [{"required": ["action"]}, {"required": ["observation"]}]}
    )

    id: int = Field(ge=0)
    timestamp: str = Field(description="UTC, ISO 8601 with microseconds and `Z`.")
    source: Literal["agent", "user", "environment"]
    message: str = Field(description="A line for people.")
    cause: int = Field(0, description="The action that an observation answers.")
    action: str = Field("", description="The type of an action.")
    args: dict[str, Any] = Field({}, description="The fields of an action.")
    observation: str = Field("", description="The type of an observation.")
    content: str = Field("", description="The text of an observation.")
    extras: dict[str, Any] = Field({}, description="The fields of an observation.")
    success: bool = False
    timeout: float = Field(0.0, description="Seconds.")
    tool_call_metadata: dict[str, Any] = {}
    llm_metrics: dict[str, Any] = {}
    idempotency_key: str = Field("", description="What its sender named it by.")


class EventsPage(BaseModel):
    """A part of the log."""

    events: list[WireEvent]
    has_more: bool
    next_page_id: str | None = Field(
        description="`page_id` of the page that follows in the same direction; null: none."
    )


class Trajectory(BaseModel):
    """The whole log without what is hidden."""

    trajectory: list[WireEvent]


class Done(BaseModel):
    """It is stored."""

    success: Literal[True]
