"""`SessionSettings`: what a session is given, and `AgentOptions`, what settings may choose about its agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from agent_core.agent.base import AgentBase, known_default_tools
from agent_core.agent.critic import CriticBase
from agent_core.agent.presets import BY_MODEL, preset_for
from agent_core.agent.system_prompt import PROMPT_DIR, SECURITY_POLICY, SYSTEM_PROMPT, static_message
from agent_core.controller.stuck import USUAL_THRESHOLDS, StuckDetectionThresholds
from agent_core.errors import SkillValidationError, ToolNotFoundError
from agent_core.events.llm_events import ActionEvent
from agent_core.events.messages import Frozen
from agent_core.events.stream import EventStream
from agent_core.llm.llm import LLM, CallContext
from agent_core.llm.registry import ProfileStore, StoredModels
from agent_core.mcp.config import McpServer
from agent_core.mcp.servers import McpRules
from agent_core.mcp.tool import OwnTool
from agent_core.memory.condenser import Condenser
from agent_core.runtime.sandbox import Progress
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.confirmation import ConfirmationPolicy, NeverConfirm
from agent_core.security.hooks import HookConfig
from agent_core.security.secrets import SecretValue
from agent_core.session.plugins import PlacedFolder
from agent_core.session.repository import GitSetup
from agent_core.skills.agent_catalog import AgentDefinition
from agent_core.skills.context import AgentContext
from agent_core.spelling import refuse_elsewhere
from agent_core.tools.builtin import FinishTool, ThinkTool
from agent_core.tools.presets import BROWSER_TOOLS, preset_tools
from agent_core.tools.registry import canonical_name, resolve_tool
from agent_core.tools.spec import NamesRegex, Tool

SettleSandbox = Callable[[EventStream, Progress], Awaitable[None]]
"""Is told of the log, and tells its progress."""

ConfirmSubagents = Callable[[Sequence[ActionEvent]], bool | Awaitable[bool]]
"""Decides what sub-agents may do: a function, which is called in a thread, or a coroutine function."""

MAX_TOOLS: Final = 100
MAX_NAME_CHARS: Final = 1_000
MAX_TOGETHER: Final = 64
MAX_PROMPT_CHARS: Final = 200_000
_FILES: Final = frozenset({"system_prompt_filename", "security_policy_filename"})
ELSEWHERE: Final = {
    "llm": "models are chosen by llm_profile, llm_agents and llm_purposes",
    "kind": "the class of agents is chosen by agent in a user's settings, or agent_class in the server's",
    "agent_context": "what an agent is told beside its prompt has settings of its own, such as system_message_suffix",
    "mcp_config": "MCP servers are chosen by mcp_config beside agent_options",
}
"""Fields of an agent that are not among its options, each with what is done instead."""
_BY_DEFAULT: Final = frozenset({FinishTool.tool_name, ThinkTool.tool_name})


def _is_no_file(name: str) -> str:
    if name.startswith("replay/"):
        raise ValueError(f"{name!r} is a recording, which is a file: name a model")
    return name


ModelName = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_CHARS),
    AfterValidator(_is_no_file),
]


def _specs(value: Any) -> Any:
    return [{"name": one} if isinstance(one, str) else one for one in value] if isinstance(value, list) else value


def _kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


class AgentOptions(Frozen):
    """Choices about an agent; what is None is left as it is: to whoever chose before, and in the end to the agent.

    The flags mean what they do for `CodeActAgent`; an agent that has no such flag is not changed by it. `enable_memory`
    is for whoever gives an agent notes of earlier conversations. `preset` names
    a set of tools and `tools` lists them; either counts instead of the flags. Of these tools and of those of MCP
    servers `filter_tools_regex` keeps the ones whose names it matches from their beginning.
    `tool_concurrency_limit` says how many calls of one answer may run at the same time. `draft_editor_model` names the
    model that writes out the drafts of `edit_file`, where the agent's own model is reached; the agent's own if None.
    `condenser` is the data of one with its `type`, which uses the agent's own model; `critic` that of one with its
    `kind`, or the kind alone. `system_prompt` is the whole prompt, word for word; or `system_prompt_filename` names one
    of the templates here, which like the agent's own has the variables of `system_prompt_kwargs`;
    `security_policy_filename` names the rules of conduct in it, empty for none. `include_default_tools` names classes
    of built-in tools that the agent has in any case, instead of those that the flags say.

    Raises:
        pydantic.ValidationError: a name is not known, or a value cannot be used; it says which and why.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    enable_cmd: bool | None = None
    enable_think: bool | None = None
    enable_finish: bool | None = None
    enable_condensation_request: bool | None = None
    enable_browsing: bool | None = None
    enable_jupyter: bool | None = None
    enable_plan_mode: bool | None = None
    enable_llm_editor: bool | None = None
    enable_editor: bool | None = None
    enable_mcp: bool | None = None
    enable_prompt_extensions: bool | None = None
    enable_history_truncation: bool | None = None
    enable_som_visual_browsing: bool | None = None
    enable_sub_agents: bool | None = None
    enable_memory: bool | None = None
    cli_mode: bool | None = None
    disabled_microagents: list[str] | None = Field(default=None, max_length=MAX_TOOLS)
    filter_tools_regex: NamesRegex = None
    tool_concurrency_limit: int | None = Field(default=None, ge=1, le=MAX_TOGETHER)
    draft_editor_model: ModelName | None = None
    condenser: dict[str, Any] | None = None
    critic: Annotated[dict[str, Any] | None, BeforeValidator(_kind)] = None
    preset: str | None = None
    tools: Annotated[Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None, BeforeValidator(_specs)] = None
    include_default_tools: Annotated[list[str], Field(max_length=MAX_TOOLS)] | None = None
    system_prompt: Annotated[str, Field(max_length=MAX_PROMPT_CHARS)] | None = None
    system_prompt_filename: str | None = None
    security_policy_filename: str | None = None
    system_prompt_kwargs: dict[str, JsonValue] | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_chosen_here(cls, data: Any) -> Any:
        if isinstance(data, dict):
            refuse_elsewhere(cls.__name__, data, ELSEWHERE)
        return data

    @field_validator("include_default_tools")
    @classmethod
    def _are_built_in(cls, value: list[str] | None) -> list[str] | None:
        return value if value is None else known_default_tools(value)

    @field_validator("system_prompt_filename", "security_policy_filename")
    @classmethod
    def _is_a_template(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None or (value == "" and info.field_name == "security_policy_filename"):
            return value
        rules = {SECURITY_POLICY}
        prompts = {path.name for path in PROMPT_DIR.glob("*.j2")} - rules
        known = sorted(prompts if info.field_name == "system_prompt_filename" else rules)
        if value not in known:
            raise ValueError(f"there is no template {value[:100]!r} here; give one of {', '.join(known)}")
        return value

    @field_validator("preset")
    @classmethod
    def _is_known(cls, value: str | None) -> str | None:
        if value not in (None, BY_MODEL):
            try:
                preset_tools(str(value))
            except ValueError as error:
                raise ValueError(f"{error}, or {BY_MODEL} for the one that suits the model") from None
        return value

    @field_validator("condenser")
    @classmethod
    def _condenses(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            waiting: list[Any] = [value]
            for one in waiting:  # grows while it is walked
                if isinstance(one, dict) and {"llm", "llm_config"} & one.keys():
                    raise ValueError("its model is the agent's own: leave out llm and llm_config")
                parts = one.get("condensers") if isinstance(one, dict) else None
                waiting += parts if isinstance(parts, list) else ()
            Condenser.from_config(value, LLM())
        return value

    @field_validator("critic")
    @classmethod
    def _criticises(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None and "llm" in value:
            raise ValueError("its model is the one for critics, or else the agent's own: leave out llm")
        CriticBase.revive(value)
        return value

    @field_validator("tools")
    @classmethod
    def _can_be_made(cls, value: list[Tool] | None) -> list[Tool] | None:
        names: set[str] = set()
        for number, spec in enumerate(value or []):
            try:
                made = [tool.name for tool in resolve_tool(spec)]
            except ToolNotFoundError as error:
                raise ValueError(f"{number}: {error.args[0]}") from None
            except (TypeError, ValueError) as error:
                raise ValueError(f"{number}: {error}") from None
            if doubled := names.intersection(made):
                raise ValueError(f"{number}: {sorted(doubled)} is given twice; give each tool once")
            names.update(made)
        return value

    @model_validator(mode="after")
    def _is_one_choice(self) -> Self:
        if self.preset is not None and self.tools is not None:
            raise ValueError("preset and tools exclude each other; give one of them")
        if self.system_prompt is not None and self.system_prompt_filename is not None:
            raise ValueError("system_prompt and system_prompt_filename exclude each other; give one of them")
        if self.system_prompt_kwargs or self.system_prompt_filename:
            template, given = self.system_prompt_filename or SYSTEM_PROMPT, self.system_prompt_kwargs or {}
            facts: dict[str, Any] = {"policy": "", "model": "", "has_browser": False, "remembers": False}
            try:
                prompt = static_message(PROMPT_DIR, template, **facts, overrides=given)
            except Exception as error:  # noqa: BLE001 - whatever a template does with what it is given
                raise ValueError(f"system_prompt_kwargs: {template} cannot be made of them: {error}") from None
            if len(prompt) > MAX_PROMPT_CHARS:
                raise ValueError(f"system_prompt_kwargs: the prompt would have over {MAX_PROMPT_CHARS} characters")
        return self

    def over(self, other: AgentOptions) -> AgentOptions:
        """These choices, and `other`'s where nothing is chosen here."""
        own = self.model_dump(exclude_none=True)
        rest = other.model_dump(exclude_none=True)
        for one_of in ({"preset", "tools"}, {"system_prompt", "system_prompt_filename"}):
            if own.keys() & one_of:
                rest = {name: value for name, value in rest.items() if name not in one_of}
        if "system_prompt_kwargs" in own:
            own["system_prompt_kwargs"] = rest.get("system_prompt_kwargs", {}) | own["system_prompt_kwargs"]
        return AgentOptions.model_validate({**rest, **own})

    def fields_for(self, agent: type[AgentBase], *, model: str = "", browsing: bool = True) -> dict[str, Any]:
        """These choices as fields of an agent of this class; without `browsing` none has a browser by default.

        `model` is the name of its model, by which the preset ``auto`` chooses. Tools that are listed by name are those
        tools, whatever `browsing` says; finish and think are chosen by their flags alone.
        """
        chosen = self.model_dump(exclude_none=True, exclude={"condenser", "preset", "tools"})
        if not browsing:
            chosen["enable_browsing"] = False
        fields = {name: value for name, value in chosen.items() if name in agent.model_fields}
        for name in fields.keys() & _FILES:  # an agent of one's own may have another folder of templates
            fields[name] = fields[name] and str(PROMPT_DIR / fields[name])
        if self.tools is not None:
            fields["tools"] = [tool for tool in self.tools if canonical_name(tool.name) not in _BY_DEFAULT]
        elif self.preset is not None:
            tools = preset_tools(preset_for(model) if self.preset == BY_MODEL else self.preset)
            has_browser = chosen.get("enable_browsing", True)
            fields["tools"] = [tool for tool in tools if has_browser or canonical_name(tool.name) != BROWSER_TOOLS]
        return fields


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Settings of one conversation's session; a running session keeps those it was started with.

    Attributes:
        max_iterations: answers of the model until the agent waits for its user.
        max_budget: US dollars until the agent waits for its user; None for no limit.
        limits_per_run: whether each run may take `max_iterations` answers; else only a limit that was hit is extended.
        policy: which actions wait for the user's word, as long as nobody has chosen another one.
        analyzer: judges the risk of actions; None leaves all risks unknown, whatever the model says of them.
        conversation_instructions, sandbox_remarks: told to the agent with the facts of the workspace.
        condenser: shortens what the model is shown when it becomes too long; None never does.
        stuck_detection: whether an agent that only repeats itself is stopped, after `stuck_thresholds` repetitions.
        seed: a tar file with what the workspace begins with; it is removed when its files are there.
        snapshots: whether the files of the workspace are kept as they were, so that they can go back.
        agent: the agent itself, which then counts instead of `llm`, `agent_class`, `condenser` and `tools`; and, where
            that is None, instead of `agent_context`.
        tools: replaces the tools of the agent class; None keeps them.
        hooks: run in the sandbox before and after the agent's calls, and before those that the project configures.
        secrets: values that are hidden wherever they appear in the log (the model's key is always hidden).
        named_secrets: by name, for the commands that name them; hidden as well, only names and descriptions are told.
        agent_context: skills and texts for the agent; None uses what the workspace holds.
        folders: what its sandbox is given at each start.
        skill_problems: why skills that it was to have are not there; told in the conversation.
        mcp_config: MCP servers for an agent that is made here; one that is given brings its own.
        mcp_rules: what they may do.
        own_tools: tools of the program around the session, for an agent that uses MCP servers; sub-agents have none.
        agent_options: what is chosen about the tools of an agent that is made here.
        client_tools: tools that clients carry out, beside all others; a session can be given others later.
        agent_llms: models of agent classes that have one of their own, for those that work for this agent.
        agent_configs: what is chosen about agents of a class, for those that work for this agent.
        purpose_llms: models by what they are used for beside an agent's own steps, where its own is not; for an agent
            that is made here ``draft_editor`` (drafts of edits, where its options name no model), ``condenser`` and
            ``critic`` (see `given_model`), others for whoever gives them.
        stored_models: models by name, for an agent that switches to another, has an image looked at, or asks a kind of
            sub-agent that names one; by default those in the home of this process's user.
        missing_parts: parts that the sandbox lacks of those that tools need, each with the way to get it; those tools
            are left out.
        enable_browsing, enable_sub_agents: whether an agent that is made here may have a browser or sub-agents, where
            its class knows how.
        git: the repository that its workspace begins with, and whose name stands on commits.
        log_all_events: whether the process's log is told each event at the level info, else at debug.
        agent_definitions: kinds of sub-agents beside those that this process knows, and before them.
        reads_home: whether hooks and kinds of sub-agents in the home of this process's user count.
        settle_sandbox: called once the repository is there, and before anything else is at work in the sandbox; it may
            put another one with the same workspace in its place.
        confirm_subagents: decides about actions of sub-agents that wait for a user's word; None agrees where the policy
            here is `NeverConfirm`, and refuses otherwise.
        user_id, tags: told to models that are to get metadata (see `LLMConfig.request_metadata`).
    """

    llm: LLM
    agent_class: str = "CodeActAgent"
    max_iterations: int = 500
    max_budget: float | None = None
    limits_per_run: bool = False
    policy: ConfirmationPolicy = field(default_factory=NeverConfirm)
    analyzer: SecurityAnalyzer | None = None
    conversation_instructions: str = ""
    sandbox_remarks: str = ""
    condenser: Condenser | None = None
    stuck_detection: bool = True
    stuck_thresholds: StuckDetectionThresholds = USUAL_THRESHOLDS
    snapshots: bool = True
    seed: Path | None = None
    tools: tuple[Tool, ...] | None = None
    agent: AgentBase | None = None
    hooks: HookConfig = field(default_factory=HookConfig)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    named_secrets: Mapping[str, SecretValue] = field(default_factory=dict, repr=False)
    agent_context: AgentContext | None = None
    skill_problems: tuple[SkillValidationError, ...] = ()
    folders: tuple[PlacedFolder, ...] = ()
    mcp_config: Mapping[str, McpServer] = field(default_factory=dict)
    mcp_rules: McpRules = field(default_factory=McpRules)
    own_tools: tuple[OwnTool, ...] = ()
    agent_options: AgentOptions = field(default_factory=AgentOptions)
    client_tools: tuple[Tool, ...] = ()
    agent_llms: Mapping[str, LLM] = field(default_factory=dict)
    agent_configs: Mapping[str, AgentOptions] = field(default_factory=dict)
    purpose_llms: Mapping[str, LLM] = field(default_factory=dict)
    stored_models: StoredModels = field(default_factory=ProfileStore)
    enable_sub_agents: bool = False
    enable_browsing: bool = True
    missing_parts: Mapping[str, str] = field(default_factory=dict)
    git: GitSetup = field(default_factory=GitSetup)
    settle_sandbox: SettleSandbox | None = None
    log_all_events: bool = False
    agent_definitions: tuple[AgentDefinition, ...] = ()
    reads_home: bool = True
    confirm_subagents: ConfirmSubagents | None = None
    user_id: str = ""
    tags: tuple[str, ...] = ()

    def call_context(self, conversation_id: str, agent: AgentBase, *, cache_key: str = "") -> CallContext:
        """What calls of models tell of the conversation; `cache_key` is its id unless given."""
        return CallContext(
            prompt_cache_key=cache_key or conversation_id,
            session_id=conversation_id,
            agent=agent.name,
            user_id=self.user_id,
            tags=self.tags,
        )
