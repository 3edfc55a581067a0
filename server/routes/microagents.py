"""The skills of a running conversation, in the protocol's form."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from agent_core.skills.skill import Skill
from agent_core.skills.trigger import KeywordTrigger, TaskTrigger
from server.conversation_manager.conversation_manager import ConversationStatus
from server.dependencies import OwnConversation, ServicesDependency
from server.errors import ReplyError
from server.routes.json_route import JsonRoute
from server.routes.paging import LINKED, PagingDependency

router = APIRouter(prefix="/api/conversations/{conversation_id}", route_class=JsonRoute)


class MicroagentInput(BaseModel):
    """Something that a task asks its user for."""

    name: str
    description: str


class LoadedMicroagent(BaseModel):
    """A skill: always told (`repo`), or when something brings it up (`knowledge`)."""

    name: str
    type: Literal["repo", "knowledge"]
    content: str
    triggers: list[str]
    inputs: list[MicroagentInput]
    tools: list[str]


class LoadedMicroagents(BaseModel):
    """All of them."""

    microagents: list[LoadedMicroagent]


@router.get("/microagents", responses={200: LINKED})
async def list_loaded_microagents(
    record: OwnConversation, services: ServicesDependency, paging: PagingDependency
) -> LoadedMicroagents:
    """The skills that the agent of a running conversation may be told, those of its workspace among them."""
    if services.manager.live(record.id).status is ConversationStatus.STOPPED:
        raise ReplyError(404, {"error": "Agent session not found for this conversation"})
    skills = await services.manager.skills(record.id)
    if skills is None:
        raise ReplyError(404, {"error": "Memory is not yet initialized for this conversation"})
    page = paging.cut(sorted(skills, key=lambda skill: skill.name), lambda skill: (skill.name,), str)
    return LoadedMicroagents(microagents=[_public(skill) for skill in paging.linked(page)])


def _public(skill: Skill) -> LoadedMicroagent:
    return LoadedMicroagent(
        name=skill.name,
        type="repo" if skill.is_always_on else "knowledge",
        content=skill.content,
        triggers=_triggers(skill),
        inputs=[MicroagentInput(name=one.name, description=one.description) for one in skill.inputs],
        tools=skill.mcp_server_names,
    )


def _triggers(skill: Skill) -> list[str]:
    match skill.trigger:
        case KeywordTrigger(keywords=words) | TaskTrigger(triggers=words):
            return list(words)
        case None:
            return []
        case rule:
            return list(rule.paths)
