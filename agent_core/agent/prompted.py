"""What an agent is told before anything else: its system prompt."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field, field_validator

from agent_core.agent.prompt_manager import SECURITY_POLICY, SYSTEM_PROMPT
from agent_core.agent.system_prompt import PROMPT_DIR, static_message
from agent_core.agent.tool_user import ToolUser
from agent_core.events.llm_events import MessageEvent, SystemPromptEvent
from agent_core.events.messages import TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import AnyLLM
from agent_core.skills.context import AgentContext
from agent_core.tools.registry import canonical_name

FIRST_EVENTS = 3
"""Among so many events from its beginning a log has its system prompt."""


class BeginningState(Protocol):
    """What `Prompted.init_state` looks at: a conversation's events, and its `secret_registry` if it has one."""

    @property
    def events(self) -> Sequence[Any]:
        """The events, from the first one."""
        ...


class Prompted(ToolUser):
    """Configuration of a model and what it is told: the same text for all conversations, and each one's own.

    Attributes:
        llm: the model that reasons.
        system_prompt: the whole prompt, word for word, instead of a template.
        system_prompt_filename: template in `prompt_dir`, or an absolute path.
        security_policy_filename: the rules of conduct in the prompt, likewise; empty for none.
        system_prompt_kwargs: variables of the template.
    """

    llm: AnyLLM
    system_prompt: str | None = None
    system_prompt_filename: str = SYSTEM_PROMPT
    security_policy_filename: str = SECURITY_POLICY
    system_prompt_kwargs: dict[str, Any] = Field(default_factory=dict)

    @field_validator("security_policy_filename", mode="before")
    @classmethod
    def _none_is_no_policy(cls, value: Any) -> Any:
        return "" if value is None else value

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

    def init_state(self, state: BeginningState, on_event: Callable[[Any], object]) -> None:
        """Get ready for a conversation: make the tools, and hand `on_event` the system prompt if its log has none.

        A `Conversation` does so itself, before its agent works. Doing it again does nothing.

        Raises:
            AssertionError: the user has spoken before there was a system prompt.
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
        """What a log that begins with `first_events` lacks before this agent can work: its system prompt, or nothing.

        `secrets` are the descriptions of the conversation's secrets by name.

        Raises:
            AssertionError: the user has spoken before there was a system prompt.
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
        """The first event of a conversation with this agent; `secrets` as for `missing_prompt`."""
        context = self._dynamic_context(secrets or {})
        return SystemPromptEvent(
            system_prompt=TextContent(text=self.static_system_message),
            dynamic_context=TextContent(text=context) if context else None,
            tools=list(tool_schemas),
            agent_class=self.name,
            version=version,
        )
