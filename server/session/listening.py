"""`Listeners`: an operator's event listeners at work, each with a cursor of its own in every loaded conversation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self

from agent_core.events.event import Event
from agent_core.events.stream import EventStream
from agent_core.troubles import Trouble, coded
from server.errors import ConfigurationError
from server.listeners import EventListener, MonitoringListener

EVENT_SECONDS: Final = 30.0
"""Bound on what a listener does with one event."""
CLOSE_SECONDS: Final = 5.0

TakeEvent = Callable[[str, Event], Awaitable[None]]

logger = logging.getLogger(__name__)


class Listeners:
    """Makes the listeners of these names when it is entered, and ends them when it is left; tells `monitoring`, too.

    A slow one falls behind in the log and costs no memory; one that fails loses the event that it failed at.
    """

    def __init__(self, names: Sequence[str] = (), monitoring: MonitoringListener | None = None) -> None:
        self._names = names
        self._monitoring = monitoring
        self._listeners: dict[str, EventListener] = {}

    async def __aenter__(self) -> Self:
        for name in self._names:
            try:
                self._listeners[name] = EventListener.listeners[name]()
            except (Exception, SystemExit) as error:
                raise ConfigurationError(f"event_listeners: {name!r} cannot be made: {error!r}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for name, listener in self._listeners.items():
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await listener.close()
            except (Exception, SystemExit):
                logger.exception("the event listener %r did not end well", name, extra=coded(Trouble.LISTENER_FAILED))

    def follow(self, stream: EventStream) -> list[asyncio.Task[None]]:
        """Begin to tell every listener what comes in this conversation; the caller owns the tasks.

        They end when the stream is closed and read to its end.
        """
        takers = {f"event listener {name!r}": one.on_event for name, one in self._listeners.items()}
        if self._monitoring is not None:
            takers["monitoring listener"] = self._session_event
        return [
            asyncio.create_task(_tell(name, take, stream, stream.last_id), name=name) for name, take in takers.items()
        ]

    async def _session_event(self, conversation_id: str, event: Event) -> None:
        if self._monitoring is not None:
            self._monitoring.on_session_event(event)

    def created(self) -> None:
        """Tell the monitoring listener of a new conversation."""
        if self._monitoring is not None:
            self._guarded(self._monitoring.on_create_conversation)

    def started(self, *, success: bool, seconds: float) -> None:
        """Tell it that a conversation's agent has come up, or has failed to."""
        if self._monitoring is not None:
            self._guarded(partial(self._monitoring.on_agent_session_start, success, seconds))

    def _guarded(self, tell: Callable[[], object]) -> None:
        try:
            tell()
        except (Exception, SystemExit):
            logger.exception("the monitoring listener failed", extra=coded(Trouble.LISTENER_FAILED))


async def _tell(name: str, take: TakeEvent, stream: EventStream, after: int) -> None:
    failures = 0
    async with stream.subscribe(after=after) as events:
        async for event in events:
            if not isinstance(event, Event):  # no notices were asked for
                continue
            try:
                async with asyncio.timeout(EVENT_SECONDS):
                    await take(stream.conversation_id, event)
            except (Exception, SystemExit, asyncio.CancelledError):
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                failures += 1
                level = logging.ERROR if failures == 1 else logging.DEBUG  # once is enough to find it
                where = (name, stream.conversation_id, event.id)
                extra = coded(Trouble.LISTENER_FAILED, stream.conversation_id)
                logger.log(level, "the %s failed in conversation %s at event %d", *where, exc_info=True, extra=extra)
    if failures > 1:
        extra = coded(Trouble.LISTENER_FAILED, stream.conversation_id, times=failures - 1)
        text = "the %s failed at %d events of conversation %s"
        logger.warning(text, name, failures, stream.conversation_id, extra=extra)
