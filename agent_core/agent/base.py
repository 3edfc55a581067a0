"""The base of all agents: frozen configuration that can be stored, sent and made again."""

from __future__ import annotations

import abc
import inspect
import logging
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, PrivateAttr, SerializeAsAny, field_validator, model_validator

from agent_core.agent.critic import AnyCritic
from agent_core.agent.step import StepInput, StepOutcome, bridged
from agent_core.agent.system_prompt import PROMPT_DIR, SECURITY_POLICY, SYSTEM_PROMPT, static_message
from agent_core.agent.toolbox import (
    DEFAULT_TOOL_NAMES,
    StructuredTool,
    ToolSpecs,
    shown_to_model,
    skill_tools,
    stored_models,
    structured,
)
from agent_core.agent.vision import vision_tools
from agent_core.bounded_regex import SlowPatternError, does_match
from agent_core.events.llm_events import ActionEvent, MessageEvent, SystemPromptEvent
from agent_core.events.messages import Frozen, TextContent
from agent_core.events.schema import Family
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM, AnyLLM
from agent_core.mcp.config import McpServerMap
from agent_core.memory.condensers import AnyCondenser
from agent_core.skills.context import AgentContext
from agent_core.skills.skill import Skill
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.invoke_skill import InvokeSkillTool
from agent_core.tools.plugins import DEFAULT_PLUGINS, PluginRequirement
from agent_core.tools.registry import canonical_name, registered_tools, resolve_tools
from agent_core.tools.spec import NamesRegex, Tool

logger = logging.getLogger(__name__)

FIRST_EVENTS: Final = 3
"""The system prompt of a log is among so many events from its beginning."""

PartT = TypeVar("PartT", bound=BaseModel)


def llms_in(value: Any) -> Iterator[LLM]:
    """Each `LLM` in `value` once; an instance of a subclass, such as a router, is replaced by the models it is made of.

    Fields of models, dictionaries, lists, tuples and sets are entered, cycles too; dataclasses are not.
    """
    seen: set[int] = set()
    waiting: list[Any] = [value]
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if type(found) is LLM:
            yield found
        if isinstance(found, BaseModel):
            waiting += [getattr(found, name) for name in reversed(type(found).model_fields)]
        elif isinstance(found, dict | list | tuple | set | frozenset):
            waiting += list(found.values() if isinstance(found, dict) else found)[::-1]


def given_model(part: PartT, llm: LLM, usage_id: str) -> PartT:
    """An analyzer or a critic with this model, counted apart, where it asks one (its field `llm`) and has none.

    So are the parts that it is made of.
    """
    update: dict[str, Any] = {}
    for name in type(part).model_fields:
        value = getattr(part, name)
        if name == "llm" and value is None:
            update[name] = llm.model_copy(update={"usage_id": usage_id})
            update[name].reset_metrics()
        elif isinstance(value, tuple) and value and all(isinstance(one, BaseModel) for one in value):
            update[name] = tuple(given_model(one, llm, usage_id) for one in value)
    return part.model_copy(update=update)


class AgentMark(Frozen):
    """Identity of an agent, which its conversation needs again: its class, and its tools but a server's, by name."""

    kind: str
    tools: frozenset[str]

    @classmethod
    def of(cls, agent: AgentBase) -> Self:
        names = (*(tool.name for tool in agent.tools), *agent.include_default_tools)
        return cls(kind=agent.kind, tools=frozenset(map(canonical_name, names)))

    def check(
        self, before: AgentMark, used: Iterable[AnyEvent] | None = None, *, allow_added_tools: bool = False
    ) -> None:
        """Raise `ValueError`, naming what is missing or added, unless it may go on after the agent marked `before`.

        With `used` (the events of the log) only the tools that were called in them must be there, and others may be.
        """
        if self.kind != before.kind:
            raise ValueError(f"the conversation belongs to a {before.kind} and cannot go on with a {self.kind}")
        needed, added = before.tools, self.tools - before.tools
        if used is not None:
            called = {canonical_name(event.tool_name) for event in used if isinstance(event, ActionEvent)}
            needed, added = needed & called, frozenset()
        missing = needed - self.tools
        if missing or (added and not allow_added_tools):
            found = (("missing", missing), ("added", added))
            problems = [f"{word} {sorted(names)}" for word, names in found if names]
            raise ValueError(
                f"the tools differ from those the conversation was begun with: {', '.join(problems)};"
                " use the same tools, or fork the conversation"
            )


def known_default_tools(names: list[str]) -> list[str]:
    """These names; raises `ValueError` where one is not that of a built-in tool's class."""
    known = {tool.__name__ for tool in registered_tools().values() if isinstance(tool, type)}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{unknown} are not built in; give class names out of {sorted(known)}")
    return names


class AgentBase(Family):
    """An agent: frozen configuration that can be stored, sent and made again; all state is in the conversation's log.

    `AgentBase.model_validate` restores it from its `kind`, the class name. Tools are made when they are first needed; a
    copy makes its own.

    Attributes:
        tools: by name, from the registry.
        filter_tools_regex: matched from the beginning of the names of `tools` and of servers' tools; others are
            dropped.
        include_default_tools: class names of built-in tools that are there in any case.
        tool_concurrency_limit: how many calls of one answer may run at the same time.
        system_prompt: the whole prompt, word for word, instead of a template.
        system_prompt_filename: template in `prompt_dir`, or an absolute path.
        security_policy_filename: the rules of conduct in the prompt, likewise; empty for none.
        system_prompt_kwargs: variables of the template.
        mcp_config: MCP servers by name, whose tools the conversation adds.
    """

    tools: ToolSpecs = Field(default_factory=list)
    filter_tools_regex: NamesRegex = None
    include_default_tools: list[str] = Field(default_factory=lambda: list(DEFAULT_TOOL_NAMES))
    tool_concurrency_limit: int = Field(default=1, ge=1)
    agent_context: AgentContext | None = None
    llm: AnyLLM
    system_prompt: str | None = None
    system_prompt_filename: str = SYSTEM_PROMPT
    security_policy_filename: str = SECURITY_POLICY
    system_prompt_kwargs: dict[str, Any] = Field(default_factory=dict)
    mcp_config: McpServerMap = Field(default_factory=dict)
    condenser: AnyCondenser | None = None
    critic: AnyCritic | None = None

    _tools_map: dict[str, ToolDefinition] | None = PrivateAttr(default=None)
    _brought: dict[str, frozenset[str]] = PrivateAttr(default_factory=dict)

    agents: ClassVar[dict[str, type[AgentBase]]] = {}
    sandbox_plugins: ClassVar[tuple[PluginRequirement, ...]] = DEFAULT_PLUGINS
    """What its sandbox brings up before it begins, in this order."""
    leaves_on_exit: ClassVar[bool] = False
    """Whether the user's message ``/exit`` ends the task without asking the model."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        _check_plugins(cls)
        if (astep := bridged(cls)) is not None:
            cls.astep = astep  # type: ignore[assignment, method-assign] # the class has said in `step` what it does
            abc.update_abstractmethods(cls)
        if not inspect.isabstract(cls):
            AgentBase.agents[cls.__name__] = cls

    @classmethod
    def register(cls, name: str, agent: type[AgentBase]) -> None:
        """Make an agent class known under an alias; raises `ValueError` where that is taken."""
        if name in AgentBase.agents:
            raise ValueError(f"an agent named {name!r} is registered already; choose another name")
        AgentBase.agents[name] = agent

    @classmethod
    def get_cls(cls, name: str) -> type[AgentBase]:
        """The agent class of this name; raises `KeyError`, which lists those there are."""
        if name not in AgentBase.agents:
            raise KeyError(f"agent {name!r} is not known; known are {AgentBase.list_agents()}")
        return AgentBase.agents[name]

    @classmethod
    def list_agents(cls) -> list[str]:
        return sorted(AgentBase.agents)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.kind != type(self).__name__:
            raise ValueError(f"kind is {self.kind!r}, but this is a {type(self).__name__}")
        own = type(self).model_fields["system_prompt_filename"].default
        if self.system_prompt is not None and self.system_prompt_filename != own:
            raise ValueError("system_prompt and system_prompt_filename exclude each other; give one of them")
        return self

    @field_validator("include_default_tools")
    @classmethod
    def _are_builtin(cls, value: list[str]) -> list[str]:
        return known_default_tools(value)

    @field_validator("security_policy_filename", mode="before")
    @classmethod
    def _none_is_no_policy(cls, value: Any) -> Any:
        return "" if value is None else value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AgentBase):
            return NotImplemented
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment] # it holds lists, as pydantic's own models that do

    # Abilities: a class of agents says what is different about it

    @property
    def supports_openhands_tools(self) -> bool:
        return True

    @property
    def supports_condenser(self) -> bool:
        return True

    @property
    def supports_openhands_mcp(self) -> bool:
        return True

    @property
    def is_told_of_workspace(self) -> bool:
        """Whether it is told the facts of its workspace, and the skills that messages bring up."""
        return True

    @property
    def condenses_on_overflow(self) -> bool:
        """Whether a history that is too long for the model is condensed; else that is an error."""
        return True

    @property
    def skills_left_out(self) -> frozenset[str]:
        return frozenset()

    # What it is told

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def prompt_dir(self) -> Path:
        """The folder `prompts` beside the module that defines the class; ours where there is none."""
        try:
            found = Path(inspect.getfile(type(self))).parent / "prompts"
        except (OSError, TypeError):  # defined at a prompt, or in a program's text
            return PROMPT_DIR
        return found if found.is_dir() else PROMPT_DIR

    @property
    def static_system_message(self) -> str:
        """The system prompt: the same text for every conversation with the same configuration."""
        if self.system_prompt is not None:
            return self.system_prompt
        return static_message(
            self.prompt_dir,
            self.resolved_system_prompt_filename,
            policy=self.security_policy_filename,
            model=self.llm.model,
            has_browser=self._has_browser,
            remembers=self.agent_context is not None and self.agent_context.load_memory,
            overrides=self.system_prompt_kwargs,
        )

    @property
    def _has_browser(self) -> bool:
        is_wanted = any(canonical_name(tool.name) == "browser_tool_set" for tool in self.tools)
        return is_wanted and (self._tools_map is None or any(tool.needs for tool in self._tools_map.values()))

    @property
    def resolved_system_prompt_filename(self) -> str:
        """The template that is used; a class may have one of its own instead of the common one."""
        return self.system_prompt_filename

    @property
    def dynamic_context(self) -> str | None:
        return self._dynamic_context({})

    def _dynamic_context(self, secrets: Mapping[str, str]) -> str | None:
        context = self.agent_context or (AgentContext() if secrets else None)
        return context.get_system_message_suffix(secrets) if context is not None else None

    @property
    def system_message(self) -> str:
        """Both in one text. Deprecated: what changes in it keeps providers from caching what does not."""
        text = "system_message is deprecated: use static_system_message and dynamic_context"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return "\n\n".join(part for part in (self.static_system_message, self.dynamic_context) if part)

    def init_state(self, state: Any, on_event: Callable[[Any], object]) -> None:
        """Get ready for a conversation: make the tools, and hand `on_event` the system prompt if its log has none.

        `state` has the conversation's `events`, and perhaps its `secret_registry`. A `Conversation` calls it itself;
        calling it again does nothing. Raises as `missing_prompt`.
        """
        schemas = [self.shown_tool(tool) for tool in self.initialize(state).values()]
        registry = getattr(state, "secret_registry", None)
        secrets = registry.descriptions() if registry is not None else {}
        if (prompt := self.missing_prompt(state.events[:FIRST_EVENTS], schemas, secrets=secrets)) is not None:
            on_event(prompt)

    def missing_prompt(
        self,
        first_events: Sequence[AnyEvent],
        tool_schemas: Sequence[dict[str, Any]],
        *,
        version: str | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> SystemPromptEvent | None:
        """The system prompt, if a log that begins with `first_events` lacks it; `secrets` are descriptions by name.

        Raises `AssertionError` where the user has spoken before there was a system prompt.
        """
        for event in first_events[:FIRST_EVENTS]:
            if isinstance(event, SystemPromptEvent):
                return None
            if isinstance(event, MessageEvent) and event.source == "user":
                raise AssertionError("a user's message stands in the log before the system prompt")
        return self.system_prompt_event(tool_schemas, version=version, secrets=secrets)

    def system_prompt_event(
        self,
        tool_schemas: Sequence[dict[str, Any]],
        *,
        version: str | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> SystemPromptEvent:
        context = self._dynamic_context(secrets or {})
        return SystemPromptEvent(
            system_prompt=TextContent(text=self.static_system_message),
            dynamic_context=TextContent(text=context) if context else None,
            tools=list(tool_schemas),
            agent_class=self.name,
            version=version,
        )

    # Its tools

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copy = super().model_copy(update=update, deep=deep)
        copy._tools_map, copy._brought = None, {}
        return copy

    @property
    def tools_map(self) -> dict[str, ToolDefinition]:
        """A new dictionary of the tools by name; raises `RuntimeError` before `initialize` has made them."""
        if self._tools_map is None:
            raise RuntimeError("the agent has no tools yet; a conversation makes them, or initialize()")
        return dict(self._tools_map)

    @property
    def is_initialized(self) -> bool:
        return self._tools_map is not None

    def initialize(self, conv_state: Any = None) -> dict[str, ToolDefinition]:
        """Make the tools, once. Raises as `resolve_tools`."""
        if self._tools_map is None:
            self._tools_map = self.resolve_tools(conv_state)
        return self.tools_map

    def shown_tool(self, tool: ToolDefinition) -> dict[str, Any]:
        return shown_to_model(tool)

    def close(self) -> None:
        """Close the executors of its tools, each once; one that fails is logged. May block."""
        tools = (self._tools_map or {}).values()
        for executor in {id(tool.executor): tool.executor for tool in tools}.values():
            if (close := getattr(executor, "close", None)) is not None:
                try:
                    close()
                except (Exception, SystemExit):
                    logger.exception("an executor could not be closed")

    def add_runtime_tools(self, definitions: Sequence[ToolDefinition], *, client: str = "") -> None:
        """Add tools that are known at run time only, all or none, as far as `filter_tools_regex` lets them.

        They replace those that the same `client` (a name; empty: none) brought before. Raises `RuntimeError` before
        `initialize`, `ValueError` where a name is taken.
        """
        before = self.tools_brought_by(client)
        tools = {name: tool for name, tool in self.tools_map.items() if name not in before}
        others = frozenset(tools)
        for definition in definitions:
            if self.lets_through(definition.name):
                if definition.name in tools:
                    raise ValueError(f"two tools are named {definition.name!r}; names must differ")
                tools[definition.name] = definition
        self._tools_map = tools
        if client:
            self._brought = {**self._brought, client: frozenset(tools.keys() - others)}

    def lets_through(self, name: str) -> bool:
        """Whether `filter_tools_regex` lets a tool of this name be offered; `ValueError`: that takes too long."""
        try:
            return self.filter_tools_regex is None or does_match(self.filter_tools_regex, name)
        except SlowPatternError as error:
            raise ValueError(f"filter_tools_regex: for the tool {name!r} {error}") from None

    def attach_skills(self, found: Sequence[Skill]) -> None:
        """Have the tool for reading skills, added where it is needed, serve those of the workspace too.

        A configured one stays as it is. Raises `RuntimeError` before `initialize`.
        """
        if not any(canonical_name(tool.name) == InvokeSkillTool.tool_name for tool in self.tools):
            context = (self.agent_context or AgentContext()).merged(project=found)
            self._tools_map = {**self.tools_map, **skill_tools(context)}

    def tools_brought_by(self, client: str) -> frozenset[str]:
        return self._brought.get(client, frozenset())

    def resolve_tools(self, conv_state: Any = None) -> dict[str, ToolDefinition]:
        """The tools of this agent by name: its own, as far as `filter_tools_regex` lets them, and the default ones.

        That for skills and that for images are added where they are needed; one of its own with a form for the answers
        of a default tool replaces that. Raises `ToolNotFoundError` for an unregistered tool, `ValueError` where two
        have the same name.
        """
        found = resolve_tools(self.tools, conv_state, shaped=structured)
        own = {name: tool for name, tool in found.items() if self.lets_through(name)}
        named = resolve_tools([Tool(name=name) for name in self.include_default_tools], conv_state)
        defaults = {name: tool for name, tool in named.items() if not isinstance(found.get(name), StructuredTool)}
        if doubled := own.keys() & defaults.keys():
            raise ValueError(f"tools {sorted(doubled)} are given twice: they are among the default tools already")
        tools = {**own, **defaults}
        tools.update(skill_tools(self.agent_context, taken=tools.keys()))
        return {**tools, **vision_tools(self.llm, tools.keys(), stored_models(conv_state))}

    # At work

    def ask_agent(self, question: str) -> str | None:
        """An agent's own way to answer a question about its conversation; None to have its model asked. May block."""
        return None

    @property
    def agent_kind(self) -> str:
        return self.kind

    def model_dump_succint(self, **options: Any) -> dict[str, Any]:
        return self.model_dump(exclude_none=True, **options)

    @property
    def llm_for_drafts(self) -> LLM:
        """The model that writes drafts of edits."""
        return self.llm

    def get_all_llms(self) -> list[LLM]:
        return list(llms_in(self))

    def with_model(self, llm: LLM) -> Self:
        """The same agent with another model, and with the tools that it has made."""
        other = self.model_copy(update={"llm": llm})
        other._tools_map, other._brought = self._tools_map, self._brought
        return other

    def with_additions(self, skills: Sequence[Skill], servers: McpServerMap) -> Self:
        """The same agent, its made tools too, with more skills and MCP servers; its own of the same names stay."""
        context = (self.agent_context or AgentContext(current_datetime=None)).merged(plugin=skills)
        other = self.model_copy(update={"agent_context": context, "mcp_config": {**servers, **self.mcp_config}})
        other._tools_map, other._brought = self._tools_map, self._brought
        if other.is_initialized:
            other.attach_skills(())
        return other

    def verify(
        self,
        persisted: AgentBase,
        events: Iterable[AnyEvent] | None = None,
        *,
        allow_added_tools: bool = False,
        used_tools_only: bool = False,
    ) -> Self:
        """This agent, if it may go on with a conversation that the `persisted` one has begun; else raises `ValueError`.

        It must be of the same class, and have exactly the same tools; with `allow_added_tools` it may have more, with
        `used_tools_only` and the `events` of the log it needs only those that were called. Tools that a server brings
        are not compared; ``TerminalTool`` is ``terminal``.
        """
        used = events if used_tools_only else None
        AgentMark.of(self).check(AgentMark.of(persisted), used, allow_added_tools=allow_added_tools)
        return self

    def step(
        self,
        conversation: Any,
        on_event: Callable[[Any], object] | None = None,
        on_token: Callable[[Any], object] | None = None,
    ) -> None:
        """Take one step in a conversation of this agent's (see `Conversation.step`), and wait for it.

        A class may define it in place of `astep`: it is called in a thread for each step, with a `SteppedConversation`,
        and hands `on_event` what it did; ``super().step(…)`` is the step of the class it comes from. Raises
        `ValueError` for another agent's conversation, `ConversationRunError` where the step failed.
        """
        found = conversation.agent
        rest = {"agent_context": None}  # a conversation completes the context of its agent
        if type(found) is not type(self) or found.model_copy(update=rest) != self.model_copy(update=rest):
            raise ValueError(f"conversation: its agent is another {type(found).__name__}; step that one")
        conversation.step(on_event, on_token)

    @abstractmethod
    async def astep(self, step: StepInput) -> StepOutcome:
        """Ask the model once and turn its answer into events; raises `LLMError`. A class defines it, or else `step`."""


AnyAgent = Annotated[SerializeAsAny[AgentBase], BeforeValidator(lambda value: AgentBase.revive(value))]
"""A field holding any agent, restored to its own class when read back."""


def _check_plugins(cls: type[AgentBase]) -> None:
    names = set()
    for one in cls.sandbox_plugins:
        if not isinstance(one, PluginRequirement):
            raise TypeError(
                f"sandbox_plugins of {cls.__name__}: {one!r} is no PluginRequirement, such as JupyterRequirement()"
            )
        if one.name in names:
            raise ValueError(f"sandbox_plugins of {cls.__name__}: two are called {one.name!r}; names must differ")
        names.add(one.name)
