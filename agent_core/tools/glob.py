"""The glob tool: which files have a name that matches?."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from agent_core.events.schema import Action, Observation
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.file_search import search
from agent_core.tools.registry import register_tool
from agent_core.tools.sandbox_executor import SandboxExecutor
from agent_core.tools.spec import ToolAnnotations, ToolContext


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
        found = await search(context, "search.glob", pattern=action.pattern, path=action.path)
        where = f"matching pattern '{action.pattern}' in '{found.root}'"
        text = found.error or found.text(f"Found {len(found.files)} file(s) {where}", f"No files found {where}.")
        return GlobObservation.from_text(
            text,
            is_error=bool(found.error),
            files=found.files,
            pattern=action.pattern,
            search_path=found.root,
            truncated=found.truncated,
        )


_DESCRIPTION = """Find files by their names.

- Lists the paths of at most 100 files, the most recently changed first.
- `*` and `?` stay within one part of a path, `**` goes over any number of them; also [a-z] and {one,other}.
- Passed over: what git ignores, links, and hidden files and directories unless a part of the pattern begins with a dot.
- To search by content use grep."""


class GlobTool(ToolDefinition[GlobAction, GlobObservation]):
    """The `glob` tool."""

    tool_name: ClassVar[str] = "glob"
    resources: ClassVar[tuple[str, ...] | None] = ()
    description: str = _DESCRIPTION
    annotations: ToolAnnotations = ToolAnnotations.read_only("Find files")

    @classmethod
    def make_executor(cls) -> GlobExecutor:
        return GlobExecutor()


register_tool(GlobTool.tool_name, GlobTool)
