"""The folders that are open in an editor: listed, copied to and from the workspace, and as tools of the agent."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from acp.exceptions import RequestError

from drydock_client import ClientError, DrydockClient, ToolCall
from server.doors.acp.editor import EditorClient

GIT_SECONDS: Final = 20.0
MAX_FILES: Final = 5_000
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_FILE: Final = 16 * 1024 * 1024
BATCH_BYTES: Final = 8 * 1024 * 1024
BATCH_FILES: Final = 200
MAX_NAMED: Final = 20
MAX_CHARS: Final = 60_000
MAX_ENTRIES: Final = 1_000
_SECONDS: Final = 120.0
_PATH: Final = {"type": "string", "description": "an absolute path, or one below the user's folder"}

READ, WRITE, LIST = "editor_read_file", "editor_write_file", "editor_list_files"
COPY_IN, COPY_OUT = "editor_copy_in", "editor_copy_out"
_LEFT_OUT: Final = frozenset({".git", ".hg", ".venv", "node_modules", "__pycache__"})


class EditorFilesError(Exception):
    """A path that is none of the editor's, or what cannot be read, written or copied; the message is for the model."""


class Listing(NamedTuple):
    """Files by their paths, in order; `is_cut`: there are more."""

    files: list[str]
    is_cut: bool


class Folders:
    """The open folders; the first is where relative paths begin."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.home, *self.others = folders
        self._real = [os.path.realpath(folder) for folder in folders]

    def path(self, path: object) -> str:
        """The absolute path that is meant; `EditorFilesError`: none in the open folders, links followed."""
        if not isinstance(path, str) or not path or "\0" in path:
            raise EditorFilesError("path: is missing; name a file or folder of the user's")
        whole = os.path.normpath(os.path.join(self.home, path))
        real = os.path.realpath(whole)
        if not any(real == folder or real.startswith(folder.rstrip("/") + "/") for folder in self._real):
            raise EditorFilesError(f"path: {whole} is outside of the user's folder {self.home}; stay below it")
        return whole

    async def files(self, path: str) -> Listing:
        """The files below a folder, by absolute paths, without those that git ignores or that tools have made."""
        names = await _known_to_git(path)
        found = await asyncio.to_thread(lambda: list(_plain(path, _walked(path) if names is None else names)))
        return Listing(sorted(found)[:MAX_FILES], len(found) > MAX_FILES)


async def _known_to_git(folder: str) -> list[str] | None:
    try:
        async with asyncio.timeout(GIT_SECONDS):
            process = await asyncio.create_subprocess_exec(
                *("git", "-c", "core.fsmonitor=false", "ls-files", "-z", "-co", "--exclude-standard"),
                cwd=folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                printed, _ = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
    except (OSError, TimeoutError):
        return None
    return sorted({os.fsdecode(name) for name in printed.split(b"\0") if name}) if process.returncode == 0 else None


def _plain(path: str, names: Iterable[str]) -> Iterator[str]:
    if os.path.isfile(path):
        yield path
    for name in names:
        whole = os.path.join(path, name)
        if os.path.isfile(whole) and whole.isprintable():
            yield whole


def _walked(folder: str) -> Iterator[str]:
    count = 0
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(files):
            yield os.path.relpath(os.path.join(where, name), folder)
            count += 1
        if count > MAX_FILES:
            return


class EditorFiles:
    """The editor's files for one session: copies to and from the workspace, and the agent's calls for them.

    Raises `EditorFilesError`, `ClientError`, the editor's `RequestError`, and `ConnectionError` when it has gone.
    """

    def __init__(self, client: DrydockClient, editor: EditorClient, session_id: str, folders: Folders) -> None:
        self._client = client
        self._editor = editor
        self._session_id = session_id
        self._folders = folders

    async def copy_in(self, source: str) -> str:
        """Copy a file or folder, without what git ignores, into the workspace, below the name of the open folder."""
        path = self._folders.path(source)
        root = Path(self._folders.home)
        names, is_cut = await self._folders.files(path)
        places = {name: _place(Path(name), root) for name in names}
        left_out: list[str] = []
        batch: dict[str, bytes] = {}
        total = sent = 0
        for name in names:
            content = await asyncio.to_thread(self._content, name)
            if content is None:
                left_out.append(places[name])
                continue
            total += len(content)
            if total > MAX_BYTES:
                raise EditorFilesError(f"{path} has more than {MAX_BYTES} bytes; copy the parts of it that are needed")
            batch[places[name]] = content
            if len(batch) >= BATCH_FILES or sum(map(len, batch.values())) > BATCH_BYTES:
                sent, batch = sent + await self._sent(batch, left_out), {}
        sent += await self._sent(batch, left_out)
        if not sent:
            raise EditorFilesError(f"{path}: there is nothing to copy; is it a file or a folder with files?")
        where = _place(Path(path), root)
        summary = f"Copied to {where} in the workspace: {sent} file{'s' if sent > 1 else ''}."
        if left_out:
            summary += f" Left out: {', '.join(left_out[:MAX_NAMED])}{' …' if len(left_out) > MAX_NAMED else ''}."
        return summary + (" There are more files: copy the folders that are missing." if is_cut else "")

    async def copy_out(self, path: str, target: str) -> str:
        if not self._editor.writes_files:
            raise EditorFilesError("the editor takes no files; show the user what to change")
        whole = self._folders.path(target)
        content = bytearray()
        async for piece in self._client.files.open(self._session_id, path):
            content += piece
            if len(content) > MAX_FILE:
                raise EditorFilesError(f"{path} has more than {MAX_FILE} bytes, which is too much for an editor")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise EditorFilesError(f"{path} is no text, which is all that an editor takes") from None
        await self._editor.write_file(self._session_id, whole, text)
        return f"{path} was copied to {whole}."

    async def answer(self, call: ToolCall) -> tuple[str, bool]:
        try:
            return await self._call(call.name, call.arguments), False
        except (EditorFilesError, ClientError) as error:
            return str(error), True
        except RequestError as error:
            return f"The editor refused: {error}", True

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        match name:
            case "editor_list_files":
                return await self._list(arguments)
            case "editor_read_file":
                return await self._read(arguments)
            case "editor_write_file":
                return await self._write(arguments)
            case "editor_copy_in":
                return await self.copy_in(str(arguments.get("path") or "."))
            case "editor_copy_out":
                return await self.copy_out(str(arguments.get("path") or ""), str(arguments.get("to") or ""))
        raise EditorFilesError(f"{name}: the editor has no such tool")

    async def _read(self, arguments: Mapping[str, Any]) -> str:
        if not self._editor.reads_files:
            raise EditorFilesError("The editor does not give out its files; ask the user to paste what you need.")
        path = self._folders.path(arguments.get("path"))
        text = await self._editor.read_file(self._session_id, path, arguments.get("line"), arguments.get("limit"))
        if len(text) <= MAX_CHARS:
            return text
        return f"{text[:MAX_CHARS]}\n[Cut after {MAX_CHARS} characters: name `line` and `limit` to read the rest.]"

    async def _write(self, arguments: Mapping[str, Any]) -> str:
        if not self._editor.writes_files:
            raise EditorFilesError("The editor takes no changes of its files; show the user what to change.")
        path, content = self._folders.path(arguments.get("path")), arguments.get("content")
        if not isinstance(content, str):
            raise EditorFilesError("content: is missing; give the whole text of the file")
        await self._editor.write_file(self._session_id, path, content)
        return f"{path} was written."

    async def _list(self, arguments: Mapping[str, Any]) -> str:
        folder = self._folders.path(arguments.get("path") or ".")
        files, is_cut = await self._folders.files(folder)
        shown = [name.removeprefix(folder).lstrip("/") for name in files[:MAX_ENTRIES]]
        if is_cut or len(files) > len(shown):
            shown.append("[There are more: list a folder below this one.]")
        return "\n".join(shown) or "[no files]"

    async def _sent(self, batch: dict[str, bytes], left_out: list[str]) -> int:
        if not batch:
            return 0
        result = await self._client.files.upload(self._session_id, batch)
        left_out.extend(f"{one.name} ({one.reason})" for one in result.skipped_files)
        return len(batch) - len(result.skipped_files)

    def _content(self, name: str) -> bytes | None:
        try:
            self._folders.path(name)
            facts = os.stat(name)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE:
                return None
            return Path(name).read_bytes()
        except (OSError, EditorFilesError):
            return None


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
    parts = [f"The user talks to you from their editor, in which the folder {folders.home} of their machine is open."]
    if folders.others:
        parts.append(f"So are {', '.join(folders.others)}.")
    parts.append("Your terminal and your other tools work in a sandbox of your own, which does not have any of that.")
    if editor.reads_files:
        parts.append(
            f"Look at it with {LIST} and {READ}; {COPY_IN} copies what you want to run or change into your workspace."
        )
    if editor.writes_files:
        parts.append(
            f"The user has of your work what you hand over: {COPY_OUT} for a file of your workspace, or {WRITE}."
        )
    return " ".join(parts)


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


def _place(path: Path, root: Path) -> str:
    try:
        inside = path.relative_to(root)
    except ValueError:
        inside = Path(path.name)
    return str(Path(root.name or "project") / inside)
