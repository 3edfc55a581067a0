"""Microagents: the skills of a conversation, a proposal of what to remember, and the conversations that make some."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeGuard, cast

from fastapi import Query
from pydantic import BaseModel

from agent_core.errors import DrydockError, LLMBadRequestError
from agent_core.events.llm_events import (
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.llm.llm import LLM, CallContext
from agent_core.memory.transcript import ViewEvent, as_text, shortened, tagged
from agent_core.skills.skill import Skill
from server.conversation_manager.conversation_manager import ConversationStatus, conversation_info
from server.db.repositories.conversations import ConversationRecord
from server.dependencies import IdentityDependency, OwnConversation, ServicesDependency
from server.errors import ReplyError, SessionError
from server.git_providers.accounts import GitAccounts
from server.routes.conversations.conversations import ConversationList, PageLimit, conversation_page
from server.routes.query import LINKED, PageId, PagingDependency
from server.routes.replies import errors, status_error
from server.routes.route_classes import make_router
from server.session.user_settings import DEMO_PREFIX, masker_of
from server.settings.git_hosts import Provider

router = make_router("/api")

AROUND: Final = 50
"""So many events before and after the one in question are shown to the model."""

MAX_EVENT_CHARS: Final = 2000
MAX_PROMPT_CHARS: Final = 4000
ANSWER_SECONDS: Final = 60.0

_SHOWN = (MessageEvent, ActionEvent, ObservationEvent, AgentErrorEvent, UserRejectObservation)

_QUESTION = (
    "Below is a part of the conversation of a user with an agent that works in a code repository. The user wants the "
    "agent to remember, for all later work in this repository, what can be learned from the part around the event "
    "between the marks THIS_ONE.\n\n"
    "Write the request with which the user asks the agent to note it in the repository: what is to be remembered, when "
    "it matters, and what to do or to avoid then. At most five sentences that stand for themselves, without anything "
    "that holds for this one conversation only. Answer with the request alone, in the user's language.\n\n"
)


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


@router.get("/conversations/{conversation_id}/microagents", responses={200: LINKED})
async def list_loaded_microagents(
    record: OwnConversation, services: ServicesDependency, paging: PagingDependency
) -> LoadedMicroagents:
    """The skills that the agent of a running conversation may be told, those of its workspace among them."""
    if services.manager.live(record.id).status is ConversationStatus.STOPPED:
        raise ReplyError(404, {"error": "Agent session not found for this conversation"})
    skills = await services.manager.skills(record.id)
    if skills is None:
        raise ReplyError(404, {"error": "Memory is not yet initialized for this conversation"})
    page = paging.linked(sorted(skills, key=lambda skill: skill.name), lambda skill: (skill.name,), str)
    return LoadedMicroagents(microagents=[_public(skill) for skill in page])


def _public(skill: Skill) -> LoadedMicroagent:
    return LoadedMicroagent(
        name=skill.name,
        type="repo" if skill.is_always_on else "knowledge",
        content=skill.content,
        triggers=skill.trigger_words,
        inputs=[MicroagentInput(name=one.name, description=one.description) for one in skill.inputs],
        tools=skill.mcp_server_names,
    )


class RememberPrompt(BaseModel):
    """The proposal."""

    status: Literal["success"] = "success"
    prompt: str


@router.get("/conversations/{conversation_id}/remember-prompt", responses=errors(400))
async def propose_remembering(
    record: OwnConversation, services: ServicesDependency, event_id: Annotated[int, Query(ge=0, le=2**53)]
) -> RememberPrompt:
    """What to ask for, so that an agent notes in the repository what this event shows; the conversation pays for it."""
    store = services.database.events
    if event_id > await store.last_id(record.id):
        text = f"event_id: the conversation has no event {event_id}; give the id of one"
        raise status_error(400, text)
    model = services.manager.side_model(record.id)
    if model is None:  # it could pay only when it runs, and nobody has asked for that
        text = "the conversation does not run; start it first"
        raise status_error(404, text)
    stored = await store.read(record.id, after=event_id - AROUND - 1, limit=2 * AROUND + 1)
    try:
        events = [from_payload(one.payload, one.id, record.id) for one in stored]
        masker = await masker_of(services.database, record.user_id)
        return RememberPrompt(prompt=masker.text(await remember_prompt(events, event_id, *model)))
    except DrydockError as error:
        text = f"Failed to propose what to remember: {error}"
        # A model that takes no request at all as it is set up is not the server's fault.
        status = 400 if isinstance(error, LLMBadRequestError) else 500
        raise status_error(status, text) from error


async def remember_prompt(events: Sequence[AnyEvent], event_id: int, llm: LLM, context: CallContext) -> str:
    """A request to remember what the event of this id shows; of the demo model the event's words.

    Raises `SessionError` where the model gives none in time, `LLMError` where it cannot be asked.
    """
    texts = {one.id: shortened(as_text(one), MAX_EVENT_CHARS) for one in events if _counts(one)}
    if llm.model.startswith(DEMO_PREFIX):
        return f"Remember for this repository:\n\n{texts.get(event_id) or _nearest(texts, event_id)}".strip()
    if event_id in texts:
        texts[event_id] = f"THIS_ONE\n{texts[event_id]}\nTHIS_ONE"
    llm = llm.model_copy(update={"num_retries": 1, "usage_id": "remember", "max_output_tokens": None})
    llm.reset_metrics()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            response = await llm.acompletion([Message.user(_QUESTION + tagged(texts.values()))], context=context)
    except TimeoutError:
        raise SessionError(f"the model gave no answer within {ANSWER_SECONDS:.0f} s; try again") from None
    answer = response.message.text.strip()
    if not answer:
        raise SessionError("the model gave an empty answer; try again")
    return answer[:MAX_PROMPT_CHARS]


def _counts(event: AnyEvent) -> TypeGuard[ViewEvent]:
    return isinstance(event, _SHOWN) and not getattr(event, "hidden", False)


def _nearest(texts: dict[int, str], event_id: int) -> str:
    before = [text for place, text in texts.items() if place <= event_id]
    return before[-1] if before else next(iter(texts.values()), "")


@router.get("/microagent-management/conversations", response_model=ConversationList, responses=errors(400))
async def list_microagent_conversations(
    selected_repository: Annotated[str, Query(max_length=500)],
    services: ServicesDependency,
    identity: IdentityDependency,
    limit: PageLimit = 20,
    page_id: PageId = None,
) -> dict[str, Any]:
    """A page of them, newest first, without those whose requests were merged or closed; so a page may be short."""
    page = await conversation_page(services, identity, limit, page_id, selected_repository, "microagent_management")
    accounts = services.git.accounts(await services.database.settings.get(identity.user_id))
    are_open = await asyncio.gather(*(_is_open(accounts, record) for record in page.results))
    shown = [record for record, is_open in zip(page.results, are_open, strict=True) if is_open]
    results = [
        conversation_info(record, services.manager.live(record.id), services.settings.base_path) for record in shown
    ]
    return {"results": results, "next_page_id": page.next_page_id}


async def _is_open(accounts: GitAccounts, record: ConversationRecord) -> bool:
    if not record.pr_number or not record.selected_repository:
        return True
    provider = cast(Provider | None, record.git_provider)
    return await accounts.is_request_open(provider, record.selected_repository, record.pr_number[-1])
