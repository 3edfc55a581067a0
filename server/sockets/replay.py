"""What a connecting client is sent of the history. Pure, but for the look back at the end."""

from __future__ import annotations

from typing import Any, Final

from agent_core.events.control import AgentState
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from server.wire.envelope import to_wire

MAX_HELD: Final = 100

Frame = dict[str, Any]


class Replay:
    """Takes a history event by event and says which frames are due.

    State changes are withheld; only the last one is sent, after everything else and without its id where something
    newer was sent, because clients ask for what follows the id they saw last. Where the agent waits for confirmation,
    its state comes before the actions in question: only then do clients show the question.
    """

    def __init__(self) -> None:
        self._state: Frame | None = None
        self._undecided: set[int] = set()
        self._held: list[Frame] = []
        self._newest_id = -1

    def take(self, event: AnyEvent) -> list[Frame]:
        """The frames due after the next event of the history."""
        match event:
            case ActionEvent(awaits_confirmation=True):
                self._undecided.add(event.id)
            case ActionDecision() | ObservationEvent() | UserRejectObservation() | AgentErrorEvent():
                self._undecided.discard(-1 if event.cause is None else event.cause)
        frame = to_wire(event, live=False)
        if frame is not None and frame.get("observation") == "agent_state_changed":
            self._state = frame
        elif frame is not None:
            self._held.append(frame)
            self._newest_id = event.id
        if self._undecided and len(self._held) < MAX_HELD:
            return []
        self._undecided.clear()
        return self._release()

    @property
    def has_state(self) -> bool:
        """Whether the history said the agent's state."""
        return self._state is not None

    def finish(self, earlier_state: Frame | None) -> list[Frame]:
        """The frames that end the history; `earlier_state` is the last state before it, used where it had none."""
        state = self._state or earlier_state
        held = self._release()
        if state is None:
            return held
        if self._state is None or state["id"] < self._newest_id:
            state = {key: value for key, value in state.items() if key != "id"}
        is_asking = state["extras"]["agent_state"] == AgentState.AWAITING_USER_CONFIRMATION
        return [state, *held] if is_asking else [*held, state]

    def _release(self) -> list[Frame]:
        released, self._held = self._held, []
        return released


async def state_before(stream: EventStream, event_id: int) -> Frame | None:
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
