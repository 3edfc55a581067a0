"""`Feed`: one client's cursor over its conversation, from history into the present without a seam."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from agent_core.errors import EventStoreError
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.event import utc_now
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream, Subscription
from agent_core.events.transient import ClientCall, OutputDelta, StatusNotice, TextDelta, TextDiscarded, Transient
from server.http.turnstile import Turnstile
from server.sockets.connections import SocketLimits
from server.sockets.conversations import JoinedConversation
from server.sockets.outlet import Outlet
from server.wire.envelope import to_wire, wire_time
from server.wire.frames import (
    EventFrame,
    client_call_frame,
    closed_frame,
    delta_frame,
    error_frames,
    notice_frames,
    resync_frame,
    to_json,
)

MAX_BUFFERED: Final = 100
LOST: Final = (
    "The server has lost the end of this conversation, or came back from a backup: what is shown here is not what is"
    " stored. Load it anew."
)

EVENT: Final = "oh_event"
DELTA: Final = "oh_delta"
TOOL_CALL: Final = "oh_tool_call"
RESYNC: Final = "oh_resync"
YIELD_AFTER: Final = 32
"""Frames after which others get their turn: neither a long history nor many must delay everybody's live events."""

Notice = ClientCall | TextDelta | TextDiscarded | OutputDelta | StatusNotice

logger = logging.getLogger(__name__)


class Feed:
    """Sends one client its conversation: the history after `after`, then live events, each once and in order.

    It goes on from session to session. A client that falls further behind than its `replay_limit`, is beyond the log,
    or has seen another event there (at `seen_at`) is told to read elsewhere (``oh_resync``). Of all that send their
    histories one sends a few frames at a time, through `histories`.
    """

    def __init__(
        self,
        joined: JoinedConversation,
        outlet: Outlet,
        *,
        after: int,
        seen_at: str = "",
        replay_limit: int | None = None,
        limits: SocketLimits,
        histories: Turnstile | None = None,
        clock: Callable[[], datetime] = utc_now,
        base_path: str = "",
    ) -> None:
        self._base_path = base_path
        self._joined = joined
        self._histories = histories or Turnstile()
        self._outlet = outlet
        self._limits = limits
        self._clock = clock
        self._position = after
        self._seen_at = seen_at
        self._replay_limit = replay_limit
        self._replay: HistoryReplay | None = None
        self._replay_start = -1
        self._replay_end = -1
        self._was_stopped = False
        self._reissued: dict[int, int] = {}
        self._sent = 0

    async def run(self) -> None:
        """Feed until there will be no more streams; `EventStoreError` where the log cannot be read several times."""
        stream = await self._joined.next_stream(None)
        if stream is not None:
            if await self._has_seen_another(stream):
                await self._resync(stream, is_unknown=True)
            await self._begin(stream)
        while stream is not None:
            while not await self._follow(stream):
                await self._begin(stream)
            if self._was_stopped:
                await self._send(EVENT, closed_frame())
            stream = await self._joined.next_stream(stream)
            if stream is not None and self._has_to_resync(stream):
                await self._begin(stream)
        if (farewell := self._joined.farewell) is not None:
            await self._show_notice(farewell)

    async def _begin(self, stream: EventStream) -> None:
        if self._has_to_resync(stream):
            await self._resync(stream)
        await self._histories.pass_through()
        self._replay = HistoryReplay()
        self._replay_start, self._replay_end = self._position, stream.last_id
        if self._position == stream.last_id:
            await self._end_replay(stream, self._replay)

    def _has_to_resync(self, stream: EventStream) -> bool:
        behind = stream.last_id - self._position
        return behind < 0 or (self._replay_limit is not None and behind > self._replay_limit)

    async def _has_seen_another(self, stream: EventStream) -> bool:
        """Whether the log has lost its end since, and grown beyond the client's position again."""
        if not self._seen_at or not 0 <= self._position <= stream.last_id:
            return False
        page = await stream.page_before(before=self._position + 1)
        return bool(page) and wire_time(page[0].timestamp) != self._seen_at

    async def _resync(self, stream: EventStream, *, is_unknown: bool = False) -> None:
        last, position = stream.last_id, self._position
        if is_unknown or position > last:
            frame = resync_frame("unknown_position", latest_event_id=position, start_id=0, end_id=last)
        else:
            end = last - (self._replay_limit or 0)
            frame = resync_frame("too_far_behind", latest_event_id=position, start_id=position + 1, end_id=end)
        self._position = frame["end_id"]
        self._was_stopped = False
        await self._send(RESYNC, frame)
        if frame["reason"] == "unknown_position" and not self._seen_at:  # it may be of before there was that frame
            await send_error(self._outlet, LOST, self._clock(), code="log_lost", base_path=self._base_path)

    async def _end_replay(self, stream: EventStream, replay: HistoryReplay) -> None:
        # A client needs a state on every connection; one that comes back may have missed none and lost it all the same.
        earlier = None if replay.has_state else await state_before(stream, self._replay_start + 1)
        self._replay = None
        for frame in replay.finish(earlier):
            await self._send(EVENT, frame)

    async def _follow(self, stream: EventStream) -> bool:
        """Send what the stream holds until it is closed and read to its end; False: the client is too far behind."""
        async with stream.subscribe(after=self._position, transients=True) as items:
            while (item := await self._next(items)) is not None:
                if isinstance(item, Notice):
                    await self._show_notice(item)
                else:
                    await self._show_event(stream, item)
                    if self._replay is None and self._has_to_resync(stream):
                        return False
        return True

    async def _next(self, items: Subscription) -> AnyEvent | Transient | None:
        for delay in (*self._limits.read_retry_seconds, None):
            try:
                return await anext(items, None)
            except EventStoreError as error:
                if delay is None:
                    raise
                logger.warning(
                    "reading %s failed, trying again in %g s: %s", self._joined.conversation_id, delay, error
                )
                await asyncio.sleep(delay)
        raise AssertionError("unreachable: the last attempt raises")

    async def _show_event(self, stream: EventStream, event: AnyEvent) -> None:
        self._position = event.id
        self._note(event)
        try:
            frames = self._frames(event)
        except Exception:
            # A boundary: one event that cannot be shown must not hide all those after it.
            logger.exception("event %d of %s cannot be sent", event.id, self._joined.conversation_id)
            frames = []
        for frame in frames:
            await self._send(EVENT, frame)
        if self._replay is not None and event.id >= self._replay_end:
            await self._end_replay(stream, self._replay)

    def _frames(self, event: AnyEvent) -> list[dict[str, Any]]:
        if self._replay is not None:
            return self._replay.take(event)
        frame = to_wire(event, live=True)
        return [] if frame is None else [frame]

    def _note(self, event: AnyEvent) -> None:
        match event:
            case AgentStateChanged():
                self._was_stopped = event.agent_state is AgentState.STOPPED
            case ActionDecision(decision="confirmed"):
                self._reissued[event.cause] = event.id
            case ObservationEvent() | UserRejectObservation() | AgentErrorEvent() if event.cause is not None:
                self._reissued.pop(event.cause, None)

    async def _show_notice(self, notice: Notice) -> None:
        match notice:
            case StatusNotice():
                for frame in notice_frames(notice, self._clock(), self._base_path):
                    await self._send(EVENT, frame)
            case ClientCall():
                frame = client_call_frame(notice, self._reissued.get(notice.cause, notice.cause))
                await self._send(TOOL_CALL, frame)
            case OutputDelta() if notice.cause in self._reissued:
                # Clients know a confirmed action under the id with which it was sent again.
                await self._send(DELTA, delta_frame(OutputDelta(self._reissued[notice.cause], notice.text)))
            case _:
                await self._send(DELTA, delta_frame(notice))

    async def _send(self, event: str, frame: dict[str, Any]) -> None:
        await self._outlet.send(event, to_json(frame))
        self._sent += 1
        if self._sent % YIELD_AFTER == 0:
            await (self._histories.pass_through() if self._replay is not None else asyncio.sleep(0))


async def send_error(outlet: Outlet, message: str, now: datetime, *, code: str, base_path: str) -> None:
    """Tell one client that what it sent, or asked for, was refused; the page of `code` is below `base_path`."""
    for frame in error_frames(message, now, code=code, base_path=base_path):
        await outlet.send(EVENT, to_json(frame))


class HistoryReplay:
    """The frames of a history, event by event.

    Only the last state change is sent, at the end and without its id where something newer was sent, because clients go
    on from the id they saw last. Where the agent waits for confirmation it comes before the actions in question.
    """

    def __init__(self) -> None:
        self._state: EventFrame | None = None
        self._undecided: set[int] = set()
        self._buffered: list[EventFrame] = []
        self._newest_id = -1

    def take(self, event: AnyEvent) -> list[EventFrame]:
        match event:
            case ActionEvent(awaits_confirmation=True):
                self._undecided.add(event.id)
            case ActionDecision() | ObservationEvent() | UserRejectObservation() | AgentErrorEvent():
                self._undecided.discard(-1 if event.cause is None else event.cause)
        frame = to_wire(event, live=False)
        if frame is not None and frame.get("observation") == "agent_state_changed":
            self._state = frame
        elif frame is not None:
            self._buffered.append(frame)
            self._newest_id = event.id
        if self._undecided and len(self._buffered) < MAX_BUFFERED:
            return []
        self._undecided.clear()
        return self._release()

    @property
    def has_state(self) -> bool:
        return self._state is not None

    def finish(self, earlier_state: EventFrame | None) -> list[EventFrame]:
        """The frames that end the history; `earlier_state` counts where it had no state."""
        state = self._state or earlier_state
        frames = self._release()
        if state is None:
            return frames
        if self._state is None or state["id"] < self._newest_id:
            state = {key: value for key, value in state.items() if key != "id"}
        is_asking = state["extras"]["agent_state"] == AgentState.AWAITING_USER_CONFIRMATION
        return [state, *frames] if is_asking else [*frames, state]

    def _release(self) -> list[EventFrame]:
        released, self._buffered = self._buffered, []
        return released


async def state_before(stream: EventStream, event_id: int) -> EventFrame | None:
    """The last state change with an id below `event_id`; None when there is none."""
    while event_id > 0:
        page = await stream.page_before(before=event_id)
        if not page:
            break
        for event in page:
            frame = to_wire(event, live=False) if event.kind == "AgentStateChanged" else None
            if frame is not None:
                return frame
        event_id = page[-1].id
    return None
