"""The file tools that Gemini models know: read_file, write_file, edit, list_directory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pydantic import Field

from agent_core.events.schema import Action, Observation
from agent_core.tools.context import ToolContext
from agent_core.tools.execution import SandboxExecutor
from agent_core.tools.file_editor import LIMIT_SECONDS, FileEditorObservation, FileTool
from agent_core.tools.registry import built_in
from agent_core.tools.spec import ToolAnnotations

MAX_LINES: Final = 1000

_PATH: Final = "Path of the file: absolute, or relative to the workspace."


class ReadFileAction(Action):
    """Some lines of a file."""

    file_path: str = Field(min_length=1, description=_PATH)
    offset: int = Field(default=0, ge=0, description="Lines to leave out at the beginning.")
    limit: int = Field(default=MAX_LINES, ge=1, le=MAX_LINES, description="Most lines to read.")


class WriteFileAction(Action):
    """A file, whole."""

    file_path: str = Field(min_length=1, description=_PATH)
    content: str = Field(description="All that is to stand in the file; what stood there before is gone.")


class EditAction(Action):
    """A text in a file, replaced by another."""

    file_path: str = Field(min_length=1, description=_PATH)
    old_string: str = Field(
        description="The text to replace, exactly as it stands in the file; empty to make a new file of new_string."
    )
    new_string: str = Field(description="The text in its place.")
    expected_replacements: int = Field(
        default=1, ge=1, description="How many times old_string stands in the file; all of them are replaced."
    )


class ListDirectoryAction(Action):
    """The entries of a directory."""

    dir_path: str = Field(default=".", min_length=1, description="Path of the directory, as of a file.")
    recursive: bool = Field(default=False, description="Two levels deep, without hidden entries.")


class ReadFileObservation(FileEditorObservation):
    """The lines, with their numbers."""


class WriteFileObservation(FileEditorObservation):
    """What was written, with the diff."""


class EditObservation(FileEditorObservation):
    """What was changed, with the diff."""


class ListDirectoryObservation(FileEditorObservation):
    """The entries, directories first."""


class GeminiFileExecutor(SandboxExecutor[Action, FileEditorObservation]):
    """Has the sandbox do it."""

    async def carry_out(self, action: Action, context: ToolContext, key: str | None) -> FileEditorObservation:
        kind: type[FileEditorObservation]
        args: dict[str, Any]
        match action:
            case ReadFileAction(file_path=path):
                kind = ReadFileObservation
                args = {"command": "read", "path": path, "offset": action.offset, "limit": action.limit}
            case WriteFileAction(file_path=path):
                kind, args = WriteFileObservation, {"command": "write", "path": path, "content": action.content}
            case EditAction(file_path=path):
                texts = {"old": action.old_string, "new": action.new_string, "expected": action.expected_replacements}
                kind, args = EditObservation, {"command": "replace", "path": path, **texts}
            case ListDirectoryAction(dir_path=path):
                kind, args = ListDirectoryObservation, {"command": "list", "path": path, "recursive": action.recursive}
            case _:
                raise TypeError(f"{action.kind} is no operation on files")
        looks = args["command"] in ("read", "list")
        reply = await context.sandbox.request(
            "file.whole", args, key=None if looks else key, limit_seconds=LIMIT_SECONDS
        )
        result = reply.result
        fields = {name: result[name] for name in ("path", "prev_exist", "old_content", "new_content", "diff")}
        command = "view" if looks else "str_replace" if result["prev_exist"] else "create"
        return kind.from_text(result["text"], is_error=result["is_error"], command=command, **fields)


class _GeminiFileTool(FileTool[Action, FileEditorObservation]):
    executor_class = GeminiFileExecutor

    def touched(self, action: Action) -> Iterable[str]:
        return (getattr(action, "file_path", ""),)


@built_in
class ReadFileTool(_GeminiFileTool):
    """The `read_file` tool."""

    tool_name = "read_file"
    action_type: type[Action] = ReadFileAction
    observation_type: type[Observation] | None = ReadFileObservation
    annotations: ToolAnnotations = ToolAnnotations.read_only("Read file")
    description: str = f"Read a text file, at most {MAX_LINES} lines at a time; each line is shown with its number."


@built_in
class WriteFileTool(_GeminiFileTool):
    """The `write_file` tool."""

    journaled = True
    tool_name = "write_file"
    action_type: type[Action] = WriteFileAction
    observation_type: type[Observation] | None = WriteFileObservation
    annotations: ToolAnnotations = ToolAnnotations(title="Write file", openWorldHint=False)
    description: str = "Write a whole file. It is made, with the directories above it, where there is none yet."


@built_in
class EditTool(_GeminiFileTool):
    """The `edit` tool."""

    journaled = True
    tool_name = "edit"
    action_type: type[Action] = EditAction
    observation_type: type[Observation] | None = EditObservation
    annotations: ToolAnnotations = ToolAnnotations(title="Edit file", openWorldHint=False)
    description: str = (
        "Replace a text in a file. Take in enough lines around the place to make it unique, or say how many times it"
        " stands there."
    )


@built_in
class ListDirectoryTool(_GeminiFileTool):
    """The `list_directory` tool."""

    tool_name = "list_directory"
    action_type: type[Action] = ListDirectoryAction
    observation_type: type[Observation] | None = ListDirectoryObservation
    annotations: ToolAnnotations = ToolAnnotations.read_only("List directory")
    description: str = "List the entries of a directory, directories first."


GEMINI_FILE_TOOLS: Final = (ReadFileTool, WriteFileTool, EditTool, ListDirectoryTool)
