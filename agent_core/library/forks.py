"""Forks: what a conversation that branches off gets from the one that it comes from."""

from __future__ import annotations

from agent_core.events.llm_events import SystemPromptEvent
from agent_core.events.store import InMemoryEventStore
from agent_core.library.run_loop import RunLoop
from agent_core.library.workspace import GivenSandbox, LocalWorkspace, Workspace
from agent_core.runtime.snapshots import packed, unpack
from agent_core.session.agent_session import AgentSession
from agent_core.session.forks import fork_log


class ForkService:
    """Copies one conversation to another one, which is empty; its coroutines run in the library's loop."""

    def __init__(self, source: RunLoop, target: RunLoop) -> None:
        self._source = source
        self._target = target

    async def opening_prompt(self) -> SystemPromptEvent | None:
        """What the fork's agent is told at its beginning."""
        work = self._target
        connection = await work.sandbox.connection()
        settings, store = work.settings, InMemoryEventStore()
        session = await AgentSession.open(work.conversation_id, store=store, settings=settings, sandbox=connection)
        async with session:
            events = [event async for event in session.stream.history()]
        return next((event for event in events if isinstance(event, SystemPromptEvent)), None)

    async def copy_log(self, upto: int | None, reset_metrics: bool, prompt: SystemPromptEvent | None) -> list[int]:
        """Begin the fork's log; see `fork_log`.

        Raises:
            ValueError: it is not empty.
            NoSuchEventError, EventStoreError: it cannot be done.
        """
        source, target = self._source.log, self._target.log
        if await target.store.last_id(target.conversation_id) >= 0:
            raise ValueError(f"conversation_id: {target.conversation_id!r} has a log already; choose another one")
        return await fork_log(
            (source.store, source.conversation_id),
            (target.store, target.conversation_id),
            upto=upto,
            reset_metrics=reset_metrics,
            prompt=prompt,
        )

    async def copy_files(self, moments: list[int]) -> None:
        """Put the files as they were at the newest of these moments into the fork's workspace.

        Raises:
            SandboxError, ToolError: it cannot be done; the message says why.
        """
        async with self._target.sandbox.for_one_call() as target, self._source.sessions.sandbox_access() as source:
            await unpack(target, packed(source, self._source.conversation_id, moments))


def share_files(one: Workspace, other: Workspace) -> bool:
    """Whether what one of them has is the other one's as well."""
    local = isinstance(one, LocalWorkspace) and isinstance(other, LocalWorkspace)
    return one.working_dir == other.working_dir if local else isinstance(one, GivenSandbox) and one == other
