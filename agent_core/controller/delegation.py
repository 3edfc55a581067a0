"""Delegation: the sub-agents of one conversation, each in a conversation of its own.

All is folded from the logs: which sub-agents there are from that of the asking conversation, how far each is from its
own. So a call that a crash cut short is simply made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from agent_core.agent.base import AgentBase
from agent_core.controller.child_run import ChildRun, ChildSession, DelegatedTask
from agent_core.controller.state import ControllerState
from agent_core.controller.usage import SubAgentBudget, UsageTracker
from agent_core.errors import EventStoreError, StreamClosedError
from agent_core.events.branches import Branches, Rewind
from agent_core.events.control import MetricsUpdated, SubAgentSpending
from agent_core.events.llm_events import ActionEvent, ObservationEvent, UsageTotals
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.llm.metrics import Metrics
from agent_core.skills.agent_catalog import AgentKind
from agent_core.tools.context import SpawnedAgent, SubAgentError, TaskReport, TaskRun, ToolContext
from agent_core.tools.delegate import AgentDelegateAction, DelegateAction, DelegateObservation, TaskAction
from agent_core.tools.subagents import DEFAULT_TYPE, MAX_CHILDREN, MAX_DEPTH, MAX_RUNS_IN_ANSWER

logger = logging.getLogger(__name__)

MAX_ID_CHARS: Final = 64
MAX_SHOWN: Final = 100
STOP_SECONDS: Final = 5.0
"""Until sub-agents that were told to stop are left alone."""


class SubagentProvider(Protocol):
    """Source of sub-agents: `agent_core.session.subagent_factory` has the one of a session."""

    async def confirm(self, actions: Sequence[ActionEvent]) -> bool:
        """Whether a sub-agent may carry out these actions, which a user would be asked about."""

    async def agent(self, order: DelegatedTask) -> tuple[AgentBase, AgentKind | None]:
        """A fresh agent for an order, and its kind, if it is of one; raises `SubAgentError`."""

    async def session(
        self, order: DelegatedTask, agent: AgentBase, kind: AgentKind | None, budget: SubAgentBudget
    ) -> ChildSession:
        """Open a session for this agent in a conversation of its own; raises `DrydockError`."""

    async def end_shells(self, name: str) -> None:
        """End the shells of the sub-agent in this conversation, as far as that can be done."""


class Delegation:
    """Fulfils `agent_core.tools.subagents.SubAgents` for one session.

    `observe` takes the stored history; what comes later is read when it is needed. `state` gives that of the
    conversation, `above` is the budget that a sub-agent's own conversation spends from, at the nesting `depth` (0: a
    user's).
    """

    def __init__(
        self,
        stream: EventStream,
        provider: SubagentProvider,
        *,
        usage: UsageTracker,
        state: Callable[[], ControllerState],
        depth: int = 0,
        above: SubAgentBudget | None = None,
    ) -> None:
        self._stream = stream
        self._provider = provider
        self._usage = usage
        self._state = state
        self._depth = depth
        self._above = above
        self._roster = Roster()
        self._runs: dict[str, ChildRun] = {}
        self._counted: dict[str, UsageTotals] = {}
        self._stopped: dict[int, str] = {}
        # Protects the sub-agents with ids: calls about them take effect one after the other, in their order.
        self._turn = asyncio.Lock()

    def observe(self, event: AnyEvent) -> None:
        self._roster.fold(event)

    # --- what tools ask for ---

    async def spawn(self, call: ToolContext, ids: Sequence[str], types: Sequence[str]) -> dict[str, SpawnedAgent]:
        async with self._turn:
            await self._admit()
            present = self._roster.spawned
            check_ids(ids, types, present)
            kinds = [types[place].strip() if place < len(types) else "" for place in range(len(ids))]
            requested = {
                name: SpawnedAgent(agent_type=kind or DEFAULT_TYPE, name=f"delegate-{call.action_id}-{place}")
                for place, (name, kind) in enumerate(zip(ids, kinds, strict=True), 1)
            }
            for name, spawned in requested.items():
                await self._provider.agent(self._order(call, name, spawned, ""))
            for replaced in present.keys() & requested.keys():
                await self._provider.end_shells(present[replaced].name)
            return requested

    async def delegate(self, call: ToolContext, tasks: Mapping[str, str]) -> list[TaskReport]:
        async with self._turn:
            await self._admit(call)
            present = self._roster.spawned
            if missing := [name for name in tasks if name not in present]:
                known, names = ", ".join(present) or "none", ", ".join(missing[:MAX_CHILDREN])[:MAX_SHOWN]
                raise SubAgentError(f"there is no sub-agent {names}; spawn it first. There are: {known}")
            if empty := [name for name, task in tasks.items() if not task.strip()]:
                raise SubAgentError(f"the task of {', '.join(empty)} is empty; say what is to be done")
            orders = [self._order(call, name, present[name], task) for name, task in tasks.items()]
            return await self._carry_out(call, orders)

    async def task(self, call: ToolContext, prompt: str, agent_type: str, *, resume: str | None) -> TaskRun:
        await self._admit(call)
        task_id = resume or self._roster.task_ids.get(call.action_id, "")
        if task_id not in self._roster.tasks:
            known = ", ".join(self._roster.tasks) or "none"
            raise SubAgentError(f"there is no task {task_id[:MAX_SHOWN]!r} to resume; there are: {known}")
        if not prompt.strip():
            raise SubAgentError("the prompt is empty; say what is to be done")
        kind = self._roster.tasks[task_id]
        order = DelegatedTask(task_id, f"task:{task_id}", kind, prompt, call.idempotency_key)
        return TaskRun(task_id, kind, await self._one(call, order))

    async def ask(self, call: ToolContext, agent: str, task: str) -> TaskReport:
        await self._admit(call)
        name = f"delegate-{call.action_id}"
        order = DelegatedTask(name, f"delegate:{agent}", agent, task, call.idempotency_key, is_class=True)
        return await self._one(call, order)

    async def suspend(self) -> None:
        """Let go of all that are at work, who go on when the call is made again."""
        await asyncio.gather(*(run.suspend() for run in self._runs.values()))

    def stopped_by(self, action_id: int) -> str:
        return self._stopped.pop(action_id, "")

    # --- how it is done ---

    async def _admit(self, call: ToolContext | None = None) -> None:
        """Read the log so far, and refuse where sub-agents, or for `call` their work, are not to be had."""
        while page := await self._stream.page(after=self._roster.position):
            for event in page:
                self._roster.fold(event)
        if self._depth >= MAX_DEPTH:
            raise SubAgentError(
                f"sub-agents may be nested {MAX_DEPTH} deep, and this is one of the deepest: do it yourself"
            )
        place = self._roster.places.get(call.action_id, 1) if call is not None else 1
        if place > MAX_RUNS_IN_ANSWER:
            raise SubAgentError(
                f"at most {MAX_RUNS_IN_ANSWER} calls in one answer may put sub-agents to work, and this is number"
                f" {place}: nothing was begun. Read the results of the others first"
            )

    def _order(self, call: ToolContext, agent_id: str, spawned: SpawnedAgent, task: str) -> DelegatedTask:
        return DelegatedTask(spawned.name, f"delegate:{agent_id}", spawned.agent_type, task, call.idempotency_key)

    async def _one(self, call: ToolContext, order: DelegatedTask) -> TaskReport:
        await self._provider.agent(order)
        try:
            (report,) = await self._carry_out(call, [order])
        finally:
            if not self._stream.closed:  # else the session only lets go, and what runs goes on
                await self._provider.end_shells(order.name)
        return report

    async def _carry_out(self, call: ToolContext, orders: Sequence[DelegatedTask]) -> list[TaskReport]:
        """Have all orders carried out at the same time; cancelled, stop them, unless the session itself ends."""
        tasks = [
            asyncio.create_task(self._run(call, order), name=f"subagent:{self._stream.conversation_id}:{order.name}")
            for order in orders
        ]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            if not self._stream.closed:
                self._stopped[call.action_id] = stop_notice(orders)
                await self._stop([self._runs[order.name] for order in orders if order.name in self._runs], tasks)
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return [task.result() for task in tasks]

    async def _run(self, call: ToolContext, order: DelegatedTask) -> TaskReport:
        try:
            agent, kind = await self._provider.agent(order)
        except SubAgentError as error:
            return TaskReport("", str(error))
        if order.name in self._runs:
            return TaskReport("", "It is at work already; wait for the result of that call.")
        budget = SubAgentBudget(self._usage, self._state, order.label, self._above)
        run = self._runs[order.name] = ChildRun(
            order,
            partial(self._provider.session, order, agent, kind, budget),
            confirm=self._provider.confirm,
            on_spending=lambda spent, answers: self._note(call, order, budget, spent, answers),
            show=call.emit_output,
        )
        try:
            return await run.run()
        finally:
            del self._runs[order.name]

    async def _stop(self, runs: Sequence[ChildRun], tasks: Sequence[asyncio.Task[TaskReport]]) -> None:
        try:
            async with asyncio.timeout(STOP_SECONDS):
                for result in await asyncio.gather(*(run.stop() for run in runs), return_exceptions=True):
                    if isinstance(result, Exception):
                        logger.warning(
                            "a sub-agent of %s was not told to stop: %s", self._stream.conversation_id, result
                        )
                await asyncio.wait(tasks)
        except TimeoutError:
            logger.warning("sub-agents of %s did not stop in time", self._stream.conversation_id)

    async def _note(
        self, call: ToolContext, order: DelegatedTask, budget: SubAgentBudget, spent: UsageTotals, answers: int
    ) -> None:
        known = self._counted.get(order.name)
        if known is None:
            # Before the first call of this process: what an earlier one has spent, and did not get to write down.
            known = self._roster.spent.get(order.name, UsageTotals())
            total = Metrics(spent.accumulated_cost, spent.usage)
            budget.add(total.diff(Metrics(known.accumulated_cost, known.usage)))
        spent = UsageTotals(accumulated_cost=spent.accumulated_cost, usage=spent.usage)
        self._counted[order.name] = spent
        if spent == known:
            return
        spending = SubAgentSpending(name=order.name, spent=spent, iterations=answers if order.is_class else 0)
        updated: AnyEvent = MetricsUpdated(cause=call.action_id, metrics=self._usage.note(), sub_agent=spending)
        try:
            await self._stream.add_event(updated)
        except StreamClosedError:
            return
        except EventStoreError as error:  # what cannot be stored now is contained in what is written next
            logger.warning("what the sub-agent %s has cost is not stored yet: %s", order.name, error)


class Roster:
    """The sub-agents by id, the tasks by number, and what each has cost; takes the events in the order of their ids.

    A fork has none of its parent's. `task_ids` are by the id of the action that began the task, and never given again;
    `spent` is by conversation name, as far as the log counts it; `places` numbers the newest answer's calls for
    sub-agents from 1.
    """

    def __init__(self) -> None:
        self.position = -1
        self.task_ids: dict[int, str] = {}
        self.spent: dict[str, UsageTotals] = {}
        self._branches = Branches()
        self._spawns: list[tuple[int, dict[str, SpawnedAgent]]] = []
        self._kinds: dict[int, str] = {}
        self._response_id = ""
        self.places: dict[int, int] = {}

    def fold(self, event: AnyEvent) -> None:
        if event.id <= self.position:
            return
        self.position = event.id
        self._branches.fold(event)
        match event:
            case ActionEvent(action=action):
                if event.llm_response_id != self._response_id or not event.llm_response_id:
                    self._response_id, self.places = event.llm_response_id, {}
                if isinstance(action, TaskAction) and not action.resume:
                    self.task_ids[event.id] = f"task_{len(self.task_ids) + 1:08x}"
                    self._kinds[event.id] = action.subagent_type
                is_task = isinstance(action, TaskAction | AgentDelegateAction)
                if is_task or (isinstance(action, DelegateAction) and action.command == "delegate"):
                    self.places[event.id] = len(self.places) + 1
            case ObservationEvent(observation=DelegateObservation() as made) if made.command == "spawn":
                self._spawns.append((event.cause, made.spawned))
            case Rewind() if event.forked_from:  # the sub-agents, and what they know, stay where they are
                self._spawns, self._kinds, self.spent = [], {}, {}
            case MetricsUpdated() if event.sub_agent is not None:
                self.spent[event.sub_agent.name] = event.sub_agent.spent

    @property
    def spawned(self) -> dict[str, SpawnedAgent]:
        """The waiting sub-agents by id, without those that a rewind has undone."""
        found: dict[str, SpawnedAgent] = {}
        for action_id, made in self._spawns:
            if self._branches.has(action_id):
                found.update(made)
        return found

    @property
    def tasks(self) -> dict[str, str]:
        """The kind of sub-agent by task id, without those that a rewind has undone."""
        return {
            self.task_ids[action_id]: kind for action_id, kind in self._kinds.items() if self._branches.has(action_id)
        }


def check_ids(ids: Sequence[str], types: Sequence[str], present: Mapping[str, SpawnedAgent]) -> None:
    """Raise `SubAgentError` where sub-agents with these ids may not be spawned beside the present ones."""
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


def stop_notice(orders: Sequence[DelegatedTask]) -> str:
    """How an agent can have sub-agents go on whose work was stopped."""
    first = orders[0]
    if first.label.startswith("task:"):
        return f"The sub-agent of {first.name} was stopped, too; it goes on when you `resume` it."
    if first.is_class:
        return ""
    names = ", ".join(order.label.partition(":")[2] for order in orders)
    return f"The sub-agents were stopped, too ({names}); they know how far they are when you delegate to them again."
