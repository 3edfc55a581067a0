"""Whether an agent may go on with a conversation that another one has begun (agent-core 2.6)."""

from __future__ import annotations

from collections.abc import Iterable

from agent_core.agent.base import AgentBase
from agent_core.events.llm_events import ActionEvent
from agent_core.events.serialization import AnyEvent
from agent_core.tools.registry import canonical_name


def verify(
    runtime: AgentBase,
    persisted: AgentBase,
    events: Iterable[AnyEvent] | None = None,
    *,
    allow_added_tools: bool = False,
    used_tools_only: bool = False,
) -> AgentBase:
    """The agent to go on with: `runtime`, all of whose configuration counts, when its class and its tools fit.

    By default it must have exactly the tools of the `persisted` one. With `allow_added_tools` it may have more. With
    `used_tools_only` and the `events` of the log it needs only those that were called in it, and may have others. Tools
    that a server brings at run time are not compared; ``TerminalTool`` is ``terminal``.

    Raises:
        ValueError: they do not fit; the message names what is missing and what was added.
    """
    if type(runtime) is not type(persisted):
        raise ValueError(f"the conversation belongs to a {persisted.name} and cannot go on with a {runtime.name}")
    now, before = _names(runtime), _names(persisted)
    if used_tools_only and events is not None:
        used = {canonical_name(event.tool_name) for event in events if isinstance(event, ActionEvent)}
        missing, added = (before & used) - now, set[str]()
    else:
        missing, added = before - now, now - before
    if missing or (added and not allow_added_tools):
        problems = [f"{word} {sorted(names)}" for word, names in (("missing", missing), ("added", added)) if names]
        raise ValueError(f"the tools differ from those the conversation was begun with: {', '.join(problems)}")
    return runtime


def _names(agent: AgentBase) -> set[str]:
    return {canonical_name(name) for name in (*(tool.name for tool in agent.tools), *agent.include_default_tools)}
