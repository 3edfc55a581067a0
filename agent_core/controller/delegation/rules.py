"""What a model may not ask of its sub-agents, and what it is told when they were stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from agent_core.controller.delegation.child_run import Order
from agent_core.tools.subagents import MAX_CHILDREN, SpawnedAgent, SubAgentError

MAX_ID_CHARS: Final = 64
MAX_SHOWN: Final = 100
"""Characters of a model's own words in an error."""


def check_ids(ids: Sequence[str], types: Sequence[str], present: Mapping[str, SpawnedAgent]) -> None:
    """Whether sub-agents with these ids may be spawned beside those that are present.

    Raises:
        SubAgentError: they may not.
    """
    if any(not name.strip() for name in ids):
        raise SubAgentError("an id is empty; give each sub-agent a name")
    if strange := [name for name in ids if len(name) > MAX_ID_CHARS or not name.isprintable()]:
        raise SubAgentError(
            f"the id {strange[0][:MAX_SHOWN]!r} is no name: give one line of at most {MAX_ID_CHARS} characters"
        )
    if len(types) > len(ids):
        raise SubAgentError(f"there are {len(types)} agent_types for {len(ids)} ids; give one for each id, or fewer")
    if len(present.keys() | set(ids)) > MAX_CHILDREN:
        raise SubAgentError(
            f"cannot spawn {len(ids)} sub-agents: there are {len(present)} already ({', '.join(present) or 'none'}),"
            f" and at most {MAX_CHILDREN} are allowed. Use one that is there, or replace it by using its id"
        )
    if len(set(ids)) < len(ids):
        raise SubAgentError(f"the ids {', '.join(ids[: MAX_CHILDREN + 1])} are not different from one another")


def told_of_stop(orders: Sequence[Order]) -> str:
    """How an agent can have those go on whose work was stopped."""
    first = orders[0]
    if first.label.startswith("task:"):
        return f"The sub-agent of {first.name} was stopped, too; it goes on when you `resume` it."
    if first.is_class:
        return ""
    names = ", ".join(order.label.partition(":")[2] for order in orders)
    return f"The sub-agents were stopped, too ({names}); they know how far they are when you delegate to them again."
