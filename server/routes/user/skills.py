"""A user's own skills: what their agents are told, in every conversation from its next start on."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Annotated, Any, Literal

from fastapi import Path, Response
from pydantic import BaseModel, Field

from agent_core.errors import DrydockError, SkillValidationError
from agent_core.skills.files import misspelled_keys
from agent_core.skills.skill import Skill
from server.db.errors import DatabaseError
from server.db.repositories.user_skills import StoredSkill, TooManySkillsError
from server.dependencies import IdentityDependency, ServicesDependency
from server.errors import ReplyError, log_level, status_of, stored_problem
from server.routes.query import LINKED, PagingDependency
from server.routes.replies import Confirmation, errors
from server.routes.route_classes import make_router
from server.session.agents.agent_context import own_skill

logger = logging.getLogger(__name__)
router = make_router("/api")

MAX_CONTENT_CHARS = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

SkillId = Annotated[str, Path(max_length=1000)]


class OwnSkill(BaseModel):
    """A skill: always told (`repo`), when a word brings it up (`knowledge`), or when a file is touched (`path`)."""

    name: str
    enabled: bool
    type: Literal["repo", "knowledge", "path", "agentskills"] | None
    description: str
    triggers: list[str] = Field(description="Words, or patterns of paths, that bring it up.")
    mcp_servers: list[str] = Field(description="The names of MCP servers that it brings.")
    problem: str | None = Field(description="Why it is not told; null if it can be used.")
    warnings: list[str] = Field(description="What its header names that is not known, and what was meant.")
    content: str | None = Field(description="Its whole text; null in the list.")


class OwnSkills(BaseModel):
    """A user's skills."""

    skills: list[OwnSkill]


class SkillText(BaseModel, strict=True):
    """The body of ``PUT /api/skills/{name}``: Markdown, with a YAML header as in files."""

    content: str = Field(max_length=MAX_CONTENT_CHARS)
    enabled: bool = True


class SkillSwitch(BaseModel, strict=True):
    """The body of ``PATCH /api/skills/{name}``."""

    enabled: bool


@router.get("/skills", response_model=OwnSkills, responses={200: LINKED})
async def list_own_skills(
    services: ServicesDependency, identity: IdentityDependency, paging: PagingDependency
) -> dict[str, Any]:
    """The user's own skills, by name; an addition to the protocol, like all routes of skills."""
    found = await services.database.user_skills.all(identity.user_id)
    page = paging.linked(sorted(found), lambda one: (one.name,), str)
    # Beside the loop: headers may be long, and there may be many.
    return {"skills": await asyncio.to_thread(lambda: [_public(one) for one in page])}


@router.get("/skills/{skill_name}", response_model=OwnSkill, responses=errors(404))
async def read_own_skill(
    skill_name: SkillId, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, Any]:
    """One of them, with its text."""
    found = await services.database.user_skills.get(skill_name, identity.user_id)
    if found is None:
        raise _not_found(skill_name)
    return {**_public(found), "content": found.content}


@router.put(
    "/skills/{skill_name}",
    response_model=OwnSkill,
    responses={201: {"model": OwnSkill, "description": "It is new."}, **errors(400)},
)
async def store_own_skill(
    skill_name: SkillId,
    body: SkillText,
    response: Response,
    services: ServicesDependency,
    identity: IdentityDependency,
) -> dict[str, Any]:
    """Store it under this name, which its header need not repeat; a text that cannot be used is a 422 that says why."""
    if not _NAME.fullmatch(skill_name):
        text = f"name: {skill_name[:100]!r} is no name of a skill; use letters without accents, digits, dots, hyphens"
        raise ReplyError(422, {"error": f"{text} and underscores, at most 100, and a letter or a digit first"})
    try:
        own_skill(skill_name, body.content)
    except SkillValidationError as error:
        raise ReplyError(422, {"error": str(error), "line": error.line}) from error
    skill = StoredSkill(skill_name, body.content, body.enabled)
    try:
        is_new = await services.database.user_skills.put(skill, identity.user_id)
    except TooManySkillsError as error:
        raise ReplyError(400, {"error": str(error)}) from error
    except DrydockError as error:
        raise _not_stored(error, identity.user_id) from error
    response.status_code = 201 if is_new else 200
    return {**_public(skill), "content": skill.content}


@router.patch("/skills/{skill_name}", response_model=Confirmation, responses=errors(404))
async def switch_own_skill(
    skill_name: SkillId, body: SkillSwitch, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, str]:
    """Have agents told of it, or not."""
    try:
        found = await services.database.user_skills.enable(skill_name, enabled=body.enabled, user_id=identity.user_id)
    except DatabaseError as error:
        raise _not_stored(error, identity.user_id) from error
    if not found:
        raise _not_found(skill_name)
    return {"message": f"The skill is {'enabled' if body.enabled else 'disabled'}"}


@router.delete("/skills/{skill_name}", response_model=Confirmation, responses=errors(404))
async def delete_own_skill(
    skill_name: SkillId, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, str]:
    """Forget it; conversations that run know it until they are started again."""
    try:
        found = await services.database.user_skills.delete(skill_name, identity.user_id)
    except DatabaseError as error:
        raise _not_stored(error, identity.user_id) from error
    if not found:
        raise _not_found(skill_name)
    return {"message": "The skill is deleted"}


def _public(stored: StoredSkill) -> dict[str, Any]:
    skill: Skill | None = None
    problem = None
    try:
        skill = own_skill(stored.name, stored.content)
    except SkillValidationError as error:  # an earlier version took it
        problem = str(error)
    return {
        "name": stored.name,
        "enabled": stored.enabled,
        "type": skill.get_skill_type() if skill is not None else None,
        "description": skill.summary if skill is not None else "",
        "triggers": skill.trigger_words if skill is not None else [],
        "mcp_servers": skill.mcp_server_names if skill is not None else [],
        "problem": problem,
        "warnings": misspelled_keys(stored.content) if skill is not None else [],
        "content": None,
    }


def _not_found(name: str) -> ReplyError:
    return ReplyError(404, {"error": f"there is no skill {name[:200]!r}; GET /api/skills lists yours"})


def _not_stored(error: DrydockError, user_id: str) -> ReplyError:
    logger.log(log_level(error, logging.ERROR), "a skill of user %r was not stored: %s", user_id, error)
    return ReplyError(status_of(error), {"error": stored_problem(error, "Something went wrong storing the skill")})
