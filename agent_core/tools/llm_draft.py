"""Having a model write out drafts of edits: what it is asked, and what counts as an answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from agent_core.events.messages import Message, TextContent
from agent_core.tools.spec import DraftModel

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


async def written_out(model: DraftModel, path: str, part: str, draft: str) -> str | None:
    """The part of the file as the draft means it; None when the model gives no usable answer.

    Raises:
        ToolError: the model cannot be asked.
    """
    task = f"File: {path}\n\nThe part as it is:\n<part>\n{part}</part>\n\nThe draft:\n<draft>\n{draft}\n</draft>"
    return await _answered(model, _asking(_WRITE_OUT, task))


async def corrected(model: DraftModel, path: str, part: str, problems: str) -> str | None:
    """The part of the file without these problems; None when the model gives no usable answer.

    Raises:
        ToolError: the model cannot be asked.
    """
    task = f"File: {path}\n\nThe part:\n<part>\n{part}</part>\n\nWhat is wrong:\n{problems}"
    return await _answered(model, _asking(_CORRECT, task))


def extracted(answer: str) -> str | None:
    """The text that an answer holds; None when it holds none.

    The line ends at the tags are not part of it, nor is a first line that only names the edit (``#EDIT: …``). Nothing
    but line ends is no text: the part goes.
    """
    found = _ANSWER.search(answer) if len(answer) <= MAX_ANSWER_CHARS else None
    if found is None:
        return None
    text = found.group(1).replace("\r\n", "\n").removeprefix("\n")
    if text.startswith("#EDIT:"):
        text = text.partition("\n")[2]
    return text if text.strip("\n") else ""


def _asking(rules: str, task: str) -> list[Message]:
    return [Message(role="system", content=[TextContent(text=rules)]), Message.user(task)]


async def _answered(model: DraftModel, messages: Sequence[Message]) -> str | None:
    for _ in range(TRIES):
        text = extracted(await model.answer(messages))
        if text is not None:
            return text
    return None
