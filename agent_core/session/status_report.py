"""`StatusReport`: how a session's sandbox is, as its followers are told it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Literal

from agent_core.errors import EventStoreError, StreamClosedError
from agent_core.events.control import AgentState, AgentStateChanged, ConversationError
from agent_core.events.stream import EventStream
from agent_core.events.transient import (
    DISK_LIMIT,
    NETWORK_WARNING,
    READY,
    SANDBOX_LOST,
    STARTING,
    WAITING_FOR_ENGINE,
    StatusNotice,
)
from agent_core.troubles import Trouble, coded, trouble_of

logger = logging.getLogger(__name__)

FAILED: Final = "STATUS$ERROR"
_TROUBLES: Final = {DISK_LIMIT: Trouble.SANDBOX_DISK_LIMIT, SANDBOX_LOST: Trouble.SANDBOX_LOST}
"""What happens to sandboxes that came up, by its status."""


class StatusReport:
    """Knows and tells the state of a session's sandbox; `is_broken` is for good.

    `warning` is what is wrong with its network, or while the engine is waited for, why.
    """

    def __init__(self, stream: EventStream, on_status: Callable[[str], None] | None) -> None:
        self.status: str = STARTING
        self.warning = ""
        self.is_broken = False
        self._on_status = on_status
        self._stream = stream

    def progress(self, status_id: str, text: str) -> None:
        if status_id == FAILED or self._is_told(status_id, text):
            return  # of a failure the error that follows tells, once and for all
        self._note(status_id if status_id != READY else self.status, text)
        self._stream.publish(StatusNotice(status_id, text))

    def changed(self, status_id: str, text: str) -> None:
        if not self._stream.closed and not self._is_told(status_id, text):
            if status_id != DISK_LIMIT:  # it is as it was, or its stop is told as well
                self._note(status_id, text)
            if (code := _TROUBLES.get(status_id)) is not None:
                self._write_down(code, text)
            level: Literal["info", "error"] = "error" if status_id.startswith(FAILED) else "info"
            self._stream.publish(StatusNotice(status_id, text, level))

    async def broken(self, problem: str, code: str) -> None:
        """Say for good that the session does not go on; the sandbox is as it was."""
        self._stream.publish(StatusNotice(FAILED, problem, "error"))
        await self._store_failure(code, problem)

    async def start_failed(self, kind: str, problem: str) -> None:
        self.enter(FAILED)
        self._stream.publish(StatusNotice(FAILED, problem, "error", start_failed=True))
        await self._store_failure(kind, problem)

    async def _store_failure(self, kind: str, problem: str) -> None:
        failed = AgentStateChanged(agent_state=AgentState.ERROR, reason=f"{kind}: {problem}", detail=problem)
        try:
            await self._stream.add_events([ConversationError(code=kind, detail=problem), failed])
        except (EventStoreError, StreamClosedError) as unwritten:
            where = self._stream.conversation_id
            extra = coded(trouble_of(kind) or Trouble.UNEXPECTED, where)
            logger.error("conversation %s: %s That was not stored: %s", where, problem, unwritten, extra=extra)

    def _is_told(self, status_id: str, text: str) -> bool:
        """An engine is tried once a second."""
        return status_id == WAITING_FOR_ENGINE == self.status and text == self.warning

    def _write_down(self, code: Trouble, text: str) -> None:
        where = self._stream.conversation_id
        logger.warning("conversation %s: %s", where, text, extra=coded(code, where))

    def _note(self, status_id: str, text: str) -> None:
        """A warning is no state: the sandbox's own one goes on beside it."""
        if status_id == NETWORK_WARNING:
            self.warning = text
            return
        if status_id == WAITING_FOR_ENGINE != self.status:
            self._write_down(Trouble.ENGINE_UNAVAILABLE, text)
        self.enter(status_id)
        if status_id == WAITING_FOR_ENGINE:
            self.warning = text

    def enter(self, status_id: str) -> None:
        if status_id == STARTING or self.status == WAITING_FOR_ENGINE:
            self.warning = ""
        self.status = status_id
        if self._on_status is not None:
            self._on_status(status_id)
