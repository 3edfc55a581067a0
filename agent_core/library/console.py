"""`ConsoleView`: shows a run on the console, as it happens."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TextIO

from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ChangeAgentState,
    MetricsUpdated,
    RecallAction,
    RecallObservation,
)
from agent_core.events.event import Event
from agent_core.events.llm_events import (
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    MetricsSnapshot,
    ObservationEvent,
    SystemPromptEvent,
    UserRejectObservation,
)
from agent_core.events.plain_text import one_line, plain_text
from agent_core.spelling import spelled
from agent_core.tools.builtin import FinishAction, FinishObservation, ThinkAction, ThinkObservation
from agent_core.tools.file_editor import FileEditorObservation
from agent_core.tools.terminal import TerminalAction

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status

MAX_LINES: Final = 12
"""How many lines of a result are shown; of a longer one its beginning and its end."""
MAX_CHARS: Final = 20_000
_QUIET = (ChangeAgentState, MetricsUpdated, RecallAction, RecallObservation)


@spelled
class ConsoleView:
    """Shows the events of a run: coloured on a terminal, elsewhere in plain lines (`str` of each event).

    The default `visualizer` of a conversation. On a terminal it also says what is going on meanwhile. It is plain, too,
    where ``NO_COLOR`` is set, ``TERM`` is ``dumb`` or the terminal takes no UTF-8; what a stream cannot write is
    replaced. Texts never move the cursor, whatever an agent or a command has put into them.

    Args:
        file: where it is written; standard output, as it is at the time, if None.
        colour: whether it is coloured; None finds out.
    """

    def __init__(self, file: TextIO | None = None, *, colour: bool | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._rich = _RichView(file or sys.stdout) if (_is_terminal(file) if colour is None else colour) else None
        self.on_token: Callable[[Any], None] | None = self._rich.hear if self._rich is not None else None
        """Hears the model's text as it comes; None where it would not be shown."""

    def on_event(self, event: Event) -> None:
        """Show one event, or nothing, if it says nothing to a person."""
        if isinstance(event, _QUIET) or getattr(event, "hidden", False):
            return
        with self._lock:
            if self._rich is not None:
                self._rich.show(event)
            else:
                self._write(_in_lines(event))

    def close(self) -> None:
        """Leave the terminal as it was. Showing goes on with the next event."""
        if self._rich is not None:
            with self._lock:
                self._rich.rest()

    def _write(self, lines: list[str]) -> None:
        file = self._file or sys.stdout
        encoding = getattr(file, "encoding", None) or "utf-8"
        file.write("".join(f"{line}\n" for line in lines).encode(encoding, "replace").decode(encoding))
        file.flush()


def _is_terminal(file: TextIO | None) -> bool:
    stream = file or sys.stdout
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "") in ("dumb", "")
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    is_open = not getattr(stream, "closed", False)  # a closed one refuses to say what it is
    return not is_plain and encoding == "utf8" and is_open and hasattr(stream, "isatty") and stream.isatty()


def _in_lines(event: Event) -> list[str]:
    """The event's line; of what the agent says to its user, every line."""
    place = str(event).partition(": ")[0]
    if isinstance(event, MessageEvent):
        return _said(place, event.llm_message.text) or [str(event)]
    if isinstance(event, ActionEvent):
        thought = _said(place, event.thought_text)
        if isinstance(event.action, FinishAction):
            return thought + _said(place, event.action.message)
        return [*thought, str(event)]
    if isinstance(event, ObservationEvent) and isinstance(event.observation, FinishObservation | ThinkObservation):
        return []
    return [str(event)]


def _said(place: str, text: str) -> list[str]:
    first, *rest = plain_text(text).strip().splitlines() or [""]
    return [f"{place}: {first}", *(f"    {line}".rstrip() for line in rest)] if first else []


class _RichView:
    """What is shown on a terminal."""

    def __init__(self, file: TextIO) -> None:
        # Imported when it is first needed: half of a tenth of a second.
        from rich.console import Console

        self._console: Console = Console(file=file, highlight=False, soft_wrap=False)
        self._status: Status | None = None
        self._heard = ""
        self._calls = 0
        self._cost = 0.0

    def show(self, event: Event) -> None:
        """Print the event, and say what is going on from now on."""
        self._count(event)
        for part in self._parts(event):
            self._console.print(part)
        self._go_on(event)

    def hear(self, delta: Any) -> None:
        """Show the end of what the model is saying."""
        self._heard = f"{self._heard}{getattr(delta, 'text', '')}"[-400:]
        status = self._status
        if status is not None:
            status.update(self._words("writes", one_line(self._heard[-120:], 100)))

    def rest(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _go_on(self, event: Event) -> None:
        self._heard = ""
        match event:
            case AgentStateChanged(agent_state=AgentState.RUNNING | AgentState.LOADING):
                self._say("thinks" if event.agent_state is AgentState.RUNNING else "starts")
            case AgentStateChanged():
                self.rest()
            case ActionEvent(awaits_confirmation=False) if self._status is not None:
                self._say("runs", f"{event.tool_name}: {event.action}")
            case ObservationEvent() | AgentErrorEvent() | UserRejectObservation() if self._status is not None:
                self._say("thinks")
            case _:
                pass

    def _say(self, what: str, about: str = "") -> None:
        words = self._words(what, one_line(about, 100))
        if self._status is None:
            self._status = self._console.status(words, spinner="dots")
            self._status.start()
        else:
            self._status.update(words)

    def _words(self, what: str, about: str) -> RenderableType:
        from rich.text import Text

        words = ((f"the agent {what} ", "dim"), (about, "dim italic"))
        return Text.assemble(*words, no_wrap=True, overflow="ellipsis")

    def _count(self, event: Event) -> None:
        self._calls += isinstance(event, ActionEvent)
        if isinstance(metrics := getattr(event, "metrics", None), MetricsSnapshot):
            self._cost = metrics.accumulated_cost

    def _parts(self, event: Event) -> list[RenderableType]:
        from rich.padding import Padding
        from rich.syntax import Syntax
        from rich.text import Text

        def inside(part: RenderableType) -> RenderableType:
            return Padding(part, (0, 0, 0, 2))

        match event:
            case SystemPromptEvent():
                return [Text(f"{event.agent_class}, {len(event.tools)} tools", style="dim")]
            case MessageEvent(source="user"):
                said = plain_text(event.llm_message.text)
                return [Text(), Text.assemble(("you ", "bold green"), said)]
            case MessageEvent():
                return [Text(), Text("agent", style="bold blue"), inside(_markdown(event.llm_message.text))]
            case ActionEvent():
                return self._call(event, inside)
            case ObservationEvent(observation=FinishObservation() | ThinkObservation()):
                return []
            case ObservationEvent(observation=FileEditorObservation(diff=str(diff))) if diff and not event.hidden:
                return [inside(Syntax(_shortened(_hunks(plain_text(diff))), "diff", background_color="default"))]
            case ObservationEvent():
                style = "red" if event.observation.is_error else "dim"
                ended = getattr(event.observation, "exit_code", 0)
                text = _shortened(plain_text(event.observation.text)) or str(event.observation)
                parts = [inside(Text(text, style=style))]
                return [*parts, inside(Text(f"exit {ended}", style="red"))] if ended and ended > 0 else parts
            case AgentErrorEvent() | UserRejectObservation():
                return [inside(Text(one_line(event.headline, 1_000), style="red"))]
            case AgentStateChanged():
                return self._state(event)
            case _:
                return [Text(str(event), style="dim")]

    def _call(self, event: ActionEvent, inside: Callable[[RenderableType], RenderableType]) -> list[RenderableType]:
        from rich.syntax import Syntax
        from rich.text import Text

        parts: list[RenderableType] = [Text()]
        if event.thought_text.strip():
            parts.append(_markdown(event.thought_text.strip()))
        action = event.action
        if isinstance(action, FinishAction):
            return [*parts, Text("done", style="bold blue"), inside(_markdown(action.message))]
        if isinstance(action, ThinkAction):
            return [*parts, inside(Text(plain_text(action.thought), style="italic dim"))]
        risk = f"  risk {event.security_risk}" if event.security_risk in ("MEDIUM", "HIGH") else ""
        waits = "  waits for your word" if event.awaits_confirmation else ""
        head = Text.assemble((event.tool_name, "bold cyan"), (risk, "yellow"), (waits, "bold yellow"))
        if isinstance(action, TerminalAction) and not action.is_input:
            command = _shortened(plain_text(action.command))
            return [*parts, head, inside(Syntax(command, "bash", background_color="default", word_wrap=True))]
        told = str(action) if action is not None else "(its arguments could not be read)"
        return [*parts, Text.assemble(head, "  ", told)]

    def _state(self, event: AgentStateChanged) -> list[RenderableType]:
        from rich.text import Text

        because = f": {one_line(event.detail or event.reason, 1_000)}" if event.detail or event.reason else ""
        match event.agent_state:
            case AgentState.RUNNING | AgentState.LOADING | AgentState.USER_CONFIRMED | AgentState.USER_REJECTED:
                return []
            case AgentState.ERROR:
                return [Text(f"the agent failed{because}", style="bold red")]
            case AgentState.AWAITING_USER_CONFIRMATION:
                ways = "run() lets it go on, reject_pending_actions(reason) refuses"
                return [Text(f"the agent waits for your word: {ways}", style="bold yellow")]
            case state:
                cost = f", {self._cost:.4f} US dollars" if self._cost else ""
                counted = f"  {self._calls} calls{cost}"
                said = (f"the agent is {state.in_words}{because}", "bold")
                return [Text(), Text.assemble(said, (counted, "dim"))]


def _markdown(text: str) -> RenderableType:
    """Text with marks; what its entities stand for is made plain as well."""
    from rich.markdown import Markdown

    made = Markdown(plain_text(text))
    tokens = list(made.parsed)
    while tokens:
        token = tokens.pop()
        token.content = plain_text(token.content)
        tokens += token.children or []
    return made


def _hunks(diff: str) -> str:
    """A unified diff without the names of its file."""
    lines = diff.splitlines()
    return "\n".join(lines[2:] if lines[:1] and lines[0].startswith("---") else lines)


def _shortened(text: str) -> str:
    """At most `MAX_LINES` lines of `text`, those of its beginning and of its end."""
    lines = text[:MAX_CHARS].rstrip().splitlines()
    if len(text) > MAX_CHARS:
        lines += ["…", *text[-MAX_CHARS // 10 :].rstrip().splitlines()]
    if len(lines) <= MAX_LINES:
        return "\n".join(lines)
    half = MAX_LINES // 2
    return "\n".join([*lines[:half], f"… {len(lines) - 2 * half} more lines …", *lines[-half:]])
