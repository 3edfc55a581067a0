"""`WorkspaceCopies`: the files of sandboxes, added to a backup one workspace after the other."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from agent_core.errors import DrydockError, SandboxError
from agent_core.runtime.workspace_archive import WritableFile
from server.db.archives import ArchiveWriter
from server.db.errors import BackupError
from server.db.progress import ProgressTeller

ATTEMPTS: Final = 3
"""How often one is read whose files were changed in a way that its engine cannot bear."""
_LOOK: Final = 32 * 1024**2
_MIB: Final = 1024**2


class Workspaces(Protocol):
    """The workspaces of a server's sandboxes, which go on meanwhile."""

    def write(self, conversation_id: str, sandbox: Mapping[str, str], file: WritableFile) -> list[str]:
        """Write a tar file of the files; returns the paths that are not in it.

        Raises `SandboxError` where they cannot be read (``changed``: not just then), and what `file` raises.
        """


class WorkspaceCopies:
    """Adds workspaces; `added` has their conversations, `skipped` those where that failed, with the reasons.

    `gone`: conversations whose sandbox is there no more; `left_out`: how many files of a workspace could not be read.
    Each is first written to a file without a name in `folder`, whose disk keeps `reserve` bytes; `is_beside`: the
    archive is on that disk, too.
    """

    def __init__(
        self, workspaces: Workspaces, folder: Path, progress: ProgressTeller, *, reserve: int, is_beside: bool
    ) -> None:
        self.added: list[str] = []
        self.gone: list[str] = []
        self.skipped: dict[str, str] = {}
        self.left_out: dict[str, int] = {}
        self._workspaces = workspaces
        self._folder = folder
        self._progress = progress
        self._reserve = reserve
        self._is_beside = is_beside

    def add(self, archive: ArchiveWriter, name: str, conversation_id: str, sandbox: Mapping[str, str]) -> None:
        """Add a workspace under this name; raises `BackupError` where there is no room."""
        for attempt in range(1, ATTEMPTS + 1):
            with tempfile.TemporaryFile(dir=self._folder) as file:
                spool = _Spool(file, self)
                try:
                    left_out = self._workspaces.write(conversation_id, sandbox, spool)
                except BackupError:
                    raise
                except DrydockError as error:
                    code = error.code if isinstance(error, SandboxError) else ""
                    if code == "changed" and attempt < ATTEMPTS:
                        continue
                    if code == "lost":
                        self.gone.append(conversation_id)
                    else:
                        self.skipped[conversation_id] = str(error)
                    return
                finally:
                    spool.is_over = True
                if self._is_beside:
                    self.check_room(file.tell())
                archive.add_file(name, file)
            self.added.append(conversation_id)
            if left_out:
                self.left_out[conversation_id] = len(left_out)
            return

    def check_room(self, size: int) -> None:
        need_room(self._folder, size + self._reserve, "the workspaces and what the disk keeps in reserve")

    def tell(self, size: int) -> None:
        self._progress.tell_count(f"workspace {len(self.added) + len(self.skipped) + 1}", size // _MIB, "MiB")


class _Spool:
    """The file that a workspace is written to, perhaps by a thread, until that is over."""

    def __init__(self, file: BinaryIO, copies: WorkspaceCopies) -> None:
        self.is_over = False
        self._file = file
        self._copies = copies
        self._looked_at = 0

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: bytes, /) -> int:
        if self.is_over:
            raise BackupError("the backup has ended")
        if self._file.tell() >= self._looked_at:
            self._looked_at = self._file.tell() + _LOOK
            self._copies.check_room(_LOOK)
            self._copies.tell(self._file.tell())
        try:
            return self._file.write(data)
        except OSError as error:
            raise BackupError(f"a workspace cannot be copied ({error.strerror or error})") from error


def need_room(folder: Path, size: int, what: str) -> None:
    """Raise `BackupError` where the folder's disk has not so many bytes free."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise BackupError(f"{folder} has no room for {what} ({size // _MIB} MiB, {free // _MIB} MiB are free)")
