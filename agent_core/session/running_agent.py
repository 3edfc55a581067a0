"""`RunningAgent`: what follows the log of a session whose sandbox is there."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent_core.agent.vision import ImageQuestions
from agent_core.controller.agent_controller import AgentController, TakeTurn
from agent_core.controller.delegation import Delegation
from agent_core.controller.guards import check_budget, check_limits
from agent_core.controller.state import ControllerState, Limits
from agent_core.errors import EventStoreError
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.memory.memory import Memory
from agent_core.runtime.action_runner import CallServices
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.hook_calls import ConversationHooks
from agent_core.runtime.runtime import Runtime
from agent_core.runtime.snapshots import ConversationSnapshots
from agent_core.session.factory import make_drafts
from agent_core.session.hooks import make_hooks
from agent_core.session.repository import OrganizationSkills
from agent_core.session.subagent_factory import Shared, SubagentFactory, describe_subagent_kinds
from agent_core.skills.loader import skills_in_folder
from agent_core.skills.skill import Skill
from agent_core.tools.registry import LiveTools
from agent_core.troubles import Trouble, coded

logger = logging.getLogger(__name__)

RESTART_SECONDS = (0.1, 1.0, 5.0)
STORE_AGAIN_SECONDS: Final = 0.5
FORGIVEN_SECONDS: Final = 600.0
"""A part that was at work for so long has failed for the first time."""
RUNTIME: Final = "runtime"
UNREADABLE: Final = (
    "The agent has stopped, for a part of this conversation's log cannot be read: {}. What is stored stays as it is;"
    " once it can be read again, send a message to go on."
)

GiveUp = Callable[[str, str], Awaitable[None]]
"""Told why an agent does not go on, and the code of that."""


@dataclass(frozen=True, slots=True)
class RunningAgent:
    """An agent at work in a session: the parts that follow its log."""

    stream: EventStream
    controller: AgentController
    runtime: Runtime
    memory: Memory
    hooks: ConversationHooks
    delegation: Delegation
    snapshots: ConversationSnapshots | None

    async def catch_up(self, *others: Callable[[AnyEvent], object]) -> None:
        parts = (self.controller, self.runtime, self.memory, self.delegation, self.snapshots)
        readers = [*(part.observe for part in parts if part is not None), *others]
        async for event in self.stream.history():
            for observe in readers:
                observe(event)
        await self.controller.rejoin()
        await self.memory.rejoin()

    def follow(self, give_up: GiveUp) -> list[asyncio.Task[None]]:
        """Begin to follow the log until it is closed.

        A part that fails is logged and started again. Where that does not help, or the log cannot be read and that will
        not pass, `give_up` is told, in words for people.
        """
        runs = {RUNTIME: self.runtime.run, "memory": self.memory.run, "agent_controller": self.controller.run}
        if self.snapshots is not None:
            runs["snapshots"] = self.snapshots.run
        where = self.stream.conversation_id
        return [
            asyncio.create_task(self._supervised(name, run, give_up), name=f"{name}:{where}")
            for name, run in runs.items()
        ]

    async def _supervised(self, name: str, run: Callable[[], Coroutine[Any, Any, None]], give_up: GiveUp) -> None:
        # The runtime has let go of what it was at, which only a new session takes up.
        pauses = () if name == RUNTIME else RESTART_SECONDS
        delays = iter(pauses)
        while True:
            began = time.monotonic()
            try:
                return await run()
            except EventStoreError as error:
                if self.stream.closed:
                    return None
                if not error.code or name == RUNTIME:
                    return await give_up(UNREADABLE.format(" ".join(str(error).split())), Trouble.STORAGE_UNREADABLE)
                delay: float | None = STORE_AGAIN_SECONDS  # it passes; the store's owner tells all, once
            except Exception:
                where = self.stream.conversation_id
                extra = coded(Trouble.TASK_RESTARTED, where)
                logger.exception("subscriber %s of conversation %s failed", name, where, extra=extra)
                if self.stream.closed:
                    return None
                if time.monotonic() > began + FORGIVEN_SECONDS:
                    delays = iter(pauses)
                delay = next(delays, None)
            if delay is None:
                problem = f"The {name} of this conversation failed; send a message to go on."
                return await give_up(problem, RuntimeError.__name__)
            await asyncio.sleep(delay)

    async def stop(self) -> None:
        """Enter the state `stopped`, with every step ended and every action answered."""
        async with self.controller.paused():
            if self.controller.state.agent_state is not AgentState.STOPPED:
                await self.stream.add_event(AgentStateChanged(agent_state=AgentState.STOPPED))
            # An action that was stored just before is answered, too, once the runtime has seen it.
            await self.runtime.has_dealt_with(self.stream.newest_id)


async def make_running_agent(
    shared: Shared,
    tools: LiveTools,
    *,
    organization: OrganizationSkills,
    bring: Callable[[Sequence[Skill]], None],
    rewinding: asyncio.Lock,
    max_steps: int | None,
    client_count: Callable[[], int] | None,
    take_turn: TakeTurn,
) -> RunningAgent:
    """The agent of a session whose sandbox is there.

    `bring` has the MCP servers of skills; while `rewinding` is held its parts wait where they must.
    """
    settings, agent, step, stream, sandbox = shared.settings, shared.agent, shared.step, shared.stream, shared.sandbox
    budget = shared.parent.budget if shared.parent is not None else None
    state = ControllerState(Limits(settings.max_iterations, settings.max_budget, per_run=settings.limits_per_run))
    hooks = await make_hooks(shared, tools, lambda: step.gate(controller.state).policy)

    def attach(skills: Sequence[Skill]) -> None:
        agent.attach_skills(skills)
        tools.replace(agent.tools_map)

    async def remarks(facts: Mapping[str, object]) -> str:
        kinds = await describe_subagent_kinds(agent, settings, facts)
        return "\n\n".join(filter(None, [settings.sandbox_remarks, kinds]))

    def check_money() -> None:
        if budget is not None:
            budget.check_money()
        check_budget(state.limits, step.usage.stats.accumulated_cost)

    problems = [*shared.skill_problems, *organization.problems]
    memory = Memory(
        stream,
        sandbox,
        instructions=settings.conversation_instructions,
        repository=settings.git.repository.name if settings.git.repository is not None else "",
        context=agent.agent_context,
        model=agent.llm.model,
        secrets=shared.secrets.descriptions,
        remarks=remarks,
        left_out=agent.skills_left_out,
        is_silent=not agent.is_told_of_workspace,
        attach=attach,
        bring=bring,
        organization=[
            skill
            for folder in organization.folders
            for skill in skills_in_folder(organization.files, folder, report=problems.append).values()
        ],
        problems=problems,
        rewinding=rewinding,
    )
    check = check_limits if budget is None else budget.check
    controller = AgentController(
        stream, agent, state, step, hooks, check=check, steps_left=max_steps, take_turn=take_turn
    )
    delegation = Delegation(
        stream,
        SubagentFactory(shared, lambda: controller.state),
        usage=step.usage,
        state=lambda: controller.state,
        depth=shared.depth,
        above=budget,
    )
    runtime = Runtime(
        stream,
        tools,
        sandbox,
        CallServices(
            secrets=shared.secrets,
            subagents=delegation,
            vision=ImageQuestions(stream, settings.stored_models, step.usage.context, stream.secrets.add),
            draft_model=make_drafts(agent, step.usage, check_money),
        ),
        hooks=hooks,
        rules_for=memory.rules_for,
        concurrency=agent.tool_concurrency_limit,
        client_count=client_count,
    )
    own = isinstance(sandbox, SandboxConnection) and settings.snapshots
    snapshots = ConversationSnapshots(stream, sandbox, tools, rewinding) if own else None
    return RunningAgent(stream, controller, runtime, memory, hooks, delegation, snapshots)
