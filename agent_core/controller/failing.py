"""A step that failed: its user is told at once, and the log as soon as it can be written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from agent_core.controller.account import Account
from agent_core.controller.guards import error_events, failure_of
from agent_core.errors import DrydockError, EventStoreError, StaleOwnerError, StreamClosedError
from agent_core.events.control import AgentState
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice

logger = logging.getLogger(__name__)

STORE_RETRY_SECONDS: Final = 2.0
"""Until a state that could not be stored is tried again."""


class Enter(Protocol):
    """Enters a state, `because` of these events, which stand in the log before it."""

    async def __call__(
        self, state: AgentState, *, reason: str = "", detail: str = "", because: Sequence[AnyEvent] = ()
    ) -> None: ...


class Failing:
    """Takes a conversation into the state `error`.

    Attributes:
        error: what its agent failed with the last time; None where it never did.
    """

    def __init__(self, stream: EventStream, account: Account, enter: Enter) -> None:
        self._stream = stream
        self._account = account
        self._enter = enter
        self.error: Exception | None = None

    async def fail(self, error: Exception) -> None:
        """Say that the step failed with this error; returns once the log says so, or cannot say anything any more."""
        self.error = error
        reason, detail = failure_of(error)
        if not isinstance(error, DrydockError):
            logger.exception("conversation %s: the step failed", self._stream.conversation_id, exc_info=error)
        self._stream.publish(StatusNotice(reason if "$" in reason else "STATUS$ERROR", detail, "error"))
        while not self._stream.closed:
            try:
                await self._account.settle()
                await self._enter(AgentState.ERROR, reason=reason, detail=detail, because=error_events(error, detail))
                return
            except (StaleOwnerError, StreamClosedError):
                return
            except EventStoreError as unwritten:
                logger.error(
                    "conversation %s: its error is not stored yet: %s", self._stream.conversation_id, unwritten
                )
                await asyncio.sleep(STORE_RETRY_SECONDS)
