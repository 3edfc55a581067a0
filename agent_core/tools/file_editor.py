"""The file editor tool: view, create and change files in the sandbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from agent_core.errors import ToolError
from agent_core.events.messages import ImageContent, TextContent
from agent_core.events.schema import Action, Observation
from agent_core.tools.file_keys import FileTool
from agent_core.tools.registry import register_tool
from agent_core.tools.sandbox_executor import SandboxExecutor
from agent_core.tools.spec import ToolAnnotations, ToolContext

LIMIT_SECONDS = 60.0

EditorCommand = Literal["view", "create", "str_replace", "insert", "undo_edit"]


class FileEditorAction(Action):
    """One operation on one file."""

    command: EditorCommand = Field(description="What to do.")
    path: str = Field(description="Absolute path of the file or directory.")
    file_text: str | None = Field(default=None, description="For create: the whole content of the new file.")
    old_str: str | None = Field(
        default=None, description="For str_replace: the text to replace; it must stand exactly once in the file."
    )
    new_str: str | None = Field(default=None, description="For str_replace and insert: the new text.")
    insert_line: int | None = Field(
        default=None, ge=0, description="For insert: the new text goes after this line; 0 is the top of the file."
    )
    view_range: list[int] | None = Field(
        default=None, description="For view of a file: first and last line, [1, 40]; -1 is the last line of the file."
    )


class FileEditorObservation(Observation):
    """The result, with the content before and after a change and the unified diff between them."""

    command: EditorCommand = "view"
    path: str = ""
    prev_exist: bool = False
    old_content: str | None = None
    new_content: str | None = None
    diff: str | None = None


class FileEditorExecutor(SandboxExecutor[FileEditorAction, FileEditorObservation]):
    """Has the runner do it; refusals (no such file, not unique …) are observations, not exceptions.

    Without a conversation it works in a sandbox of its own on `workspace_root`, or else the present folder.
    """

    def __init__(self, workspace_root: str = "") -> None:
        super().__init__(workspace_root)
        self.workspace_root = workspace_root

    async def carry_out(self, action: FileEditorAction, context: ToolContext, key: str | None) -> FileEditorObservation:
        return FileEditorObservation(**await edit(action, context, key, {}))


async def edit(
    action: FileEditorAction, context: ToolContext, key: str | None, bounds: Mapping[str, Any]
) -> dict[str, Any]:
    """Have the sandbox do it; returns the fields of the observation.

    Of `bounds`, ``only`` names the files that may be changed, and ``blank`` is a content that `create` may replace.
    """
    try:
        reply = await context.sandbox.request(
            "file.edit",
            {**action.model_dump(exclude={"kind"}, exclude_none=True), **bounds},
            key=None if action.command == "view" else key,
            limit_seconds=LIMIT_SECONDS,
        )
    except ToolError as error:  # arguments that no file can have, such as NUL in a path
        refused = [TextContent(text=str(error))]
        return {"content": refused, "is_error": True, "command": action.command, "path": action.path}
    result = reply.result
    content: list[TextContent | ImageContent] = [TextContent(text=result["text"])]
    if result.get("image"):
        content.append(ImageContent(image_urls=[result["image"]]))
    kept = ("is_error", "path", "prev_exist", "old_content", "new_content", "diff")
    return {"content": content, "command": action.command, **{name: result[name] for name in kept}}


_DESCRIPTION = """View, create and edit files in the sandbox.

- view: a file with line numbers (optionally only `view_range`), an image (png, jpg, gif, webp, bmp), or the entries of
  a directory two levels deep.
- create: a new file with `file_text`; it does not overwrite an existing one.
- str_replace: replace `old_str` by `new_str`. `old_str` must match exactly, white space included, and stand once in the
  file: take in enough lines around the place to make it unique.
- insert: put `new_str` after line `insert_line`.
- undo_edit: take back the last change made to `path` by this tool."""


class FileEditorTool(FileTool[FileEditorAction, FileEditorObservation]):
    """The `file_editor` tool."""

    journaled: ClassVar[bool] = True
    tool_name: ClassVar[str] = "file_editor"
    description: str = _DESCRIPTION
    annotations: ToolAnnotations = ToolAnnotations(title="File editor", openWorldHint=False)

    @classmethod
    def make_executor(cls) -> FileEditorExecutor:
        return FileEditorExecutor()

    def touched(self, action: FileEditorAction) -> Iterable[str]:
        return (action.path,)


register_tool(FileEditorTool.tool_name, FileEditorTool)
