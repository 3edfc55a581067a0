"""The grep tool: which files have a line that matches?."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from agent_core.events.schema import Action, Observation
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.file_search import search
from agent_core.tools.registry import register_tool
from agent_core.tools.sandbox_executor import SandboxExecutor
from agent_core.tools.spec import ToolAnnotations, ToolContext


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
        found = await search(
            context, "search.grep", pattern=action.pattern, path=action.path, include=action.include or None
        )
        filtered = f" (filtered by '{action.include}')" if action.include else ""
        where = f"containing pattern '{action.pattern}' in '{found.root}'{filtered}"
        text = found.error or found.text(f"Found {len(found.files)} file(s) {where}", f"No files found {where}.")
        return GrepObservation.from_text(
            text,
            is_error=bool(found.error),
            matches=found.files,
            pattern=action.pattern,
            search_path=found.root,
            include_pattern=action.include,
            truncated=found.truncated,
        )


_DESCRIPTION = """Find the files that have a line which matches a regular expression.

- Lists the paths of at most 100 files, the most recently changed first, not the lines: look into them with the editor.
- Case does not matter. Each line is matched by itself.
- Passed over: hidden files and directories, what git ignores, binary files, links.
- Narrow a search with `path` and `include`."""


class GrepTool(ToolDefinition[GrepAction, GrepObservation]):
    """The `grep` tool."""

    tool_name: ClassVar[str] = "grep"
    resources: ClassVar[tuple[str, ...] | None] = ()
    description: str = _DESCRIPTION
    annotations: ToolAnnotations = ToolAnnotations.read_only("Search in files")

    @classmethod
    def make_executor(cls) -> GrepExecutor:
        return GrepExecutor()


register_tool(GrepTool.tool_name, GrepTool)
