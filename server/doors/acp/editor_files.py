"""The editor's files as tools of an agent whose own files are elsewhere: in its sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from acp.exceptions import RequestError

from drydock_client import ClientError, ToolCall
from server.doors.acp.copies import Copies, CopyError
from server.doors.acp.editor import EditorClient
from server.doors.acp.folders import Folders, OutsideError

MAX_CHARS: Final = 60_000
MAX_ENTRIES: Final = 1_000
_SECONDS: Final = 120.0
_PATH: Final = {"type": "string", "description": "an absolute path, or one below the user's folder"}

READ, WRITE, LIST = "editor_read_file", "editor_write_file", "editor_list_files"
COPY_IN, COPY_OUT = "editor_copy_in", "editor_copy_out"


class EditorFiles:
    """Carries out the calls of one session."""

    def __init__(self, editor: EditorClient, session_id: str, folders: Folders, copies: Copies) -> None:
        self._editor = editor
        self._session_id = session_id
        self._folders = folders
        self._copies = copies

    async def answer(self, call: ToolCall) -> tuple[str, bool]:
        """What to tell the model, and whether it is an error.

        Raises:
            ConnectionError: the editor has gone.
        """
        try:
            return await self._done(call.name, call.arguments), False
        except (OutsideError, CopyError, ClientError) as error:
            return str(error), True
        except RequestError as error:
            return f"The editor refused: {error}", True

    async def _done(self, name: str, given: Mapping[str, Any]) -> str:
        match name:
            case "editor_list_files":
                return await self._listed(given)
            case "editor_read_file":
                return await self._read(given)
            case "editor_write_file":
                return await self._written(given)
            case "editor_copy_in":
                return await self._copies.bring(str(given.get("path") or "."))
            case "editor_copy_out":
                source = str(given.get("path") or "")
                return await self._copies.hand_over(source, str(given.get("to") or ""))
        raise CopyError(f"{name}: the editor has no such tool")

    async def _read(self, given: Mapping[str, Any]) -> str:
        if not self._editor.reads_files:
            raise CopyError("The editor does not give out its files; ask the user to paste what you need.")
        path = self._folders.path(given.get("path"))
        text = await self._editor.read_file(self._session_id, path, given.get("line"), given.get("limit"))
        if len(text) <= MAX_CHARS:
            return text
        return f"{text[:MAX_CHARS]}\n[Cut after {MAX_CHARS} characters: name `line` and `limit` to read the rest.]"

    async def _written(self, given: Mapping[str, Any]) -> str:
        if not self._editor.writes_files:
            raise CopyError("The editor takes no changes of its files; show the user what to change.")
        path, content = self._folders.path(given.get("path")), given.get("content")
        if not isinstance(content, str):
            raise CopyError("content: is missing; give the whole text of the file")
        await self._editor.write_file(self._session_id, path, content)
        return f"{path} was written."

    async def _listed(self, given: Mapping[str, Any]) -> str:
        folder = self._folders.path(given.get("path") or ".")
        files, is_cut = await self._folders.files(folder)
        shown = [name.removeprefix(folder).lstrip("/") for name in files[:MAX_ENTRIES]]
        if is_cut or len(files) > len(shown):
            shown.append("[There are more: list a folder below this one.]")
        return "\n".join(shown) or "[no files]"


def tools_for(editor: EditorClient) -> list[dict[str, Any]]:
    """The tools to declare for a new conversation, as far as the editor can do them."""
    tools: list[dict[str, Any]] = []
    if editor.reads_files:
        where = {"line": {"type": "integer", "minimum": 1}, "limit": {"type": "integer", "minimum": 1}}
        tools += [
            _tool(LIST, "List the files of the user's folder, at any depth.", {"path": _PATH}, [], reads=True),
            _tool(
                READ,
                "Read a text file of the user's folder as it is in their editor, unsaved changes included. `line` (the "
                "first is 1) and `limit` (lines) read a part.",
                {"path": _PATH, **where},
                ["path"],
                reads=True,
            ),
        ]
        described = (
            "Copy a file or a folder of the user's into your workspace, as it is saved, without what git ignores. It "
            "arrives under the name of the user's folder."
        )
        tools.append(_tool(COPY_IN, described, {"path": _PATH}, ["path"], reads=True))
    if editor.writes_files:
        text = {"content": {"type": "string", "description": "the whole new text of the file"}}
        described = "Write a text file of the user's folder through their editor: it is made, or replaced as a whole."
        tools.append(_tool(WRITE, described, {"path": _PATH, **text}, ["path", "content"], reads=False))
        source = {"path": {"type": "string", "description": "a text file of your workspace"}}
        described = (
            "Hand a text file of your workspace over to the user: their editor makes or replaces a file with it."
        )
        tools.append(_tool(COPY_OUT, described, {**source, "to": _PATH}, ["path", "to"], reads=False))
    return tools


def instructions_for(editor: EditorClient, folders: Folders) -> str:
    """What the agent is told of where it is."""
    told = [f"The user talks to you from their editor, in which the folder {folders.home} of their machine is open."]
    if folders.others:
        told.append(f"So are {', '.join(folders.others)}.")
    told.append("Your terminal and your other tools work in a sandbox of your own, which does not have any of that.")
    if editor.reads_files:
        told.append(
            f"Look at it with {LIST} and {READ}; {COPY_IN} copies what you want to run or change into your workspace."
        )
    if editor.writes_files:
        told.append(
            f"The user has of your work what you hand over: {COPY_OUT} for a file of your workspace, or {WRITE}."
        )
    return " ".join(told)


def _tool(
    name: str, description: str, properties: Mapping[str, Any], required: list[str], *, reads: bool
) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "parameters": {"type": "object", "properties": dict(properties), "required": required},
        "timeout": _SECONDS,
        "annotations": {"readOnlyHint": reads},
    }
