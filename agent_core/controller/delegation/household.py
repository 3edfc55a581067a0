"""Where the sub-agents of a conversation come from."""

from __future__ import annotations

from typing import Protocol

from agent_core.agent.base import AgentBase
from agent_core.controller.delegation.child_run import ChildSession, Confirm, Order
from agent_core.controller.delegation.purse import Purse
from agent_core.skills.agent_catalog import AgentKind


class Household(Protocol):
    """Where sub-agents come from: `agent_core.session.subagents` has the one of a session."""

    @property
    def confirm(self) -> Confirm:
        """Decides about actions of sub-agents that a user would be asked for."""
        ...

    async def kind(self, name: str) -> AgentKind:
        """The kind of sub-agent of this name.

        Raises:
            SubAgentError: there is none; the message lists those there are.
        """
        ...

    async def agent(self, order: Order) -> tuple[AgentBase, AgentKind | None]:
        """A fresh agent for an order, and its kind, if it is of one.

        Raises:
            SubAgentError: there is no such agent, or it cannot be made.
        """
        ...

    def session(self, order: Order, agent: AgentBase, kind: AgentKind | None, purse: Purse) -> ChildSession:
        """A session for this agent in a conversation of its own; nothing is opened yet."""
        ...

    async def let_go(self, session: ChildSession) -> None:
        """End what the tools of a sub-agent hold, whose session is closed."""
        ...

    async def end_shells(self, name: str) -> None:
        """End the shells of the sub-agent in this conversation, as far as that can be done."""
        ...
