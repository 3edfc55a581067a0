"""What every agent is: frozen configuration that can be stored, sent and made again (agent-core 2.1)."""

from __future__ import annotations

import inspect
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, ModelWrapValidatorHandler, SerializeAsAny, field_validator, model_validator

from agent_core.agent.abilities import AgentAbilities
from agent_core.agent.critic import AnyCritic
from agent_core.agent.models_in import llms_in
from agent_core.agent.prompt_manager import SECURITY_POLICY, SYSTEM_PROMPT
from agent_core.agent.resume import AgentMark
from agent_core.agent.step_form import StepInput, StepOutcome, SteppingConversation
from agent_core.agent.system_prompt import PROMPT_DIR, static_message
from agent_core.agent.tool_user import ToolUser
from agent_core.agent.vision import vision_tools
from agent_core.events.llm_events import MessageEvent, SystemPromptEvent
from agent_core.events.messages import TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM, AnyLLM
from agent_core.mcp.config import McpConfig
from agent_core.memory.condensers.catalog import AnyCondenser
from agent_core.skills.context import AgentContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import canonical_name

FIRST_EVENTS = 3
"""Among so many events from its beginning a log has its system prompt."""


class AgentBase(AgentAbilities, ToolUser):
    """Configuration of an agent; all state is in the conversation's log.

    Frozen, and serialisable with its `kind`, the class name: `AgentBase.model_validate` and `model_validate_json` make
    the same agent again from what `model_dump` gave, of the class that it names. What it keeps beside its fields, its
    tools once they are made, can be made again from them.

    Attributes:
        llm: the model that reasons.
        tools: by name, from the registry; see `ToolUser` for them and what decides which are used.
        mcp_config: MCP servers by name, whose tools the conversation adds.
        system_prompt: the whole prompt, word for word, instead of a template.
        system_prompt_filename: template in `prompt_dir`, or an absolute path.
        security_policy_filename: the rules of conduct in the prompt, likewise; empty for none.
        system_prompt_kwargs: variables of the template.
        condenser: shortens what the model is shown when it becomes too long.
        critic: judges what the agent did.
    """

    llm: AnyLLM
    mcp_config: McpConfig = Field(default_factory=dict)
    system_prompt: str | None = None
    system_prompt_filename: str = SYSTEM_PROMPT
    security_policy_filename: str = SECURITY_POLICY
    system_prompt_kwargs: dict[str, Any] = Field(default_factory=dict)
    condenser: AnyCondenser | None = None
    critic: AnyCritic | None = None

    agents: ClassVar[dict[str, type[AgentBase]]] = {}
    leaves_on_exit: ClassVar[bool] = False
    """Whether the user's message ``/exit`` ends the task without asking the model."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if not inspect.isabstract(cls):
            AgentBase.agents[cls.__name__] = cls

    @classmethod
    def register(cls, name: str, agent: type[AgentBase]) -> None:
        """Make an agent class known under another name; its own it is known by anyway.

        Raises:
            ValueError: the name is taken.
        """
        if name in AgentBase.agents:
            raise ValueError(f"an agent named {name!r} is registered already; choose another name")
        AgentBase.agents[name] = agent

    @classmethod
    def get_cls(cls, name: str) -> type[AgentBase]:
        """The agent class of this name.

        Raises:
            KeyError: there is none; the message lists those there are.
        """
        if name not in AgentBase.agents:
            raise KeyError(f"agent {name!r} is not known; known are {AgentBase.list_agents()}")
        return AgentBase.agents[name]

    @classmethod
    def list_agents(cls) -> list[str]:
        """The names of all agent classes, sorted."""
        return sorted(AgentBase.agents)

    @model_validator(mode="wrap")
    @classmethod
    def _is_of_its_kind(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not inspect.isabstract(cls) or not isinstance(data, dict):
            return handler(data)
        revived: Self = cls.revive(data)
        return revived

    @field_validator("security_policy_filename", mode="before")
    @classmethod
    def _none_is_no_policy(cls, value: Any) -> Any:
        return "" if value is None else value

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.kind != type(self).__name__:
            raise ValueError(f"kind is {self.kind!r}, but this is a {type(self).__name__}")
        own = type(self).model_fields["system_prompt_filename"].default
        if self.system_prompt is not None and self.system_prompt_filename != own:
            raise ValueError("system_prompt and system_prompt_filename exclude each other; give one of them")
        return self

    def __eq__(self, other: object) -> bool:
        """Whether the configuration is the same; whether the tools are made already makes no difference."""
        if not isinstance(other, AgentBase):
            return NotImplemented
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment] # it holds lists, as pydantic's own models that do

    @property
    def name(self) -> str:
        """The class name."""
        return type(self).__name__

    @property
    def prompt_dir(self) -> Path:
        """The folder `prompts` beside the module that the class is defined in; ours where there is none."""
        try:
            found = Path(inspect.getfile(type(self))).parent / "prompts"
        except (OSError, TypeError):  # defined at a prompt, or in a program's text
            return PROMPT_DIR
        return found if found.is_dir() else PROMPT_DIR

    def ask_agent(self, question: str) -> str | None:
        """An agent's own way to answer a question about its conversation; None to have its model asked. May block."""
        return None

    @property
    def agent_kind(self) -> str:
        """What kind of agent it is, for callers that have to know; ask for its abilities where they will do."""
        return self.kind

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
            has_browser=any(canonical_name(tool.name) == "browser_tool_set" for tool in self.tools),
            remembers=self.agent_context is not None and self.agent_context.load_memory,
            given=self.system_prompt_kwargs,
        )

    @property
    def resolved_system_prompt_filename(self) -> str:
        """The template that is used; a class may have one of its own instead of the common one."""
        return self.system_prompt_filename

    @property
    def dynamic_context(self) -> str | None:
        """What is told of this conversation after the static message; None when there is nothing to say."""
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

    def model_dump_succint(self, **options: Any) -> dict[str, Any]:
        """Like `model_dump`, without what is None."""
        return self.model_dump(exclude_none=True, **options)

    def get_all_llms(self) -> list[LLM]:
        """Each model in this configuration once: the agent's own, its condenser's, and so on."""
        return list(llms_in(self))

    def resolve_tools(self, conv_state: Any = None) -> dict[str, ToolDefinition]:
        tools = super().resolve_tools(conv_state)
        return {**tools, **vision_tools(self.llm, tools.keys())}

    def with_model(self, llm: LLM) -> Self:
        """The same agent with another model, and with the tools that it has made."""
        other = self.model_copy(update={"llm": llm})
        other._tools_map, other._brought = self._tools_map, self._brought
        return other

    def verify(
        self,
        persisted: AgentBase,
        events: Iterable[AnyEvent] | None = None,
        *,
        allow_added_tools: bool = False,
        used_tools_only: bool = False,
    ) -> Self:
        """This agent, which is to go on with a conversation that the `persisted` one has begun, if it may.

        All of its own configuration counts, but it must be of the same class, and have exactly the same tools. With
        `allow_added_tools` it may have more. With `used_tools_only` and the `events` of the log it needs only those
        that were called in it. Tools that a server brings are not compared; ``TerminalTool`` is ``terminal``.

        Raises:
            ValueError: they do not fit; the message names what is missing and what was added.
        """
        used = events if used_tools_only else None
        AgentMark.of(self).check(AgentMark.of(persisted), used, allow_added_tools=allow_added_tools)
        return self

    def init_state(
        self,
        first_events: Sequence[AnyEvent],
        tool_schemas: Sequence[dict[str, Any]],
        *,
        version: str | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> SystemPromptEvent | None:
        """What a log that begins with `first_events` lacks before this agent can work: its system prompt, or nothing.

        `secrets` are the descriptions of the conversation's secrets by name.

        Raises:
            AssertionError: the user has spoken before there was a system prompt (agent-core 1.4).
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
        """The first event of a conversation with this agent; `secrets` as for `init_state`."""
        context = self._dynamic_context(secrets or {})
        return SystemPromptEvent(
            system_prompt=TextContent(text=self.static_system_message),
            dynamic_context=TextContent(text=context) if context else None,
            tools=list(tool_schemas),
            agent_class=self.name,
            version=version,
        )

    def step(
        self,
        conversation: SteppingConversation,
        on_event: Callable[[Any], object] | None = None,
        on_token: Callable[[Any], object] | None = None,
    ) -> None:
        """Take one step in a conversation of this agent's (see `Conversation.step`), and wait for it.

        Raises:
            ValueError: the conversation is another agent's.
            ConversationRunError: the step failed.
        """
        found = conversation.agent
        rest = {"agent_context": None}  # a conversation completes the context of its agent
        if type(found) is not type(self) or found.model_copy(update=rest) != self.model_copy(update=rest):
            raise ValueError(f"conversation: its agent is another {type(found).__name__}; step that one")
        conversation.step(on_event, on_token)

    @abstractmethod
    async def astep(self, step: StepInput) -> StepOutcome:
        """Ask the model once and turn its answer into events.

        Raises:
            LLMError: the call failed for good.
        """


AnyAgent = Annotated[SerializeAsAny[AgentBase], BeforeValidator(lambda value: AgentBase.revive(value))]
"""A field holding any agent, restored to its own class when read back."""
