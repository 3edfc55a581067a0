"""`RunProgress`: shows a run of ``drydock run`` while it goes on, and says in the end what has become of it."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from contextlib import suppress
from typing import Any, Final

from agent_core.events.plain_text import one_line, plain_text
from drydock_client.events import (
    Action,
    AgentState,
    Connected,
    Live,
    LlmMetrics,
    Observation,
    OutputDelta,
    State,
    Status,
    TextDelta,
    Unknown,
)
from server.cli.conversations import public_event
from server.cli.event_view import EventView
from server.cli.printing import Printer, is_terminal, shows_colour
from server.cli.run_outcome import ExitStatus, RunOutcome

TICK_SECONDS: Final = 0.2
SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PLAIN_SPINNER: Final = "|/-\\"
HEARD_CHARS: Final = 400


class RunProgress:
    """Progress goes to standard error, and the agent's last word to standard output (with `as_json`, every event).

    On a terminal a line below says what is going on. With `quiet` there is no progress. Raises `BrokenPipeError` where
    nobody reads standard output any more.
    """

    def __init__(self, printer: Printer, *, as_json: bool, quiet: bool, full: bool) -> None:
        self._printer = printer
        self._as_json = as_json
        self._shows = not (as_json or quiet)
        self._view = EventView(colour=shows_colour(sys.stderr), full=full)
        self._is_live = self._shows and is_terminal(sys.stderr)
        self._began = time.monotonic()
        self._doing, self._heard = "starts", ""
        self._drawn = False
        self._ticking: asyncio.Task[None] | None = None
        self._told = ""
        self._metrics: LlmMetrics | None = None
        self._steps = 0
        self.answer = ""
        self._answer_is_seen = False
        self._seen_questions: set[int] = set()

    def begin(self, facts: dict[str, Any], words: str) -> None:
        """Say which conversation it is."""
        if self._as_json:
            self._print_json({"type": "conversation", **facts})
        self.tell(words)
        if self._is_live:
            self._ticking = asyncio.create_task(self._tick(), name="progress")

    def show(self, item: Live) -> None:
        """Take in one item, and show what is to be seen of it."""
        self._count(item)
        if self._as_json:
            self._show_json(item)
            return
        if not self._shows:
            return
        if isinstance(item, Status) and item.tells_wait:
            self.tell(one_line(item.message, 500))
        elif isinstance(item, Connected) and item.again:
            self.tell("The server is there again.")
        elif isinstance(item, Action) and item.args.get("confirmation_state") == "awaiting_confirmation":
            self.ask_about([item])
        else:
            self._write(self._view.lines(item))
        self._follow(item)

    def ask_about(self, actions: list[Action]) -> None:
        """Show actions that wait for a word, each once."""
        for action in actions:
            if action.id not in self._seen_questions:
                self._seen_questions.add(action.id)
                self._write(self._view.question(action))

    def tell(self, words: str) -> None:
        """News in words, not twice in a row."""
        if self._shows and words and words != self._told:
            self._told = words
            self._write([self._view.painted(words, "2")])

    def complain(self, words: str) -> None:
        """News of something that was not to be expected: told whatever else is shown."""
        self._erase()
        self._printer.tell(one_line(words, 2_000))

    def rest(self) -> None:
        """Take away the line that says what goes on, so that somebody can type."""
        self._erase()
        self._doing = ""

    async def close(self) -> None:
        """Leave the terminal as it was."""
        if self._ticking is not None:
            self._ticking.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticking
            self._ticking = None
        self._erase()

    def end(self, outcome: RunOutcome, conversation_id: str | None, how_to_go_on: str) -> None:
        """Say what has become of it: the agent's last word, costs, and how to go on."""
        seconds = time.monotonic() - self._began
        if self._as_json:
            self._print_json(self._result(outcome, conversation_id, seconds))
            return
        dollars = self._metrics.accumulated_cost if self._metrics is not None else 0.0
        cost = f", {dollars:.4f} US dollars" if dollars else ""
        if self._shows and conversation_id is not None:
            self._write([self._view.painted(f"{self._steps} actions in {seconds:.0f} s{cost}", "2")])
        if not self._shows and outcome.status != ExitStatus.FINISHED:
            self._write_anyway(self._view.lines(State(state=outcome.state or "stopped", reason=outcome.reason)))
        if how_to_go_on and (self._shows or outcome.status != ExitStatus.FINISHED):
            self._printer.tell(self._view.painted(how_to_go_on, "2"))
        if self.answer and not (self._answer_is_seen and is_terminal(sys.stdout) and is_terminal(sys.stderr)):
            self._printer.print(self.answer)

    def _result(self, outcome: RunOutcome, conversation_id: str | None, seconds: float) -> dict[str, Any]:
        usage = self._metrics.accumulated_token_usage if self._metrics is not None else None
        return {
            "type": "result",
            "exit_status": int(outcome.status),
            "state": outcome.state or None,
            "reason": outcome.reason,
            "conversation_id": conversation_id,
            "answer": self.answer,
            "actions": self._steps,
            "cost": self._metrics.accumulated_cost if self._metrics is not None else 0.0,
            "prompt_tokens": usage.prompt_tokens if usage is not None else 0,
            "completion_tokens": usage.completion_tokens if usage is not None else 0,
            "seconds": round(seconds, 3),
        }

    def _count(self, item: Live) -> None:
        if not isinstance(item, Action):
            return
        self._metrics = item.llm_metrics or self._metrics
        if item.source == "agent" and item.action == "message":
            self._answered(item.args.get("content"))
        elif item.action == "finish":
            self._answered(item.args.get("final_thought") or item.args.get("thought"))
        elif item.source == "agent" and item.tool_call_metadata is not None:
            self._steps += item.args.get("confirmation_state") not in ("awaiting_confirmation", "rejected")

    def _answered(self, text: object) -> None:
        if isinstance(text, str) and text.strip():
            # For people and programs: what moves a cursor is no part of an answer.
            self.answer = plain_text(text).strip()
            self._answer_is_seen = self._shows

    def _show_json(self, item: Live) -> None:
        match item:
            case State(id=None) | Unknown():
                return
            case Status(conversation_title=None):
                told = {"type": "status", "level": item.type, "id": item.id, "message": item.message}
                self._print_json(told)
            case Action() | Observation() | State():
                if (wire := public_event(item)) is not None:
                    self._print_json(wire)

    def _print_json(self, value: dict[str, Any]) -> None:
        self._printer.print(json.dumps(value, ensure_ascii=False))

    def _follow(self, item: Live) -> None:
        """Note what is going on from now on."""
        match item:
            case Status(type="info") if item.message and item.conversation_title is None:
                self._doing = item.message
            case TextDelta():
                self._heard = f"{self._heard}{item.text}"[-HEARD_CHARS:]
                self._doing = "writes"
                return
            case OutputDelta():
                self._heard = f"{self._heard}{item.text}"[-HEARD_CHARS:]
                return
            case Action() if item.source == "agent" and item.tool_call_metadata is not None:
                self._doing = f"runs: {item.args.get('command') or item.message or item.action}"
            case State(state=AgentState.RUNNING) | Observation():
                self._doing = "thinks"
        self._heard = ""

    async def _tick(self) -> None:
        signs = SPINNER if (sys.stderr.encoding or "").lower().replace("-", "") == "utf8" else PLAIN_SPINNER
        count = 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if not self._doing:
                continue
            count += 1
            seconds = int(time.monotonic() - self._began)
            width = max(10, shutil.get_terminal_size().columns - 1)
            words = one_line(f"{signs[count % len(signs)]} {seconds} s, {self._doing}", width)
            if heard := one_line(self._heard, HEARD_CHARS):
                words = f"{words}: {heard[-max(1, width - len(words) - 2) :]}"[:width]
            self._raw(f"\r\x1b[2K{self._view.painted(words, '2')}")
            self._drawn = True

    def _erase(self) -> None:
        if self._drawn:
            self._raw("\r\x1b[2K")
            self._drawn = False

    def _write(self, lines: list[str]) -> None:
        if lines and self._shows:
            self._erase()
            self._told = "" if len(lines) > 1 else self._told
            self._printer.tell("\n".join(lines))

    def _write_anyway(self, lines: list[str]) -> None:
        self._printer.tell("\n".join(lines))

    def _raw(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()
