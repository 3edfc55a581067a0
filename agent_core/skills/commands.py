"""Commands inside a skill's text, whose output takes their place when it is read."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

_COMMAND = re.compile(r"!`([^`\n]+)`")
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")


async def with_outputs(text: str, run: Callable[[str], Awaitable[str]]) -> str:
    """`text` with each ``!`command` `` replaced by what `run` gives for it, one after another.

    Nothing inside a fenced block of code is a command, and nothing in an output is.
    """
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence:
            if found is not None and found.group(1).startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif found is not None:
            fence = found.group(1)
        else:
            line = await _replaced(line, run)
        lines.append(line)
    return "\n".join(lines)


async def _replaced(line: str, run: Callable[[str], Awaitable[str]]) -> str:
    parts, end = [], 0
    for found in _COMMAND.finditer(line):
        parts += [line[end : found.start()], await run(found.group(1))]
        end = found.end()
    return "".join([*parts, line[end:]])
