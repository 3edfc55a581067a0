"""The log of the server's process: its lines, how much of them there may be, and a way out that holds nobody up."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from contextvars import Context
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, TextIO

from agent_core.events.masking import SecretMasker
from agent_core.spans import PRESENT
from agent_core.troubles import CONVERSATION, USER
from server.settings.settings import Settings

AT_ONCE: Final = 64 * 1024
A_MINUTE: Final = 16 * 1024
"""Characters that lines of one kind may have: at once, and then in a minute."""
MAX_MESSAGE: Final = 4_000
MAX_TRACEBACK: Final = 16_000
MAX_WAITING: Final = 1024 * 1024
"""Bytes that wait for who reads the log; what comes then is lost, and counted."""
FLUSH_SECONDS: Final = 2.0

_MAX_KINDS: Final = 1_000
_PIECE: Final = 4096
"""A pipe in which there is room takes so much at once (PIPE_BUF)."""
_QUIET = ("engineio", "socketio", "sqlalchemy", "alembic", "httpx", "httpcore", "docker", "urllib3", "asyncio")
_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


UserOf = Callable[[str], str]


def configure_logging(
    settings: Settings, *, secrets: Iterable[str] = (), user_of: UserOf = lambda _: ""
) -> SecretMasker:
    """Send the process's log to standard error as the settings say; returns its masker, which takes more values.

    `user_of` says whose a conversation is, or "" where it does not know; it is asked in any thread.
    """
    masker = SecretMasker(secrets)
    is_debugged = settings.log_level == "debug"
    handler = ProcessLog(sys.stderr, None if is_debugged else LineLimit())
    if settings.log_format == "json":
        handler.setFormatter(JsonFormatter(masker, user_of))
    else:
        handler.setFormatter(TextFormatter(masker, user_of, colour=sys.stderr.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    handler.setLevel(settings.log_level.upper())
    root.setLevel(min(handler.level, logging.INFO))  # what is not shown may be counted
    # It warns of each body that it cannot read; the client is told that, and nobody else has anything to do about it.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.DEBUG if is_debugged else logging.WARNING)
    return masker


class LineLimit:
    """Bounds what lines of one kind take (`AT_ONCE`, `A_MINUTE`), so that nobody fills the disk by provoking them.

    Lines of one kind are written at the same place of the code, under the same code of bad luck, and have the same
    fault if there is one.
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kinds: OrderedDict[object, _Kind] = OrderedDict()

    def left_out(self, record: logging.LogRecord) -> int | None:
        """How many like it were left out since the last one; None: this one is left out, too."""
        kind = self._kind(record)
        now = self._now()
        kind.credit = min(AT_ONCE, kind.credit + (now - kind.at) * A_MINUTE / 60)
        kind.at = now
        if kind.credit <= 0:
            kind.left_out += 1
            return None
        before, kind.left_out = kind.left_out, 0
        return before

    def wrote(self, record: logging.LogRecord, characters: int) -> None:
        self._kind(record).credit -= characters

    def _kind(self, record: logging.LogRecord) -> _Kind:
        fault: tuple[object, ...] = ()
        if record.exc_info and (trace := record.exc_info[2]) is not None:
            while trace.tb_next is not None:
                trace = trace.tb_next
            fault = (record.exc_info[0], trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        key = (record.name, record.pathname, record.lineno, getattr(record, "code", None), fault)
        if (kind := self._kinds.get(key)) is None:
            kind = self._kinds[key] = _Kind(self._now())
            if len(self._kinds) > _MAX_KINDS:
                self._kinds.popitem(last=False)
        else:
            self._kinds.move_to_end(key)
        return kind


class _Kind:
    def __init__(self, now: float) -> None:
        self.at = now
        self.credit: float = AT_ONCE
        self.left_out = 0


class ProcessLog(logging.Handler):
    """Writes to a stream without waiting for who reads it: what finds no room there waits, within `MAX_WAITING`.

    A thread, started with the first line that waits, writes that. What cannot be written at all is lost, and so is
    what comes when too much waits; the next line says how many were.
    """

    def __init__(self, stream: TextIO, limit: LineLimit | None) -> None:
        super().__init__()
        self._stream = stream
        self._limit = limit
        try:
            self._descriptor = stream.fileno()
        except (OSError, ValueError):
            self._descriptor = -1  # no file, and so nobody to wait for
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._lost = 0
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            left_out = self._limit.left_out(record) if self._limit is not None else 0
            if left_out is None:
                return
            if left_out:
                record.left_out = left_out
            line = self.format(record) + "\n"
            if self._limit is not None:
                self._limit.wrote(record, len(line))
            self._put(line)
        except Exception:  # noqa: BLE001 - as every handler: a line that cannot be written ends nothing
            self.handleError(record)

    def flush(self) -> None:
        """Wait until everything is written, for `FLUSH_SECONDS` at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, timeout=FLUSH_SECONDS)

    def close(self) -> None:
        self.flush()
        super().close()

    def _put(self, line: str) -> None:
        if self._descriptor < 0:
            self._stream.write(line)
            self._stream.flush()
            return
        with self._changed:
            lost = self._lost if self._waiting_bytes <= MAX_WAITING // 2 else 0
            told = Context().run(self.format, _missing(lost)) + "\n" if lost else ""
            data = (told + line).encode("utf-8", "backslashreplace")
            try:
                data = data if self._waiting else self._written_at_once(data)
            except OSError:
                self._lost += 1
                return
            if self._waiting_bytes + len(data) > MAX_WAITING:
                self._lost += 1
                return
            self._lost -= lost
            if data:
                self._leave_to_thread(data)

    def _written_at_once(self, data: bytes) -> bytes:
        """Write what there is room for; returns the rest."""
        ready = _writable(self._descriptor)
        while data and ready.poll(0):
            data = data[os.write(self._descriptor, data[:_PIECE]) :]
        return data

    def _leave_to_thread(self, data: bytes) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_on, name="log", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _write_on(self) -> None:
        ready = _writable(self._descriptor)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                data = self._waiting[0]
            lost = 0
            try:
                while data:
                    ready.poll()
                    data = data[os.write(self._descriptor, data[:_PIECE]) :]
            except OSError:
                lost = 1
            with self._changed:
                self._lost += lost
                self._waiting_bytes -= len(self._waiting.popleft())
                self._changed.notify_all()


def _missing(lines: int) -> logging.LogRecord:
    message = "%d lines of the log are missing here: nobody took them"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, message, (lines,), None)


def _writable(descriptor: int) -> select.poll:
    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)
    return ready


class TextFormatter(logging.Formatter):
    """``12:34:56 warning  server.sockets: text``, in colour on a terminal; what follows in further lines is indented.

    So no text of others looks like a line of its own, or does something to a terminal.
    """

    _COLOURS: ClassVar[dict[int, str]] = {
        logging.WARNING: "\x1b[33m",
        logging.ERROR: "\x1b[31m",
        logging.CRITICAL: "\x1b[31m",
    }

    def __init__(self, masker: SecretMasker, user_of: UserOf = lambda _: "", *, colour: bool) -> None:
        super().__init__()
        self._masker = masker
        self._user_of = user_of
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        text = _shown(record.getMessage(), MAX_MESSAGE, self._masker)
        named = {name.removesuffix("_id"): value for name, value in _origin(record, self._user_of).items()}
        if words := ", ".join(f"{name} {value}" for name, value in named.items() if value not in text):
            text += f" ({words})"
        if (code := getattr(record, "code", None)) is not None:
            text += f" [{code}]"
        if left_out := getattr(record, "left_out", 0):
            text += f" (and {left_out} lines like it that were left out)"
        if record.exc_info:
            text += "\n" + _shown(self.formatException(record.exc_info), MAX_TRACEBACK, self._masker)
        text = _CONTROL.sub(_escaped, text).rstrip("\n").replace("\n", "\n  ")
        text = f"{time} {record.levelname.lower():<8} {record.name}: {text}"
        start = self._COLOURS.get(record.levelno, "") if self._colour else ""
        return f"{start}{text}\x1b[0m" if start else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the record's extra fields, and the traceback if any.

    What it is about: `conversation_id`, whose (`user_id`), and in which trace it was written (`trace_id`).
    """

    def __init__(self, masker: SecretMasker, user_of: UserOf = lambda _: "") -> None:
        super().__init__()
        self._masker = masker
        self._user_of = user_of

    def format(self, record: logging.LogRecord) -> str:
        data: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _shown(record.getMessage(), MAX_MESSAGE, self._masker),
        }
        more = {key: value for key, value in vars(record).items() if key not in _STANDARD and key not in data}
        data |= {key: _cut(value, MAX_MESSAGE) if isinstance(value, str) else value for key, value in more.items()}
        data |= _origin(record, self._user_of)
        if record.exc_info:
            data["traceback"] = _shown(self.formatException(record.exc_info), MAX_TRACEBACK, self._masker)
        return self._masker.text(json.dumps(data, default=str, ensure_ascii=False))


def _origin(record: logging.LogRecord, user_of: UserOf) -> dict[str, str]:
    """What a line is about: what has a code names its conversation, all else is of the work it was written in."""
    is_coded, present = hasattr(record, "code"), CONVERSATION.get()
    conversation: str = getattr(record, "conversation_id", "") or ("" if is_coded else present)
    user = user_of(conversation) if conversation else ""
    if not user and conversation == present and (conversation or not is_coded):
        user = USER.get()
    span = PRESENT.get()
    found = {"conversation_id": conversation, "user_id": user, "trace_id": span.trace if span is not None else ""}
    return {name: value for name, value in found.items() if value}


def _shown(text: str, most: int, masker: SecretMasker) -> str:
    """What a line has of a text: secrets are hidden before it is cut, in a part that is long enough for that."""
    return _cut(masker.text(_cut(text, 8 * most)), most)


def _cut(text: str, most: int) -> str:
    """The text with its middle left out where it is longer: the end of a traceback says what happened."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} … ({len(text) - 2 * half} characters are left out) … {text[-half:]}"


def _escaped(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]
