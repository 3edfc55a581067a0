"""What the tools that search files have in common: the request, and what is said of its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent_core.tools.spec import ToolContext

MAX_FILES: Final = 100
SEARCH_SECONDS: Final = 30.0
OUTER_SECONDS: Final = SEARCH_SECONDS + 15.0


@dataclass(frozen=True, slots=True)
class FileSearch:
    """The result of a search; `error` says what was wrong with it, and is empty otherwise.

    Attributes:
        root: the directory that was searched, an absolute path.
        files: absolute paths, the newest first.
        truncated: there are more files.
        notes: what the model should know besides.
    """

    root: str
    files: list[str]
    truncated: bool = False
    error: str = ""
    notes: tuple[str, ...] = ()

    def text(self, found: str, nothing: str) -> str:
        """The report: `found` and the list, or `nothing`."""
        lines = [f"{found}:", *self.files] if self.files else [nothing]
        if self.truncated:
            lines.append(
                f"[Only the newest {len(self.files)} are listed; there are more. Narrow the search to see others.]"
            )
        return "\n".join([*lines, *(f"[{note}]" for note in self.notes)])


async def search(context: ToolContext, op: str, **args: str | None) -> FileSearch:
    """Have the sandbox search; relative paths are below its workspace.

    Raises:
        ToolError: the arguments are no good.
        SandboxError: the sandbox cannot be had.
    """
    asked: dict[str, Any] = {name: value for name, value in args.items() if value is not None}
    reply = await context.sandbox.request(
        op, {**asked, "limit": MAX_FILES, "timeout": SEARCH_SECONDS}, limit_seconds=OUTER_SECONDS
    )
    result = reply.result
    where = str(result.get("root") or args.get("path") or context.sandbox.working_dir)
    if result.get("error"):
        return FileSearch(where, [], error=str(result["error"]))
    return FileSearch(where, result["files"], bool(result["truncated"]), notes=tuple(_notes(result)))


def _notes(result: Mapping[str, Any]) -> list[str]:
    notes = []
    if unreadable := result.get("unreadable"):
        notes.append(f"{unreadable} director{'y' if unreadable == 1 else 'ies'} could not be read.")
    if too_large := result.get("too_large"):
        notes.append(f"{too_large} very large file{'' if too_large == 1 else 's'} were not searched.")
    return notes
