"""Journal of requests that must not be carried out twice: in memory, and on disk for the next runner."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import OrderedDict
from typing import Any, Callable, Dict, Iterable, List, Optional, Set

from .log import complain

_COMPACT_AFTER = 16 * 1024 * 1024

_ENCODER = json.JSONEncoder(separators=(",", ":"))

JournaledAnswer = Dict[str, Any]


def failed_answer(code: str, message: str) -> JournaledAnswer:
    """Return the answer of a failed request."""
    return {"ok": False, "error": {"code": code, "message": message}}


_INTERRUPTED = failed_answer(
    "interrupted", "the runner ended while it served this request, which may have been carried out in part"
)
_FORGOTTEN = failed_answer("forgotten", "the request was carried out, but its result had to make room for later ones")
_WITHHELD = failed_answer(
    "forgotten",
    "the request was carried out, but its result was in the memory of a runner that has ended: "
    "a secret had been lent to a command, and such results are not written down",
)


class Journal:
    """Outcomes of the requests with a key.

    On disk it is one file of lines, appended to before a request begins and when it is done. A line that the disk does
    not take costs the next runner that knowledge, nothing else; ``trouble`` then says why. Answers that may show lent
    secrets are not on disk: from ``withholds`` on, only that the request was carried out.
    """

    def __init__(self, directory: str, *, entries: int = 10000, size: int = 32 * 1024 * 1024) -> None:
        self._path = os.path.join(directory, "journal")
        self._entries_limit = entries
        self._bytes_limit = size
        self._answers: "OrderedDict[str, Optional[bytes]]" = OrderedDict()
        self._size = 0
        self.withholds = False
        self._withheld: Set[str] = set()
        self._descriptor = -1
        self._written = 0
        self._retry_at = 0.0
        self.trouble = ""

    def open(self) -> None:
        """Read what the previous runner left; what it had begun and not ended is answered as interrupted."""
        lines: List[bytes] = []
        with contextlib.suppress(OSError), open(self._path, "rb") as file:
            lines = file.read().split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, TypeError, KeyError):  # the last line of one killed while writing it
                record = json.loads(line)
                if "f" in record:
                    for key in record["f"]:
                        self._drop(key)
                elif "a" in record:
                    self._store(record["k"], record["a"])
                else:
                    self._answers[record["k"]] = None
        for key, answer in list(self._answers.items()):
            if answer is None:
                self._store(key, _INTERRUPTED)
        self._trim()
        self._rewrite()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def state(self, key: str) -> str:
        """Return "unknown", "running" or "done"."""
        if key not in self._answers:
            return "unknown"
        return "running" if self._answers[key] is None else "done"

    def answer(self, key: str) -> Optional[JournaledAnswer]:
        encoded = self._answers.get(key)
        return None if encoded is None else json.loads(encoded)

    def begin(self, key: str) -> None:
        self._answers[key] = None
        self._append(b'{"k":%s}\n' % _encode(key))

    def finish(self, key: str, answer: JournaledAnswer) -> None:
        encoded = self._store(key, answer)
        if self.withholds:
            self._withheld.add(key)
            encoded = _encode(_WITHHELD)
        self._trim()
        self._append(b'{"k":%s,"a":%s}\n' % (_encode(key), encoded))

    def withdraw(self, key: str) -> None:
        self._drop(key)
        self._append(b'{"f":%s}\n' % _encode([key]))

    def forget(self, is_lost: Callable[[str], bool]) -> None:
        """Forget all of these, what has not ended among them."""
        for key in [key for key in self._answers if is_lost(key)]:
            self.withdraw(key)

    def acknowledge(self, keys: Iterable[str]) -> int:
        """Forget requests whose answers are safe elsewhere; return how many were known and done."""
        known = [key for key in keys if self._answers.get(key) is not None]
        for key in known:
            self._drop(key)
        if known and self._size:
            self._append(b'{"f":%s}\n' % _encode(known))
        # Once no answer is needed none is left in the file: it may hold what its user wants gone.
        elif known and (self._answers or self._descriptor < 0):
            self._rewrite()  # whole or not at all: what was begun must not be taken for unknown
        elif known:
            try:
                os.ftruncate(self._descriptor, 0)
                self._written = 0
            except OSError as error:
                self._note(error)
                self.close()
        return len(known)

    def _store(self, key: str, answer: JournaledAnswer) -> bytes:
        self._drop(key)
        encoded = _encode(answer)
        self._answers[key] = encoded
        self._size += len(encoded)
        return encoded

    def _drop(self, key: str) -> None:
        self._withheld.discard(key)
        encoded = self._answers.pop(key, None)
        self._size -= len(encoded) if encoded is not None else 0

    def _trim(self) -> None:
        if self._size > self._bytes_limit:
            for key, encoded in list(self._answers.items()):
                if encoded is not None and len(encoded) > 512:
                    self._size -= len(encoded)
                    self._answers[key] = forgotten = _encode(_FORGOTTEN)
                    self._size += len(forgotten)
                if self._size <= self._bytes_limit:
                    break
        while len(self._answers) > self._entries_limit:
            oldest = next((key for key, encoded in self._answers.items() if encoded is not None), None)
            if oldest is None:
                break
            self._drop(oldest)

    # The file

    def _append(self, data: bytes) -> None:
        if self._descriptor < 0 or self._written + len(data) > max(_COMPACT_AFTER, 2 * self._size):
            self._rewrite()  # holds the news already
            return
        try:
            written = os.write(self._descriptor, data)
            if written < len(data):
                os.ftruncate(self._descriptor, self._written)
                raise OSError(0, "only part of a line was written")
            self._written += written
            self.trouble = ""
        except OSError as error:
            self._note(error)
            self.close()  # the next attempt writes everything anew, when there is room again

    def _rewrite(self) -> None:
        self.close()
        if time.monotonic() < self._retry_at:
            return
        descriptor, size = -1, 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path + ".new", flags, 0o600)
            for key, encoded in self._answers.items():
                line = b'{"k":' + _encode(key)
                if encoded is not None and key in self._withheld:
                    encoded = _encode(_WITHHELD)
                line += b"}\n" if encoded is None else b',"a":' + encoded + b"}\n"
                if os.write(descriptor, line) < len(line):
                    raise OSError(0, "only part of a line was written")
                size += len(line)
            os.rename(self._path + ".new", self._path)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            self._note(error)
            return
        self._descriptor, self._written, self.trouble = descriptor, size, ""

    def _note(self, error: OSError) -> None:
        trouble = f"the journal is kept in memory only: {self._path}: {error.strerror or error}"
        if trouble != self.trouble:
            complain(trouble)
        self.trouble = trouble
        self._retry_at = time.monotonic() + 5.0


def _encode(value: object) -> bytes:
    return _ENCODER.encode(value).encode("ascii")
