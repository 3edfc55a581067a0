"""Whether an agent may go on with a conversation that another one has begun."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from agent_core.agent.tool_user import ToolUser
from agent_core.events.llm_events import ActionEvent
from agent_core.events.messages import Frozen
from agent_core.events.serialization import AnyEvent
from agent_core.tools.registry import canonical_name


class AgentMark(Frozen):
    """What has to be the same of an agent that goes on: its class, and its tools by their usual names.

    Tools that a server brings at run time are not among them.
    """

    kind: str
    tools: frozenset[str]

    @classmethod
    def of(cls, agent: ToolUser) -> Self:
        """The mark of an agent."""
        names = (*(tool.name for tool in agent.tools), *agent.include_default_tools)
        return cls(kind=agent.kind, tools=frozenset(map(canonical_name, names)))

    def check(
        self, before: AgentMark, used: Iterable[AnyEvent] | None = None, *, allow_added_tools: bool = False
    ) -> None:
        """Whether an agent with this mark may go on after one with the mark `before`.

        With `used` (the events of the log) only the tools that were called in them must be there, and others may be.

        Raises:
            ValueError: it may not; the message names what is missing and what was added.
        """
        if self.kind != before.kind:
            raise ValueError(f"the conversation belongs to a {before.kind} and cannot go on with a {self.kind}")
        needed, added = before.tools, self.tools - before.tools
        if used is not None:
            called = {canonical_name(event.tool_name) for event in used if isinstance(event, ActionEvent)}
            needed, added = needed & called, frozenset()
        missing = needed - self.tools
        if missing or (added and not allow_added_tools):
            found = (("missing", missing), ("added", added))
            problems = [f"{word} {sorted(names)}" for word, names in found if names]
            raise ValueError(
                f"the tools differ from those the conversation was begun with: {', '.join(problems)};"
                " use the same tools, or fork the conversation"
            )
