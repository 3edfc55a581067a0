"""The `edit_file` tool: the agent drafts an edit, and a model writes it out."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pydantic import Field

from agent_core.errors import ToolError
from agent_core.events.messages import Message, TextContent
from agent_core.events.schema import Action
from agent_core.tools.context import DraftModel, SandboxAccess, ToolContext
from agent_core.tools.execution import SandboxExecutor
from agent_core.tools.file_editor import LIMIT_SECONDS, FileEditorObservation, FileTool
from agent_core.tools.registry import built_in
from agent_core.tools.spec import ToolAnnotations

TRIES: Final = 3
MAX_ANSWER_CHARS: Final = 1024 * 1024

_ANSWER: Final = re.compile(r"<updated_code>(.*)</updated_code>", re.DOTALL)
_FORM: Final = (
    "Answer with the whole new text of the part between <updated_code> and </updated_code>, each tag on a line of its"
    " own, and with nothing else: no explanation, no fence around the text. All between the tags goes into the file as"
    " it is, so keep indentation, blank lines and everything that is not to change exactly as they are."
)
_WRITE_OUT: Final = (
    "You write out edits of files. You are given a part of a file, and the draft of how that part is to become. The"
    " draft may be sketchy: a comment such as `# ... existing code ...` or `# no changes here` stands for lines of the"
    f" part that stay. Write the part as the draft means it. {_FORM}"
)
_CORRECT: Final = (
    "You correct edits of files. You are given a part of a file that was just edited, and what a check found wrong in"
    f" it since. Correct that, and change nothing else. {_FORM}"
)


def extracted(answer: str) -> str | None:
    """The text that an answer holds, without the line ends at the tags and a first ``#EDIT: …``; None: there is none.

    Nothing but line ends is no text: the part goes.
    """
    found = _ANSWER.search(answer) if len(answer) <= MAX_ANSWER_CHARS else None
    if found is None:
        return None
    text = found.group(1).replace("\r\n", "\n").removeprefix("\n")
    if text.startswith("#EDIT:"):
        text = text.partition("\n")[2]
    return text if text.strip("\n") else ""


async def _answered(model: DraftModel, rules: str, task: str) -> str | None:
    """The new text that the model gives; None when it gives no usable answer. Raises ToolError: it cannot be asked."""
    messages = [Message(role="system", content=[TextContent(text=rules)]), Message.user(task)]
    for _ in range(TRIES):
        text = extracted(await model.answer(messages))
        if text is not None:
            return text
    return None


ROUNDS: Final = 5
MAX_ROUNDS: Final = 20
MAX_LINES: Final = 301
SHOWN_PROBLEMS: Final = 5


class LLMEditAction(Action):
    """A draft, and the lines that it is about."""

    path: str = Field(description="Absolute path of the file. One that does not exist is made, of the draft.")
    content: str = Field(
        description="Draft of the new lines. Lines that stay may be left out, with a comment in their place such as"
        " `# ... existing code ...`; write enough of those around a change to tell where it is."
    )
    start: int = Field(
        default=1, description="First line of the part to edit, from 1; -1 puts the draft behind the last line."
    )
    end: int = Field(default=-1, description="Last line of the part to edit; -1 is the last line of the file.")


class LLMEditObservation(FileEditorObservation):
    """What was changed, with the diff; an error when the new text has errors of syntax that the old one had not."""


class LLMEditExecutor(SandboxExecutor[LLMEditAction, LLMEditObservation]):
    """Reads the lines, has the conversation's draft model write out the draft, looks for errors, and writes, once.

    With `enable_auto_lint` the model corrects what the edit breaks, up to `correct_num` times; what is still broken is
    written and told. What the model cannot do leaves the file as it was.
    """

    def __init__(self, enable_auto_lint: bool = True, correct_num: int = ROUNDS, working_dir: str = "") -> None:
        super().__init__(working_dir)
        self.enable_auto_lint = enable_auto_lint
        self.correct_num = correct_num

    async def carry_out(self, action: LLMEditAction, context: ToolContext, key: str | None) -> LLMEditObservation:
        sandbox = context.sandbox
        write = {"command": "replace", "path": action.path}
        if key is not None:
            known = await _ask(sandbox, "journal.lookup", {"key": key})
            if known["state"] in ("running", "done"):  # a crash came between: it is written, and never again
                return _observation_of(await _ask(sandbox, "file.range", write, key))
        read = {"command": "read", "path": action.path, "first": action.start, "last": action.end}
        seen = await _ask(sandbox, "file.range", {**read, "draft": action.content})
        if seen["is_error"]:
            return _observation_of(seen)
        span = _Span(action.path, seen["first"], seen["last"])
        text: str | None = action.content.replace("\r\n", "\n")
        if span.first <= span.last:
            if context.draft_model is None:
                raise ToolError("edit_file needs a conversation's model to write the draft out; there is none here")
            task = f"File: {action.path}\n\nThe part as it is:\n<part>\n{seen['content']}</part>\n\n"
            task += f"The draft:\n<draft>\n{action.content}\n</draft>"
            text = await _answered(context.draft_model, _WRITE_OUT, task)
        if text is None:
            note = f"The draft model gave no usable text in {TRIES} tries, so {action.path} is as it was. Try a smaller"
            return _observation_of({**seen, "is_error": True, "text": f"{note} range, or a draft with less left out."})
        problems: list[_Problem] = []
        if self.enable_auto_lint:
            text, problems = await self._corrected(context, span, text)
        write = {**write, "version": seen["version"], **span._asdict(), "text": text, "problems": _shown(problems)}
        return _observation_of(await _ask(sandbox, "file.range", write, key))

    async def _corrected(self, context: ToolContext, span: _Span, text: str) -> tuple[str, list[_Problem]]:
        model = context.draft_model
        for _ in range(self.correct_num):
            problems = await _problems(context.sandbox, span, text)
            if not problems or model is None:
                return text, problems
            before, part, after = _around(text, max(0, problems[0].line - span.first))
            task = f"File: {span.path}\n\nThe part:\n<part>\n{part}</part>\n\nWhat is wrong:\n{_shown(problems)}"
            better: str | None = None
            with contextlib.suppress(ToolError):
                better = await _answered(model, _CORRECT, task)
            if better is None:
                return text, problems
            text = before + (f"{better}\n" if after and better and not better.endswith("\n") else better) + after
        return text, await _problems(context.sandbox, span, text)


class _Problem(NamedTuple):
    line: int
    text: str


class _Span(NamedTuple):
    """The lines that are replaced; `last` is the one before `first` where a text is put between lines."""

    path: str
    first: int
    last: int


async def _ask(sandbox: SandboxAccess, op: str, args: dict[str, Any], key: str | None = None) -> dict[str, Any]:
    return (await sandbox.request(op, args, key=key, limit_seconds=LIMIT_SECONDS)).result


async def _problems(sandbox: SandboxAccess, span: _Span, text: str) -> list[_Problem]:
    try:
        result = await _ask(sandbox, "code.lint", {**span._asdict(), "text": text})
    except ToolError:
        return []
    return [_Problem(int(one["line"]), str(one["text"])) for one in result.get("problems", [])]


def _around(text: str, line: int) -> tuple[str, str, str]:
    """The text in three parts; the middle one is all, or as much around a line as a model may edit."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    start = max(0, min(line - MAX_LINES // 2, len(lines) - MAX_LINES))
    end = start + MAX_LINES
    return "".join(lines[:start]), "".join(lines[start:end]), "".join(lines[end:])


def _shown(problems: list[_Problem]) -> str:
    lines = [f"line {one.line}: {one.text}" if one.line else one.text for one in problems[:SHOWN_PROBLEMS]]
    if len(problems) > SHOWN_PROBLEMS:
        lines.append(f"[… and {len(problems) - SHOWN_PROBLEMS} more]")
    return "\n".join(lines)


def _observation_of(result: dict[str, Any]) -> LLMEditObservation:
    fields = {name: result.get(name) for name in ("path", "old_content", "new_content", "diff")}
    is_new = not result["prev_exist"]
    return LLMEditObservation(
        content=[TextContent(text=result["text"])],
        is_error=result["is_error"],
        command="create" if is_new else "str_replace",
        prev_exist=not is_new,
        **fields,
    )


_DESCRIPTION: Final = """Edit a file, or make a new one, by a draft of the new lines.

Another model writes the draft out, so lines that stay can be left out of it: put a comment like
`# ... existing code ...` in their place. It sees the lines from `start` to `end` only, which are at most 300: look at
the file first, and give a range that is just large enough. What the edit breaks in the syntax is corrected, or told.

- A file that does not exist is made of the draft, word for word.
- `start` -1 puts the draft, word for word, behind the last line.
- To remove lines write a draft of the lines around them, with a comment that says what is gone.

Example: in a file with def a in lines 1 to 3 and def b in lines 5 to 9, to change the last line of b:
start 5, end 9, content:
def b():
    # ... existing code ...
    return total * 2"""


@built_in
class LLMBasedFileEditTool(FileTool[LLMEditAction, LLMEditObservation]):
    """The `edit_file` tool."""

    journaled = True
    tool_name = "edit_file"
    description: str = _DESCRIPTION
    annotations: ToolAnnotations = ToolAnnotations(title="Edit file by a draft", openWorldHint=False)

    @classmethod
    def make_executor(cls, *, enable_auto_lint: bool = True, correct_num: int = ROUNDS) -> Callable[..., Any]:
        """ValueError: `correct_num` makes no sense."""
        if isinstance(correct_num, bool) or not isinstance(correct_num, int) or not 0 <= correct_num <= MAX_ROUNDS:
            raise ValueError(f"correct_num is {correct_num!r}: give a whole number from 0 to {MAX_ROUNDS}")
        if not isinstance(enable_auto_lint, bool):
            raise ValueError(f"enable_auto_lint is {enable_auto_lint!r}: give true or false")
        return LLMEditExecutor(enable_auto_lint, correct_num)
