"""``demo/tour``: the scripted model that needs no key. It says what it is, and does one real piece of work.

A script is a generator that yields turns and is sent their results. Replayed over the history of a conversation it
arrives where it stands, so the demo needs no memory.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import uuid
from collections.abc import AsyncGenerator, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from agent_core.llm.transport.exchange import CallDelta, Chunk, CompletionRequest, Endpoint

TURN_SECONDS = 0.8
WORD_SECONDS = 0.05
CALL_SECONDS = 0.3

DemoMessage = Mapping[str, Any]


class DemoTransport:
    """The demo as a model. ``pace`` in the request's extra body stretches its waits; 0 leaves them out."""

    async def prepare(self, endpoint: Endpoint) -> None:
        """Nothing to prepare."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        """See `Transport.stream`; never fails."""
        pace = request.extra_body.get("pace", 1.0)
        pace = max(0.0, float(pace)) if isinstance(pace, int | float) else 1.0
        functions = [tool.get("function", {}) for tool in request.tools]
        tools = {str(one.get("name")): frozenset(one.get("parameters", {}).get("properties", {})) for one in functions}
        turn = next_turn(request.messages, tools)
        await _wait(TURN_SECONDS * pace)
        for word in re.findall(r"\s*\S+\s*$|\s*\S+", turn.text):
            yield Chunk(text=word, has_choice=True)
            await _wait(WORD_SECONDS * pace)
        for index, call in enumerate(turn.calls):
            await _wait(CALL_SECONDS * pace)
            extras = {"summary": call.summary, "security_risk": "LOW"}
            extras = {name: value for name, value in extras.items() if value and name in tools.get(call.name, ())}
            arguments = json.dumps({**call.arguments, **extras})
            delta = CallDelta(index, f"call_{uuid.uuid4().hex[:24]}", call.name, arguments)
            yield Chunk(calls=(delta,), has_choice=True)
        yield Chunk(finish_reason="tool_calls" if turn.calls else "stop", has_choice=True)


async def _wait(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)


def next_turn(messages: Sequence[DemoMessage], tools: Collection[str]) -> DemoTurn:
    """What the demo says and does next, given the conversation so far."""
    if not tools:
        request = " ".join(text_of(message) for message in messages[-2:]).lower()
        return DemoTurn("A tour of Drydock" if "title" in request else f"{OFFER} {HOW_TO_GO_ON}")
    runs = runs_of(messages)
    if not runs:
        return DemoTurn(f"{OFFER} Say `tour` and I show it. {HOW_TO_GO_ON}")
    run = runs[-1]
    if run.interjection is Intent.STOP:
        return DemoTurn("Stopped. Say `tour` and I go on where I was.")
    if run.interjection is not None:
        return DemoTurn(f"{OFFER} Say `tour` and I go on with it. {HOW_TO_GO_ON}")
    made = [call for before in runs[:-1] for calls in before.turns for call in calls]
    texts = [str(value) for call in made for value in call.arguments.values()]
    found = (re.search(r"(/[^\s'\"]*/drydock-tour(?:-\d+)?)/roman\.py", text) for text in reversed(texts))
    folder = next((match.group(1) for match in found if match), None)
    demo = Demo(tools)
    if folder is None or run.wants is Intent.TOUR:
        script = demo.tour(run.request)
    elif run.wants is Intent.TESTS or any("/test_from_roman.py" in text for text in texts):
        script = demo.tests(folder)
    else:
        script = demo.feature(folder)
    turn = _replayed(demo.guarded(script), run.turns)
    return turn or DemoTurn(f"That was all. Say `tour` for another round. {HOW_TO_GO_ON}")


def _replayed(script: DemoScript, made: Sequence[tuple[MadeCall, ...]]) -> DemoTurn | None:
    """The first turn of the script that has not been made yet: turns of the history are fed to it in their order."""
    left = iter(made)
    try:
        turn = next(script)
        while turn.calls:
            results = next((results for calls in left if (results := _results(turn, calls)) is not None), None)
            if results is None:
                return turn
            turn = script.send(results)
    except StopIteration:
        return None
    return turn


def _results(turn: DemoTurn, made: tuple[MadeCall, ...]) -> tuple[CallResult, ...] | None:
    if len(turn.calls) != len(made):
        return None
    for expected, call in zip(turn.calls, made, strict=True):
        arguments = {name: value for name, value in call.arguments.items() if name not in ("summary", "security_risk")}
        if expected.name != call.name or dict(expected.arguments) != arguments:
            return None
    return tuple(call.result for call in made)


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
class CallResult:
    """Result of one call; `text` is None where nothing did."""

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
        lines_left = [line for line in (self.text or "").splitlines() if not re.match(r"\[[A-Z][^\]]*\]\s*$", line)]
        return "\n".join(lines_left).strip()

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
    result: CallResult


@dataclass(slots=True)
class Run:
    """One request of the user and what followed; `interjection` is a later message not answered yet."""

    request: str
    wants: Intent
    turns: list[tuple[MadeCall, ...]] = field(default_factory=list)
    is_done: bool = False
    interjection: Intent | None = None


class Intent(StrEnum):
    """Intent of a user's message, as far as the demo tells them apart."""

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


def runs_of(messages: Sequence[DemoMessage]) -> list[Run]:
    """The conversation as runs; empty when the user has said nothing yet."""
    runs: list[Run] = []
    results = {str(one.get("tool_call_id")): text_of(one) for one in messages if one.get("role") == "tool"}
    for message in messages:
        role = message.get("role")
        if role == "user":
            _take_user(runs, text_of(message))
        elif role == "assistant" and runs:
            run, calls = runs[-1], tuple(_made_calls(message, results))
            if calls and any(call.name != "finish" for call in calls):
                run.turns.append(calls)
            elif not calls and run.interjection is not None:
                run.interjection = None
            else:
                run.is_done = True
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


def _made_calls(message: DemoMessage, results: Mapping[str, str]) -> Iterator[MadeCall]:
    for call in message.get("tool_calls") or ():
        function = call["function"]
        try:
            arguments = json.loads(function.get("arguments") or "{}")
        except ValueError:
            arguments = {}
        text = results.get(call["id"])
        yield MadeCall(function["name"], arguments if isinstance(arguments, dict) else {}, CallResult(text))


def text_of(message: DemoMessage) -> str:
    """The text of a message in wire form."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or () if part.get("type") == "text")


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

    def guarded(self, script: DemoScript) -> DemoScript:
        """The script, where there is a terminal for it; told why it gave up where it did."""
        if "terminal" not in self._tools:
            yield DemoTurn(f"{OFFER} It needs the tool `terminal`, which is not switched on here. {HOW_TO_GO_ON}")
            return
        try:
            yield from script
        except GaveUpError as stop:
            yield DemoTurn(f"{stop}\n\nSay `tour` to start over. {HOW_TO_GO_ON}")

    def tour(self, request: str) -> DemoScript:
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
        yield self._finish(
            f"Done: in `{folder}` there is now a small module that works.\n\n"
            f"- At first `{red.failed}` failed: `{red.complaint}`.\n"
            "- The cause: the table of letters did not know the subtracting pairs (`IV`, `IX`, … `CM`). I added them.\n"
            f"- Then: {green.summary}, all green.\n\n{quoted(result.output, 4)}\n\n"
            f"All of that really happened in your sandbox; the thinking was scripted. {HOW_TO_GO_ON} "
            "Or say `add a feature` or `run the tests`: that much I can do as well."
        )

    def _look(self, request: str) -> DemoMove[str]:
        words = set(re.findall(r"[a-z]+", request.lower()))
        # The latter is just what the tour does.
        asks_for_tour = intent_of(request) is Intent.TOUR or {"failing", "test"} <= words
        quote = request if len(request) <= 120 else f"{request[:120]}…"
        plan = f"“{quote}” is beyond me, so I show you a small piece of work instead."
        result = yield from run_command(
            "Hello! I am the demo: no language model, but a script that looks at what really happens in your sandbox. "
            f"{'Here is its tour.' if asks_for_tour else plan} First: where am I?",
            _LOOK,
            "Look around",
        )
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

    def _create(self, text: str, expected: dict[str, str]) -> DemoMove[None]:
        left = dict(expected)
        if "file_editor" in self._tools:
            creations = [
                {"command": "create", "path": path, "file_text": content} for path, content in expected.items()
            ]
            calls = [DemoCall("file_editor", one, f"Create {one['path'].rpartition('/')[2]}") for one in creations]
            results = yield DemoTurn(text, tuple(calls))
            if any(result.is_rejected for result in results):
                raise GaveUpError("You did not want these files, so I stop here.")
            pairs = zip(expected, results, strict=False)
            done = [path for path, result in pairs if not result.is_bad and path in (result.text or "")]
            left = {path: content for path, content in expected.items() if path not in done}
            text = "The editor did not take that; the shell will."
        for path, content in left.items():
            yield from run_command(text, write_by_shell(path, content), f"Write {path.rpartition('/')[2]}")
            text = "And the next."

    def _run_tests(self, folder: str, text: str) -> DemoMove[tuple[UnitReport, CallResult]]:
        command = f"python3 -m unittest discover -v -s {shlex.quote(folder)}"
        result = yield from run_command(text, command, "Run the tests")
        ran = re.search(r"Ran (\d+) tests? in [\d.]+s", result.output)
        failed = re.search(r"^(?:FAIL|ERROR): (\w+)", result.output, re.MULTILINE)
        complaint = re.search(r"^(\w*(?:Error|Exception)\b.*)$", result.output, re.MULTILINE)
        count = int(ran.group(1)) if ran else 0
        report = UnitReport(
            count=count,
            is_green=count > 0 and result.exit_code == 0,
            failed=failed.group(1) if failed else "",
            complaint=complaint.group(1).strip() if complaint else "",
            summary=ran.group(0) if ran else "",
        )
        return report, result

    def _mend(self, folder: str, report: UnitReport) -> DemoMove[None]:
        path = f"{folder}/roman.py"
        complaint = f"`{report.complaint}`" if report.complaint else "a failure"
        text = f"As feared: `{report.failed or 'a test'}` says {complaint}. Let me look at the code behind it."
        if "file_editor" not in self._tools:
            yield from run_command(text, write_by_shell(path, MENDED_MODULE), "Mend roman.py")
            return
        view = DemoCall("file_editor", {"command": "view", "path": path, "view_range": [1, -1]}, "Look at roman.py")
        (seen, *_) = yield DemoTurn(text, (view,))
        start = re.search(r"^\s*(\d+)\s+LETTERS = \[", seen.text or "", re.MULTILINE)
        end = re.search(r"^\s*(\d+)\s+\]", seen.text or "", re.MULTILINE)
        lines = f" in lines {start.group(1)} to {end.group(1)}" if start and end else ""
        text = (
            f"The table{lines} knows `X`, `V` and `I`, but not the pairs in which a smaller letter "
            "goes in front, like `IV` or `CM`. The loop below it is fine: it only needs those pairs."
        )
        change = replace(path, FAULTY_LETTERS, MENDED_LETTERS, "Add the subtracting pairs")
        results = yield DemoTurn(text, (change,))
        if results[0].is_rejected:
            raise GaveUpError("You did not want that change, so I stop here.")

    def feature(self, folder: str) -> DemoScript:
        path = f"{folder}/roman.py"
        result = yield from run_command(
            f"{OFFER} But I can make its little project a bit better: reading Roman numerals back. Is it still there?",
            f"cat {path}",
            "Look at roman.py",
        )
        if "to_roman" not in result.output:
            raise GaveUpError("The project of my tour is gone.")
        text, is_added = "It is. Here is `from_roman`, right below its sister.", "from_roman" in result.output
        if not is_added and "file_editor" in self._tools:
            change = replace(path, FEATURE_ANCHOR, FEATURE, "Add from_roman")
            results = yield DemoTurn(text, (change,))
            if results[0].is_rejected:
                raise GaveUpError("You did not want that change, so I stop here.")
            is_added = not results[0].is_bad
        if not is_added:
            module = MENDED_MODULE.replace(FEATURE_ANCHOR, FEATURE)
            yield from run_command(text, write_by_shell(path, module), "Add from_roman")
        yield from self._create(
            "And its test, over every number there is.", {f"{folder}/test_from_roman.py": FEATURE_TESTS}
        )
        report, result = yield from self._run_tests(folder, "All tests, old and new:")
        yield self._finish(_outcome("I added `from_roman` and a test that goes there and back.", report, result))

    def tests(self, folder: str) -> DemoScript:
        report, result = yield from self._run_tests(folder, f"{OFFER} I can run its tests again, though:")
        yield self._finish(_outcome("I ran the tests again.", report, result))

    def _finish(self, message: str) -> DemoTurn:
        if "finish" in self._tools:
            return DemoTurn("", (DemoCall("finish", {"message": message}),))
        return DemoTurn(message)


def _outcome(did: str, report: UnitReport, result: CallResult) -> str:
    verdict = "all green" if report.is_green else f"not green: `{report.complaint or report.failed or 'see below'}`"
    sentence = report.summary or "No test ran"
    return f"{did} {sentence}, {verdict}.\n\n{quoted(result.output, 6)}\n\n{HOW_TO_GO_ON}"


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
DemoMove = Generator[DemoTurn, tuple[CallResult, ...], T]
DemoScript = DemoMove[None]


class GaveUpError(Exception):
    """A move did not work out; the message tells the user."""


def run_command(text: str, command: str, summary: str) -> DemoMove[CallResult]:
    """Run a command until it has ended once: interrupted or hanging ones are tried twice more."""
    result = CallResult(None)
    for attempt in range(3):
        sentence = text if attempt == 0 else "That did not come to an end; once more."
        (result, *_) = yield DemoTurn(sentence, (DemoCall("terminal", {"command": command}, summary),))
        if result.is_rejected:
            raise GaveUpError("You did not want that command to run, so I stop here. Say `tour` and I try again.")
        if result.exit_code is not None:
            return result
        if "still running" in (result.text or "") or "no new output" in (result.text or "").lower():
            yield DemoTurn("It hangs; I interrupt it.", (DemoCall("terminal", {"command": "C-c", "is_input": True}),))
    raise GaveUpError(f"`{command}` never came to an end here. What I got last:\n\n{quoted(result.text or 'nothing')}")


def replace(path: str, old: str, new: str, summary: str) -> DemoCall:
    """A change in a file."""
    return DemoCall("file_editor", {"command": "str_replace", "path": path, "old_str": old, "new_str": new}, summary)


def write_by_shell(path: str, text: str) -> str:
    """A command that writes a file, for when the editor will not."""
    folder, _, _ = path.rpartition("/")
    return f"mkdir -p {shlex.quote(folder)} && cat > {shlex.quote(path)} <<'END_OF_FILE'\n{text}END_OF_FILE"


def quoted(text: str, lines: int = 12) -> str:
    """The last lines of an output, as a block."""
    lines_left = [line for line in text.strip().splitlines() if line.strip()][-lines:]
    return "```\n" + "\n".join(line[:200] for line in lines_left) + "\n```"


@dataclass(frozen=True, slots=True)
class UnitReport:
    """Report of a run of the tests."""

    count: int
    is_green: bool
    failed: str
    complaint: str
    summary: str
