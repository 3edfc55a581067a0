"""Settings that name what is registered: the types of their fields, each of which refuses a name that nothing has.

What an operator's `modules` register is known from when that setting was read, so it comes before these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator

from agent_core.agent.base import AgentBase
from agent_core.security.analyzers import list_analyzers
from agent_core.session.factory import AGENT_CLASSES
from agent_core.spelling import did_you_mean
from server.listeners import EventListener
from server.settings.extensions import import_modules
from server.settings.llm_profiles import wrong_at
from server.settings.text_fields import OptionalName, Words

_Table = TypeVar("_Table", bound=dict[str, Any])


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    return f"there is no {what} {name!r}; {did_you_mean(name, known)}; a module of your own is named in `modules`"


def _agents() -> set[str]:
    return {one.__name__ for one in AGENT_CLASSES} | AgentBase.agents.keys()


def _imported(names: tuple[str, ...]) -> tuple[str, ...]:
    import_modules(names)
    return names


def _listeners(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in EventListener.listeners:
            raise ValueError(_unknown("event listener", name, EventListener.listeners))
    return names


def _analyzer(name: str | None) -> str | None:
    if name is not None and name not in list_analyzers():
        raise ValueError(_unknown("analyzer", name, list_analyzers()))
    return name


def _agent(name: str) -> str:
    if name not in (agents := _agents()):
        raise ValueError(_unknown("agent", name, agents))
    return name


def _by_agents(table: _Table) -> _Table:
    for name in table:
        if name not in (agents := _agents()):
            raise wrong_at((name,), _unknown("agent", name, agents), name)
    return table


ModuleNames = Annotated[Words, AfterValidator(_imported)]
ListenerNames = Annotated[Words, AfterValidator(_listeners)]
AnalyzerName = Annotated[OptionalName, AfterValidator(_analyzer)]
AgentName = Annotated[str, AfterValidator(_agent)]
ByAgents = AfterValidator(_by_agents)
"""Of a table: its keys are the names of agent classes."""
