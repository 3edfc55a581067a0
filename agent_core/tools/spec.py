"""What a tool is to an agent's configuration, and what an executor is given for one call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from agent_core.events.messages import Frozen, Message
from agent_core.events.schema import Observation

if TYPE_CHECKING:
    from agent_core.tools.subagents import SubAgents
    from agent_core.tools.vision_inspect import Vision

from agent_core.events.control import ClientToolResult


class Tool(Frozen):
    """A tool by name with its parameters, resolved through the registry when a conversation starts.

    `response_schema`, a JSON schema of an object, gives the form of what the model says through the tool instead of its
    one text, which holds the object as JSON then: ``Tool(name="finish", response_schema=…)`` is a structured answer.
    """

    name: str = Field(min_length=1)
    params: dict[str, Any] = Field(default_factory=dict)
    response_schema: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _form_among_params(cls, value: Any) -> Any:
        """Programs of other libraries give the form as one of the parameters."""
        params = value.get("params") if isinstance(value, dict) else None
        if not isinstance(params, dict) or "response_schema" not in params:
            return value
        others = {name: given for name, given in params.items() if name != "response_schema"}
        return {"response_schema": params["response_schema"], **value, "params": others}

    @field_validator("response_schema", mode="before")
    @classmethod
    def _form_of_a_model(cls, value: Any) -> Any:
        """A program may give a pydantic model in place of its schema."""
        is_model = isinstance(value, type) and issubclass(value, BaseModel)
        return value.model_json_schema() if is_model else value

    @field_validator("params", mode="before")
    @classmethod
    def _none_means_empty(cls, value: Any) -> Any:
        return {} if value is None else value


def _checked_regex(value: str | None) -> str | None:
    try:
        re.compile(value or "")
    except re.error as error:
        raise ValueError(f"{value!r} is no regular expression: {error}") from None
    return value


MAX_REGEX_CHARS: Final = 1_000
NamesRegex = Annotated[Annotated[str, Field(max_length=MAX_REGEX_CHARS)] | None, AfterValidator(_checked_regex)]
"""A field with a regular expression for names of tools, or None."""


class ToolAnnotations(Frozen):
    """Hints about a tool, with the names and defaults of the Model Context Protocol."""

    model_config = ConfigDict(strict=True)

    title: str | None = None
    readOnlyHint: bool = False  # noqa: N815 - the protocol's own spelling
    destructiveHint: bool = True  # noqa: N815
    idempotentHint: bool = False  # noqa: N815
    openWorldHint: bool = True  # noqa: N815

    @classmethod
    def read_only(cls, title: str, *, open_world: bool = False) -> Self:
        """Those of a tool that only looks, which can be called again without harm."""
        return cls(title=title, readOnlyHint=True, destructiveHint=False, idempotentHint=True, openWorldHint=open_world)


class DeclaredResources(Frozen):
    """What a call touches, so that calls which cannot disturb one another may run together.

    `declared` False: unknown, the whole tool is locked. Declared and empty: nothing is locked.
    """

    keys: tuple[str, ...] = ()
    declared: bool = False


@dataclass(frozen=True, slots=True)
class WorkspacePlace:
    """Where a conversation works; `working_dir` is an absolute path as its commands see it."""

    working_dir: str


@dataclass(frozen=True, slots=True)
class ToolMakerState:
    """What a tool's factory is told about the conversation (its `conv_state`)."""

    id: str
    workspace: WorkspacePlace


class SandboxReply(Protocol):
    """The answer to one request to the sandbox."""

    @property
    def result(self) -> dict[str, Any]: ...

    @property
    def blob(self) -> bytes | None: ...


class SandboxAccess(Protocol):
    """How a tool's executor reaches the conversation's sandbox."""

    @property
    def working_dir(self) -> str:
        """Absolute path of the workspace inside the sandbox."""
        ...

    async def request(
        self,
        op: str,
        args: Mapping[str, Any],
        *,
        key: str | None = None,
        limit_seconds: float | None = None,
        on_output: Callable[[str], None] | None = None,
        blob: bytes | None = None,
    ) -> SandboxReply:
        """Ask the runner for one operation; starts or revives the sandbox if need be.

        With a `key` the operation runs at most once, however often it is asked for. When the caller is cancelled the
        operation is cancelled in the sandbox. `limit_seconds` is the outer limit, longer than any inside.

        Raises ToolError: the runner refused the arguments; SandboxLostError: the sandbox went away; whether the
        operation took effect is unknown; SandboxError: the sandbox cannot be had; the message says why and what
        to do.
        """
        ...


class DraftModel(Protocol):
    """The model that writes out what an agent has drafted."""

    async def answer(self, messages: Sequence[Message]) -> str:
        """What it says; the conversation pays for it. Cancelling ends the request.

        Raises ToolError: it cannot be asked; the message says why.
        """
        ...


class ToolContext(Protocol):
    """What an executor is told about the call that it serves."""

    conversation_id: str
    action_id: int
    hard_timeout: float | None
    hidden: bool
    """Whether the call is for its caller only, not for the agent: then what it returns is not cut for a model."""
    at_once: bool
    """Whether its caller does not wait for others: a terminal that is busy says so, and input is answered soon."""

    @property
    def latest(self) -> Observation | None:
        """The tool's newest result in this conversation; None where there is none, or the tool does not `remember`."""
        ...

    @property
    def sandbox(self) -> SandboxAccess: ...

    @property
    def subagents(self) -> SubAgents | None:
        """The sub-agents of the conversation; None where there cannot be any."""
        ...

    @property
    def vision(self) -> Vision | None:
        """The images of the conversation, and who can look at them; None outside of one."""
        ...

    @property
    def draft_model(self) -> DraftModel | None:
        """What writes out drafts; None where there is no conversation."""
        ...

    @property
    def clients(self) -> Clients | None:
        """The clients of the conversation, who may carry out calls; None where it is in no log that they follow."""
        ...

    @property
    def idempotency_key(self) -> str:
        """``conversation_id:event_id``: the same for each attempt at the same action."""
        ...

    async def secrets_for(self, command: str) -> dict[str, str]:
        """The values of the secrets that `command` names, as variables for it; hidden wherever they appear."""
        ...

    def emit_output(self, text: str) -> None:
        """Show output of the running call live; nothing is stored."""
        ...

    async def request_condensation(self) -> None:
        """Have the history condensed before the agent's next step, where the agent has a condenser for that."""
        ...


ToolFamily = Literal["sandbox", "local"]


class Clients(Protocol):
    """The clients that follow one conversation."""

    async def ask(
        self, action_id: int, name: str, arguments: Mapping[str, Any], limit_seconds: float
    ) -> ClientToolResult:
        """Have one of them carry out a call; one that a crash cut short finds the answer given meanwhile.

        Raises ToolError: none has answered in time; the message says so.
        """
        ...
