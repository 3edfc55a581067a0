"""`edit_file`: drafts that a model writes out, with the runner's own files and checks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_core.agent.codeact import CodeActAgent
from agent_core.errors import ToolError
from agent_core.events.llm_events import ActionEvent
from agent_core.events.messages import Message
from agent_core.events.risk import SecurityRisk
from agent_core.llm.llm import LLM
from agent_core.security.shell_rules import ShellRuleAnalyzer
from agent_core.tools.llm_edit import (
    LLMBasedFileEditTool,
    LLMEditAction,
    LLMEditExecutor,
    LLMEditObservation,
    extracted,
)
from agent_core.tools.registry import resolve_tool
from agent_core.tools.spec import Tool
from runtime_images.runner.files import line_ranges, lint
from runtime_images.runner.files.edits import EditHistory
from runtime_images.runner.files.line_ranges import span_of
from tests.answering_sandbox import AnsweringSandbox, Asked, FakeCall

WHOLE = "one\ntwo\nthree\nfour\nfive\n"


@dataclass
class Workplace(AnsweringSandbox):
    """The runner's own ranges and checks on a folder, with a journal."""

    state: str = field(default="", kw_only=True)
    journal: dict[str, dict[str, Any]] = field(default_factory=dict, kw_only=True)
    meanwhile: Callable[[], None] = field(default=lambda: None, kw_only=True)

    def answer(self, asked: Asked) -> dict[str, Any]:
        if asked.op == "journal.lookup":
            return {"state": "done" if asked.args["key"] in self.journal else "unknown"}
        if asked.op == "code.lint":
            return self._lint(asked)
        if asked.key in self.journal:
            return self.journal[asked.key]
        span = span_of(asked.args, self.working_dir)
        if span.command == "replace":
            self.meanwhile()
        result = line_ranges.run(span, EditHistory(self.state))
        if asked.key is not None:
            self.journal[asked.key] = json.loads(json.dumps(result))
        return result

    def _lint(self, asked: Asked) -> dict[str, Any]:
        found = lint.report(asked.args)
        return {"problems": [{"line": one.line, "text": one.text} for one in found]}

    @property
    def writes(self) -> list[Asked]:
        return [one for one in self.asked if one.args.get("command") == "replace" and one.op == "file.range"]


class Model:
    """Says these things, one after the other; None fails."""

    def __init__(self, *answers: str | None) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def answer(self, messages: Sequence[Message]) -> str:
        self.asked.append(messages[-1].text)
        said = self._answers.pop(0)
        if said is None:
            raise ToolError("the draft model could not be asked: no money")
        return said


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    (tmp_path / "work").mkdir()
    return Workplace(working_dir=str(tmp_path / "work"), state=str(tmp_path / "state"))


def put(place: Workplace, text: str, name: str = "file.txt", codec: str = "utf-8") -> Path:
    path = Path(place.working_dir, name)
    path.write_bytes(text.encode(codec))
    return path


def raw(path: Path) -> bytes:
    return path.read_bytes()


def read(path: Path) -> str:
    return raw(path).decode()


def tagged(text: str) -> str:
    return f"Here it is.\n<updated_code>\n{text}\n</updated_code>\n"


async def edit(
    place: Workplace,
    model: Model | None,
    path: Path | str,
    executor: LLMEditExecutor | None = None,
    key: str = "",
    **given: Any,
) -> LLMEditObservation:
    action = LLMEditAction(path=str(path), **{"content": "draft", **given})
    call = FakeCall(place, idempotency_key=key or f"c:{len(place.asked)}", draft_model=model)
    return await (executor or LLMEditExecutor()).acall(action, call)


async def test_a_missing_file_is_made_of_the_draft_without_a_model(place: Workplace) -> None:
    path = Path(place.working_dir, "new/file.py")
    made = await edit(place, None, path, content="x = 1\n", start=7, end=9)
    assert (made.is_error, made.prev_exist, made.old_content, made.new_content) == (False, False, None, "x = 1\n")
    assert read(path) == "x = 1\n"
    assert "+x = 1" in (made.diff or "")
    assert [one.key for one in place.writes] == ["c:0"]


async def test_the_model_is_given_the_lines_and_the_draft_and_its_text_takes_their_place(place: Workplace) -> None:
    path = put(place, WHOLE)
    model = Model(tagged("TWO\nTHREE\n3.5"))
    made = await edit(place, model, path, start=2, end=3, content="the draft")
    assert read(path) == "one\nTWO\nTHREE\n3.5\nfour\nfive\n"
    (asked,) = model.asked
    assert "<part>\ntwo\nthree\n</part>" in asked
    assert "<draft>\nthe draft\n</draft>" in asked
    assert (made.old_content, made.new_content, made.prev_exist) == (WHOLE, read(path), True)
    assert "-two\n-three\n+TWO\n+THREE\n+3.5\n" in (made.diff or "")
    assert (made.diff or "no diff") in made.text


@pytest.mark.parametrize(
    ("before", "start", "end", "after"),
    [
        ("a\nb", -1, -1, "a\nb\ndraft"),
        ("a\nb\n", -1, -1, "a\nb\ndraft\n"),
        ("a\r\nb\r\n", -1, 2, "a\r\nb\r\ndraft\r\n"),
        ("", 1, -1, "draft"),
        ("", -1, -1, "draft"),
    ],
)
async def test_a_draft_for_the_end_is_put_there_as_it_is(
    place: Workplace, before: str, start: int, end: int, after: str
) -> None:
    path = put(place, before)
    assert not (await edit(place, None, path, start=start, end=end)).is_error
    assert raw(path) == after.encode()


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (0, -1, "`start` must be from 1 to 5, or -1"),
        (-2, -1, "`start`"),
        (6, -1, "`start`"),
        (1, 6, "`end` must be from 1 to 5, or -1"),
        (1, 0, "`end`"),
        (-1, 6, "`end`"),
        (4, 3, "`end` must not be before `start`"),
    ],
)
async def test_a_range_that_is_none_is_an_error(place: Workplace, start: int, end: int, words: str) -> None:
    path = put(place, WHOLE)
    made = await edit(place, None, path, start=start, end=end)
    assert made.is_error
    assert f"start={start}, end={end}" in made.text
    assert words in made.text
    assert read(path) == WHOLE


async def test_a_range_may_have_301_lines_and_a_longer_one_is_told_what_is_similar(place: Workplace) -> None:
    lines = [f"value_{n} = {n}" for n in range(1, 401)]
    lines[110:114] = ["def find_the_boat(sea):", "    for wave in sea:", "        return wave.boat", "    return None"]
    path = put(place, "\n".join(lines) + "\n")
    draft = "def find_the_boat(sea):\n    return sea.boat or None\n"
    made = await edit(place, None, path, start=1, end=302, content=draft)
    assert made.is_error
    assert "at most 300" in made.text
    assert made.text.count("similarity") == 3
    assert made.text.index("Lines 101 to 120 (similarity 0.") < made.text.index("find_the_boat")
    assert not (await edit(place, Model(tagged("x")), path, start=1, end=301)).is_error
    assert read(path) == "\n".join(["x", *lines[301:]]) + "\n"


async def test_the_model_has_three_tries_and_then_the_file_is_as_it_was(place: Workplace) -> None:
    path = put(place, WHOLE)
    garbage = ("", "<updated_code>without an end", f"<updated_code>{'x' * 2**21}</updated_code>")
    model = Model(*garbage)
    made = await edit(place, model, path)
    assert made.is_error
    assert "3 tries" in made.text
    assert len(model.asked) == 3
    assert read(path) == WHOLE
    assert not (await edit(place, Model("", "no", tagged("yes")), path)).is_error
    assert read(path) == "yes\n"
    with pytest.raises(ToolError, match="no money"):
        await edit(place, Model(None), path)
    with pytest.raises(ToolError, match="needs a conversation"):
        await edit(place, None, path)
    assert read(path) == "yes\n"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("<updated_code>\na\n\n</updated_code>", "a\n\n"),
        ("<updated_code>a</updated_code>", "a"),
        ("<updated_code>\n#EDIT: the first line\na\n</updated_code>", "a\n"),
        ("<updated_code>#EDIT: x\r\na\r\n</updated_code>", "a\n"),
        ("<updated_code>\nx #EDIT: stays\n</updated_code>", "x #EDIT: stays\n"),
        ("<updated_code>\n'</updated_code>'\n</updated_code>", "'</updated_code>'\n"),
        ("<updated_code>\n</updated_code>", ""),
        ("a", None),
    ],
)
def test_what_stands_between_the_tags_counts(answer: str, text: str | None) -> None:
    assert extracted(answer) == text


async def test_lines_that_are_not_edited_keep_their_ends_and_their_encoding(place: Workplace) -> None:
    path = put(place, "\ufeffé\r\ntwo\r\nthree\nfour", codec="utf-16-le")
    assert not (await edit(place, Model(tagged("zwei\nhalb")), path, start=2, end=2)).is_error
    assert raw(path) == "\ufeffé\r\nzwei\r\nhalb\r\nthree\nfour".encode("utf-16-le")
    assert not (await edit(place, Model(tagged("4")), path, start=5)).is_error
    assert raw(path).decode("utf-16-le").endswith("three\n4")
    assert not (await edit(place, Model(tagged("")), path, start=1, end=4)).is_error
    assert raw(path).decode("utf-16-le") == "\ufeff4"


async def test_what_the_edit_breaks_is_corrected_and_written_once(place: Workplace) -> None:
    path = put(place, "def a():\n    return 1\n\n\ndef b():\n    return 2\n", "code.py")
    model = Model(tagged("def b(:\n    return 3"), tagged("def b()\n    return 3"), tagged("def b():\n    return 3"))
    made = await edit(place, model, path, start=5, end=6)
    assert (made.is_error, read(path)) == (False, "def a():\n    return 1\n\n\ndef b():\n    return 3\n")
    assert "line 5: SyntaxError" in model.asked[1]
    assert "<part>\ndef b(:\n" in model.asked[1]
    assert len(place.writes) == 1
    assert "-    return 2\n+    return 3\n" in (made.diff or "")


async def test_what_cannot_be_corrected_is_written_and_told(place: Workplace) -> None:
    path = put(place, "x = 1\n", "code.py")
    model = Model(*[tagged("x = (") for _ in range(6)])
    made = await edit(place, model, path)
    assert len(model.asked) == 6, "the draft, and five corrections"
    assert made.is_error
    assert "line 1: SyntaxError" in made.text
    assert read(path) == made.new_content == "x = (\n"
    assert "+x = (" in (made.diff or "")
    for broken, answers in (("y = )", (None,)), ("z = ]", ("no tag", "no", "no"))):
        made = await edit(place, Model(tagged(broken), *answers), path, start=1, end=1)
        assert (made.is_error, read(path)) == (True, f"{broken}\n")


async def test_what_was_broken_before_is_nobodys_fault_and_without_lint_nothing_is_looked_for(place: Workplace) -> None:
    path = put(place, "x = 1\ny = (\n", "code.py")
    assert not (await edit(place, Model(tagged("x = 2")), path, start=1, end=1)).is_error
    path = put(place, "x = 1\n", "other.py")
    assert not (await edit(place, Model(tagged("x = (")), path, LLMEditExecutor(enable_auto_lint=False))).is_error
    assert not any(one.op == "code.lint" for one in place.asked[-3:])


async def test_a_long_text_is_corrected_around_the_problem(place: Workplace) -> None:
    path = Path(place.working_dir, "long.py")
    lines = [f"x{n} = {n}\n" for n in range(1000)]
    lines[700] = "x700 = (]\n"
    model = Model(tagged("".join([*lines[550:700], "x700 = 700\n", *lines[701:851]]).rstrip()))
    made = await edit(place, model, path, content="".join(lines))
    assert not made.is_error, made.text
    assert "<part>\nx550 = 550\n" in model.asked[0]
    assert model.asked[0].count("\nx") == 301
    assert read(path) == "".join([*lines[:700], "x700 = 700\n", *lines[701:]])


async def test_a_file_that_changed_while_the_model_thought_is_not_overwritten(place: Workplace) -> None:
    path = put(place, WHOLE)

    def changed() -> None:
        put(place, "something else\n")

    place.meanwhile = changed
    made = await edit(place, Model(tagged("x")), path)
    assert made.is_error
    assert "changed by something else" in made.text
    assert read(path) == "something else\n"


async def test_a_call_that_is_stopped_while_the_model_thinks_leaves_the_file_as_it_was(place: Workplace) -> None:
    path = put(place, WHOLE)
    thinking = asyncio.Event()

    class Slow(Model):
        async def answer(self, messages: Sequence[Message]) -> str:
            thinking.set()
            await asyncio.Event().wait()
            raise AssertionError("it is never done")

    task = asyncio.create_task(edit(place, Slow(), path))
    await asyncio.wait_for(thinking.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (read(path), place.writes) == (WHOLE, [])


async def test_after_a_crash_the_result_is_taken_over_and_nobody_is_asked(place: Workplace) -> None:
    path = put(place, WHOLE)
    first = await edit(place, Model(tagged("x")), path, key="c:9")
    put(place, "edited since\n")
    again = await edit(place, None, path, key="c:9")
    assert again == first
    assert read(path) == "edited since\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [("file.txt", "absolute"), ("/dev/zero", "a device"), ("/tmp", "directory"), ("/tmp/none/", "like a directory's")],
)
async def test_what_is_no_text_file_is_refused_at_once(place: Workplace, name: str, words: str) -> None:
    made = await edit(place, None, name)
    assert made.is_error
    assert words in made.text


def test_the_flag_brings_it_in_place_of_the_editor() -> None:
    model = LLM(model="openai/x")
    assert "edit_file" not in CodeActAgent(llm=model).initialize()
    agent = CodeActAgent(llm=model, enable_llm_editor=True)
    tools = agent.initialize()
    assert "edit_file" in tools
    assert "file_editor" not in tools
    schema = agent.shown_tool(tools["edit_file"])["function"]["parameters"]
    assert schema["required"] == ["path", "content", "security_risk"]
    for name in ("edit_file", "LLMBasedFileEditTool"):
        (made,) = resolve_tool(Tool(name=name, params={"correct_num": 2}))
        assert made.name == "edit_file"
    for params in ({"correct_num": -1}, {"correct_num": True}, {"enable_auto_lint": 1}):
        with pytest.raises(ValueError, match=next(iter(params))):
            LLMBasedFileEditTool.create(**params)


@pytest.mark.parametrize(("path", "risk"), [("/workspace/a", SecurityRisk.MEDIUM), ("/etc/passwd", SecurityRisk.HIGH)])
def test_the_rules_judge_by_the_file_that_is_written(path: str, risk: SecurityRisk) -> None:
    event = ActionEvent(action=LLMEditAction(path=path, content="x"), tool_name="edit_file", tool_call_id="1")
    assert ShellRuleAnalyzer().security_risk(event) is risk
