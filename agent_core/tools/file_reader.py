"""The file reader: a file's text exactly as it is, or a picture, a film or a PDF as a data URL; users read by it."""

from __future__ import annotations

import base64
import io
import mimetypes
from collections.abc import Sequence
from typing import Final

from pydantic import Field

from agent_core.errors import ToolError
from agent_core.events.messages import ImageContent, TextContent
from agent_core.events.schema import Action, Observation
from agent_core.tools.context import ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.execution import SandboxExecutor
from agent_core.tools.registry import built_in
from agent_core.tools.spec import DeclaredResources, ToolAnnotations
from agent_core.tools.truncation import maybe_truncate

MAX_BYTES: Final = 5 * 1024 * 1024
MAX_SHOWN_CHARS: Final = 30_000
"""What a model is shown of it, which the user has read and the agent has not."""
LIMIT_SECONDS: Final = 60.0
MEDIA: Final = frozenset({"png", "jpg", "jpeg", "bmp", "gif", "webp", "pdf", "mp4", "webm", "ogg"})
"""Endings of files that are no text for anybody."""
_TYPES: Final = {"ogg": "video/ogg", "webp": "image/webp"}


class FileReaderAction(Action):
    """A file, or some of its lines."""

    path: str = Field(min_length=1, description="Absolute, or relative to the directory of the shell.")
    start: int = Field(default=0, description="The first line, counted from 0.")
    end: int = Field(default=-1, description="The line behind the last one; -1: to the end. One line at least is read.")


class FileReaderObservation(Observation):
    """The text, or a data URL; `path` is where the file was found. An error says what it is instead of a text."""

    path: str = ""

    @property
    def to_llm_content(self) -> Sequence[TextContent | ImageContent]:
        if self.is_error:
            return super().to_llm_content
        text = self.text
        if text.startswith("data:") and self.path.rpartition(".")[2].lower() in MEDIA:
            return [TextContent(text=f"[{self.path}: a file of {len(text) * 3 // 4} bytes that is no text]")]
        return [TextContent(text=maybe_truncate(text, MAX_SHOWN_CHARS))]


class FileReaderExecutor(SandboxExecutor[FileReaderAction, FileReaderObservation]):
    """Reads in the sandbox, at most `MAX_BYTES`."""

    async def carry_out(self, action: FileReaderAction, context: ToolContext, key: str | None) -> FileReaderObservation:
        args = {"path": action.path, "in_shell": True, "limit": MAX_BYTES + 1}
        try:
            reply = await context.sandbox.request("file.read", args, limit_seconds=LIMIT_SECONDS)
        except ToolError as error:  # missing, a folder, a device, forbidden
            return FileReaderObservation.from_text(str(error), is_error=True, path=action.path)
        path, data = reply.result["path"] or action.path, reply.blob or b""
        if len(data) > MAX_BYTES:
            problem = f"{path} has {reply.result['size']} bytes, and at most {MAX_BYTES} are read; download it instead"
            return FileReaderObservation.from_text(problem, is_error=True, path=path)
        ending = path.rpartition(".")[2].lower()
        if ending in MEDIA:
            kind = _TYPES.get(ending) or mimetypes.guess_type(f"a.{ending}")[0] or "application/octet-stream"
            return FileReaderObservation.from_text(f"data:{kind};base64,{base64.b64encode(data).decode()}", path=path)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            problem = f"ERROR_BINARY_FILE: {path} is no text in UTF-8; download it, or view it with the file editor"
            return FileReaderObservation.from_text(problem, is_error=True, path=path)
        return FileReaderObservation.from_text(_lines(text, action.start, action.end), path=path)


def _lines(text: str, start: int, end: int) -> str:
    if start <= 0 and end == -1:
        return text
    lines = io.StringIO(text, newline="").readlines()  # with the line ends that they have
    first = max(start, 0)
    return "".join(lines[first:] if end == -1 else lines[first : max(first + 1, end)])


@built_in
class FileReaderTool(ToolDefinition[FileReaderAction, FileReaderObservation]):
    """The `file_reader` tool."""

    tool_name = "file_reader"
    executor_class = FileReaderExecutor
    annotations: ToolAnnotations = ToolAnnotations.read_only("File reader")
    description: str = (
        "Read a text file exactly as it is, without line numbers; a picture, a film or a PDF comes as a data URL."
    )

    def declared_resources(self, action: Action) -> DeclaredResources:
        return DeclaredResources(declared=True)
