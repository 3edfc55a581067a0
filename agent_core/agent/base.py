"""What every agent is: frozen configuration that can be stored, sent and made again."""

from __future__ import annotations

import abc
import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, Field, SerializeAsAny, model_validator

from agent_core.agent.critic import AnyCritic
from agent_core.agent.prompted import Prompted
from agent_core.agent.resume import AgentMark
from agent_core.agent.step_form import StepInput, StepOutcome, SteppingConversation
from agent_core.agent.synchronous import bridged
from agent_core.agent.vision import vision_tools
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM
from agent_core.mcp.config import McpConfig
from agent_core.memory.condensers.catalog import AnyCondenser
from agent_core.skills.context import AgentContext
from agent_core.skills.skill import Skill
from agent_core.tools.definition import ToolDefinition


def llms_in(value: Any) -> Iterator[LLM]:
    """Each object in `value` that is an `LLM`, once; of a subclass, such as a router, only what it is made of.

    Fields of models, dictionaries, lists, tuples and sets are entered, cycles too; dataclasses are not. What is yielded
    are the objects themselves.
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
        waiting.extend(reversed(list(_parts(found))))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, BaseModel):
        return [getattr(value, name) for name in type(value).model_fields]
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple | set | frozenset) else ()


class AgentAbilities:
    """The abilities of an ordinary agent; a class of agents says what is different about it."""

    @property
    def supports_openhands_tools(self) -> bool:
        """Whether it uses tools of the registry."""
        return True

    @property
    def supports_condenser(self) -> bool:
        """Whether its history is condensed by its `condenser`."""
        return True

    @property
    def supports_openhands_mcp(self) -> bool:
        """Whether it uses the tools of MCP servers."""
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
        """Names of skills that it is never told of, wherever they come from."""
        return frozenset()


class AgentBase(AgentAbilities, Prompted):
    """Configuration of an agent; all state is in the conversation's log.

    Frozen, and serialisable with its `kind`, the class name: `AgentBase.model_validate` and `model_validate_json` make
    the same agent again from what `model_dump` gave, of the class that it names. What it keeps beside its fields, its
    tools once they are made, can be made again from them.

    Attributes:
        llm, system_prompt and others: see `Prompted`.
        tools: by name, from the registry; see `ToolUser` for them and what decides which are used.
        mcp_config: MCP servers by name, whose tools the conversation adds.
        condenser: shortens what the model is shown when it becomes too long.
        critic: judges what the agent did.
    """

    mcp_config: McpConfig = Field(default_factory=dict)
    condenser: AnyCondenser | None = None
    critic: AnyCritic | None = None

    agents: ClassVar[dict[str, type[AgentBase]]] = {}
    leaves_on_exit: ClassVar[bool] = False
    """Whether the user's message ``/exit`` ends the task without asking the model."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if (astep := bridged(cls)) is not None:
            cls.astep = astep  # type: ignore[assignment, method-assign] # the class has said in `step` what it does
            abc.update_abstractmethods(cls)
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

    def ask_agent(self, question: str) -> str | None:
        """An agent's own way to answer a question about its conversation; None to have its model asked. May block."""
        return None

    @property
    def agent_kind(self) -> str:
        """What kind of agent it is, for callers that have to know; ask for its abilities where they will do."""
        return self.kind

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

    def with_additions(self, skills: Sequence[Skill], servers: McpConfig) -> Self:
        """The same agent with these skills and MCP servers besides, and with the tools that it has made, if it has.

        Its own of the same names stay; a tool for reading skills is added where there are some to be read.
        """
        context = (self.agent_context or AgentContext(current_datetime=None)).merged(project=skills)
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

    def step(
        self,
        conversation: SteppingConversation,
        on_event: Callable[[Any], object] | None = None,
        on_token: Callable[[Any], object] | None = None,
    ) -> None:
        """Take one step in a conversation of this agent's (see `Conversation.step`), and wait for it.

        A class of agents may define it in place of `astep`: it is called in a thread for each step, with a
        `SteppedConversation`, and hands `on_event` what it did; ``super().step(…)`` is the step of the class it comes
        from.

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

        A class of agents defines it, or else `step`.

        Raises:
            LLMError: the call failed for good.
        """


AnyAgent = Annotated[SerializeAsAny[AgentBase], BeforeValidator(lambda value: AgentBase.revive(value))]
"""A field holding any agent, restored to its own class when read back."""
