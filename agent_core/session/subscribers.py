"""The subscribers of one session's stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from agent_core.agent.vision import ImageQuestions
from agent_core.controller.agent_controller import AgentController
from agent_core.controller.delegation import Delegation
from agent_core.controller.guards import check_budget, check_limits
from agent_core.controller.state import ConversationState, Limits
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.memory.memory import Memory
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.hook_calls import ConversationHooks
from agent_core.runtime.runtime import Runtime
from agent_core.runtime.snapshots import ConversationSnapshots
from agent_core.session.factory import make_drafts, make_memory
from agent_core.session.hooks import make_hooks
from agent_core.session.subagent_factory import Shared
from agent_core.tools.registry import LiveTools


class Observer(Protocol):
    """Folds the log."""

    def observe(self, event: AnyEvent) -> None:
        """Take the next stored event into account."""
        ...


@dataclass(frozen=True, slots=True)
class SessionSubscribers:
    """The subscribers of one session's stream."""

    controller: AgentController
    runtime: Runtime
    memory: Memory
    hooks: ConversationHooks
    delegation: Delegation
    snapshots: ConversationSnapshots | None

    async def catch_up(self, stream: EventStream, *others: Observer) -> None:
        """Tell all of them, and the others, what is in the log by now."""
        own: tuple[Observer, ...] = (self.controller, self.runtime, self.memory, self.delegation)
        readers = (*own, *others) if self.snapshots is None else (*own, self.snapshots, *others)
        async for event in stream.history():
            for reader in readers:
                reader.observe(event)
        await self.controller.rejoin()
        await self.memory.rejoin()

    async def stop(self, stream: EventStream) -> None:
        """Enter the state `stopped`, with no step under way any more and every action answered.

        Raises:
            StreamClosedError: the session is closed.
            EventStoreError: it could not be stored.
        """
        async with self.controller.held():
            if self.controller.state.agent_state is not AgentState.STOPPED:
                await stream.add_event(AgentStateChanged(agent_state=AgentState.STOPPED))
            # An action that was stored just before is answered, too, once the runtime has seen it.
            await self.runtime.has_dealt_with(stream.newest_id)

    def runs(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
        """What follows the live log, by name."""
        runs = {"runtime": self.runtime.run, "memory": self.memory.run, "agent_controller": self.controller.run}
        return {**runs, "snapshots": self.snapshots.run} if self.snapshots is not None else runs


async def make_subscribers(
    shared: Shared,
    tools: LiveTools,
    *,
    rewinding: asyncio.Lock,
    max_steps: int | None,
    client_count: Callable[[], int] | None,
) -> SessionSubscribers:
    """The subscribers of a session whose sandbox is there; they have seen nothing of the log yet.

    While `rewinding` is held those wait that must not act then. After `max_steps` (None: without a limit) an agent
    that would go on is paused.
    """
    settings, agent, step, stream, sandbox = shared.settings, shared.agent, shared.step, shared.stream, shared.sandbox
    state = ConversationState(Limits(settings.max_iterations, settings.max_budget, per_run=settings.limits_per_run))
    hooks = await make_hooks(settings, agent, tools, step, stream, sandbox, lambda: step.gate(controller.state).policy)
    memory = make_memory(settings, agent, tools, shared.secrets, stream, sandbox, rewinding)
    check = shared.parent.budget.check if shared.parent is not None else check_limits
    controller = AgentController(stream, agent, state, step, hooks, check=check, steps_left=max_steps)
    delegation = shared.delegation(lambda: controller.state)
    drafts = make_drafts(agent, step.usage, partial(_check_money, shared, state))
    runtime = Runtime(
        stream,
        tools,
        sandbox,
        secrets=shared.secrets,
        hooks=hooks,
        rules_for=memory.rules_for,
        subagents=delegation,
        vision=ImageQuestions(stream, step.usage.context, stream.secrets.add),
        draft_model=drafts,
        concurrency=agent.tool_concurrency_limit,
        client_count=client_count,
    )
    own = isinstance(sandbox, SandboxConnection) and settings.snapshots
    snapshots = ConversationSnapshots(stream, sandbox, tools, rewinding) if own else None
    return SessionSubscribers(controller, runtime, memory, hooks, delegation, snapshots)


def _check_money(shared: Shared, state: ConversationState) -> None:
    if shared.parent is not None:
        shared.parent.budget.check_money()
    check_budget(state.limits, shared.step.usage.stats.accumulated_cost)
