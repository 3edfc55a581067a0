"""`AgentSessions`: builds a conversation's `AgentSession` from the choices of the server, its user and itself."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from pydantic import ValidationError

from agent_core.agent.base import FIRST_EVENTS, AgentBase, given_model
from agent_core.controller.agent_controller import TakeTurn
from agent_core.errors import SkillValidationError
from agent_core.events.control import AgentState, ForeignEvent
from agent_core.events.llm_events import MessageEvent, SystemPromptEvent
from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.events.stream import EventStream
from agent_core.events.transient import WAITING_FOR_ENGINE
from agent_core.llm.llm import CallContext
from agent_core.memory.condensers import get_default_condenser
from agent_core.runtime.channel.connection import ConversationSandbox, SandboxConnection
from agent_core.runtime.sandbox import Sandbox, SandboxState
from agent_core.security.secrets import SecretValue, StaticSecret
from agent_core.session.agent_session import AfterClose, AgentSession
from agent_core.session.settings import AgentOptions, SessionSettings
from agent_core.skills.skill import Skill
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.spec import Tool
from agent_core.troubles import Trouble, coded
from server.auth.secrets import SecretBox, SecretUnreadableError
from server.db.database import Database
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.user_settings import StoredSettings
from server.errors import ConversationNotFoundError, SessionError
from server.git_providers.request_tools import RequestMaker, agent_tools
from server.session.agents.agent_context import agent_context
from server.session.agents.deferred_sandbox import DeferredSandbox
from server.session.agents.experiments import ExperimentManager
from server.session.agents.git_access import git_setup, provider_secrets
from server.session.agents.mcp_sign_ins import McpSignIns
from server.session.agents.models import LLM_PROFILE, ConversationModels
from server.session.agents.notes import note_tool, told_notes
from server.session.agents.plugins import Plugins
from server.session.agents.programs import opened_program, run_by_program
from server.session.agents.web_search import SearchService, search_key, search_tools
from server.session.client_tools import declared_tools
from server.session.repository_sandbox import Choices, settle
from server.session.sandbox_choice import (
    ChosenSandbox,
    commands_of,
    refuse_image,
    refuse_what_lacks,
    stored_choice,
    with_choice,
)
from server.session.sandboxes import OTHER_SANDBOXES, Sandboxes, app_ports
from server.session.unfinished import seed_of
from server.session.user_settings import (
    DEMO_PREFIX,
    OWN_LIMITS,
    OwnLimits,
    merge_settings,
    plain_environment,
    secret_values,
)
from server.settings.mcp_config import AgentServers, McpConfig, agent_servers, read_config
from server.settings.settings import Settings

logger = logging.getLogger(__name__)

AGENT_OPTIONS: Final = "agent_options"
"""Key among a conversation's options."""
OWN_SERVERS: Final = "mcp_config"
"""Key among a conversation's options: its own MCP servers, encrypted."""


def sealed_servers(box: SecretBox, conversation_id: str, config: McpConfig) -> str:
    """A conversation's own MCP servers as they are stored: encrypted, for it alone, since they may hold keys."""
    return box.encrypt(json.dumps(config.model_dump(mode="json")), purpose=_purpose(conversation_id))


def opened_servers(box: SecretBox, record: ConversationRecord) -> McpConfig | None:
    """The conversation's own MCP servers; None where it has its user's. Undecryptable ones count as none."""
    stored = record.options.get(OWN_SERVERS)
    if not isinstance(stored, str):
        return None
    try:
        return read_config(json.loads(box.decrypt(stored, purpose=_purpose(record.id))))
    except SecretUnreadableError as error:
        extra = coded(Trouble.TOOL_SERVER_FAILED, record.id)
        logger.warning("the MCP servers of conversation %s are left out: %s", record.id, error, extra=extra)
        return McpConfig()


def _purpose(conversation_id: str) -> str:
    return f"conversation/{OWN_SERVERS}/{conversation_id}"


def options_of(
    user: StoredSettings | None, server: Settings, record: ConversationRecord, agent_class: str
) -> AgentOptions:
    """The agent options of a conversation: its own over its user's over the server's for the class, and for all."""
    of_user = _read(user.agent_options if user is not None else None, f"user {record.user_id!r}")
    of_conversation = _read(record.options.get(AGENT_OPTIONS), f"conversation {record.id}")
    of_server = server.agent_configs.get(agent_class, AgentOptions()).over(server.agent_options or AgentOptions())
    return of_conversation.over(of_user.over(of_server))


def _read(stored: Mapping[str, Any] | None, whose: str) -> AgentOptions:
    values = dict(stored or {})
    while True:
        try:
            return AgentOptions.model_validate(values)
        except ValidationError as error:
            wrong = {str(problem["loc"][0]) if problem["loc"] else "" for problem in error.errors()} & values.keys()
            logger.warning("the agent options %s of %s cannot be used, and are left out", sorted(wrong), whose)
            values = {name: value for name, value in values.items() if wrong and name not in wrong}


def ports_remark(conversation_id: str) -> str:
    """What the agent is told of the ports of its sandbox."""
    first, second = app_ports(conversation_id)
    return (
        "The user can open what you serve on any TCP port of this sandbox (listening on 127.0.0.1 is enough): their "
        f"page lists it under Ports. Prefer $APP_PORT_1 ({first}) and $APP_PORT_2 ({second}) for web applications: "
        "older clients show these only, in a frame, as soon as something answers there. Let such a server take any "
        "host name, be shown in a frame, and be asked by pages of other origins (CORS). Start servers in the "
        "background and tell the user the port; an address with localhost would lead to the user's own machine."
    )


class LoadedAgent(Protocol):
    """One loaded conversation's parts, as a web session uses them; `AgentSession` says what each member does."""

    stream: EventStream
    settings: SessionSettings
    call_context: CallContext
    is_ready: bool
    has_failed: bool

    @property
    def is_broken(self) -> bool: ...

    @property
    def unbegun_since(self) -> int | None: ...

    @property
    def sandbox(self) -> ConversationSandbox: ...

    @property
    def runtime_status(self) -> str: ...

    @property
    def runtime_warning(self) -> str: ...

    @property
    def agent_state(self) -> AgentState: ...

    @property
    def has_images_inspected(self) -> bool: ...

    @property
    def is_at_rest(self) -> bool: ...

    @property
    def tools(self) -> list[ToolDefinition]: ...

    async def skills(self) -> list[Skill] | None: ...

    async def start(self, initial_message: MessageEvent | None = None) -> None: ...

    async def send(self, event: AnyEvent) -> AnyEvent: ...

    def set_client_tools(self, tools: Sequence[Tool]) -> None: ...

    def set_named_secrets(self, secrets: Mapping[str, SecretValue]) -> None: ...

    async def close(self, *, stopped: bool, sandbox: AfterClose = "keep") -> None: ...


class UserSecrets(NamedTuple):
    """A user's secrets: those that commands may ask for by name, and others that are only hidden."""

    named: Mapping[str, StaticSecret]
    hidden: tuple[str, ...]


class AgentFactory(Protocol):
    """Makes the agent sessions of conversations."""

    async def secrets_of(self, user_id: str) -> UserSecrets:
        """The user's secrets as they are now; may raise `DatabaseError`."""

    async def started(self, record: ConversationRecord) -> None:
        """Its sandbox is up, with the files that waited for that; may raise `DatabaseError`."""

    async def make(
        self,
        record: ConversationRecord,
        client_count: Callable[[], int],
        take_turn: TakeTurn,
        unbegun_since: int | None = None,
    ) -> LoadedAgent:
        """The opened agent session of `record`, with its user's present settings; its steps wait for `take_turn`.

        `unbegun_since` is that of the one before, whose start has failed.

        A `DrydockError` says why it cannot be made; KeyError and ValueError: the settings name what does not exist
        here.
        """


class AgentSessions:
    """The server's `AgentFactory`; `hide` is told the secrets that the process's log must not show.

    `own_secrets` are the server's, which no conversation shows.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        sandboxes: Sandboxes,
        experiments: ExperimentManager,
        *,
        requests: RequestMaker,
        sign_ins: McpSignIns,
        search: SearchService,
        plugins: Plugins,
        hide: Callable[[Iterable[str]], None],
        own_secrets: Sequence[str] = (),
    ) -> None:
        self._own_secrets = own_secrets
        self._requests = requests
        self._sign_ins = sign_ins
        self._search = search
        self._plugins = plugins
        self._hide = hide
        self._settings = settings
        self._database = database
        self._sandboxes = sandboxes
        self._experiments = experiments

    async def started(self, record: ConversationRecord) -> None:
        await self._database.waiting_files.forget(record.id)

    async def make(
        self,
        record: ConversationRecord,
        client_count: Callable[[], int],
        take_turn: TakeTurn,
        unbegun_since: int | None = None,
    ) -> AgentSession:
        user = await self._database.settings.get(record.user_id)
        secrets = await self._secrets_of(user, record.user_id)
        servers = self._servers(user, record)
        self._hide(servers.secrets)
        browsing = await self._sandboxes.may_have_browser(record)
        models = ConversationModels(user, self._settings, record.options.get(LLM_PROFILE))
        self._hide(models.server_secrets)
        begun = await self._begun_with(record.id)
        agent_class = begun or merge_settings(user, self._settings).agent_class
        settings = session_settings(
            user, self._settings, record, servers, models, agent_class=agent_class, browsing=browsing
        )
        seed = await self._database.waiting_files.fetch(record.id, seed_of(self._settings.data_dir, record.id))
        problems: list[SkillValidationError] = []
        own_skills = await self._database.user_skills.all(record.user_id)
        own_tools = (
            *agent_tools(self._requests, record, user),
            *search_tools(self._search, search_key(user, self._settings)),
        )
        memory = ""
        if settings.agent_options.enable_memory is not False:
            hidden = (*secrets.hidden, *models.server_secrets, *servers.secrets)
            cloned = settings.git.repository  # by its name, however its address was written
            of_notes = record if cloned is None else replace(record, selected_repository=cloned.name)
            own_tools = (*own_tools, note_tool(self._database, of_notes, hidden))
            # A conversation that has begun was told of them, and its log says what.
            memory = await told_notes(self._database, of_notes) if begun is None else ""
        # Beside the loop: the headers of skills may be long, and there may be many.
        context = await asyncio.to_thread(agent_context, user, self._settings, own_skills, problems.append, memory)
        settings = replace(
            settings,
            agent_context=context,
            seed=seed,
            skill_problems=tuple(problems),
            own_tools=own_tools,
            named_secrets=secrets.named,
            secrets=(*secrets.hidden, *models.server_secrets),
        )
        settings = self._experiments.chosen(record.id, record.user_id, settings)
        settings = replace(settings, agent_class=begun or settings.agent_class)
        if (program := opened_program(self._database.secrets, record)) is not None:
            self._hide(program.hidden)
            settings = run_by_program(settings, program, record, servers.rules, self._settings)
        else:  # a program brings what its agent is to have
            disabled = (user.disabled_plugins if user is not None else None) or ()
            settings = (await self._plugins.of_conversation(record.user_id, disabled)).added_to(settings)
        if settings.llm.model != record.llm_model:
            self._database.conversations.touch(record.id, llm_model=settings.llm.model)
        environment = plain_environment(user, self._settings)
        sandbox = DeferredSandbox(
            self._sandboxes.spec(record),
            lambda unmade: self._find(record.id, session, environment, unmade=unmade),
            self._sandboxes.check_room,
            lambda: self._sandboxes.check_owner(),
        )
        connection = SandboxConnection(sandbox)
        repository, chosen = settings.git.repository, stored_choice(record)
        if repository is not None and not chosen.looked_in_repository and chosen.image_from != "request":

            def use(other: ChosenSandbox | None) -> None:
                spec = self._sandboxes.spec(record if other is None else with_choice(record, other))
                sandbox.become(spec, lambda unmade: self._find(record.id, session, environment, other, unmade=unmade))

            choices = Choices(partial(self._image_chosen, record, user), use, partial(self._settled, record.id))
            settle_sandbox = partial(settle, repository.folder, choices, connection)
            settings = replace(settings, settle_sandbox=settle_sandbox)
        session = await AgentSession.open(
            record.id,
            store=self._database.events,
            settings=settings,
            sandbox=connection,
            client_count=client_count,
            take_turn=take_turn,
            unbegun_since=unbegun_since,
        )
        return session

    async def secrets_of(self, user_id: str) -> UserSecrets:
        return await self._secrets_of(await self._database.settings.get(user_id), user_id)

    async def _secrets_of(self, user: StoredSettings | None, user_id: str) -> UserSecrets:
        # A secret of the user's own goes before a provider's token: it was given this very name.
        named = provider_secrets(user) | await self._database.user_secrets.values(user_id)
        hidden = list(self._own_secrets)
        if (key := search_key(user, self._settings)) is not None:
            hidden.append(key.get_secret_value())
        hidden += secret_values(user) if user is not None else []
        hidden += await self._database.webhooks.secrets_of(user_id)
        self._hide([*hidden, *(one.secret.get_secret_value() for one in named.values())])
        return UserSecrets(named, tuple(hidden))

    def _servers(self, user: StoredSettings | None, record: ConversationRecord) -> AgentServers:
        own = opened_servers(self._database.secrets, record)
        users = own if own is not None else read_config(user.mcp_config if user is not None else None)
        found = agent_servers(self._settings.mcp_config, users, programs=self._settings.mcp_programs)
        return found._replace(rules=replace(found.rules, sign_ins=self._sign_ins.of(record.user_id)))

    async def _begun_with(self, conversation_id: str) -> str | None:
        """The agent class the conversation was begun with, None before it was; `SessionError`: not here."""
        for one in await self._database.events.read(conversation_id, limit=FIRST_EVENTS):
            event = from_payload(one.payload, one.id, conversation_id)
            if isinstance(event, SystemPromptEvent):
                if event.agent_class not in AgentBase.agents:
                    raise SessionError(
                        f"the conversation belongs to an agent {event.agent_class!r}, which this server does not have;"
                        f" known are {AgentBase.list_agents()}"
                    )
                return event.agent_class
        return None

    async def _image_chosen(self, record: ConversationRecord, user: StoredSettings | None, image: str) -> ChosenSandbox:
        refuse_image("image", image, self._settings)
        changes = {"image": image, "image_from": "repository", "extra_deps": commands_of(user, self._settings)}
        chosen = stored_choice(record).model_copy(update=changes)
        refuse_what_lacks(chosen, await self._sandboxes.lacks(), user)
        return chosen

    async def _settled(self, conversation_id: str, chosen: ChosenSandbox | None) -> None:
        record = await self._database.conversations.get(conversation_id)
        if record is not None:
            chosen = (chosen or stored_choice(record)).model_copy(update={"looked_in_repository": True})
            await self._database.conversations.update(conversation_id, options=with_choice(record, chosen).options)

    async def _find(
        self,
        conversation_id: str,
        session: AgentSession,
        environment: Mapping[str, str],
        chosen: ChosenSandbox | None = None,
        *,
        unmade: SandboxState | None,
    ) -> Sandbox:
        conversations = self._database.conversations
        record = await conversations.get(conversation_id)
        if record is None:
            raise ConversationNotFoundError(conversation_id)
        if unmade is not None and record.sandbox == dict(unmade):
            record = replace(record, sandbox=None)
        wished = record if chosen is None else with_choice(record, chosen)
        if record.sandbox is not None:  # an engine has answered here before
            await self._sandboxes.until_engine_answers(
                lambda reason: session.tell_start(WAITING_FOR_ENGINE, f"Waiting for the Docker engine. {reason}")
            )
        sandbox = await self._sandboxes.sandbox(
            wished, environment, lambda reason: session.tell_start(WAITING_FOR_ENGINE, reason)
        )
        state = dict(sandbox.state)
        if state == record.sandbox:
            return sandbox
        # Before anything of it exists: a sandbox that nobody knows of would have no owner after a crash.
        others = dict(record.options.get(OTHER_SANDBOXES, {}))
        before = record.sandbox.get("provider") if record.sandbox is not None else None
        now = state.get("provider")
        if before is None or before == now:
            await conversations.update(record.id, sandbox=state)
            return sandbox
        is_known = others.pop(now, None) is not None
        options = {**record.options, OTHER_SANDBOXES: {**others, before: dict(record.sandbox or {})}}
        await conversations.update(record.id, sandbox=state, options=options)
        await session.stream.add_event(_moved(str(before), str(now), is_known=is_known))
        return sandbox


def _moved(before: str, now: str, *, is_known: bool) -> AnyEvent:
    """The event that says for good that the files are elsewhere; the agent sees what is there."""
    where = "goes on in the workspace that it had there" if is_known else "begins with an empty workspace there"
    text = (
        f"The sandbox of this conversation was made by {before!r}, and this server uses {now!r} by now: the "
        f"conversation {where}. The workspace of {before!r} is kept; it is used again when the server runs with "
        f"--sandbox {before}."
    )
    payload = {"content": text, "extras": {"error_id": ""}}
    return ForeignEvent(source="environment", name="error", is_action=False, payload=payload)


def _tags(record: ConversationRecord) -> tuple[str, ...]:
    facts = {"repository": record.selected_repository, "branch": record.selected_branch, "trigger": record.trigger}
    return tuple(f"{name}:{value}" for name, value in facts.items() if value)


def session_settings(
    user: StoredSettings | None,
    server: Settings,
    record: ConversationRecord,
    servers: AgentServers,
    models: ConversationModels,
    *,
    agent_class: str,
    browsing: bool,
) -> SessionSettings:
    """What the agent session of this conversation is given."""
    merged = merge_settings(user, server, OwnLimits.model_validate(record.options.get(OWN_LIMITS) or {}))
    llm = models.get_llm_config_from_agent(agent_class)
    purposes = models.for_purposes(agent_class)
    summing = purposes.get("condenser", llm)
    condenses = merged.condenser_max_size is not None and not summing.model.startswith(DEMO_PREFIX)
    return SessionSettings(
        llm=llm,
        agent_llms=models.get_agent_to_llm_config_map(),
        agent_configs=server.agent_configs,
        purpose_llms=purposes,
        stored_models=models,
        condenser=get_default_condenser(summing, merged.condenser_max_size) if condenses else None,  # no script sums up
        agent_class=agent_class,
        max_iterations=merged.max_iterations,
        max_budget=merged.max_budget,
        policy=merged.policy,
        analyzer=given_model(
            merged.security_analyzer, purposes.get("security_analyzer", llm), usage_id="security_analyzer"
        ),
        sandbox_remarks=ports_remark(record.id),
        conversation_instructions=str(record.options.get("conversation_instructions") or ""),
        git=git_setup(user, server, record),
        log_all_events=server.log_all_events,
        mcp_config=servers.servers,
        mcp_rules=servers.rules,
        agent_options=options_of(user, server, record, agent_class),
        client_tools=declared_tools(record.options),
        enable_sub_agents=server.enable_sub_agents,
        enable_browsing=browsing,
        snapshots=server.enable_snapshots,
        user_id=record.user_id,
        tags=_tags(record),
    )
