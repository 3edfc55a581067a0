"""The moves of the demo model: one turn at a time, each reacting to what the one before brought back.

A script is a generator: it yields turns and is sent their results. Replayed over the history of a conversation it
arrives where it stands, so the demo needs no memory of its own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent_core.llm.demo.history import Result

HOW_TO_GO_ON = (
    "To work with a real model, set one in the page's settings, or start with `LLM_MODEL`, `LLM_API_KEY` and, for a "
    "server of your own, `LLM_BASE_URL` (for example `LLM_MODEL=ollama/qwen3-coder`)."
)
OFFER = "I am only the demo, a script that knows its tour and nothing else."


@dataclass(frozen=True, slots=True)
class DemoCall:
    """A call that the demo makes."""

    name: str
    arguments: Mapping[str, Any]
    summary: str = ""


@dataclass(frozen=True, slots=True)
class DemoTurn:
    """One answer of the demo; without calls it waits for the user."""

    text: str
    calls: tuple[DemoCall, ...] = field(default=())


T = TypeVar("T")
Move = Generator[DemoTurn, tuple[Result, ...], T]
Script = Move[None]


class GaveUpError(Exception):
    """A move did not work out; the message tells the user."""


def run_command(text: str, command: str, summary: str) -> Move[Result]:
    """Run a command until it has ended once: interrupted or hanging ones are tried twice more."""
    result = Result(None)
    for attempt in range(3):
        said = text if attempt == 0 else "That did not come to an end; once more."
        (result, *_) = yield DemoTurn(said, (terminal(command, summary),))
        if result.is_rejected:
            raise GaveUpError("You did not want that command to run, so I stop here. Say `tour` and I try again.")
        if result.exit_code is not None:
            return result
        if "still running" in (result.text or "") or "no new output" in (result.text or "").lower():
            yield DemoTurn("It hangs; I interrupt it.", (DemoCall("terminal", {"command": "C-c", "is_input": True}),))
    raise GaveUpError(f"`{command}` never came to an end here. What I got last:\n\n{quoted(result.text or 'nothing')}")


def terminal(command: str, summary: str = "") -> DemoCall:
    """A command for the shell."""
    return DemoCall("terminal", {"command": command}, summary)


def create(path: str, text: str, summary: str) -> DemoCall:
    """A new file."""
    return DemoCall("file_editor", {"command": "create", "path": path, "file_text": text}, summary)


def replace(path: str, old: str, new: str, summary: str) -> DemoCall:
    """A change in a file."""
    return DemoCall("file_editor", {"command": "str_replace", "path": path, "old_str": old, "new_str": new}, summary)


def write_by_shell(path: str, text: str) -> str:
    """A command that writes a file, for when the editor will not."""
    folder, _, _ = path.rpartition("/")
    return f"mkdir -p {shlex.quote(folder)} && cat > {shlex.quote(path)} <<'END_OF_FILE'\n{text}END_OF_FILE"


def unittest_command(folder: str) -> str:
    """A command that runs the project's tests from wherever the shell is."""
    return f"python3 -m unittest discover -v -s {shlex.quote(folder)}"


def quoted(text: str, lines: int = 12) -> str:
    """The last lines of an output, as a block."""
    kept = [line for line in text.strip().splitlines() if line.strip()][-lines:]
    return "```\n" + "\n".join(line[:200] for line in kept) + "\n```"


@dataclass(frozen=True, slots=True)
class UnitReport:
    """What a run of the tests said."""

    count: int
    is_green: bool
    failed: str
    complaint: str
    summary: str


def read_report(result: Result) -> UnitReport:
    """The report of unittest's output."""
    text = result.output
    ran = re.search(r"Ran (\d+) tests? in [\d.]+s", text)
    failed = re.search(r"^(?:FAIL|ERROR): (\w+)", text, re.MULTILINE)
    complaint = re.findall(r"^(\w*(?:Error|Exception)\b.*)$", text, re.MULTILINE)
    count = int(ran.group(1)) if ran else 0
    is_green = count > 0 and result.exit_code == 0
    return UnitReport(
        count=count,
        is_green=is_green,
        failed=failed.group(1) if failed else "",
        complaint=complaint[0].strip() if complaint else "",
        summary=ran.group(0) if ran else "",
    )
