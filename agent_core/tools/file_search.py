"""Tools that search files: glob by their names, grep by their content."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from agent_core.events.schema import Action, Observation
from agent_core.tools.context import ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.execution import SandboxExecutor
from agent_core.tools.registry import built_in
from agent_core.tools.spec import ToolAnnotations

MAX_FILES: Final = 100
SEARCH_SECONDS: Final = 30.0
OUTER_SECONDS: Final = SEARCH_SECONDS + 15.0


async def _search(
    context: ToolContext, op: str, pattern: str, path: str | None, include: str | None = None
) -> tuple[str, dict[str, Any]]:
    """Have the sandbox search; returns the report for the model, and the fields that both observations have."""
    args = {"pattern": pattern, "path": path, "include": include}
    request: dict[str, Any] = {name: value for name, value in args.items() if value is not None}
    request |= {"limit": MAX_FILES, "timeout": SEARCH_SECONDS}
    result = (await context.sandbox.request(op, request, limit_seconds=OUTER_SECONDS)).result
    root = str(result.get("root") or path or context.sandbox.working_dir)
    fields: dict[str, Any] = {"pattern": pattern, "search_path": root}
    if error := result.get("error"):
        return str(error), {**fields, "is_error": True, "truncated": False, "files": []}
    files, truncated = result["files"], bool(result["truncated"])
    matching = "matching" if op == "search.glob" else "containing"
    where = f"{matching} pattern '{pattern}' in '{root}'" + (f" (filtered by '{include}')" if include else "")
    lines = [f"Found {len(files)} file(s) {where}:", *files] if files else [f"No files found {where}."]
    if truncated:
        lines.append(f"[Only the newest {len(files)} are listed; there are more. Narrow the search to see others.]")
    if unreadable := result.get("unreadable"):
        lines.append(f"[{unreadable} director{'y' if unreadable == 1 else 'ies'} could not be read.]")
    if too_large := result.get("too_large"):
        lines.append(f"[{too_large} very large file{'' if too_large == 1 else 's'} were not searched.]")
    return "\n".join(lines), {**fields, "truncated": truncated, "files": files}


class GlobAction(Action):
    """What names to look for, and where."""

    pattern: str = Field(
        min_length=1,
        max_length=4096,
        description="Pattern of the path, such as '*.py', 'src/**/*.{ts,tsx}' or '/etc/*.conf'. Without ** it counts"
        " at any depth.",
    )
    path: str | None = Field(
        default=None, max_length=4096, description="Directory to search: an absolute path. The workspace if left out."
    )


class GlobObservation(Observation):
    """The files whose paths match: absolute paths, the newest first; `truncated` when there are more."""

    files: list[str] = Field(default_factory=list)
    pattern: str = ""
    search_path: str = ""
    truncated: bool = False


class GlobExecutor(SandboxExecutor[GlobAction, GlobObservation]):
    """Has the sandbox search."""

    async def carry_out(self, action: GlobAction, context: ToolContext, key: str | None) -> GlobObservation:
        text, fields = await _search(context, "search.glob", action.pattern, action.path)
        return GlobObservation.from_text(text, **fields)


@built_in
class GlobTool(ToolDefinition[GlobAction, GlobObservation]):
    """The `glob` tool."""

    tool_name = "glob"
    executor_class = GlobExecutor
    resources = ()
    description: str = """Find files by their names.

- Lists the paths of at most 100 files, the most recently changed first.
- `*` and `?` stay within one part of a path, `**` goes over any number of them; also [a-z] and {one,other}.
- Passed over: what git ignores, links, and hidden files and directories unless a part of the pattern begins with a dot.
- To search by content use grep."""
    annotations: ToolAnnotations = ToolAnnotations.read_only("Find files")


class GrepAction(Action):
    """What to look for, and where."""

    pattern: str = Field(min_length=1, max_length=10_000, description="Regular expression; upper and lower case alike.")
    path: str | None = Field(
        default=None, max_length=4096, description="Directory to search: an absolute path. The workspace if left out."
    )
    include: str | None = Field(
        default=None,
        max_length=4096,
        description="Only files whose names match this, for example '*.py' or '*.{ts,tsx}'; hidden ones too.",
    )


class GrepObservation(Observation):
    """The files with a line that matches: absolute paths, the newest first; `truncated` when there are more."""

    matches: list[str] = Field(default_factory=list)
    pattern: str = ""
    search_path: str = ""
    include_pattern: str | None = None
    truncated: bool = False


class GrepExecutor(SandboxExecutor[GrepAction, GrepObservation]):
    """Has the sandbox search."""

    async def carry_out(self, action: GrepAction, context: ToolContext, key: str | None) -> GrepObservation:
        text, fields = await _search(context, "search.grep", action.pattern, action.path, action.include or None)
        return GrepObservation.from_text(text, matches=fields.pop("files"), include_pattern=action.include, **fields)


@built_in
class GrepTool(ToolDefinition[GrepAction, GrepObservation]):
    """The `grep` tool."""

    tool_name = "grep"
    executor_class = GrepExecutor
    resources = ()
    description: str = """Find the files that have a line which matches a regular expression.

- Lists the paths of at most 100 files, the most recently changed first, not the lines: look into them with the editor.
- Case does not matter. Each line is matched by itself.
- Passed over: hidden files and directories, what git ignores, binary files, links.
- Narrow a search with `path` and `include`."""
    annotations: ToolAnnotations = ToolAnnotations.read_only("Search in files")
