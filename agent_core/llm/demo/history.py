"""What the demo model sees: the conversation so far, cut into runs, each with its calls and their results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

WireMessage = Mapping[str, Any]

_STOP = frozenset({"stop", "halt", "abort", "cancel", "quit", "enough", "pause"})
_TOUR = frozenset({"tour", "demo", "continue", "resume", "restart", "again", "proceed", "start", "go"})
_BAD_START = re.compile(
    r"\s*(error|invalid|cannot|can't|could not|failed|unable|unknown|tool\b.*\bnot found|parameter|file validation"
    r"|no replacement|action rejected|the path)",
    re.IGNORECASE,
)
_BAD_ANYWHERE = re.compile(
    r"already exists|cannot overwrite|did not appear|does not exist|was interrupted|no such file", re.I
)


@dataclass(frozen=True, slots=True)
class Result:
    """What came back from one call; `text` is None where nothing did."""

    text: str | None

    @property
    def exit_code(self) -> int | None:
        found = re.findall(r"\[Command finished with exit code (-?\d+)\]", self.text or "")
        return int(found[-1]) if found else None

    @property
    def working_dir(self) -> str | None:
        found = re.findall(r"\[Current working directory: (.+?)\]", self.text or "")
        return str(found[-1]) if found else None

    @property
    def output(self) -> str:
        """The text without the facts about the shell at its end."""
        kept = [line for line in (self.text or "").splitlines() if not re.match(r"\[[A-Z][^\]]*\]\s*$", line)]
        return "\n".join(kept).strip()

    @property
    def is_rejected(self) -> bool:
        return (self.text or "").startswith("Action rejected")

    @property
    def is_bad(self) -> bool:
        if self.text is None or _BAD_START.match(self.text):
            return True
        return bool(_BAD_ANYWHERE.search(self.text[:400]))


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call in the history, and its result."""

    name: str
    arguments: Mapping[str, Any]
    result: Result


@dataclass(slots=True)
class Run:
    """What was said and done from one request of the user on; `interjection` is a later message not answered yet."""

    request: str
    wants: Intent
    turns: list[tuple[MadeCall, ...]] = field(default_factory=list)
    is_done: bool = False
    interjection: Intent | None = None


class Intent(StrEnum):
    """What a message of the user asks of somebody who can do little."""

    TOUR = "tour"
    STOP = "stop"
    TESTS = "tests"
    FEATURE = "feature"
    OTHER = "other"


def intent_of(text: str) -> Intent:
    """What a message asks for, by the words of its first line."""
    words = re.findall(r"[a-z]+", first_line(text).lower())
    if len(words) <= 6 and _STOP.intersection(words):
        return Intent.STOP
    if {"test", "tests"}.intersection(words):
        return Intent.TESTS
    if len(words) <= 8 and _TOUR.intersection(words):
        return Intent.TOUR
    if {"add", "feature", "extend", "more", "else"}.intersection(words):
        return Intent.FEATURE
    return Intent.OTHER


def first_line(text: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def runs_of(messages: Sequence[WireMessage]) -> list[Run]:
    """The conversation as runs; empty when the user has said nothing yet."""
    runs: list[Run] = []
    results = _results(messages)
    for message in messages:
        role = message.get("role")
        if role == "user":
            _take_user(runs, text_of(message))
        elif role == "assistant" and runs:
            _take_assistant(runs[-1], message, results)
    if runs and runs[-1].is_done and runs[-1].interjection not in (None, Intent.STOP):
        runs.append(Run(runs[-1].request, runs[-1].interjection or Intent.OTHER))
    return runs


def _take_user(runs: list[Run], text: str) -> None:
    intent = intent_of(text)
    if not runs:
        runs.append(Run(first_line(text), Intent.TOUR))
    elif runs[-1].is_done and intent is not Intent.STOP:
        runs.append(Run(first_line(text), intent))
    elif intent is Intent.TOUR:
        runs[-1].interjection = None
    else:
        runs[-1].interjection = intent


def _take_assistant(run: Run, message: WireMessage, results: Mapping[str, str]) -> None:
    calls = tuple(_made_calls(message, results))
    if calls and any(call.name != "finish" for call in calls):
        run.turns.append(calls)
    elif not calls and run.interjection is not None:
        run.interjection = None
    else:
        run.is_done = True


def _made_calls(message: WireMessage, results: Mapping[str, str]) -> Iterator[MadeCall]:
    for call in message.get("tool_calls") or ():
        function = call["function"]
        try:
            arguments = json.loads(function.get("arguments") or "{}")
        except ValueError:
            arguments = {}
        text = results.get(call["id"])
        yield MadeCall(function["name"], arguments if isinstance(arguments, dict) else {}, Result(text))


def _results(messages: Sequence[WireMessage]) -> dict[str, str]:
    return {str(one.get("tool_call_id")): text_of(one) for one in messages if one.get("role") == "tool"}


def text_of(message: WireMessage) -> str:
    """The text of a message in wire form."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or () if part.get("type") == "text")
