"""What the models of the public fields have in common."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

JsonObject = dict[str, Any]
RecallType = Literal["workspace_context", "knowledge"]


class Fields(BaseModel):
    """Fields of one public type: JSON types only, nothing converted, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class NoFields(Fields):
    """A type without fields of its own."""


class TaskFields(Fields):
    """One task of a list."""

    id: str
    title: str
    status: Literal["todo", "in_progress", "done"] = "todo"
    notes: str = ""
