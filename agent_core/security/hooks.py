"""Hooks: programs of the user's that are told about what happens, and may stop some of it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from agent_core.bounded_regex import (
    SlowPatternError,
    check_pattern,
    does_match,
    refuse_slow,
)
from agent_core.events.messages import Frozen

HOOK_FILE: Final = ".openhands/hooks.json"
"""Where hooks are configured: in the project's folder, or else in the home directory."""
MAX_MATCHERS: Final = 200

logger = logging.getLogger(__name__)


class HookEvent(StrEnum):
    """When hooks are run."""

    PRE_TOOL_USE = "PreToolUse"
    POST_TOOL_USE = "PostToolUse"
    USER_PROMPT_SUBMIT = "UserPromptSubmit"
    SESSION_START = "SessionStart"
    SESSION_END = "SessionEnd"
    STOP = "Stop"

    @property
    def can_block(self) -> bool:
        """Whether a hook may stop what is about to happen: a call, a message, or the agent's coming to rest."""
        return self in {HookEvent.PRE_TOOL_USE, HookEvent.USER_PROMPT_SUBMIT, HookEvent.STOP}


class _Hook(Frozen):
    """What all hooks have: a name for people, a timeout in seconds; other keys are left aside."""

    name: str | None = None
    timeout: float = Field(default=60.0, gt=0)

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, serialize_by_alias=True)


class CommandHook(_Hook):
    """A shell command that gets a `HookInput` on its standard input; with `async` nobody waits, and it cannot block."""

    type: Literal["command"] = "command"
    command: str = Field(min_length=1)
    is_async: bool = Field(default=False, alias="async")


class _Question(_Hook):
    """A hook that asks a model: it is always waited for, and no command."""

    prompt: str = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _is_no_command(cls, value: Any) -> Any:
        wrong = [key for key in ("async", "command") if isinstance(value, Mapping) and value.get(key)]
        if wrong:
            raise ValueError(f"{wrong[0]}: only hooks of type 'command' have it")
        return value


class PromptHook(_Question):
    """A question to the model, in one call."""

    type: Literal["prompt"] = "prompt"


class AgentHook(_Question):
    """A question to an agent, for at most `max_iterations` steps with the conversation's tools, or those of `tools`.

    As data the question may also be called ``system_prompt``.
    """

    other_options: ClassVar[tuple[str, ...]] = ("system_prompt",)

    type: Literal["agent"] = "agent"
    tools: tuple[str, ...] = ()
    max_iterations: int = Field(default=3, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _system_prompt_is_the_question(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("system_prompt") and not value.get("prompt"):
            return {**value, "prompt": value["system_prompt"]}
        return value


Hook = Annotated[CommandHook | PromptHook | AgentHook, Field(discriminator="type")]

_METACHARACTERS = re.compile(r"[*?+.|()\[\]{}^$\\]")


class HookMatcher(Frozen):
    """Hooks for the tools that `matcher` names.

    ``*`` or nothing: all tools. ``/regex/``, or a text with special characters of one: the whole name matches. Else:
    the exact name.
    """

    matcher: str = "*"
    hooks: tuple[Hook, ...] = ()

    model_config = ConfigDict(frozen=True, extra="ignore")

    @field_validator("hooks", mode="before")
    @classmethod
    def _type_is_command_by_default(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return [{"type": "command", **hook} if isinstance(hook, dict) else hook for hook in value]

    @field_validator("matcher")
    @classmethod
    def _is_readable(cls, matcher: str) -> str:
        pattern = _pattern_of(matcher)
        if pattern is not None:
            try:
                check_pattern(pattern)
            except ValueError as error:
                raise ValueError(f"matcher: {error}") from None
        return matcher

    def matches(self, tool_name: str) -> bool:
        """Whether these hooks are meant for the tool; events without a tool match by ``*`` or nothing only.

        Where that takes too long to find out they are: what may hold back is asked once more than is needed.
        """
        if self.matcher.strip() in {"", "*"}:
            return True
        pattern = _pattern_of(self.matcher)
        try:
            return self.matcher == tool_name if pattern is None else does_match(pattern, tool_name, "fullmatch")
        except SlowPatternError as error:
            logger.warning("hooks are asked about %r, although nobody knows whether they want it: %s", tool_name, error)
            return True


def _pattern_of(matcher: str) -> str | None:
    if matcher.strip() in {"", "*"}:
        return None
    if len(matcher) > 1 and matcher.startswith("/") and matcher.endswith("/"):
        return matcher[1:-1]
    return matcher if _METACHARACTERS.search(matcher) else None


class HookConfig(Frozen):
    """All hooks of a conversation, by event; as data the events may also stand alone, without the key `hooks`."""

    hooks: dict[HookEvent, tuple[HookMatcher, ...]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _outer_key_may_be_left_out(cls, value: Any) -> Any:
        return value if not isinstance(value, Mapping) or "hooks" in value else {"hooks": value}

    @field_validator("hooks", mode="before")
    @classmethod
    def _keys_in_any_spelling(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        merged: dict[HookEvent, list[Any]] = {}
        for key, matchers in value.items():
            if not isinstance(matchers, list | tuple):
                raise ValueError(f"hooks for {key!r} must be a list of matchers, not {type(matchers).__name__}")
            merged.setdefault(event_named(str(key)), []).extend(matchers)
        return merged

    @field_validator("hooks")
    @classmethod
    def _matchers_are_quick(
        cls, hooks: dict[HookEvent, tuple[HookMatcher, ...]]
    ) -> dict[HookEvent, tuple[HookMatcher, ...]]:
        matchers = [one.matcher for several in hooks.values() for one in several]
        if len(matchers) > MAX_MATCHERS:
            raise ValueError(f"there are {len(matchers)} matchers; at most {MAX_MATCHERS} are taken")
        refuse_slow(filter(None, map(_pattern_of, matchers)))
        return hooks

    @classmethod
    def load(cls, path: str | Path | None = None, working_dir: str | Path | None = None) -> Self:
        """The configuration in `path`, else of the project in `working_dir`, else of the home; empty without one.

        ValueError says where and why a file holds no configuration; OSError: it cannot be read.
        """
        places = [Path(path)] if path else [Path(working_dir or Path.cwd()) / HOOK_FILE, Path.home() / HOOK_FILE]
        found = next((place for place in places if place.is_file()), None)
        return cls() if found is None else cls.from_json(found.read_text(encoding="utf-8"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The configuration in a file: ``{"hooks": {event: [...]}}``, or the inner object; else ValueError."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"hooks are no JSON: {error}") from None
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """As `from_json`, of data."""
        if not isinstance(data, dict):
            raise ValueError(f"hooks must be an object, not {type(data).__name__}")
        try:
            return cls.model_validate({"hooks": data.get("hooks", data)})
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors(include_url=False)
            )
            raise ValueError(f"hooks are not valid: {problems}") from None

    def followed_by(self, other: HookConfig) -> HookConfig:
        """These hooks, then those of `other` that are not among them."""
        both = dict(self.hooks)
        for event, matchers in other.hooks.items():
            both[event] = tuple(dict.fromkeys((*both.get(event, ()), *matchers)))
        return self.model_copy(update={"hooks": both})

    def for_event(self, event: HookEvent, tool_name: str = "") -> tuple[CommandHook | PromptHook | AgentHook, ...]:
        return tuple(
            hook for matcher in self.hooks.get(event, ()) if matcher.matches(tool_name) for hook in matcher.hooks
        )


def event_named(name: str) -> HookEvent:
    """The event of this name, in ``PascalCase`` or ``snake_case``; the ValueError lists those there are."""
    plain = name.replace("_", "").lower()
    for event in HookEvent:
        if event.value.lower() == plain:
            return event
    raise ValueError(f"hook event {name!r} is not known; known are {[event.value for event in HookEvent]}")


class HookInput(Frozen):
    """What a hook is told, as JSON on its standard input and in part in its environment."""

    event_type: HookEvent
    tool_name: str | None = None
    tool_input: dict[str, Any] | None = None
    tool_response: dict[str, Any] | None = None
    message: str | None = None
    session_id: str | None = None
    working_dir: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    def to_json(self, *, exclude_none: bool = False) -> str:
        """The same as a JSON text; half characters, which it cannot express, have become ``?``."""
        data = self.model_dump(mode="json", exclude_none=exclude_none)
        return json.dumps(data, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")

    def environment(self) -> dict[str, str]:
        return {
            "OPENHANDS_PROJECT_DIR": self.working_dir or "",
            "OPENHANDS_SESSION_ID": self.session_id or "",
            "OPENHANDS_EVENT_TYPE": self.event_type.value,
            "OPENHANDS_TOOL_NAME": self.tool_name or "",
        }
