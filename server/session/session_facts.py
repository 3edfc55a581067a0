"""What can be asked of a conversation on the server at any moment."""

from __future__ import annotations

import asyncio

from agent_core.llm.llm import LLM, CallContext
from agent_core.runtime.channel.tunnels import PortAccess
from agent_core.skills.skill import Skill
from server.session.agents import LoadedAgent
from server.session.culler import Activity
from server.session.recorder import BUSY_STATES
from server.session.turns import Turns


class WebSessionFacts:
    """The part of a `WebSession` that only tells."""

    connections: set[str]
    users: int
    last_activity: float
    _agent: LoadedAgent | None
    _loading: bool
    _starting: asyncio.Task[None] | None
    _turns: Turns

    @property
    def is_loaded(self) -> bool:
        """Whether it has an open log here, or is about to."""
        return self._agent is not None or self._loading

    @property
    def is_loading(self) -> bool:
        """Whether its log is being opened."""
        return self._loading

    @property
    def is_unused(self) -> bool:
        """Whether nothing would be lost with this object: nothing loaded, nobody connected, nothing under way."""
        return not (self.is_loaded or self.connections or self.users or self._turns.are_awaited)

    @property
    def side_model(self) -> tuple[LLM, CallContext]:
        """The loaded conversation's model and what calls beside its agent are made with; else the demo."""
        agent = self._agent
        return (agent.settings.llm, agent.call_context) if agent is not None else (LLM(), CallContext())

    @property
    def sandbox(self) -> PortAccess | None:
        """The sandbox, once it has come up."""
        return self._agent.sandbox if self._agent is not None and self._agent.is_ready else None

    async def skills(self) -> list[Skill] | None:
        """The skills that the agent may be told; None while it is not there or starts."""
        return await self._agent.skills() if self._agent is not None and self._agent.is_ready else None

    @property
    def is_ready(self) -> bool:
        """Whether sandbox and agent have come up (or have failed to, which the log tells)."""
        return self._agent is not None and (self._agent.is_ready or self._start_failed)

    @property
    def runtime_status(self) -> str | None:
        """Public id of the sandbox's state; None when nothing is loaded."""
        return self._agent.runtime_status if self._agent is not None else None

    @property
    def runtime_warning(self) -> str:
        """What is wrong with the network of its sandbox, for people; empty if nothing is."""
        return self._agent.runtime_warning if self._agent is not None else ""

    @property
    def _start_failed(self) -> bool:
        return self._starting is not None and self._starting.done() and not (self._agent and self._agent.is_ready)

    def activity(self) -> Activity:
        """For the rule that unloads idle conversations."""
        agent = self._agent
        busy = self._loading or (self._starting is not None and not self._starting.done())
        busy = busy or (agent is not None and agent.is_ready and agent.agent_state in BUSY_STATES)
        return Activity(self.last_activity, busy, len(self.connections))
