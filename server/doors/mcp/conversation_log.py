"""The log of a conversation, as a client of the MCP door reads it: entries, and the status of the turn at its end."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, Field

from agent_core.tools.truncation import maybe_truncate
from drydock_client import RESTING, Action, AgentState, DrydockClient, Event, Observation, State, Unknown

_LEFT_OUT: Final = frozenset({"system", "recall", "change_agent_state", "null", "condensation_request"})
_MAIN: Final = {
    "run": ("command",),
    "run_ipython": ("code",),
    "read": ("path",),
    "write": ("path", "content"),
    "edit": ("command", "path"),
    "browse": ("url",),
    "browse_interactive": ("browser_actions",),
    "think": ("thought",),
    "delegate": ("agent", "inputs"),
    "call_tool_mcp": ("name", "arguments"),
    "task_tracking": ("task_list",),
    "condensation": ("summary",),
    "reject": ("outputs",),
}
SUMMARY_CHARS: Final = 300
MAX_EVENTS: Final = 500
"""How far the user's last message is looked for; an agent with more behind it has certainly set to work."""
_NOT_YET: Final = frozenset({AgentState.LOADING, AgentState.AWAITING_USER_INPUT, AgentState.FINISHED})
_DECISIONS: Final = frozenset({"user_confirmed", "user_rejected"})
_NO_WORK: Final = frozenset({"system", "recall", "change_agent_state"})


class LogEntry(BaseModel):
    """One entry of a conversation's log."""

    id: int = Field(description="Its place in the log")
    time: datetime | None = Field(None, description="When, in UTC")
    source: str = Field(description="user, agent or environment")
    kind: str = Field(description="What it is: message, run, edit, state, error, …")
    text: str = Field(description="What was said, done, or came of it; a long text is cut in the middle")
    result_of: int | None = Field(None, description="For a result, the id of the action")


def entry_of(event: Event | Unknown, max_chars: int) -> LogEntry | None:
    """The entry for an event; None for those that tell a reader nothing."""
    match event:
        case State(id=int(ident)):
            text = ": ".join(part for part in (str(event.state), event.detail or event.reason) if part)
            return LogEntry(id=ident, time=event.timestamp, source="environment", kind="state", text=text)
        case Action() if event.action not in _LEFT_OUT:
            text, kind, cause = text_of(event), event.action, None
        case Observation() if event.observation not in _LEFT_OUT:
            text, kind, cause = event.content or event.message, f"{event.observation} result", event.cause
            kind = event.observation if event.observation in {"error", "user_rejected"} else kind
        case _:
            return None
    shown = maybe_truncate(text, max_chars)
    return LogEntry(id=event.id, time=event.timestamp, source=event.source, kind=kind, text=shown, result_of=cause)


def text_of(action: Action) -> str:
    """What an action says or does."""
    args = action.args
    if action.action in {"message", "finish"}:
        return str(args.get("final_thought") or args.get("content") or action.message)
    names = _MAIN.get(action.action, ())
    done = "\n".join(_shown(args[name]) for name in names if args.get(name) not in (None, "", [], {}))
    thought = str(args.get("thought") or "") if action.action != "think" else ""
    return "\n".join(part for part in (thought, done or action.message) if part)


def summary_of(action: Action) -> str:
    """The same in one line."""
    line = " ".join(f"{action.action}: {text_of(action)}".split())
    return line if len(line) <= SUMMARY_CHARS else f"{line[: SUMMARY_CHARS - 1]}…"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class TurnStatus:
    """A fold over the log: how the turn since the user's last message stands, ignoring older states of rest."""

    def __init__(self) -> None:
        self.last_event_id = -1
        self.state: State | None = None
        self.said: list[str] = []
        self.asked: dict[int, str] = {}
        self._calls = 1
        self._is_heard = self._is_at_work = False

    @property
    def is_at_rest(self) -> bool:
        if self.state is None or self.state.state not in RESTING:
            return False
        if self.state.state == AgentState.AWAITING_USER_CONFIRMATION and len(self.asked) < self._calls:
            return False  # what it asks about comes behind the state
        return self._is_at_work or not self._is_heard

    def settle(self) -> None:
        """Nothing has happened for a while: a state of rest counts, as in a log that was recorded elsewhere."""
        self._is_at_work = True

    def take(self, event: Event) -> None:
        if event.id is not None:
            self.last_event_id = max(self.last_event_id, event.id)
        match event:
            case State():
                self.state = event
                self._is_at_work = self._is_at_work or event.state not in _NOT_YET
            case Observation():
                self.asked.pop(-1 if event.cause is None else event.cause, None)
            case Action(source="user", action="message"):
                self.said.clear()
                self.asked.clear()
                self._is_heard, self._is_at_work = True, False
            case Action(source="user", action="change_agent_state"):
                if event.args.get("agent_state") in _DECISIONS:
                    self.asked.clear()  # what was approved comes again, under another id
                    self._is_heard, self._is_at_work = True, False
            case Action(source="agent", action="message" | "finish"):
                self._is_at_work = True
                self.said.append(text_of(event))
            case Action(source="agent") if event.action not in _NO_WORK:
                self._is_at_work = True
                self.asked[event.id] = summary_of(event)
                if event.tool_call_metadata is not None:
                    self._calls = max(1, event.tool_call_metadata.total_calls_in_response)


async def turn_status_of(client: DrydockClient, conversation_id: str) -> TurnStatus:
    """How it stands now, by its log; starts nothing."""
    found: list[Event] = []
    async for event in client.events(conversation_id, limit=MAX_EVENTS, reverse=True):
        if not isinstance(event, Unknown):
            found.append(event)
        if isinstance(event, Action) and event.source == "user" and event.action == "message":
            break
    status = TurnStatus()
    for event in reversed(found):
        status.take(event)
    return status
