"""`EventView`: what happens in a conversation, as lines for people."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent_core.events.plain_text import one_line, plain_text
from drydock_client.events import Action, AgentState, Live, Observation, Problem, State, Status, Unknown

MAX_LINES: Final = 10
"""How many lines of a result are shown; of a longer one its beginning and its end."""
MAX_TEXT: Final = 400_000
MAX_ARGUMENTS: Final = 300

RED, YELLOW, BLUE, CYAN, GREEN, BOLD, DIM = "31", "33", "1;34", "36", "1;32", "1", "2"

_SILENT: Final = frozenset({"system", "recall", "null", "change_agent_state", "client_tool_result"})
_SILENT_ANSWERS: Final = frozenset({"null", "recall", "think", "finish", "task_tracking"})
_SILENT_STATES: Final = frozenset(
    {AgentState.LOADING, AgentState.RUNNING, AgentState.USER_CONFIRMED, AgentState.USER_REJECTED}
)
STATES: Final[Mapping[str, str]] = {
    AgentState.LOADING: "starting",
    AgentState.RUNNING: "working",
    AgentState.AWAITING_USER_INPUT: "waits for an answer",
    AgentState.AWAITING_USER_CONFIRMATION: "waits for confirmation",
    AgentState.REJECTED: "gave up",
    AgentState.ERROR: "failed",
    AgentState.RATE_LIMITED: "waits for its model's rate limit",
}
"""States in words, where the words are others."""


def state_in_words(state: str | None) -> str:
    """What an agent does, or "new" before its first start; a state of a newer server is its own word."""
    return STATES.get(state or "", one_line((state or "new").replace("_", " "), 40))


class EventView:
    """Makes lines of events: coloured on a terminal that can show it, as wide as that is, plain elsewhere.

    Texts of others never move the cursor, nor do anything else to a terminal. With `full` no result is shortened.
    """

    def __init__(self, *, colour: bool, full: bool = False) -> None:
        self._colour = colour
        self._full = full

    def lines(self, item: Live) -> list[str]:
        """What is to be seen of it: nothing, where it says nothing to a person."""
        match item:
            case Action():
                return list(self._action(item))
            case Observation():
                return list(self._observation(item))
            case State():
                return self._state(item)
            case Status(type="error") | Problem():
                return self._part("problem", item.message, RED)
            case Unknown(name="oh_event"):
                return [self.painted("(an event of a form that is not known here)", DIM)]
        return []

    def question(self, action: Action) -> list[str]:
        """The lines of an action that waits for a word."""
        risk = {1: " (medium risk)", 2: " (high risk)"}.get(_whole(action.args.get("security_risk")), "")
        return [self.painted(f"asks{risk}", YELLOW), *self._call(action)]

    def painted(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour and text else text

    def _part(self, who: str, text: str, style: str) -> list[str]:
        first, *rest = plain_text(str(text)[:MAX_TEXT]).strip().splitlines() or [""]
        return [f"{self.painted(who, style)}  {first}".rstrip(), *(f"  {line}".rstrip() for line in rest)]

    def _action(self, action: Action) -> Iterator[str]:
        args, kind = action.args, action.action
        if args.get("hidden") is True or kind in _SILENT:
            return
        if kind == "message":
            yield from self._message(action)
            return
        decision = args.get("confirmation_state")
        if thought := _text(args.get("thought")).strip():
            yield from self._part("agent", thought, DIM if kind == "think" else BLUE)
        if kind == "think":
            return
        if decision == "awaiting_confirmation":
            yield from self.question(action)
        elif decision == "rejected":
            yield self.painted("refused", RED)
            yield from self._call(action)
        else:
            yield from self._call(action)

    def _message(self, action: Action) -> Iterator[str]:
        is_user = action.source == "user"
        yield from self._part(
            "you" if is_user else "agent", _text(action.args.get("content")), GREEN if is_user else BLUE
        )
        for name in ("image_urls", "file_urls"):
            if urls := action.args.get(name):
                yield self.painted(f"  with {len(urls)} {'images' if name == 'image_urls' else 'files'}", DIM)

    def _call(self, action: Action) -> list[str]:
        args = action.args
        match action.action:
            case "run":
                first, *rest = plain_text(_text(args.get("command"))).splitlines() or [""]
                mark = self.painted("input" if args.get("is_input") is True else "$", CYAN)
                return [f"{mark} {first}", *(f"  {line}" for line in self._shortened(rest))]
            case "run_ipython":
                code = self._shortened(plain_text(_text(args.get("code"))).splitlines())
                return [self.painted("python", CYAN), *(f"  {line}" for line in code)]
            case "read" | "edit" | "write":
                return [self._named(f"{action.action}s", args.get("path"))]
            case "browse":
                return [self._named("opens", args.get("url"))]
            case "browse_interactive":
                return [self._named("browses", args.get("browser_actions"))]
            case "call_tool_mcp":
                name, arguments = args.get("name"), json.dumps(args.get("arguments"), ensure_ascii=False, default=str)
                return [self._named("calls", f"{name} {arguments}")]
            case "delegate":
                return [self._named("asks agent", args.get("agent"))]
            case "task_tracking":
                return self._tasks(args.get("task_list"))
            case "finish":
                return self._part("agent", _text(args.get("final_thought")), BLUE)
            case "reject":
                return self._part("gave up", _text(args.get("outputs", {})) or action.message, RED)
            case "condensation" | "condensation_request":
                return [self.painted("(the history is summed up)", DIM)]
            case kind:
                return [self._named(kind, action.message)]

    def _named(self, what: str, about: object) -> str:
        return f"{self.painted(one_line(what), CYAN)} {one_line(str(about or ''), MAX_ARGUMENTS)}".rstrip()

    def _tasks(self, tasks: object) -> list[str]:
        marks = {"done": "x", "in_progress": ">"}
        found = [one for one in tasks if isinstance(one, dict)] if isinstance(tasks, list) else []
        lines = [f"  [{marks.get(str(one.get('status')), ' ')}] {one_line(_text(one.get('title')))}" for one in found]
        return [self.painted("tasks", CYAN), *lines] if lines else []

    def _observation(self, observation: Observation) -> Iterator[str]:
        kind, extras = observation.observation, observation.extras
        if extras.get("hidden") is True or kind in _SILENT_ANSWERS:
            return
        if kind in ("error", "user_rejected", "loop_detection"):
            yield from self._part("problem", observation.content, RED)
            return
        text = observation.content
        if kind == "edit":
            diff = _text(extras.get("diff"))
            text = "\n".join(diff.splitlines()[2:]) if diff.startswith("---") else diff or text
        for line in self._shortened(plain_text(text[:MAX_TEXT]).rstrip().splitlines()):
            yield self.painted(f"  {line}".rstrip(), DIM)
        metadata = extras.get("metadata")
        code = metadata.get("exit_code") if kind == "run" and isinstance(metadata, dict) else None
        if isinstance(code, int) and code > 0:
            yield self.painted(f"  exit {code}", RED)

    def _shortened(self, lines: list[str]) -> list[str]:
        if self._full:
            return lines
        if len(lines) > MAX_LINES:
            half = MAX_LINES // 2
            lines = [*lines[:half], f"… {len(lines) - 2 * half} more lines …", *lines[-half:]]
        width = max(20, shutil.get_terminal_size().columns - 4) * 3
        return [line if len(line) <= width else f"{line[:width]}…" for line in lines]

    def _state(self, state: State) -> list[str]:
        if state.state in _SILENT_STATES:
            return []
        because = plain_text(state.detail or state.reason).strip()
        style = RED if state.state in (AgentState.ERROR, AgentState.REJECTED) else BOLD
        words = f"the agent {_verb(str(state.state))}"
        return self._part(words if not because else f"{words}:", because, style)


def _verb(state: str) -> str:
    words = state_in_words(state)
    return words if state in STATES else f"is {words}"


def _text(value: object) -> str:
    return (
        value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
    )


def _whole(value: Any) -> int:
    return value if type(value) is int else 0
