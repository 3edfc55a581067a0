"""The configuration of an experiment that a client took a conversation into."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field, StringConstraints

from server.dependencies import OwnConversation, ServicesDependency
from server.routes.json_route import JsonRoute

router = APIRouter(prefix="/api/conversations/{conversation_id}", route_class=JsonRoute)

EXPERIMENT = "experiment"
"""The option of a conversation that holds it."""

Entry = Annotated[str, StringConstraints(max_length=1000)]


class ExperimentConfig(BaseModel):
    """The body; without a ``config`` there is nothing to note."""

    config: Annotated[dict[Entry, Entry] | None, Field(max_length=100)] = None


@router.post("/exp-config")
async def note_experiment(record: OwnConversation, services: ServicesDependency, body: ExperimentConfig) -> bool:
    """Note it beside the conversation, where it stays as it was noted first. The answer is always false."""
    if body.config is not None:
        await services.database.conversations.add_option(record.id, EXPERIMENT, body.config)
    return False
