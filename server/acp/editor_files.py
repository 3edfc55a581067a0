"""The editor's files as tools of an agent whose own files are elsewhere: in its sandbox."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from acp.exceptions import RequestError

from drydock_client import ToolCall
from server.acp.editor import Editor

MAX_CHARS: Final = 60_000
MAX_ENTRIES: Final = 1_000
_SECONDS: Final = 120.0
_PATH: Final = {"type": "string", "description": "an absolute path, or one below the user's folder"}
_HIDDEN: Final = frozenset({".git", "node_modules", "__pycache__", ".venv"})

READ, WRITE, LIST = "editor_read_file", "editor_write_file", "editor_list_files"


class RefusedCallError(Exception):
    """The call cannot be carried out; the message is for the model."""


class EditorFiles:
    """Carries out the calls of one session. `folders` are the user's: nothing outside of them is read or written."""

    def __init__(self, editor: Editor, session_id: str, folders: Sequence[str]) -> None:
        self._editor = editor
        self._session_id = session_id
        self._folders = [os.path.realpath(folder) for folder in folders]
        self.home = folders[0]

    async def answer(self, call: ToolCall) -> tuple[str, bool]:
        """What to tell the model, and whether it is an error."""
        try:
            match call.name:
                case "editor_read_file":
                    return await self._read(call.arguments), False
                case "editor_write_file":
                    return await self._write(call.arguments), False
                case "editor_list_files":
                    return await asyncio.to_thread(self._list, call.arguments), False
        except RefusedCallError as error:
            return str(error), True
        except RequestError as error:
            return f"The editor refused: {error}", True
        return f"{call.name}: the editor has no such tool", True

    async def _read(self, given: Mapping[str, Any]) -> str:
        if not self._editor.reads_files:
            raise RefusedCallError("The editor does not give out its files; ask the user to paste what you need.")
        path = self._path(given)
        text = await self._editor.read_file(self._session_id, path, given.get("line"), given.get("limit"))
        if len(text) <= MAX_CHARS:
            return text
        return f"{text[:MAX_CHARS]}\n[Cut after {MAX_CHARS} characters: name `line` and `limit` to read the rest.]"

    async def _write(self, given: Mapping[str, Any]) -> str:
        if not self._editor.writes_files:
            raise RefusedCallError("The editor takes no changes of its files; show the user what to change.")
        path, content = self._path(given), given.get("content")
        if not isinstance(content, str):
            raise RefusedCallError("content: is missing; give the whole text of the file")
        await self._editor.write_file(self._session_id, path, content)
        return f"{path} was written."

    def _list(self, given: Mapping[str, Any]) -> str:
        folder = Path(self._path({"path": given.get("path") or self.home}))
        if not folder.is_dir():
            raise RefusedCallError(f"path: {folder} is no folder")
        found: list[str] = []
        for where, folders, files in os.walk(folder):
            folders[:] = sorted(name for name in folders if name not in _HIDDEN)
            found.extend(str(PurePosixPath(where, name).relative_to(folder)) for name in sorted(files))
            if len(found) > MAX_ENTRIES:
                return "\n".join([*found[:MAX_ENTRIES], "[There are more: list a folder below this one.]"])
        return "\n".join(found) or "[no files]"

    def _path(self, given: Mapping[str, Any]) -> str:
        path = given.get("path")
        if not isinstance(path, str) or not path or "\0" in path:
            raise RefusedCallError("path: is missing; name a file of the user's folder")
        whole = os.path.normpath(os.path.join(self.home, path))
        real = os.path.realpath(whole)
        if not any(real == folder or real.startswith(folder.rstrip("/") + "/") for folder in self._folders):
            raise RefusedCallError(f"path: {whole} is outside of the user's folder {self.home}; stay below it")
        return whole


def tools_for(editor: Editor) -> list[dict[str, Any]]:
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
    if editor.writes_files:
        text = {"content": {"type": "string", "description": "the whole new text of the file"}}
        described = "Write a text file of the user's folder through their editor: it is made, or replaced as a whole."
        tools.append(_tool(WRITE, described, {"path": _PATH, **text}, ["path", "content"], reads=False))
    return tools


def instructions_for(editor: Editor, folders: Sequence[str]) -> str:
    """What the agent is told of where it is."""
    named = ", ".join(folders)
    told = [f"The user talks to you from their editor, in which the folder {named} of their machine is open."]
    told.append("Your terminal and your other tools work in a sandbox of your own, which does not have that folder.")
    if editor.reads_files:
        told.append(f"Look at the user's files with {LIST} and {READ}; copy what you want to run into your workspace.")
    if editor.writes_files:
        told.append(f"What the user shall have of your work you hand over with {WRITE}.")
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
