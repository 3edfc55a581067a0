"""The audit log, for administrators: who did what, from where."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import BaseModel, Field

from server.auth.audit import shown_fields
from server.db.page_ids import page_id as make_page_id
from server.db.repositories.audit import Wanted
from server.dependencies import IdentityDependency, ServicesDependency
from server.routes.query import Moment, PagingDependency
from server.routes.replies import errors
from server.routes.route_classes import make_router

router = make_router("/api/admin/audit")

PAGE: Final = 100
_MOST: Final = 2**53
"""More records than there will be: a page's id is what a client sends."""


class AuditActor(BaseModel):
    """Who did something."""

    id: str = Field(description="The user's; empty where the server has but one, and for what no user did.")
    name: str


class AuditTarget(BaseModel):
    """With what it was done."""

    kind: str
    id: str


class AuditRecordInfo(BaseModel):
    """One record. What its hash is of, and how to check that, is in docs/audit.md."""

    number: int
    at: str = Field(description="By the clock of the server that wrote it, in UTC.")
    actor: AuditActor
    means: str = Field(description="`token`, `session`, `open`, `cli` or `system`.")
    address: str
    action: str
    target: AuditTarget
    details: dict[str, Any]
    previous: str = Field(description="The hash of the record before it.")
    hash: str


class AuditPage(BaseModel):
    """Records, the newest first."""

    results: list[AuditRecordInfo]
    next_page_id: str | None = Field(description="`page_id` of the next page; null on the last one.")
    is_broken: bool = Field(description="Whether this server has found since its start that the log was changed.")


@router.get("", response_model=AuditPage, responses=errors(400, 403))
async def list_audit_records(
    services: ServicesDependency,
    _identity: IdentityDependency,
    paging: PagingDependency,
    actor: Annotated[str | None, Query(max_length=200, description="Only what the user of this id did.")] = None,
    action: Annotated[
        str, Query(max_length=100, description="Only this action, or all of a noun: `secret`, `secret.created`.")
    ] = "",
    since: Annotated[Moment | None, Query(description="Only from then on.")] = None,
    until: Annotated[Moment | None, Query(description="Only before then.")] = None,
) -> dict[str, Any]:
    """What was done on this server, and by whom; for administrators. Without a `limit` a page has 100 records."""
    last = paging.last(int)
    log, limit = services.database.audit, paging.limit or PAGE
    wanted = Wanted(actor, action, since, until)
    before = None if last is None else min(last[0], _MOST)
    found = await log.page(wanted, before=before, limit=limit + 1)
    page = found[:limit]
    return {
        "results": [{**shown_fields(one), "hash": one.hash} for one in page],
        "next_page_id": make_page_id(page[-1].number) if len(found) > limit else None,
        "is_broken": log.is_broken,
    }
