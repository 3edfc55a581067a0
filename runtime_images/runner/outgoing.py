"""What leaves the workspace: a file, as large as it was when it was opened, or a folder as a ZIP file."""

from __future__ import annotations

import os
from typing import Any, Optional, Tuple

from .beneath import Opened
from .disk import FileError

PART = 4 * 1024 * 1024
_ZIP_SECONDS = 0.5


class Outgoing:
    """A file that is read, or a folder that becomes an archive."""

    def __init__(self, opened: Opened) -> None:
        self._descriptor = opened.descriptor
        self.size = opened.status.st_size
        self._archive: Optional[Any] = None
        self._last: Tuple[int, bytes, bool] = (0, b"", False)
        if opened.is_folder:
            from .zip_stream import ZipStream  # needed for this only

            self._archive, self._descriptor, self.size = ZipStream(opened.descriptor), -1, -1

    def part(self, offset: int, limit: int) -> Tuple[bytes, bool]:
        """The bytes from there on, and whether they are the last; of an archive only the newest part again."""
        if self._archive is None:
            data = os.pread(self._descriptor, max(0, min(limit, self.size - offset)), offset)
            return data, offset + len(data) >= self.size
        start, data, ended = self._last
        if offset == start and data:
            return data, ended
        if offset != start + len(data):
            raise FileError("bad_request", f"offset must be {start + len(data)}: an archive is read from the beginning")
        if not ended:
            self._last = (offset, *self._archive.read(min(limit, PART), _ZIP_SECONDS))
        return self._last[1], self._last[2]

    def close(self) -> None:
        """Let go of it."""
        if self._archive is not None:
            self._archive.close()
        elif self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
