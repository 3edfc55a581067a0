"""Events of a log as a model reads them: one short entry each."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, Field

from agent_core.tools.truncation import maybe_truncate
from drydock_client import Action, Event, Observation, State, Unknown

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
"""The arguments that say what an action does."""

SUMMARY_CHARS: Final = 300


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
