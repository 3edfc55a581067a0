"""Copies between the folder in an editor and the workspace of its agent's sandbox."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Final

from drydock_client import DrydockClient
from server.doors.acp.editor import EditorClient
from server.doors.acp.folders import Folders, OutsideError

MAX_BYTES: Final = 64 * 1024 * 1024
MAX_FILE: Final = 16 * 1024 * 1024
BATCH_BYTES: Final = 8 * 1024 * 1024
BATCH_FILES: Final = 200
MAX_NAMED: Final = 20


class CopyError(Exception):
    """It cannot be copied; the message says why."""


class Copies:
    """Those of one session."""

    def __init__(self, client: DrydockClient, editor: EditorClient, session_id: str, folders: Folders) -> None:
        self._client = client
        self._editor = editor
        self._session_id = session_id
        self._folders = folders

    async def bring(self, given: str) -> str:
        """Copy a file or folder into the workspace; returns what was done, in words.

        It arrives under the name of the open folder, with its place in that. What git ignores is left out.

        Raises:
            OutsideError, CopyError: it is not there, or too large.
            ClientError: the server did not take it.
        """
        path = self._folders.path(given)
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
                raise CopyError(f"{path} has more than {MAX_BYTES} bytes; copy the parts of it that are needed")
            batch[places[name]] = content
            if len(batch) >= BATCH_FILES or sum(map(len, batch.values())) > BATCH_BYTES:
                sent, batch = sent + await self._sent(batch, left_out), {}
        sent += await self._sent(batch, left_out)
        if not sent:
            raise CopyError(f"{path}: there is nothing to copy; is it a file or a folder with files?")
        where = _place(Path(path), root)
        told = f"Copied to {where} in the workspace: {sent} file{'s' if sent > 1 else ''}."
        if left_out:
            told += f" Left out: {', '.join(left_out[:MAX_NAMED])}{' …' if len(left_out) > MAX_NAMED else ''}."
        return told + (" There are more files: copy the folders that are missing." if is_cut else "")

    async def hand_over(self, path: str, target: str) -> str:
        """Copy a text file of the workspace into the open folder, through the editor; returns where to.

        Raises:
            OutsideError, CopyError: it is no text, or would be outside.
            ClientError: there is no such file.
            RequestError: the editor does not take it.
        """
        if not self._editor.writes_files:
            raise CopyError("the editor takes no files; show the user what to change")
        whole = self._folders.path(target)
        content = bytearray()
        async for piece in self._client.files.open(self._session_id, path):
            content += piece
            if len(content) > MAX_FILE:
                raise CopyError(f"{path} has more than {MAX_FILE} bytes, which is too much for an editor")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise CopyError(f"{path} is no text, which is all that an editor takes") from None
        await self._editor.write_file(self._session_id, whole, text)
        return f"{path} was copied to {whole}."

    async def _sent(self, batch: dict[str, bytes], left_out: list[str]) -> int:
        if not batch:
            return 0
        result = await self._client.files.upload(self._session_id, batch)
        left_out.extend(f"{one.name} ({one.reason})" for one in result.skipped_files)
        return len(batch) - len(result.skipped_files)

    def _content(self, name: str) -> bytes | None:
        """The bytes of a plain file of the open folders that is not too large."""
        try:
            self._folders.path(name)
            facts = os.stat(name)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE:
                return None
            return Path(name).read_bytes()
        except (OSError, OutsideError):
            return None


def _place(path: Path, root: Path) -> str:
    """Where it is in the workspace: below a folder of the open folder's name."""
    try:
        inside = path.relative_to(root)
    except ValueError:
        inside = Path(path.name)
    return str(Path(root.name or "project") / inside)
