"""The demo's scripts: the tour itself, and the short things it can do after it.

A script is a generator that yields turns and is sent their results. Replayed over the history of a conversation it
arrives where it stands, so the demo needs no memory.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent_core.llm.demo.history import Intent, Result, intent_of

MODULE = '''"""Roman numerals."""

LETTERS = [
    (1000, "M"),
    (500, "D"),
    (100, "C"),
    (50, "L"),
    (10, "X"),
    (5, "V"),
    (1, "I"),
]


def to_roman(number):
    """Write a whole number from 1 to 3999 as a Roman numeral."""
    numeral = ""
    for value, letters in LETTERS:
        while number >= value:
            numeral += letters
            number -= value
    return numeral
'''

FAULTY_LETTERS = MODULE[MODULE.index("LETTERS = [") : MODULE.index("]\n") + 1]

MENDED_LETTERS = """LETTERS = [
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
]"""

MENDED_MODULE = MODULE.replace(FAULTY_LETTERS, MENDED_LETTERS)

TESTS = """import unittest

from roman import to_roman


class ToRoman(unittest.TestCase):
    def test_single_letters(self):
        self.assertEqual(to_roman(1), "I")
        self.assertEqual(to_roman(500), "D")

    def test_letters_add_up(self):
        self.assertEqual(to_roman(8), "VIII")
        self.assertEqual(to_roman(1666), "MDCLXVI")

    def test_a_smaller_letter_in_front_is_subtracted(self):
        self.assertEqual(to_roman(4), "IV")
        self.assertEqual(to_roman(1994), "MCMXCIV")


if __name__ == "__main__":
    unittest.main()
"""

FEATURE_ANCHOR = "    return numeral\n"

FEATURE = '''    return numeral


def from_roman(numeral):
    """Read a Roman numeral back as a number."""
    number = 0
    for value, letters in LETTERS:
        while numeral.startswith(letters):
            number += value
            numeral = numeral[len(letters) :]
    return number
'''

FEATURE_TESTS = """import unittest

from roman import from_roman, to_roman


class FromRoman(unittest.TestCase):
    def test_every_number_survives_the_way_there_and_back(self):
        for number in range(1, 4000):
            self.assertEqual(from_roman(to_roman(number)), number)


if __name__ == "__main__":
    unittest.main()
"""


_FOLDER = "drydock-tour"
_LOOK = f"pwd; python3 --version; ls -d {_FOLDER}* 2>/dev/null; true"


class Demo:
    """The scripts, for the tools that there are."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools

    def guarded(self, script: Script) -> Script:
        """The script, where there is a terminal for it; told why it gave up where it did."""
        if "terminal" not in self._tools:
            yield DemoTurn(f"{OFFER} It needs the tool `terminal`, which is not switched on here. {HOW_TO_GO_ON}")
            return
        try:
            yield from script
        except GaveUpError as stop:
            yield DemoTurn(f"{stop}\n\nSay `tour` to start over. {HOW_TO_GO_ON}")

    def tour(self, request: str) -> Script:
        """Make a small project with a failing test, find the fault, mend it, and show the tests green."""
        folder = yield from self._look(request)
        text = (
            f"A Python to work with, and `{folder}` is free. I write a little module for Roman numerals and its tests, "
            "both at once."
        )
        yield from self._create(text, {f"{folder}/roman.py": MODULE, f"{folder}/test_roman.py": TESTS})
        red, result = yield from self._run_tests(
            folder, "Both files are there. Now the tests; one of them should complain."
        )
        if red.is_green:
            seen = f"I expected a failure, but all is well already:\n\n{quoted(result.output, 4)}"
            yield self._finish(f"{seen}\n\nSomebody was faster than I. {HOW_TO_GO_ON}")
            return
        if not red.count:
            raise GaveUpError(f"There are no tests to run, though I wrote some:\n\n{quoted(result.output)}")
        yield from self._mend(folder, red)
        green, result = yield from self._run_tests(folder, "Mended, I think. The same tests again:")
        if not green.is_green:
            rewrite = write_by_shell(f"{folder}/roman.py", MENDED_MODULE)
            yield from run_command("Still not right. I write the module anew.", rewrite, "Write roman.py anew")
            green, result = yield from self._run_tests(folder, "Once more:")
        if not green.is_green:
            raise GaveUpError(f"I cannot get these tests to pass here:\n\n{quoted(result.output)}")
        yield self._finish(_summary(folder, red, green, result))

    def _look(self, request: str) -> Move[str]:
        result = yield from run_command(_greeting(request), _LOOK, "Look around")
        lines = result.output.splitlines()
        root = result.working_dir or next((line for line in lines if line.startswith("/")), None)
        if root is None:
            raise GaveUpError(f"I cannot tell in which directory I am:\n\n{quoted(result.text or 'nothing')}")
        if not re.search(r"^Python 3", result.output, re.MULTILINE):
            raise GaveUpError(f"My tour is about Python, and this sandbox has no `python3`:\n\n{quoted(result.output)}")
        taken = {line.strip() for line in lines}
        names = (_FOLDER, *(f"{_FOLDER}-{number}" for number in range(2, len(taken) + 3)))
        name = next(name for name in names if name not in taken)
        return f"{root.rstrip('/')}/{name}"

    def _create(self, text: str, wanted: dict[str, str]) -> Move[None]:
        left = dict(wanted)
        if "file_editor" in self._tools:
            calls = tuple(create(path, content, f"Create {_name(path)}") for path, content in wanted.items())
            results = yield DemoTurn(text, calls)
            if any(result.is_rejected for result in results):
                raise GaveUpError("You did not want these files, so I stop here.")
            pairs = zip(wanted, results, strict=False)
            done = [path for path, result in pairs if not result.is_bad and path in (result.text or "")]
            left = {path: content for path, content in wanted.items() if path not in done}
            text = "The editor did not take that; the shell will."
        for path, content in left.items():
            yield from run_command(text, write_by_shell(path, content), f"Write {_name(path)}")
            text = "And the next."

    def _run_tests(self, folder: str, text: str) -> Move[tuple[UnitReport, Result]]:
        result = yield from run_command(text, unittest_command(folder), "Run the tests")
        return read_report(result), result

    def _mend(self, folder: str, report: UnitReport) -> Move[None]:
        path = f"{folder}/roman.py"
        complaint = f"`{report.complaint}`" if report.complaint else "a failure"
        text = f"As feared: `{report.failed or 'a test'}` says {complaint}. Let me look at the code behind it."
        if "file_editor" not in self._tools:
            yield from run_command(text, write_by_shell(path, MENDED_MODULE), "Mend roman.py")
            return
        view = DemoCall("file_editor", {"command": "view", "path": path, "view_range": [1, -1]}, "Look at roman.py")
        (seen, *_) = yield DemoTurn(text, (view,))
        text = (
            f"The table{_lines_of_table(seen)} knows `X`, `V` and `I`, but not the pairs in which a smaller letter "
            "goes in front, like `IV` or `CM`. The loop below it is fine: it only needs those pairs."
        )
        change = replace(path, FAULTY_LETTERS, MENDED_LETTERS, "Add the subtracting pairs")
        results = yield DemoTurn(text, (change,))
        if results[0].is_rejected:
            raise GaveUpError("You did not want that change, so I stop here.")

    def feature(self, folder: str) -> Script:
        path = f"{folder}/roman.py"
        result = yield from run_command(
            f"{OFFER} But I can make its little project a bit better: reading Roman numerals back. Is it still there?",
            f"cat {path}",
            "Look at roman.py",
        )
        if "to_roman" not in result.output:
            raise GaveUpError("The project of my tour is gone.")
        if "from_roman" not in result.output:
            yield from self._add_feature(path)
        yield from self._create(
            "And its test, over every number there is.", {f"{folder}/test_from_roman.py": FEATURE_TESTS}
        )
        report, result = yield from self._run_tests(folder, "All tests, old and new:")
        yield self._finish(_outcome("I added `from_roman` and a test that goes there and back.", report, result))

    def _add_feature(self, path: str) -> Move[None]:
        text = "It is. Here is `from_roman`, right below its sister."
        if "file_editor" in self._tools:
            change = replace(path, FEATURE_ANCHOR, FEATURE, "Add from_roman")
            results = yield DemoTurn(text, (change,))
            if results[0].is_rejected:
                raise GaveUpError("You did not want that change, so I stop here.")
            if not results[0].is_bad:
                return
        module = MENDED_MODULE.replace(FEATURE_ANCHOR, FEATURE)
        yield from run_command(text, write_by_shell(path, module), "Add from_roman")

    def tests(self, folder: str) -> Script:
        report, result = yield from self._run_tests(folder, f"{OFFER} I can run its tests again, though:")
        yield self._finish(_outcome("I ran the tests again.", report, result))

    def _finish(self, message: str) -> DemoTurn:
        if "finish" in self._tools:
            return DemoTurn("", (DemoCall("finish", {"message": message}),))
        return DemoTurn(message)


def _greeting(request: str) -> str:
    who = "I am the demo: no language model, but a script that looks at what really happens in your sandbox."
    words = set(re.findall(r"[a-z]+", request.lower()))
    if intent_of(request) is Intent.TOUR or {"failing", "test"} <= words:  # the latter is just what the tour does
        return f"Hello! {who} Here is its tour. First: where am I?"
    asked = request if len(request) <= 120 else f"{request[:120]}…"
    return f"Hello! {who} “{asked}” is beyond me, so I show you a small piece of work instead. First: where am I?"


def _lines_of_table(view: Result) -> str:
    start = re.search(r"^\s*(\d+)\s+LETTERS = \[", view.text or "", re.MULTILINE)
    end = re.search(r"^\s*(\d+)\s+\]", view.text or "", re.MULTILINE)
    return f" in lines {start.group(1)} to {end.group(1)}" if start and end else ""


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _summary(folder: str, red: UnitReport, green: UnitReport, result: Result) -> str:
    return (
        f"Done: in `{folder}` there is now a small module that works.\n\n"
        f"- At first `{red.failed}` failed: `{red.complaint}`.\n"
        "- The cause: the table of letters did not know the subtracting pairs (`IV`, `IX`, … `CM`). I added them.\n"
        f"- Then: {green.summary}, all green.\n\n{quoted(result.output, 4)}\n\n"
        f"All of that really happened in your sandbox; the thinking was scripted. {HOW_TO_GO_ON} "
        "Or say `add a feature` or `run the tests`: that much I can do as well."
    )


def _outcome(did: str, report: UnitReport, result: Result) -> str:
    verdict = "all green" if report.is_green else f"not green: `{report.complaint or report.failed or 'see below'}`"
    said = report.summary or "No test ran"
    return f"{did} {said}, {verdict}.\n\n{quoted(result.output, 6)}\n\n{HOW_TO_GO_ON}"


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
        (result, *_) = yield DemoTurn(said, (DemoCall("terminal", {"command": command}, summary),))
        if result.is_rejected:
            raise GaveUpError("You did not want that command to run, so I stop here. Say `tour` and I try again.")
        if result.exit_code is not None:
            return result
        if "still running" in (result.text or "") or "no new output" in (result.text or "").lower():
            yield DemoTurn("It hangs; I interrupt it.", (DemoCall("terminal", {"command": "C-c", "is_input": True}),))
    raise GaveUpError(f"`{command}` never came to an end here. What I got last:\n\n{quoted(result.text or 'nothing')}")


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
