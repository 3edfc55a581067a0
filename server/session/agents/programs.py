"""What a program on the library has its conversation run with: its agent with keys, limits, hooks and secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    SerializationInfo,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    field_serializer,
    model_validator,
)

from agent_core.agent.base import AgentBase, llms_in
from agent_core.controller.stuck import StuckDetectionThresholds
from agent_core.destinations import DestinationError, Destinations, is_loopback
from agent_core.events.llm_events import SystemPromptEvent
from agent_core.events.masking import EXPOSE_SECRETS, SENSITIVE_NAME, SecretMasker, secrets_in_address
from agent_core.events.schema import problems_in
from agent_core.llm.config import LLMConfig
from agent_core.llm.llm import LLM
from agent_core.llm.profiles import EXPOSE_FALLBACKS
from agent_core.mcp.config import McpServer, McpServerMap
from agent_core.mcp.servers import McpRules, servers_of
from agent_core.memory.condenser import Condenser
from agent_core.runtime.sandbox import WORKSPACE
from agent_core.security.analyzer import EnsembleSecurityAnalyzer, SecurityAnalyzer
from agent_core.security.confirmation import NeverConfirm
from agent_core.security.grayswan import MONITOR, GraySwanAnalyzer
from agent_core.security.hooks import HookConfig
from agent_core.security.secrets import StaticSecret
from agent_core.session.repository import GitSetup, Repository
from agent_core.session.settings import SessionSettings
from agent_core.skills.agent_catalog import INHERIT, AgentDefinition
from agent_core.skills.skill import Skill
from agent_core.tools.spec import Tool, ToolMakerState, WorkspacePlace
from agent_core.version import VERSION
from server.auth.secrets import SecretBox, SecretUnreadableError
from server.db.repositories.conversations import ConversationRecord
from server.errors import SessionError
from server.session.agents.models import address_problem
from server.settings.llm_profiles import users_problem
from server.settings.mcp_config import MAX_SERVERS
from server.settings.settings import Settings

PROGRAM: Final = "program"
"""Key among a conversation's options: what a program gave it, encrypted."""

MAX_SECRETS: Final = 200
MAX_DEFINITIONS: Final = 100
MAX_MONITORS: Final = 10
SHOWN_PROBLEMS: Final = 3
_SERVERS: Final[TypeAdapter[dict[str, McpServer]]] = TypeAdapter(McpServerMap)

_AGENT: Final = {
    "type": "object",
    "title": "Agent",
    "description": "An agent as `agent_core` writes it (`model_dump` with its secrets); `kind` is its class.",
    "properties": {"kind": {"type": "string"}, "llm": {"type": "object"}, "tools": {"type": "array"}},
    "required": ["kind", "llm"],
    "additionalProperties": True,
}


def _agent(value: object) -> AgentBase:
    found: object = AgentBase.revive(value)
    if not isinstance(found, AgentBase):
        raise ValueError("send an agent as an object with its kind")
    return found


ProgramsAgent = Annotated[Any, BeforeValidator(_agent), WithJsonSchema(_AGENT)]
"""An `AgentBase`; its schema would be that of every class there is."""


class ProgramSecret(BaseModel, extra="forbid", hide_input_in_errors=True):
    """A value for the commands that name it."""

    value: SecretStr
    description: str = Field("", max_length=1000)


class ProgramRepository(BaseModel, extra="forbid", hide_input_in_errors=True):
    """A repository: see `agent_core.Repository`."""

    name: str = Field(min_length=1, max_length=500)
    url: str = Field(pattern="^https?://", max_length=2000)
    branch: str = Field("", max_length=500)
    username: str = Field("", max_length=500)
    token: SecretStr | None = None
    depth: int = Field(0, ge=0, le=1_000_000, strict=True)
    limit_seconds: float = Field(600.0, gt=0, le=3600)
    setup_seconds: float = Field(600.0, gt=0, le=3600)
    problem: str = Field("", max_length=2000)

    @field_serializer("token", when_used="json")
    def _written_token(self, value: SecretStr | None, info: SerializationInfo) -> str | None:
        exposed = value is not None and info.context and info.context.get(EXPOSE_SECRETS)
        return value.get_secret_value() if value is not None and exposed else None


class ProgramGit(BaseModel, extra="forbid", hide_input_in_errors=True):
    """What git does in the workspace: see `agent_core.GitSetup`."""

    user_name: str = Field("", max_length=500)
    user_email: str = Field("", max_length=500)
    repository: ProgramRepository | None = None
    organization: ProgramRepository | None = None

    @property
    def setup(self) -> GitSetup:
        one, other = (None if each is None else Repository(**dict(each)) for each in self.repositories)
        return GitSetup(one, self.user_name, self.user_email, other)

    @property
    def repositories(self) -> tuple[ProgramRepository | None, ProgramRepository | None]:
        return self.repository, self.organization


class ProgramSettings(BaseModel):
    """All that `agent_core.Conversation` is given, as data; the conversation has it instead of its user's settings.

    The agent's class, and its tools, have to be known here. Nothing of it may name a file of this host, or send a key
    of this server's to an address of the program's.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    agent: ProgramsAgent
    max_iteration_per_run: int = Field(500, ge=1, le=1_000_000, strict=True)
    max_budget_per_run: float | None = Field(None, ge=0, allow_inf_nan=False, strict=True)
    stuck_detection: bool = Field(True, strict=True)
    stuck_detection_thresholds: StuckDetectionThresholds = Field(default_factory=StuckDetectionThresholds)
    security_analyzer: dict[str, Any] | None = None
    hook_config: HookConfig = Field(default_factory=HookConfig)
    secrets: dict[str, ProgramSecret] = Field(default_factory=dict, max_length=MAX_SECRETS)
    agent_definitions: list[AgentDefinition] = Field(default_factory=list, max_length=MAX_DEFINITIONS)
    git: ProgramGit = Field(default_factory=ProgramGit)

    @model_validator(mode="after")
    def _can_be_run_here(self) -> Self:
        if problem := next(_problems(self), ""):
            raise ValueError(problem)
        self.made_agent("conversation", WORKSPACE)
        return self

    @property
    def analyzer(self) -> SecurityAnalyzer | None:
        return None if self.security_analyzer is None else SecurityAnalyzer.model_validate(self.security_analyzer)

    def made_agent(self, conversation_id: str, working_dir: str) -> AgentBase:
        """The agent with its tools. It has its whole context already: nothing of this host's user is added.

        Raises `ToolNotFoundError`, `ValueError` or `TypeError` for tools that cannot be made.
        """
        variables = {"identity": "", **self.agent.system_prompt_kwargs}  # else it is that of this host's user
        agent: AgentBase = self.agent.model_copy(update={"system_prompt_kwargs": variables})
        try:
            agent.initialize(ToolMakerState(conversation_id, WorkspacePlace(working_dir), NoModels()))
        except KeyError as error:
            raise ValueError(f"agent.tools: {error.args[0]}") from None
        except (TypeError, ValueError) as error:
            raise ValueError(f"agent.tools: {_words(error)}") from None
        return agent

    def opening_prompt(self, conversation_id: str) -> SystemPromptEvent:
        """What its agent is told at the beginning."""
        agent = self.made_agent(conversation_id, WORKSPACE)
        secrets = {name: one.description for name, one in self.secrets.items()}
        schemas = [agent.shown_tool(tool) for tool in agent.tools_map.values()]
        prompt = agent.system_prompt_event(schemas, version=VERSION, secrets=secrets)
        masked = SecretMasker(self.hidden).data(prompt.model_dump(mode="json", exclude={"id", "kind", "source"}))
        return SystemPromptEvent.model_validate({**masked, "source": prompt.source})

    @property
    def hidden(self) -> list[str]:
        """Every secret in it."""
        parts = [self.agent, self.analyzer, self.secrets, self.git, *self.agent_definitions]
        return list(dict.fromkeys(_secrets_in(parts)))

    def as_data(self) -> dict[str, Any]:
        """It as JSON with its secrets, from which the same is made again."""
        data = self.model_dump(mode="json", context={EXPOSE_SECRETS: True, EXPOSE_FALLBACKS: True})
        data["secrets"] = {
            name: {"value": one.value.get_secret_value(), "description": one.description}
            for name, one in self.secrets.items()
        }
        return data


def _secrets_in(value: Any) -> Iterator[str]:
    """The secrets in fields, dictionaries and lists: keys, and what models, servers and tools say is secret."""
    waiting: list[Any] = [value]
    while waiting:
        found = waiting.pop()
        match found:
            case SecretStr():
                yield found.get_secret_value()
            case LLMConfig() | McpServer():
                yield from found.secrets
            case ProgramRepository():
                yield from secrets_in_address(found.url)
            case Tool():
                texts = ((name, text) for name, text in found.params.items() if isinstance(text, str))
                yield from (text for name, text in texts if SENSITIVE_NAME.search(name))
            case Skill():
                with suppress(ValueError):  # it brings none then, which the conversation tells
                    waiting += servers_of(found).values()
            case AgentDefinition():
                waiting += _SERVERS.validate_python(found.mcp_config).values()
                waiting.append(_own_condenser(found))
        if isinstance(found, BaseModel):
            waiting += [getattr(found, name) for name in type(found).model_fields]
        elif isinstance(found, dict | list | tuple | set | frozenset):
            waiting += found.values() if isinstance(found, dict) else found


def _own_condenser(definition: AgentDefinition) -> Condenser | None:
    return Condenser.revive(definition.condenser) if isinstance(definition.condenser, dict) else None


def _words(error: Exception) -> str:
    """What is wrong, without the value, which may hold a secret."""
    return problems_in(error, SHOWN_PROBLEMS) if isinstance(error, ValidationError) else str(error)


def _problems(program: ProgramSettings) -> Iterator[str]:
    agent = program.agent
    for field in ("system_prompt_filename", "security_policy_filename"):
        name = getattr(agent, field)
        if name.startswith("/") or "\\" in name or ".." in name.split("/"):
            yield f"agent.{field}: {name!r} is a file of this server; send the text as system_prompt"
            return
    try:
        _ = agent.static_system_message
    except Exception as error:  # noqa: BLE001 - whatever its templates do with its variables
        yield f"agent.system_prompt_filename: no prompt can be made: {type(error).__name__}: {error}"
    if len(agent.mcp_config) > MAX_SERVERS:
        yield f"agent.mcp_config: there are {len(agent.mcp_config)} servers; configure {MAX_SERVERS} at most"
    context = agent.agent_context
    if context is not None and context.secrets:
        yield "agent.agent_context.secrets: send them as secrets of the program"
    for field in ("load_user_skills", "load_public_skills"):
        if context is not None and getattr(context, field):
            yield f"agent.agent_context.{field}: there is no such folder of yours here; send the skills themselves"
    if context is not None and context.registered_marketplaces:
        yield "agent.agent_context.registered_marketplaces: nothing is fetched here; send the skills themselves"
    for llm in [agent.llm, *agent.get_all_llms()]:  # a router is none of them
        yield from _problems_of_model(llm, "agent.llm")
    for number, definition in enumerate(program.agent_definitions):
        if definition.model != INHERIT or definition.profile_store_dir is not None:
            yield f"agent_definitions.{number}.model: stored profiles are files of this server; leave it at {INHERIT!r}"
        field = "condenser"
        try:
            for llm in llms_in(_own_condenser(definition)):
                yield from _problems_of_model(llm, f"agent_definitions.{number}.condenser.llm")
            field = "mcp_config"
            _SERVERS.validate_python(definition.mcp_config)
            field = "hooks"
            HookConfig.model_validate(definition.hooks or {})
        except ValueError as error:
            yield f"agent_definitions.{number}.{field}: {_words(error)}"
    if program.security_analyzer is not None:
        try:
            yield from _problems_of_analyzer(program.analyzer)
        except ValueError as error:
            yield f"security_analyzer: {_words(error)}"


def _problems_of_analyzer(analyzer: SecurityAnalyzer | None) -> Iterator[str]:
    monitors = list(_monitors(analyzer))
    if len(monitors) > MAX_MONITORS:
        count = len(monitors)
        yield f"security_analyzer: {count} of its parts ask a service about each action; give {MAX_MONITORS} at most"
    for monitor in monitors:
        if monitor.api_key is None and monitor.api_url != MONITOR:
            yield "security_analyzer.api_key: give one with api_url; this server's own goes to no other address"
    for llm in llms_in(analyzer):
        yield from _problems_of_model(llm, "security_analyzer.llm")


def _monitors(analyzer: SecurityAnalyzer | None) -> Iterator[GraySwanAnalyzer]:
    if isinstance(analyzer, GraySwanAnalyzer):
        yield analyzer
    for one in analyzer.analyzers if isinstance(analyzer, EnsembleSecurityAnalyzer) else ():
        yield from _monitors(one)


def destinations_of(settings: Settings) -> Destinations:
    """Where a program's analyzer may send the log: where a user's webhooks may."""
    return Destinations(hosts=settings.webhook_hosts, loopback=is_loopback(settings.host))


async def destination_problem(program: ProgramSettings, settings: Settings) -> str | None:
    """Why a part of the program may not ask where it wants to; None where it may, or the host is not known now."""
    destinations = destinations_of(settings)
    for monitor in _monitors(program.analyzer):
        try:
            await destinations.find(monitor.api_url)
        except DestinationError as error:
            if error.not_public:
                return f"security_analyzer.api_url: {error}; only the server's operator can allow it (webhook_hosts)"
    return None


def _problems_of_model(llm: LLM, place: str) -> Iterator[str]:
    if llm.fallback_strategy is not None and llm.fallback_strategy.profiles is None:
        yield f"{place}.fallback_strategy: stored profiles are files of this server; send the models, as profiles"
    if (refused := users_problem(llm)) is not None:
        yield f"{place}.{refused[0]}: {refused[1]}"
    if (problem := address_problem(dict(llm))) is not None:
        yield f"{place}.{problem}"


def sealed_program(box: SecretBox, conversation_id: str, program: ProgramSettings) -> str:
    """A program's settings as they are stored: encrypted, for this conversation alone."""
    return box.encrypt(json.dumps(program.as_data()), purpose=_purpose(conversation_id))


def opened_program(box: SecretBox, record: ConversationRecord) -> ProgramSettings | None:
    """What a program gave the conversation; None: it is no program's. `SessionError`: it cannot be read any more."""
    stored = record.options.get(PROGRAM)
    if not isinstance(stored, str):
        return None
    try:
        return ProgramSettings.model_validate(json.loads(box.decrypt(stored, purpose=_purpose(record.id))))
    except (SecretUnreadableError, ValidationError) as error:
        problem = str(error) if isinstance(error, SecretUnreadableError) else "this version of the server cannot use it"
        raise SessionError(
            f"the agent that a program gave this conversation cannot be read: {problem}; run the program again"
        ) from error


def _purpose(conversation_id: str) -> str:
    return f"conversation/{PROGRAM}/{conversation_id}"


class NoModels:
    """The `StoredModels` of a program's conversation: none, since neither this host's nor its user's are meant."""

    def list(self) -> list[str]:
        return []

    def load(self, name: str) -> LLM:
        """There is none: always `ValueError`."""
        raise ValueError(
            f"there is no stored model {name[:80]!r}: on a server a program's agent has its own models only"
        )


def run_by_program(
    settings: SessionSettings,
    program: ProgramSettings,
    record: ConversationRecord,
    rules: McpRules,
    server: Settings,
) -> SessionSettings:
    """The session's settings with the program's choices in place of the user's and the server's.

    Unless the server starts programs for its users, MCP servers that are programs are refused. `SessionError`: its
    users bring no models any more.
    """
    if not server.allow_user_llm_profiles:
        raise SessionError(
            "its model was brought by a program, and this server's users bring none (allow_user_llm_profiles)"
        )
    if server.mcp_programs == "never":
        named = [*program.agent.mcp_config, *(name for one in program.agent_definitions for name in one.mcp_config)]
        rules = replace(rules, refused_programs=frozenset(named))
    agent, analyzer = program.made_agent(record.id, WORKSPACE), program.analyzer
    return replace(
        settings,
        agent=agent,
        agent_context=None,
        skill_problems=(),
        reads_home=False,
        llm=agent.llm,
        agent_class=agent.name,
        condenser=None,
        max_iterations=program.max_iteration_per_run,
        max_budget=program.max_budget_per_run,
        limits_per_run=True,
        policy=NeverConfirm(),
        analyzer=analyzer.confined(destinations_of(server)) if analyzer is not None else None,
        stuck_detection=program.stuck_detection,
        stuck_thresholds=program.stuck_detection_thresholds,
        hooks=program.hook_config,
        named_secrets={
            name: StaticSecret(secret=one.value, description=one.description) for name, one in program.secrets.items()
        },
        secrets=(*settings.secrets, *program.hidden),
        agent_definitions=tuple(program.agent_definitions),
        agent_llms={},
        agent_configs={},
        purpose_llms={},
        stored_models=NoModels(),
        mcp_rules=rules,
        own_tools=(),
        sandbox_remarks="",
        git=program.git.setup,
    )
