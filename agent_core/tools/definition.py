"""Tools: what the model may call, how its arguments are checked, and who executes them (agent-core 3.2)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from agent_core.events.schema import Action, Observation, parameters_of
from agent_core.tools.spec import DeclaredResources, ToolAnnotations, ToolContext

ToolExecutor = Callable[[Any, "ToolContext | None"], "Observation | Awaitable[Observation] | Mapping[str, Any]"]
"""``(action, conversation=None) -> Observation``, synchronous (run in a thread) or asynchronous."""

SECURITY_RISK_SCHEMA = {
    "type": "string",
    "enum": ["UNKNOWN", "LOW", "MEDIUM", "HIGH"],
    "description": "How risky this call is: LOW reads only, MEDIUM changes things inside the sandbox, HIGH sends data"
    " out of it or breaks its bounds.",
}
SUMMARY_SCHEMA = {"type": "string", "description": "What this call does, in about ten words, for a person to read."}

_sync_executors = ThreadPoolExecutor(max_workers=8, thread_name_prefix="tool")


class ToolDefinition(BaseModel):
    """One tool as the model sees it, with its executor.

    Subclasses set `name` and override `create`. A definition is immutable; `set_executor` returns a copy.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, extra="forbid")

    name: str
    description: str
    action_type: type[Action]
    observation_type: type[Observation] | None = None
    annotations: ToolAnnotations = Field(default_factory=ToolAnnotations)
    meta: dict[str, Any] = Field(default_factory=dict)
    executor: ToolExecutor | None = Field(default=None, exclude=True, repr=False)

    tool_name: ClassVar[str] = ""
    journaled: ClassVar[bool] = False
    """Whether all that a call does are requests to the sandbox under its `idempotency_key`, so that after a crash of
    the server it can be asked what became of the call. Other calls are never repeated, unless they are idempotent."""

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[ToolDefinition]:
        """The definitions that a `Tool` spec of this class stands for.

        Raises:
            TypeError: a parameter is unknown.
        """
        raise TypeError(f"{cls.__name__} has no create(); register an instance or override create()")

    @classmethod
    def is_usable(cls) -> bool:
        """Whether what the tool needs is there on this host."""
        return True

    def set_executor(self, executor: ToolExecutor) -> Self:
        """A copy of this definition with that executor."""
        return self.model_copy(update={"executor": executor})

    def as_executable(self) -> Self:
        """This definition, known to have an executor.

        Raises:
            NotImplementedError: it has none.
        """
        if self.executor is None:
            raise NotImplementedError(f"tool {self.name!r} has no executor")
        return self

    def declared_resources(self, action: Action) -> DeclaredResources:
        """What a call with these arguments touches; unknown unless a tool says so."""
        return DeclaredResources()

    def action_from_arguments(self, arguments: Mapping[str, Any]) -> Action:
        """The typed action for the model's arguments.

        Raises:
            pydantic.ValidationError: naming the field and the problem.
        """
        return self.action_type.model_validate(dict(arguments))

    async def __call__(self, action: Action, conversation: ToolContext | None = None) -> Observation:
        """Execute one call.

        A synchronous executor runs in a thread of a bounded pool, so it never blocks the loop.

        Raises:
            NotImplementedError: the tool has no executor.
            TypeError: the executor returned something that is no observation.
        """
        executor = self.as_executable().executor
        assert executor is not None  # noqa: S101 - as_executable has checked it
        if inspect.iscoroutinefunction(executor) or inspect.iscoroutinefunction(type(executor).__call__):
            result: Any = executor(action, conversation)
        else:
            result = await asyncio.get_running_loop().run_in_executor(_sync_executors, executor, action, conversation)
        if inspect.isawaitable(result):
            result = await result
        return self._checked(result)

    def _checked(self, result: Any) -> Observation:
        if self.observation_type is not None:
            return self.observation_type.model_validate(
                result if isinstance(result, self.observation_type | Mapping) else result.model_dump()
            )
        if isinstance(result, Observation):
            return result
        if isinstance(result, Mapping):
            return Observation.model_validate(dict(result))
        raise TypeError(f"the executor of {self.name!r} returned {type(result).__name__}, not an Observation")

    def to_openai_tool(self, *, add_security_risk_prediction: bool = False) -> dict[str, Any]:
        """The function-tool schema for chat completions (agent-core 3.3).

        `summary` is always offered, `security_risk` on request and only where the tool can change something; both
        stand first, so that a model writes them first.
        """
        schema = parameters_of(self.action_type)
        extras: dict[str, Any] = {}
        if add_security_risk_prediction and not self.annotations.readOnlyHint:
            extras["security_risk"] = SECURITY_RISK_SCHEMA
        if "summary" not in schema["properties"]:
            extras["summary"] = SUMMARY_SCHEMA
        parameters = {**schema, "properties": {**extras, **schema["properties"]}}
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": parameters},
        }
