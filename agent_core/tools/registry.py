"""Tools by name: what an agent's `Tool` specs resolve to, and the tools that a running conversation has."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeVar

from agent_core.errors import ToolNotFoundError
from agent_core.events.llm_events import ActionEvent
from agent_core.spelling import nearest
from agent_core.tools.definition import ToolDefinition, tool_name_of
from agent_core.tools.spec import Tool

logger = logging.getLogger(__name__)

ToolFactory = Callable[..., Sequence[ToolDefinition]]
"""``(conv_state, **params) -> Sequence[ToolDefinition]``."""

Registrable = ToolDefinition | type[ToolDefinition] | ToolFactory

_FORMER_NAMES = {
    "bash": "terminal",
    "execute_bash": "terminal",
    "i_python": "execute_ipython_cell",  # the class, IPythonTool
    "ipython": "execute_ipython_cell",
    "jupyter": "execute_ipython_cell",
    "llm_based_file_edit": "edit_file",
    "str_replace_editor": "file_editor",
    "vision_inspect": "inspect_image_with_vision",
}
"""Names of older programs and of classes, for tools that are called otherwise."""

Shaping = Callable[[ToolDefinition, dict[str, Any]], ToolDefinition]

ToolT = TypeVar("ToolT", bound=ToolDefinition)

_registered: dict[str, Registrable] = {}
_is_loading = False


def register_tool(name: str, tool: Registrable) -> None:
    """Make `tool` known under `name`: an instance with an executor, a subclass with `create`, or a factory.

    Registering a name again replaces it, with a warning. Raises TypeError (none of these) or ValueError (no name, no
    executor).
    """
    if not name:
        raise ValueError("a tool needs a name")
    if isinstance(tool, ToolDefinition):
        if tool.executor is None:
            raise ValueError(f"tool {name!r} has no executor; give it one with set_executor before registering it")
    elif not callable(tool):
        raise TypeError(f"tool {name!r} must be a ToolDefinition, a subclass of it, or a callable")
    if _is_loading and name in _registered:
        return  # a program's own tool of that name is there already
    if name in _registered and _registered[name] is not tool:
        logger.warning("tool %r is registered again; the last one is used", name)
    _registered[name] = tool


def built_in(tool: type[ToolT]) -> type[ToolT]:
    """Class decorator: registers the tool under its own name."""
    register_tool(tool.name, tool)
    return tool


def resolve_tool(spec: Tool, conv_state: Any = None) -> list[ToolDefinition]:
    """The definitions that `spec` stands for, class-style names (``TerminalTool``) too.

    Raises ToolNotFoundError; TypeError (the factory gave no sequence of definitions); ValueError (parameters for a
    fixed instance, or a form of answers for several tools).
    """
    tool = _registered.get(canonical_name(spec.name))
    if tool is None:
        names = list_registered_tools()
        meant = f" (did you mean {found!r}?)" if (found := nearest(spec.name, names)) else ""
        raise ToolNotFoundError(f"tool {spec.name!r} is not registered{meant}; registered are {names}")
    if isinstance(tool, ToolDefinition):
        if spec.params:
            raise ValueError(f"tool {spec.name!r} is a fixed instance and takes no parameters")
        return [tool]
    factory: Any = tool
    tools = (factory.create if isinstance(tool, type) else factory)(conv_state, **spec.params)
    if (
        not isinstance(tools, Sequence)
        or isinstance(tools, str)
        or not all(isinstance(item, ToolDefinition) for item in tools)
    ):
        raise TypeError(f"the factory of tool {spec.name!r} must return a sequence of ToolDefinition")
    if spec.response_schema is not None and len(tools) != 1:
        raise ValueError(f"response_schema: {spec.name!r} stands for {len(tools)} tools; it must be exactly one")
    return list(tools)


def _load_built_in() -> None:
    global _is_loading
    if not _is_loading:
        _is_loading = True
        try:
            import_module("agent_core.tools.presets")  # it registers them; named, because it stands above
        finally:
            _is_loading = False


@cache
def _tell_of_missing(part: str, fix: str) -> None:
    logger.warning("the agent's tools that need a %s are left out: %s", part, fix)


def resolve_tools(
    specs: Sequence[Tool], conv_state: Any = None, *, shaped: Shaping | None = None
) -> dict[str, ToolDefinition]:
    """All definitions of `specs` by name, in order; ValueError where two have the same name.

    Left out are those whose part the workspace of `conv_state` lacks, which is logged once, with the way to get it.
    `shaped` gives the one of a spec that has a form of answers that form.
    """
    missing: Mapping[str, str] = getattr(getattr(conv_state, "workspace", None), "missing_parts", {})
    found: dict[str, ToolDefinition] = {}
    for spec in specs:
        for definition in resolve_tool(spec, conv_state):
            if definition.needs in missing:
                _tell_of_missing(definition.needs, missing[definition.needs])
                continue
            if definition.name in found:
                raise ValueError(f"two tools are named {definition.name!r}; names must differ")
            form = spec.response_schema
            found[definition.name] = definition if form is None or shaped is None else shaped(definition, form)
    return found


def list_registered_tools() -> list[str]:
    """The names of all registered tools, the built-in ones among them, sorted."""
    return sorted(registered_tools())


def is_tool_usable(name: str) -> bool:
    """Whether there is such a tool, and what it needs is there; a check that fails says no."""
    tool = _registered.get(canonical_name(name))
    if tool is None:
        return False
    check = getattr(tool, "is_usable", None)
    try:
        return check is None or bool(check())
    except Exception:
        logger.warning("tool %r cannot tell whether it is usable, so it is not", name, exc_info=True)
        return False


def list_usable_tools() -> list[str]:
    """The names of the registered tools that are usable here, sorted."""
    return [name for name in list_registered_tools() if is_tool_usable(name)]


def registered_tools() -> Mapping[str, Registrable]:
    """What is registered, by name; the built-in tools are from now on."""
    _load_built_in()
    return dict(_registered)


def canonical_name(name: str) -> str:
    """The name that `resolve_tool` finds the tool under: ``TerminalTool`` is ``terminal``, and the other way round."""
    found = _registered_name(name)
    if found is None:
        _load_built_in()
        found = _registered_name(name)
    if found is not None:
        return found
    plain = tool_name_of(name)
    for known, tool in _registered.items():
        if tool_name_of(known) == plain or (isinstance(tool, type) and tool.__name__ == name):
            return known
    return plain


def _registered_name(name: str) -> str | None:
    plain = tool_name_of(name)
    candidates = (name, plain, _FORMER_NAMES.get(plain, plain))
    return next((candidate for candidate in candidates if candidate in _registered), None)


class LiveTools(Mapping[str, ToolDefinition]):
    """Tools by name, as they are at the moment; whoever needs them to stay takes a copy.

    `wait` waits, within a bound, for tools on their way; `wait_for_all` until it is known of all whether they come.
    """

    def __init__(
        self,
        tools: Mapping[str, ToolDefinition],
        *,
        wait: Callable[[], Awaitable[None]],
        wait_for_all: Callable[[], Awaitable[None]],
    ) -> None:
        self._tools = dict(tools)
        self.wait = wait
        self.wait_for_all = wait_for_all

    def replace(self, tools: Mapping[str, ToolDefinition]) -> None:
        self._tools = dict(tools)

    def __getitem__(self, name: str) -> ToolDefinition:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._tools))

    def __len__(self) -> int:
        return len(self._tools)


async def present_tools(tools: Mapping[str, ToolDefinition]) -> dict[str, ToolDefinition]:
    """The tools for a step, in a dictionary of the caller's own; those that are on their way are waited for."""
    if isinstance(tools, LiveTools):
        await tools.wait()
    return dict(tools)


async def tool_called(name: str, tools: Mapping[str, ToolDefinition]) -> ToolDefinition | None:
    """The tool of this name, which may be on its way still; None when there is none."""
    if name not in tools and isinstance(tools, LiveTools):
        await tools.wait_for_all()
    return tools.get(name)


ALWAYS_THE_USERS: Final = ("terminal", "file_editor", "file_reader", "write_file")
"""Tools with which a user works in the sandbox, and its own set-up, whatever the agent may do there."""


class CallableTools:
    """Finds the tool of a call, among the agent's at that time; None where its caller has none of its name."""

    def __init__(self, tools: Mapping[str, ToolDefinition]) -> None:
        self._tools = tools
        self._users: dict[str, ToolDefinition] = {}

    def of(self, action: ActionEvent) -> ToolDefinition | None:
        name = action.tool_name
        if name in self._tools or action.source == "agent" or name not in ALWAYS_THE_USERS:
            return self._tools.get(name)
        if name not in self._users:
            (self._users[name],) = resolve_tool(Tool(name=name))
        return self._users[name]
