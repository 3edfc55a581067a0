"""`StorageHealth`: whether the server can store anything at present, found by those who write."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from agent_core.errors import DISK_FULL, EventStoreError, storage_code
from agent_core.events.event import utc_now
from agent_core.troubles import Trouble, coded

logger = logging.getLogger(__name__)

_OF_DISKS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


class StorageHealth:
    """The state of the server's storage: `problem` is why nothing can be stored ("": it can), since `since`.

    `code` is `DISK_FULL` or `STORAGE_UNAVAILABLE` then. What was refused was not stored; whoever writes next finds out
    whether the fault has gone, and the writer tries every `PROBE_SECONDS` while it lasts.
    """

    PROBE_SECONDS: Final = 1.0

    def __init__(self) -> None:
        self.problem = ""
        self.code = ""
        self.since: datetime | None = None
        self.unreadable: Callable[[str], None] = lambda _: None
        """Told, in a sentence, of each read of something that is damaged; its owner may set it."""
        self._watcher: Callable[[StorageHealth], None] = lambda _: None

    @property
    def sentence(self) -> str:
        """The problem for people, with what comes of it."""
        return (
            f"The server cannot store anything: {self.problem}. Until it can again, nothing new is taken and agents at"
            " work wait; then all goes on by itself."
        )

    def watch(self, watcher: Callable[[StorageHealth], None]) -> None:
        """Have `watcher`, the only one, told of each change between working and not; it must not block."""
        self._watcher = watcher

    def failed(self, code: str, problem: str) -> None:
        """Something could not be stored for a reason that concerns everything."""
        is_news = not self.problem
        self.code, self.problem = code, problem
        if is_news:
            self.since = utc_now()
            logger.error("nothing can be stored: %s", problem, extra=coded(Trouble(code)))
            self._watcher(self)

    def worked(self) -> None:
        """Something was stored."""
        if self.problem:
            logger.info("the storage works again; it had not since %s: %s", self.since, self.problem)
            self.problem, self.code, self.since = "", "", None
            self._watcher(self)


def is_of_disk(error: BaseException) -> bool:
    """Whether a disk refuses whatever it is asked, as one does that is full, read-only or broken."""
    return getattr(error, "errno", None) in _OF_DISKS


def file_error(what: str, error: OSError) -> EventStoreError:
    """The error for users: what could not be done with a file of the server, and why; never where that is."""
    code = storage_code(error)
    reason = "the disk is full; free some space" if code == DISK_FULL else error.strerror or type(error).__name__
    return EventStoreError(f"{what}: {reason}", code=code)
