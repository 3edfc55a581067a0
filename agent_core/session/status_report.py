"""`StatusReport`: what a session says of its sandbox and of its start, to its owner, its stream, and its log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Literal

from agent_core.errors import EventStoreError, StreamClosedError
from agent_core.events.control import AgentState, AgentStateChanged, ConversationError
from agent_core.events.stream import EventStream
from agent_core.events.transient import NETWORK_WARNING, StatusNotice
from agent_core.runtime.disk import DISK_LIMIT

logger = logging.getLogger(__name__)

READY: Final = "STATUS$READY"
STARTING: Final = "STATUS$STARTING_RUNTIME"
FAILED: Final = "STATUS$ERROR"


class StatusReport:
    """Knows and tells the state of a session's sandbox; `warning` is about its network, `is_broken` is for good."""

    def __init__(self, stream: EventStream, on_status: Callable[[str], None] | None) -> None:
        self.status: str = STARTING
        self.warning = ""
        self.is_broken = False
        self._on_status = on_status
        self._stream = stream

    def progress(self, status_id: str, text: str) -> None:
        if status_id == FAILED:
            return  # the error that follows says it, once and for all
        self._note(status_id if status_id != READY else self.status, text)
        self._stream.publish(StatusNotice(status_id, text))

    def ready(self) -> None:
        self._set(READY)

    def changed(self, status_id: str, text: str) -> None:
        if not self._stream.closed:
            if status_id != DISK_LIMIT:  # it is as it was, or its stop is told as well
                self._note(status_id, text)
            level: Literal["info", "error"] = "error" if status_id.startswith(FAILED) else "info"
            self._stream.publish(StatusNotice(status_id, text, level))

    async def broken(self, problem: str) -> None:
        """Say for good that the session does not go on; the sandbox is as it was."""
        self.is_broken = True
        self._stream.publish(StatusNotice(FAILED, problem, "error"))
        await self._store_failure("RuntimeError", problem)

    async def start_failed(self, kind: str, problem: str) -> None:
        self._set(FAILED)
        self._stream.publish(StatusNotice(FAILED, problem, "error", start_failed=True))
        await self._store_failure(kind, problem)

    async def _store_failure(self, kind: str, problem: str) -> None:
        failed = AgentStateChanged(agent_state=AgentState.ERROR, reason=f"{kind}: {problem}", detail=problem)
        try:
            await self._stream.add_events([ConversationError(code=kind, detail=problem), failed])
        except (EventStoreError, StreamClosedError) as unwritten:
            where = self._stream.conversation_id
            logger.error("conversation %s: its failure was not stored: %s", where, unwritten)

    def _note(self, status_id: str, text: str) -> None:
        """A warning is no state: the sandbox's own one goes on beside it."""
        if status_id == NETWORK_WARNING:
            self.warning = text
            return
        if status_id == STARTING:
            self.warning = ""
        self._set(status_id)

    def _set(self, status_id: str) -> None:
        self.status = status_id
        if self._on_status is not None:
            self._on_status(status_id)
