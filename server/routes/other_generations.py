"""What the protocol's clients ask of other generations of their server, as far as it may happen (wire-protocol 0, 8).

They learn from the settings that conversations are of the first generation here. A client whose default is the second
one asks for what there is of that until it has read them: nothing.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, StringConstraints

from server.dependencies import IdentityDependency
from server.routes.json_route import JsonRoute

router = APIRouter(prefix="/api/v1", route_class=JsonRoute)

Id = Annotated[str, StringConstraints(max_length=100)]
SandboxIds = Annotated[list[Id], Query(alias="id", max_length=100, default_factory=list)]
Ids = Annotated[list[Id], Query(max_length=100, default_factory=list)]


class NoTasks(BaseModel):
    """A page of conversations of the second generation that are being started."""

    items: list[None] = []
    next_page_id: None = None


@router.get("/sandboxes")
async def find_sandboxes(identity: IdentityDependency, sandbox_ids: SandboxIds) -> list[None]:
    """Null for each id: sandboxes have no addresses of their own here."""
    return [None for _ in sandbox_ids]


@router.get("/app-conversations")
async def find_conversations(identity: IdentityDependency, ids: Ids) -> list[None]:
    """Null for each id: there are no conversations of the second generation."""
    return [None for _ in ids]


@router.get("/app-conversations/start-tasks")
async def find_start_tasks(identity: IdentityDependency, ids: Ids) -> list[None]:
    """Null for each id: none is ever being started."""
    return [None for _ in ids]


@router.get("/app-conversations/start-tasks/search")
async def search_start_tasks(identity: IdentityDependency) -> NoTasks:
    """Those that are being started: none."""
    return NoTasks()
