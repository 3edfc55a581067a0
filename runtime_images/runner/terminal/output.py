"""Output of commands: bounded for their results, whole in files, thinned out for whoever watches live."""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterable, List, Optional, Tuple

from ..core.loop import Loop, Plan
from ..core.text import Cut, SavedText, cut_ends

MASK = "<secret_hidden>"
_LEAST = 4
_MOST = 200
"""Values that are remembered: as many as a conversation has secrets, each perhaps renewed once."""


class LentSecrets:
    """Secrets that were lent to commands as variables, in this run, kept out of what the runner writes to disk.

    The server hides more forms of them from everybody, but does not see what stays in the sandbox.
    """

    def __init__(self) -> None:
        self._values: Dict[str, None] = {}
        self._pattern: Optional[re.Pattern[str]] = None
        self.longest = 0

    def __bool__(self) -> bool:
        return bool(self._values)

    def add(self, values: Iterable[str]) -> None:
        """Hide these from now on, but for values shorter than four characters, which would hide half of every text."""
        fresh = [value for value in values if len(value.strip()) >= _LEAST and value not in self._values]
        if not fresh:
            return
        self._values.update(dict.fromkeys(fresh))
        while len(self._values) > _MOST:
            del self._values[next(iter(self._values))]
        forms = sorted({form for value in self._values for form in _forms(value)}, key=len, reverse=True)
        self.longest = len(forms[0])
        self._pattern = re.compile("|".join(map(re.escape, forms)))

    def hide(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def settled(self, text: str) -> int:
        """Return up to where no value in the text can have begun that is not all there."""
        end = max(0, len(text) - self.longest + 1)
        for match in self._pattern.finditer(text) if self._pattern is not None else ():
            if match.start() < end < match.end():
                return match.end()
        return end


def _forms(value: str) -> List[str]:
    # Loaded only now: most runners lend nothing.
    import base64
    from urllib.parse import quote, quote_plus

    lines = [line for line in value.split("\n") if len(line) >= 4 * _LEAST] if "\n" in value else []
    found = set()
    for part in (value, value.strip(), *lines):
        data = part.encode("utf-8", "surrogateescape")
        found |= {part, quote(part, safe="", errors="replace"), quote_plus(part, errors="replace")}
        found |= {data.hex(), data.hex().upper(), part.replace("\n", "\r\n")}
        for offset in range(3):  # what stands before it shifts its characters
            coded = base64.b64encode(b"\0" * offset + data).decode().rstrip("=")
            core = coded[(0, 2, 3)[offset] : len(coded) if (len(data) + offset) % 3 == 0 else len(coded) - 1]
            found |= {core, core.replace("+", "-").replace("/", "_")} if len(core) >= 2 * _LEAST else set()
    return [form for form in found if len(form) >= _LEAST]


LIVE_INTERVAL_SECONDS = 0.02

_ESCAPES = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]|\x1b[\\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?|\x1b[ -/]*[0-~]?"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_OPEN_ESCAPE = re.compile("(?:\x1b(?:\\[[0-?]{0,64}[ -/]{0,8}|[\\]PX^_][^\x07\x1b\n]{0,512}\x1b?|[ -/]{0,8})|\r)\\Z")


class WholeOutputs:
    """Whole outputs that were cut, without ``lent`` secrets; the oldest make room, a full disk costs only the file."""

    def __init__(
        self,
        directory: str,
        prefix: str,
        *,
        limit: int = 16 * 1024 * 1024,
        folder_limit: int = 128 * 1024 * 1024,
        lent: Optional[LentSecrets] = None,
    ) -> None:
        self._lent = LentSecrets() if lent is None else lent
        self._directory = directory
        self._prefix = prefix
        self._limit = limit
        self._folder_limit = folder_limit

    def begin(self) -> "WholeOutput":
        files: List[Tuple[float, int, str]] = []
        room = self._folder_limit - self._limit
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime, status.st_size, entry.path))
            for _, size, path in sorted(files, reverse=True):
                room -= size
                if room < 0:
                    os.unlink(path)
        except OSError:
            return WholeOutput("", "", 0, self._lent)
        return WholeOutput(self._directory, self._prefix, self._limit, self._lent)


class WholeOutput:
    """The file of one output while it is written; named by its content: equal outputs share one file."""

    def __init__(self, directory: str, prefix: str, limit: int, lent: LentSecrets) -> None:
        # Loaded only now: a runner whose commands print little does without it.
        import hashlib

        self._directory = directory
        self._prefix = prefix
        self._room = limit
        self._lent = lent
        self._pending = ""
        self._is_whole = True
        self._digest: Any = hashlib.sha256()
        self._path = os.path.join(directory, f"{os.urandom(8).hex()}.part")
        self._descriptor = -1
        if directory:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with contextlib.suppress(OSError):
                self._descriptor = os.open(self._path, flags, 0o600)

    def write(self, text: str) -> None:
        if self._descriptor < 0:
            return
        if self._lent:
            text = self._pending + text
            end = self._lent.settled(text)
            text, self._pending = text[:end], text[end:]
        self._put(self._lent.hide(text))

    def _put(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        if len(data) > self._room:
            self._is_whole = False
            data = data[: self._room]
        self._room -= len(data)
        self._digest.update(data)
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            self.drop()

    def keep(self) -> Optional[SavedText]:
        """End the file; return its path, or None when the disk did not take it."""
        if self._descriptor >= 0 and self._pending:
            self._put(self._lent.hide(self._pending))
            self._pending = ""
        if self._descriptor < 0:
            return None
        path = os.path.join(self._directory, f"{self._prefix}_output_{self._digest.hexdigest()[:8]}.txt")
        os.close(self._descriptor)
        self._descriptor = -1
        try:
            os.replace(self._path, path)
        except OSError:
            return None
        return SavedText(path, self._is_whole)

    def drop(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            with contextlib.suppress(OSError):
                os.unlink(self._path)


class BoundedText:
    """The beginning and the end of a text of any length; ``files`` keeps the whole of what is cut."""

    def __init__(self, limit: int, files: Optional[WholeOutputs] = None) -> None:
        self._limit = limit
        self._files = files
        self._reset()

    def _reset(self) -> None:
        self._head = ""
        self._tail: Deque[str] = deque()
        self._tail_length = 0
        self._total = 0
        self._file: Optional[WholeOutput] = None

    def append(self, text: str) -> None:
        self._total += len(text)
        if self._files is not None and self._total > self._limit:
            self._begin_file(self._files).write(text)
        if len(self._head) < self._limit:
            self._head += text[: self._limit - len(self._head)]
        if len(text) > self._limit:
            text = text[-self._limit :] if self._limit else ""
        self._tail.append(text)
        self._tail_length += len(text)
        while self._tail_length - len(self._tail[0]) >= self._limit and len(self._tail) > 1:
            self._tail_length -= len(self._tail.popleft())
        if len(self._tail) > 512:  # many short pieces: one long one costs less
            self._tail = deque(["".join(self._tail)])

    def leave_out(self, count: int) -> None:
        """Count characters that are not at hand; as much as the limit must come before and after."""
        self._total += count

    def take(self, limit: Optional[int] = None) -> Cut:
        limit = self._limit if limit is None else min(limit, self._limit)
        if self._files is not None and self._total > limit:
            self._begin_file(self._files)
        saved = self._file.keep() if self._file is not None else None
        cut = cut_ends(self._head, "".join(self._tail), self._total, limit, saved=saved)
        self._reset()
        return cut

    def close(self) -> None:
        if self._file is not None:
            self._file.drop()
        self._reset()

    def _begin_file(self, files: WholeOutputs) -> WholeOutput:
        if self._file is None:  # up to the limit, the beginning is all
            self._file = files.begin()
            self._file.write(self._head)
        return self._file


class LiveFeed:
    """A running command's output for a live watcher: once per interval at most, a bounded amount each time.

    Readable, not exact: control sequences are dropped, a carriage return starts the line anew, of a flood only the ends
    are shown. ``send`` returns False when the watcher is too slow; the text is then kept and thinned out.
    """

    def __init__(self, loop: Loop, send: Callable[[str], bool]) -> None:
        self._send = send
        self._head = ""
        self._tail: Deque[str] = deque()
        self._tail_length = 0
        self._left_out = 0
        self._plan = Plan(loop)

    def append(self, text: str) -> None:
        half = 4 * 1024
        room = half - len(self._head)
        if room > 0 and not self._tail:
            self._head += text[:room]
            text = text[room:]
        if text:
            if len(text) > half:
                self._left_out += len(text) - half
                text = text[-half:]
            self._tail.append(text)
            self._tail_length += len(text)
            while self._tail_length - len(self._tail[0]) >= half:
                gone = len(self._tail.popleft())
                self._tail_length -= gone
                self._left_out += gone
        if not self._plan.is_planned:
            self._plan.at(LIVE_INTERVAL_SECONDS, self._tick)

    def close(self) -> None:
        self._plan.cancel()
        self._send = lambda _text: False
        self._head = ""
        self._tail.clear()

    def _tick(self) -> None:
        marker = f"\n[… {self._left_out} characters not shown live …]\n" if self._left_out else ""
        raw = self._head + marker + "".join(self._tail)
        match = _OPEN_ESCAPE.search(raw, max(0, len(raw) - 600))
        partial = match.group() if match is not None else ""
        text = _ESCAPES.sub("", raw[: len(raw) - len(partial)]).replace("\r\n", "\n")
        if text and not self._send(text):
            self._plan.at(LIVE_INTERVAL_SECONDS * 5, self._tick)
            return
        self._head = partial
        self._tail.clear()
        self._tail_length = self._left_out = 0
