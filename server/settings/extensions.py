"""An operator's own code: `import_modules` has it register what settings then name, `class_at` finds its classes."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from agent_core.agent.base import AgentBase
from agent_core.agent.critic import CriticBase
from agent_core.events.schema import Tagged
from agent_core.llm.llm import LLM
from agent_core.memory.condenser import Condenser
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.tools.registry import registered_tools
from server.errors import ConfigurationError
from server.listeners import EventListener

OURS = ("agent_core.", "server.")

_T = TypeVar("_T")
_registered: dict[str, dict[str, list[str]]] = {}


def import_modules(names: Iterable[str]) -> None:
    """Import the modules of these names, in this order; `registered` then says what each has brought.

    Raises `ValueError`: one cannot be imported; the message has its name, and the last line of its traceback.
    """
    for name in names:
        before = _by_name()
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise ValueError(f"the module {name!r} cannot be imported: {last_line(error)}") from error
        if name not in _registered:  # a module is run once in a process, however often it is named
            _registered[name] = _news(before, _by_name())


def registered() -> Mapping[str, Mapping[str, list[str]]]:
    """What the imported modules have registered: the names by their kind, by module."""
    return _registered


def last_line(error: BaseException) -> str:
    """The last line of the error's traceback, and where in whose code it was raised."""
    said = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SyntaxError):  # the code was not run: no frame says where
        return f"{said} ({error.filename}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = frames[-1] if frames and frames[-1].filename != __file__ else None
    return f"{said} ({where.filename}, line {where.lineno})" if where is not None else said


def _by_name() -> dict[str, dict[str, Any]]:
    def own(classes: Mapping[str, type]) -> dict[str, type]:
        return {name: one for name, one in classes.items() if not one.__module__.startswith(OURS)}

    critics = {name: one for name, one in Tagged.classes.items() if issubclass(one, CriticBase)}
    routers = {getattr(one, "router_name", ""): one for one in LLM.classes.values()}
    return {
        "tools": dict(registered_tools()),
        "agents": own(AgentBase.agents),
        "condensers": own(Condenser.makers),
        "security analyzers": own(SecurityAnalyzer.classes),
        "critics": own(critics),
        "routers": own({name: one for name, one in routers.items() if name}),
        "event listeners": own(EventListener.listeners),
    }


def _news(before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    found = {
        kind: sorted(name for name, one in known.items() if before[kind].get(name) is not one)
        for kind, known in now.items()
    }
    return {kind: names for kind, names in found.items() if names}


def class_at(dotted_path: str, base: type[_T], *, setting: str) -> type[_T]:
    """The class at that path, else `ConfigurationError` naming the `setting`.

    It is a subclass of `base`, or, where that is a protocol, a class that defines everything in it.
    """
    module, _, name = dotted_path.rpartition(".")
    if not module:
        raise ConfigurationError(f"{setting}: {dotted_path!r} is no dotted path, such as my_company.drydock.{name}")
    try:
        found: Any = getattr(importlib.import_module(module), name)
    except AttributeError as error:
        raise ConfigurationError(f"{setting}: {dotted_path!r} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:  # a module of somebody's own may raise anything
        raise ConfigurationError(f"{setting}: {dotted_path!r} cannot be imported: {last_line(error)}") from error
    if not isinstance(found, type):
        raise ConfigurationError(f"{setting}: {dotted_path!r} is no class")
    if getattr(base, "_is_protocol", False):
        names = [one for one in vars(base) if not one.startswith("_")]
        missing = [one for one in names if getattr(found, one, None) in (None, getattr(base, one))]
    elif issubclass(found, base):
        missing = list(getattr(found, "__abstractmethods__", ()))
    else:
        raise ConfigurationError(f"{setting}: {dotted_path!r} is no subclass of {base.__name__}")
    if missing:
        raise ConfigurationError(
            f"{setting}: {dotted_path!r} is no {base.__name__}: it does not define {', '.join(sorted(missing))}"
        )
    made: type[_T] = found
    return made
