"""A new conversation: from a message, a task card or a recording."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field

from agent_core.controller.replay import beginning_of
from agent_core.errors import DrydockError
from agent_core.events.event import utc_now
from agent_core.events.llm_events import MessageEvent
from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.session.settings import AgentOptions
from server.auth.identity import Identity
from server.conversation_manager.conversation_manager import ConversationStatus
from server.db.errors import ConversationExistsError
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.idempotency_keys import Attempt
from server.db.repositories.user_settings import StoredSettings
from server.dependencies import IdempotencyKey, IdentityDependency, Services, ServicesDependency, find_conversation
from server.errors import GitProviderError, ReplyError
from server.git_providers.kinds import KINDS
from server.routes.replies import ErrorReply, errors, status_error
from server.routes.route_classes import make_router
from server.session.agents.agent_sessions import AGENT_OPTIONS, OWN_SERVERS, sealed_servers
from server.session.agents.models import LLM_PROFILE, ConversationModels, lacks_key, problem_of
from server.session.agents.programs import PROGRAM, ProgramSettings, destination_problem, sealed_program
from server.session.agents.web_search import SearchKeyRefusedError, SearchUnreachableError, search_key
from server.session.client_tools import CLIENT_TOOLS, ClientTools, stored_tools
from server.session.images import ImagesRefusedError
from server.session.sandbox_choice import (
    SANDBOX,
    ChosenSandbox,
    SandboxOptions,
    SandboxRefusedError,
    choose_sandbox,
    refuse_what_lacks,
)
from server.session.user_settings import OWN_LIMITS, OwnLimits, masker_of, plain_environment
from server.settings.git_hosts import Provider
from server.settings.llm_profiles import ProfileName
from server.settings.mcp_config import HiddenSecretError, McpConfig, agent_servers, read_config
from server.wire.errors import WireError
from server.wire.incoming import from_wire
from server.wire.trajectory import read_trajectory

logger = logging.getLogger(__name__)
router = make_router("/api/conversations")

_REFUSALS: Final = (ReplyError, GitProviderError)
"""After these nothing of a request is kept."""
_ERRORS = {**errors(400, 403, 409), **errors(401, model=str | ErrorReply)}
CHOSEN_ID = r"(?!task-)[A-Za-z0-9_-]{1,100}"
"""Ids that work everywhere; those with the prefix mean something else to the protocol's client."""

BEGINNING = 50
"""Within how many events the first message stands, if it was sent when the conversation was made."""


MAX_TITLE_CHARS: Final = 200

_WITH_USER = re.compile(r"https?://[^/?#]*@")


def is_unguessable(conversation_id: str) -> bool:
    """Whether it is a random UUID, which a program may choose: nobody else has it, or can want it."""
    try:
        return uuid.UUID(conversation_id).version == 4
    except ValueError:
        return False


async def check_program(services: Services, program: ProgramSettings | None) -> None:
    """Refuse a program where users bring no models (403), or that asks a host which is not for it (422)."""
    if program is None:
        return
    if not services.settings.allow_user_llm_profiles:
        text = "program.agent.llm: this server's users bring no models of their own (allow_user_llm_profiles)"
        raise status_error(403, text)
    if (problem := await destination_problem(program, services.settings)) is not None:
        raise status_error(422, f"program.{problem}")


class ConversationReply(BaseModel):
    """What became of a conversation that was made, started or stopped."""

    status: Literal["ok"]
    conversation_id: str
    message: str | None
    conversation_status: ConversationStatus = Field(description="After a stop: what it was before.")


async def create_once(
    services: Services,
    key: str | None,
    make: Callable[[Attempt], Awaitable[str]],
    *,
    new_id: str | None = None,
    user_id: str,
    scope: str,
    request: Any,
    status: ConversationStatus,
    **facts: str,
) -> dict[str, Any]:
    """Make a conversation, unless `key` (for this user and `scope`) has made it already.

    `make` gives its id, which is `new_id` where nothing has chosen one, and goes on with what a broken attempt left.
    The answer is a `ConversationReply` with this `status` and `facts`. Raises `ReplyError`, also where the key was used
    for something else than `request`.
    """

    async def answered(attempt: Attempt) -> dict[str, Any]:
        conversation_id = await make(attempt)
        reply = {"status": "ok", "conversation_id": conversation_id, "message": None}
        return {**reply, "conversation_status": status.value, **facts}

    return await services.database.idempotency_keys.once(
        key,
        answered,
        user_id=user_id,
        scope=scope,
        request=request,
        resource=new_id or uuid.uuid4().hex,
        refusals=_REFUSALS,
    )


_NAMES: Final[dict[Provider, tuple[str, str]]] = {
    "github": ("GitHub", "pull request"),
    "enterprise_sso": ("GitHub", "pull request"),
    "gitlab": ("GitLab", "merge request"),
    "bitbucket": ("Bitbucket", "pull request"),
    "azure_devops": ("Azure DevOps", "pull request"),
    "forgejo": ("Forgejo", "pull request"),
}
_PROMPTS: Final = {
    "MERGE_CONFLICTS": (
        "The {request} #{number} of the repository {repo} ({title}) cannot be merged, because it conflicts with the"
        " branch that it is meant for. {look} Check out its branch, merge that target branch into it, and resolve the"
        " conflicts so that what both sides intended is kept. See that it builds and that its tests pass, then push"
        " the branch."
    ),
    "FAILING_CHECKS": (
        "Checks of the {request} #{number} of the repository {repo} ({title}) fail. {look} Check out its branch, find"
        " out from the configuration of the checks and from what they print which ones fail and why, and mend the"
        " causes rather than the checks. Run here what they run, until it passes, then push the branch."
    ),
    "UNRESOLVED_COMMENTS": (
        "Reviewers of the {request} #{number} of the repository {repo} ({title}) wait for something. {look} Check out"
        " its branch and read their comments that are still open, with the code that each is about. Do what they ask"
        " for; where you think otherwise, leave the code as it is and tell me why. Run the tests, then push the branch."
    ),
    "OPEN_ISSUE": (
        "The issue #{number} of the repository {repo} ({title}) is open. {look} Read it with all its comments, and the"
        " code that it is about. If it leaves open what is to be done, ask me before you begin. Otherwise make a"
        " branch for it, do the work there with tests for it, push the branch, and open a draft {request} that names"
        " the issue."
    ),
}
_LOOK = "Ask the API of {provider} about it; the token for that is in the environment variable {variable}."


class SuggestedTask(BaseModel, extra="forbid", strict=True, title="SuggestedTask"):
    """A task card of the client."""

    __qualname__ = "SuggestedTask"  # its name in the published document, as is its title

    git_provider: Provider
    task_type: Literal[
        "MERGE_CONFLICTS", "FAILING_CHECKS", "UNRESOLVED_COMMENTS", "OPEN_ISSUE", "OPEN_PR", "CREATE_MICROAGENT"
    ]
    repo: str = Field(min_length=1, max_length=500)
    issue_number: int = Field(ge=0)
    title: str = Field(max_length=4096)

    @property
    def prompt(self) -> str | None:
        text = _PROMPTS.get(self.task_type)
        if text is None:
            return None
        name, request = _NAMES[self.git_provider]
        return text.format(
            look=_LOOK.format(provider=name, variable=KINDS[self.git_provider].variable),
            request=request,
            number=self.issue_number,
            repo=self.repo,
            title=" ".join(self.title.split()),
        )


class CreateMicroagent(BaseModel, extra="forbid", strict=True):
    """The client's wish for a microagent; what it is to be is said in the first message."""

    repo: str = Field(min_length=1, max_length=500)
    git_provider: Provider | None = None
    title: str | None = Field(None, description="The conversation's title, cut to 200 characters.")

    @property
    def conversation_title(self) -> str | None:
        return " ".join((self.title or "").split())[:MAX_TITLE_CHARS] or None


class NewConversation(OwnLimits, extra="forbid", frozen=False, hide_input_in_errors=True):
    """The body of ``POST /api/conversations``; unknown keys are refused."""

    repository: str | None = Field(None, max_length=500)
    git_provider: Provider | None = None
    selected_branch: str | None = Field(None, max_length=500)
    initial_user_msg: str | None = None
    image_urls: list[str] | None = None
    replay_json: str | None = None
    suggested_task: SuggestedTask | None = None
    create_microagent: CreateMicroagent | None = None
    conversation_instructions: str | None = None
    mcp_config: McpConfig | None = None
    agent_options: AgentOptions | None = None
    client_tools: ClientTools | None = None
    program: ProgramSettings | None = None
    llm_profile: ProfileName | None = None
    sandbox: SandboxOptions | None = None
    conversation_id: str | None = None

    @property
    def own_limits(self) -> dict[str, Any]:
        return self.model_dump(include=set(OwnLimits.model_fields), exclude_none=True)

    @property
    def trigger(self) -> str:
        if self.suggested_task is not None:
            return "suggested_task"
        return "microagent_management" if self.create_microagent is not None else "gui"

    def with_card(self) -> NewConversation:
        """The same with what its card says where it does not say so itself: the repository, and the first message."""
        card = self.suggested_task or self.create_microagent
        if card is None:
            return self
        values: dict[str, Any] = {
            "repository": self.repository or card.repo,
            "git_provider": self.git_provider or card.git_provider,
        }
        if self.suggested_task is not None and (prompt := self.suggested_task.prompt) is not None:
            own = (self.initial_user_msg or "").strip()
            values["initial_user_msg"] = f"{prompt}\n\n{own}" if own else prompt
        return self.model_copy(update=values)


@router.post("", response_model=ConversationReply, responses=_ERRORS)
async def create_conversation(
    services: ServicesDependency,
    identity: IdentityDependency,
    key: IdempotencyKey = None,
    body: NewConversation | None = None,
) -> dict[str, Any]:
    """Make a conversation, start it, and put the first message in its log: all durable when the answer comes."""
    request = body or NewConversation()

    async def begin(attempt: Attempt) -> str:
        return (await begin_conversation(services, identity, request, attempt)).id

    async with warm_id(services, identity, request) as new_id:
        return await create_once(
            services,
            key,
            begin,
            new_id=new_id,
            user_id=identity.user_id,
            scope="create",
            request=request.model_dump(mode="json", exclude_unset=True),
            status=ConversationStatus.STARTING,
        )


@asynccontextmanager
async def warm_id(services: Services, identity: Identity, request: NewConversation) -> AsyncIterator[str]:
    """An id for what is requested: that of a sandbox which is ready for it, where there is one."""
    try:
        user = await services.database.settings.get(identity.user_id)
        chosen = await chosen_sandbox(services, user, request.sandbox or SandboxOptions())
    except ReplyError:  # it will be refused
        yield uuid.uuid4().hex
        return
    kind = services.sandboxes.kind(chosen, plain_environment(user, services.settings))
    async with services.warm.id_for(kind, unused_after=_REFUSALS) as new_id:
        yield new_id


async def begin_conversation(
    services: Services, identity: Identity, request: NewConversation, attempt: Attempt | None = None
) -> ConversationRecord:
    """The same for other doors: its record, when everything is durable and it starts.

    `attempt` is the id that it gets if none is named. Raises `ReplyError` where it cannot be granted, and
    `DrydockError` where it could not be started; nothing is left of it then.
    """
    request = request.with_card()
    await check_program(services, request.program)
    _refuse_what_contradicts(request)
    first = await _first_events(request, services.settings.max_message_bytes)
    attempt = attempt or Attempt(uuid.uuid4().hex, is_repeated=False)
    conversation_id = _id_of(services, request, attempt)
    if attempt.is_repeated and (begun := await find_conversation(services, identity, conversation_id)) is not None:
        return begun if await _has_message(services, begun) else await _begin_log(services, begun, first)
    user = await services.database.settings.get(identity.user_id)
    model = ConversationModels(user, services.settings, request.llm_profile).present()
    if request.program is None and (problem := problem_of(model)) is not None:
        raise _unusable(problem, request)
    if request.program is None and lacks_key(model):
        text = "Error authenticating with the LLM provider. Please check your API key"
        refusal = {"status": "error", "message": text, "msg_id": "STATUS$ERROR_LLM_AUTHENTICATION"}
        raise ReplyError(400, refusal)
    provider = await _provider(services, user, request)
    await _check_search_key(services, user)
    sandbox = await chosen_sandbox(services, user, request.sandbox or SandboxOptions())
    if request.mcp_config is not None:  # with the user's stored secrets wherever something stands for them
        stored = read_config(user.mcp_config if user is not None else None)
        try:
            request = request.model_copy(update={"mcp_config": request.mcp_config.restored(stored)})
        except HiddenSecretError as error:
            raise status_error(422, str(error)) from error
    name = model.model if request.program is None else request.program.agent.llm.model
    record = await _store(services, identity, request, conversation_id, name, provider, sandbox)
    return await _begin_log(services, record, first)


def _unusable(problem: str, request: NewConversation) -> Exception:
    if request.llm_profile is None:  # what is stored for all conversations became wrong
        return status_error(400, problem)
    return RequestValidationError([{"type": "llm_profile", "loc": ("body", "llm_profile"), "msg": problem}])


async def _begin_log(services: Services, record: ConversationRecord, first: list[AnyEvent]) -> ConversationRecord:
    services.manager.wanted(record.id)
    try:
        services.sandboxes.check_room()
        for event in first:
            await services.manager.send(record.id, event)
        if not first:
            await services.manager.maybe_start_agent_loop(record.id)
    except DrydockError as error:
        await services.manager.discard(record.id)
        if isinstance(error, ImagesRefusedError):
            raise status_error(400, f"image_urls: {error}") from error
        raise
    return record


def _refuse_what_contradicts(request: NewConversation) -> None:
    if request.replay_json is not None and (request.initial_user_msg or request.image_urls):
        raise status_error(400, "replay_json: has a first message of its own; leave initial_user_msg out")
    if _WITH_USER.match((request.repository or "").strip()):
        problem = "is an address with a user name or password in it; leave them out, and store a token for its provider"
        raise status_error(400, f"repository: {problem}")
    if request.program is not None and request.llm_profile is not None:
        raise status_error(400, "llm_profile, program: send one of them; a program's agent has its own model")
    task = request.suggested_task
    if task is not None and task.prompt is None:
        raise status_error(400, f"suggested_task: {task.task_type} stands for no work; send initial_user_msg")
    if request.program is not None:
        others = [*OwnLimits.model_fields, "agent_options", "mcp_config", "client_tools"]
        others += ["conversation_instructions", "replay_json"]
        if doubled := [name for name in others if getattr(request, name) is not None]:
            raise status_error(
                400, f"program, {doubled[0]}: the agent of a program has its own; leave {doubled[0]} out"
            )
    if task is not None and request.create_microagent is not None:
        raise status_error(400, "suggested_task, create_microagent: send one of them")


async def _provider(services: Services, user: StoredSettings | None, request: NewConversation) -> Provider | None:
    repository = (request.repository or "").strip()
    if not repository or not services.settings.verify_git_tokens:
        return request.git_provider
    return await services.git.accounts(user).found(request.git_provider, repository) or request.git_provider


async def _check_search_key(services: Services, user: StoredSettings | None) -> None:
    key = search_key(user, services.settings)
    if key is None or not services.settings.verify_search_key:
        return
    try:
        await services.search.check(key)
    except SearchKeyRefusedError as error:
        raise status_error(400, str(error)) from error
    except SearchUnreachableError as error:
        logger.warning("a conversation begins all the same: %s", error)  # its agent is told when it searches


async def chosen_sandbox(services: Services, user: StoredSettings | None, request: SandboxOptions) -> ChosenSandbox:
    """What a new conversation begins with; `ReplyError` where this server does not grant it."""
    try:
        chosen = choose_sandbox(request, user, services.settings)
        if chosen.choices:
            refuse_what_lacks(chosen, await services.sandboxes.lacks(), user)
    except SandboxRefusedError as error:
        raise status_error(400, str(error)) from error
    return chosen


async def _first_events(request: NewConversation, max_chars: int) -> list[AnyEvent]:
    if request.replay_json is not None:
        try:
            return beginning_of(await read_trajectory(request.replay_json))
        except WireError as error:
            raise status_error(400, str(error)) from error
    text = request.initial_user_msg or ""
    if not (text.strip() or request.image_urls):
        return []
    try:
        data = {"action": "message", "args": {"content": text, "image_urls": request.image_urls}}
        return [from_wire(data, max_chars=max_chars)]
    except WireError as error:
        raise status_error(400, f"initial_user_msg, image_urls: {error}") from error


async def _has_message(services: Services, record: ConversationRecord) -> bool:
    stored = await services.database.events.read(record.id, after=-1, limit=BEGINNING)
    events = (from_payload(one.payload, one.id, record.id) for one in stored)
    return any(isinstance(event, MessageEvent) and event.source == "user" for event in events)


def _id_of(services: Services, request: NewConversation, attempt: Attempt) -> str:
    if request.conversation_id is None:
        return attempt.resource
    if request.program is not None and is_unguessable(request.conversation_id):
        return request.conversation_id
    if not services.settings.allow_set_conversation_id:
        # As for any other key that is not known here.
        text = "conversation_id: only the server chooses ids, unless allow_set_conversation_id is set"
        raise status_error(422, text)
    if re.fullmatch(CHOSEN_ID, request.conversation_id) is None:
        text = "conversation_id: use 1 to 100 letters, digits, - and _, and do not begin with task-"
        raise status_error(400, text)
    return request.conversation_id


async def _store(
    services: Services,
    identity: Identity,
    request: NewConversation,
    conversation_id: str,
    model: str,
    provider: Provider | None,
    sandbox: ChosenSandbox,
) -> ConversationRecord:
    options: dict[str, Any] = {SANDBOX: sandbox.model_dump(mode="json", exclude_none=True)}
    title = request.create_microagent.conversation_title if request.create_microagent is not None else None
    if request.conversation_instructions or title:
        masker = await masker_of(services.database, identity.user_id)
        masker.add(agent_servers(None, request.mcp_config or McpConfig()).secrets)
        title = masker.text(title) if title else None
        if request.conversation_instructions:
            options["conversation_instructions"] = masker.text(request.conversation_instructions)
    if request.mcp_config is not None:
        options[OWN_SERVERS] = sealed_servers(services.database.secrets, conversation_id, request.mcp_config)
    if request.agent_options is not None:
        options[AGENT_OPTIONS] = request.agent_options.model_dump(mode="json", exclude_none=True)
    if request.client_tools:
        options[CLIENT_TOOLS] = stored_tools(request.client_tools)
    if request.program is not None:
        options[PROGRAM] = sealed_program(services.database.secrets, conversation_id, request.program)
    if request.llm_profile is not None:
        options[LLM_PROFILE] = request.llm_profile
    if request.own_limits:
        options[OWN_LIMITS] = request.own_limits
    now = utc_now()
    record = ConversationRecord(
        id=conversation_id,
        user_id=identity.user_id,
        title=title,
        created_at=now,
        last_updated_at=now,
        trigger=request.trigger,
        selected_repository=request.repository,
        selected_branch=request.selected_branch,
        git_provider=provider,
        llm_model=model,
        sandbox=services.warm.state_for(conversation_id),
        options=options,
    )
    try:
        record = await services.database.conversations.create(record)
    except ConversationExistsError as error:
        raise status_error(409, str(error), msg_id="CONVERSATION$ALREADY_EXISTS") from error
    await services.warm.taken(record.id)
    return record
