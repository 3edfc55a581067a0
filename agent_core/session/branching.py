"""What a library's conversation can do beside going on: go back in itself, and branch off."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from uuid import uuid4

from agent_core.agent.base import AgentBase
from agent_core.controller.replay import ReplayManager, beginning_of, turns_of
from agent_core.events.branches import Rewind
from agent_core.events.control import LoopRecovery
from agent_core.events.llm_events import SystemPromptEvent
from agent_core.events.store import InMemoryEventStore
from agent_core.runtime.sandbox import Sandbox
from agent_core.session.agent_session import AgentSession
from agent_core.session.conversation_loop import ConversationLoop
from agent_core.session.conversation_state import ConversationView
from agent_core.session.forking import copy_files as copy_workspace
from agent_core.session.forking import fork_log
from agent_core.session.workspace import GivenSandbox, LocalWorkspace, Workspace

T = TypeVar("T")


class Branching(ABC):
    """The part of a `Conversation` that goes back and branches off."""

    agent: AgentBase
    workspace: Workspace
    state: ConversationView
    _work: ConversationLoop

    def navigate_to(self, event_id: int | None) -> None:
        """Go back to right behind this event (None: before the first one), with the files of the workspace.

        What came after it counts no more; it stays in the log, and one can go there again. A run that is under way is
        ended. The next `run` goes on from there, if the agent has something to answer.

        Raises:
            NoSuchEventError: the log has no such event.
        """
        self._do(self._work.between_runs(Rewind(to=-1 if event_id is None else event_id)))

    def rewind(self, event_id: int | None) -> None:
        """The same as `navigate_to`."""
        self.navigate_to(event_id)

    def recover_from_loop(self, option: Literal[1, 2, 3]) -> None:
        """Say what becomes of an agent that is stuck in a loop.

        Option 1: go back to before the loop; 2: go back, and say the last message again, which the next `run` answers;
        3: stop.

        Raises:
            NotStuckError: it is not stuck.
        """
        self._do(self._work.between_runs(LoopRecovery(option=option)))

    def replay(self, trajectory: list[Any]) -> None:
        """Have the next `run` do again what another conversation's log records, before its model is asked.

        The recorded answers stand for those of the model; what comes of their calls is new. What rewinds have undone
        is left out.

        Args:
            trajectory: the events of that log, or their data.

        Raises:
            ValueError: it is no list of events, or the user says nothing in the beginning.
        """
        events = beginning_of(turns_of(ReplayManager.get_replay_events(trajectory)))
        self._do(self._work.say(*events))

    def fork(
        self,
        from_event_id: int | None = None,
        *,
        reset_metrics: bool = True,
        agent: AgentBase | None = None,
        workspace: str | Path | Workspace | Sandbox | None = None,
        conversation_id: object = None,
        copy_files: bool = True,
        title: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Self:
        """A new conversation that begins as this one did up to this event (None: to its end), and is idle.

        Its log has the same events under the same ids up to there, and its workspace is a copy of the files as they
        were then. This conversation is left as it is.

        Args:
            from_event_id: id of the last event that the fork has in common with this conversation.
            reset_metrics: whether the fork begins without costs; else it goes on from what was spent up to there.
            agent: who works in the fork, with other tools perhaps; None: the same.
            workspace: where the fork works; None: beside this one's folder, or in a container of its own.
            conversation_id: the fork's id; a new one if None.
            copy_files: whether the fork's workspace gets the files.
            title: what the fork is called: its tag ``title``.
            tags: words about the fork, beside those of this conversation or in place of them.

        Raises:
            NoSuchEventError: the log has no such event.
            ValueError: the fork's log is not empty, or there is no telling where it works.
            SandboxError: the files cannot be copied.
        """
        named = {} if title is None else {"title": title}
        fork = self._twin(agent, workspace, conversation_id, {**self.state.tags, **(tags or {}), **named})
        try:
            prompt = None if agent is None else fork._do(fork._opening_prompt())
            moments = self._do(self._copy_to(fork, from_event_id, reset_metrics, prompt))
            if copy_files and not _share_files(self.workspace, fork.workspace):
                self._do(self._copy_files_to(fork, moments))
        except BaseException:
            fork.close()
            raise
        return fork

    @abstractmethod
    def close(self) -> None:
        """End it."""

    @abstractmethod
    def _do(self, work: Coroutine[Any, Any, T]) -> T: ...

    def _twin(
        self,
        agent: AgentBase | None,
        workspace: str | Path | Workspace | Sandbox | None,
        conversation_id: object,
        tags: dict[str, str],
    ) -> Self:
        """An empty conversation like this one."""
        settings, fork_id = self._work.settings, str(conversation_id or uuid4())
        make: Any = type(self)
        fork: Self = make(
            agent or self.agent,
            self.workspace.for_fork(fork_id) if workspace is None else workspace,
            max_iteration_per_run=settings.max_iterations,
            conversation_id=fork_id,
            persistence_dir=self.state.persistence_dir,
            secrets=settings.named_secrets,
            max_budget_per_run=settings.max_budget,
            stuck_detection=settings.stuck_detection,
            stuck_detection_thresholds=settings.stuck_thresholds,
            hook_config=settings.hooks,
            tags=tags,
        )
        fork._work.sessions.settings = replace(fork._work.settings, analyzer=settings.analyzer)
        return fork

    async def _opening_prompt(self) -> SystemPromptEvent | None:
        """What the agent is told at the beginning of a conversation like this."""
        work, scratch = self._work, InMemoryEventStore()
        connection = await work.sandbox.connection()
        session = AgentSession(work.conversation_id, store=scratch, settings=work.settings, sandbox=connection)
        await session.open()
        try:
            events = [event async for event in session.stream.history()]
        finally:
            await session.close(stopped=False)
        return next((event for event in events if isinstance(event, SystemPromptEvent)), None)

    async def _copy_to(
        self, fork: Branching, upto: int | None, reset_metrics: bool, prompt: SystemPromptEvent | None
    ) -> list[int]:
        source, target = self._work.log, fork._work.log
        if await target.store.last_id(target.conversation_id) >= 0:
            raise ValueError(f"conversation_id: {target.conversation_id!r} has a log already; choose another one")
        return await fork_log(
            (source.store, source.conversation_id),
            (target.store, target.conversation_id),
            upto=upto,
            reset_metrics=reset_metrics,
            prompt=prompt,
        )

    async def _copy_files_to(self, fork: Branching, moments: list[int]) -> None:
        async with fork._work.sandbox.for_one_call() as target, self._work.sessions.sandbox_access() as source:
            await copy_workspace((source, self._work.conversation_id), moments, target)


def _share_files(one: Workspace, other: Workspace) -> bool:
    local = isinstance(one, LocalWorkspace) and isinstance(other, LocalWorkspace)
    return one.working_dir == other.working_dir if local else isinstance(one, GivenSandbox) and one == other
