"""What the protocol's client asks of other generations of its server, as far as it may happen (wire-protocol 0, 8)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import StringConstraints

from server.dependencies import IdentityDependency
from server.routes.json_route import JsonRoute

router = APIRouter(prefix="/api/v1", route_class=JsonRoute)

SandboxId = Annotated[str, StringConstraints(max_length=100)]


@router.get("/sandboxes")
async def find_sandboxes(
    identity: IdentityDependency,
    sandbox_ids: Annotated[list[SandboxId], Query(alias="id", max_length=100, default_factory=list)],
) -> list[None]:
    """Null for each id: sandboxes have no addresses of their own here."""
    return [None for _ in sandbox_ids]
