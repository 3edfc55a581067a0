"""Tools: what the model may call, how its arguments are checked, and who executes them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Generic, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticUndefined

from agent_core.errors import ToolError
from agent_core.events.messages import ImageContent, TextContent
from agent_core.events.schema import Action, Observation, parameters_of
from agent_core.spelling import SpelledModel, nearest
from agent_core.tools.context import ToolContext
from agent_core.tools.execution import ActionT, ObservationT, execute, execute_now, exit_as_error
from agent_core.tools.spec import DeclaredResources, ToolAnnotations

SECURITY_RISK_SCHEMA = {
    "type": "string",
    "enum": ["UNKNOWN", "LOW", "MEDIUM", "HIGH"],
    "description": "How risky this call is: LOW reads only, MEDIUM changes things inside the sandbox, HIGH sends data"
    " out of it or breaks its bounds.",
}
SUMMARY_SCHEMA = {"type": "string", "description": "What this call does, in about ten words, for a person to read."}


def tool_name_of(class_name: str) -> str:
    """The class name in snake case without its ``Tool``: ``GrepTool`` is ``grep``; a ``…ToolSet`` keeps all of it."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", class_name).lower()
    return snake if snake.endswith("_tool_set") else snake.removesuffix("_tool")


class _ToolClass(SpelledModel):
    """Gives a tool's class its `name`: its own (``name = "grep"``), or what its class is called."""

    def __new__(mcs, name: str, bases: tuple[type[Any], ...], namespace: dict[str, Any], **kwargs: Any) -> type:
        if bases and isinstance(namespace.get("name"), str):
            namespace["tool_name"] = namespace.pop("name")
            namespace.get("__annotations__", {}).pop("name", None)
        return super().__new__(mcs, name, bases, namespace, **kwargs)

    @property
    def name(cls) -> str:
        return getattr(cls, "tool_name", "") or tool_name_of(cls.__name__)


class ToolDefinition(BaseModel, Generic[ActionT, ObservationT], metaclass=_ToolClass):
    """One tool as the model sees it, with its executor; immutable.

    A subclass overrides `create`, or gives values for the fields and the executor as `function`, `executor_class` or
    `make_executor`. Its `name` is by default the class's (``GrepTool``: ``grep``), its types are those of
    ``ToolDefinition[GrepAction, GrepObservation]``.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, extra="forbid", hide_input_in_errors=True)

    name: str = Field(default="", min_length=1)
    description: str
    action_type: type[Action]
    observation_type: type[Observation] | None = None
    annotations: ToolAnnotations = Field(default_factory=ToolAnnotations)
    meta: dict[str, Any] = Field(default_factory=dict)
    executor: Callable[..., Any] | None = Field(default=None, exclude=True, repr=False)

    tool_name: ClassVar[str] = ""
    needs: ClassVar[str] = ""
    """The part of a sandbox without which the tool is not offered, such as ``browser``."""
    function: ClassVar[Callable[..., Any] | None] = None
    """Carries out every call, where no parameters are needed; a static method."""
    executor_class: ClassVar[Callable[[], Callable[..., Any]] | None] = None
    journaled: ClassVar[bool] = False
    """Whether all that a call does are sandbox requests under its `idempotency_key`, to be found again after a crash.
    Other calls are never repeated, unless they are idempotent.
    """
    resumable: ClassVar[bool] = False
    """Whether a call that a crash cut short can be made again and then goes on."""
    remembers: ClassVar[bool] = False
    """Whether a call is told the tool's newest result in the log (`ToolContext.latest`), which is its state."""
    tells_when_busy: ClassVar[bool] = False
    """Whether the tool itself refuses a `ToolContext.at_once` call while what it touches is in use; others wait."""
    resources: ClassVar[tuple[str, ...] | None] = None
    """What every call touches, whatever its arguments; None where that is unknown (see `declared_resources`)."""

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, values: Any) -> Any:
        return {"name": cls.name, **_types_of(cls), **values} if isinstance(values, Mapping) else values

    @classmethod
    def create(cls, *args: Any, **params: Any) -> Sequence[ToolDefinition]:
        """The definitions that a `Tool` spec of this class stands for; called as ``create(conv_state, **params)``.

        Here one, with the parameter `executor`, or one made of the parameters. TypeError: a parameter is unknown.
        """
        return [cls._define(**params)]

    @classmethod
    def _define(cls, **params: Any) -> Self:
        return cls.model_validate({"executor": cls._executor_from(**params)})

    @classmethod
    def _executor_from(cls, *, executor: Callable[..., Any] | None = None, **params: Any) -> Callable[..., Any]:
        if executor is not None and not callable(executor):
            raise TypeError(f"executor of {cls.name} is a {type(executor).__name__}; it must be callable")
        try:
            return cls.make_executor(**params) if executor is None else executor
        except TypeError as error:
            own = inspect.signature(cls.create).parameters.values()
            created = [one.name for one in own if one.kind is one.KEYWORD_ONLY]
            known = ["executor", *inspect.signature(cls.make_executor).parameters, *created]
            meant = [one for name in sorted(params.keys() - set(known)) if (one := nearest(name, known)) is not None]
            hint = f", and you probably mean {', '.join(meant)}" if meant else ""
            problem = f"{cls.name} cannot be made with the parameters {sorted(params)}"
            raise TypeError(f"{problem}: {error}; it takes {known}{hint}") from None

    @classmethod
    def make_executor(cls) -> Callable[..., Any]:
        """What carries out the calls; parameters by name, with defaults, are those of a `Tool` spec."""
        if cls.executor_class is not None:
            return cls.executor_class()
        if cls.function is None:
            ways = "register an instance, or give it a function, make_executor or create"
            raise TypeError(f"{cls.__name__} has no create(): {ways}")
        return cls.function

    @classmethod
    def is_usable(cls) -> bool:
        """Whether what the tool needs is there on this host."""
        return True

    def reaches_running(self, action: Action) -> bool:
        """Whether this is meant for a call of the tool that runs, as input is, and must not wait for its end."""
        return False

    @property
    def waits_for_client(self) -> bool:
        """Whether a call ends with what a client of the conversation answers."""
        return False

    def set_executor(self, executor: Callable[..., Any]) -> Self:
        return self.model_copy(update={"executor": executor})

    def as_executable(self) -> Self:
        """This definition; NotImplementedError where it has no executor."""
        if self.executor is None:
            raise NotImplementedError(f"tool {self.name!r} has no executor")
        return self

    def declared_resources(self, action: Action) -> DeclaredResources:
        return _resources(self.resources)

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of its arguments, always that of an object with ``properties``; not to be changed."""
        return parameters_of(self.action_type)

    def action_from_arguments(self, arguments: Mapping[str, Any]) -> Action:
        """The typed action for the model's arguments. Raises ValueError: naming the field and the problem."""
        values = dict(arguments)
        if values.pop("kind", self.action_type.__name__) != self.action_type.__name__:
            raise ToolError("kind: Extra inputs are not permitted")  # or else the action could be read as another one
        return self.action_type.model_validate(values)

    def __call__(self, action: Action, conversation: ToolContext | None = None) -> Observation:
        """Execute one call and wait for its result, for programs that are not asynchronous; raises as `acall` does."""
        return self._checked(execute_now(self._executor, action, conversation))

    async def acall(self, action: Action, conversation: ToolContext | None = None) -> Observation:
        """Execute one call; a synchronous executor runs in a thread.

        Raises NotImplementedError without an executor, TypeError where the result is no observation.
        """
        with exit_as_error():
            return self._checked(await execute(self._executor, action, conversation))

    @property
    def _executor(self) -> Callable[..., Any]:
        executor = self.as_executable().executor
        assert executor is not None  # noqa: S101 - as_executable has checked it
        return executor

    def _checked(self, result: Any) -> Observation:
        kind = self.observation_type or Observation
        if not isinstance(result, kind):
            if isinstance(result, BaseModel):
                result = result.model_dump(exclude={"kind"})
            if self.observation_type is None and not isinstance(result, Mapping):
                raise TypeError(f"the executor of {self.name!r} returned {type(result).__name__}, not an Observation")
            try:
                result = kind.model_validate(result)
            except ValidationError as error:
                problems = "; ".join(problem["msg"] for problem in error.errors(include_url=False, include_input=False))
                raise TypeError(f"the executor of {self.name!r} returned no {kind.__name__}: {problems}") from error
        observation: Observation = result
        content = observation.to_llm_content
        parts = (TextContent, ImageContent)
        if not isinstance(content, Sequence) or not all(isinstance(part, parts) for part in content):
            raise TypeError(f"{type(observation).__name__}.to_llm_content is no list of TextContent and ImageContent")
        return observation

    def to_openai_tool(self, *, add_security_risk_prediction: bool = False) -> dict[str, Any]:
        """The function-tool schema for chat completions; `summary` and, unless it only reads, its risk come first."""
        return {"type": "function", "function": self._function(add_security_risk_prediction)}

    def to_responses_tool(self, *, add_security_risk_prediction: bool = False) -> dict[str, Any]:
        """The function-tool schema for the Responses API: `to_openai_tool` in one level, not strict."""
        return {"type": "function", **self._function(add_security_risk_prediction), "strict": False}

    def to_mcp_tool(self) -> dict[str, Any]:
        """The tool as a server of the Model Context Protocol lists it, without the arguments added for our agents."""
        shown: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.parameters,
            "annotations": self.annotations.model_dump(exclude_none=True),
        }
        if self.observation_type is not None:
            shown["outputSchema"] = parameters_of(self.observation_type)
        if self.meta:
            shown["_meta"] = dict(self.meta)
        return shown

    def _function(self, add_security_risk_prediction: bool) -> dict[str, Any]:
        schema = self.parameters
        extras: dict[str, Any] = {}
        asks = add_security_risk_prediction and not self.annotations.readOnlyHint
        if asks and "security_risk" not in schema["properties"]:
            extras["security_risk"] = SECURITY_RISK_SCHEMA
        if "summary" not in schema["properties"]:
            extras["summary"] = SUMMARY_SCHEMA
        parameters = {**schema, "properties": {**extras, **schema["properties"]}}
        return {"name": self.name, "description": self.description, "parameters": parameters}


@lru_cache(maxsize=256)
def _resources(keys: tuple[str, ...] | None) -> DeclaredResources:
    return DeclaredResources(keys=keys or (), declared=keys is not None)


def _types_of(tool: type[ToolDefinition]) -> dict[str, type]:
    """The types that stand in the brackets behind its base class, where its fields do not say them."""
    args = (base.__pydantic_generic_metadata__["args"] for base in tool.__mro__ if issubclass(base, ToolDefinition))
    bounds: dict[str, type] = {"action_type": Action, "observation_type": Observation}
    return {
        name: found
        for (name, bound), found in zip(bounds.items(), next(filter(None, args), ()), strict=False)
        if isinstance(found, type) and issubclass(found, bound)
        if tool.model_fields[name].default in (PydanticUndefined, None)
    }
