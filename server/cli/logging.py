"""The server's log: lines for people by default, JSON objects by setting; secrets never appear in either."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, ClassVar

from agent_core.events.masking import SecretMasker
from server.settings.settings import Settings

_QUIET = ("engineio", "socketio", "sqlalchemy", "alembic", "httpx", "httpcore", "docker", "urllib3", "asyncio")
_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """``12:34:56 warning  server.sockets: text``, in colour on a terminal."""

    _COLOURS: ClassVar[dict[int, str]] = {
        logging.WARNING: "\x1b[33m",
        logging.ERROR: "\x1b[31m",
        logging.CRITICAL: "\x1b[31m",
    }

    def __init__(self, masker: SecretMasker, *, colour: bool) -> None:
        super().__init__()
        self._masker = masker
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        level = record.levelname.lower()
        text = f"{time} {level:<8} {record.name}: {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        text = self._masker.text(text)
        start = self._COLOURS.get(record.levelno, "") if self._colour else ""
        return f"{start}{text}\x1b[0m" if start else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the record's extra fields, and the traceback if any."""

    def __init__(self, masker: SecretMasker) -> None:
        super().__init__()
        self._masker = masker

    def format(self, record: logging.LogRecord) -> str:
        data: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        data |= {key: value for key, value in vars(record).items() if key not in _STANDARD and key not in data}
        if record.exc_info:
            data["traceback"] = self.formatException(record.exc_info)
        return self._masker.text(json.dumps(data, default=str, ensure_ascii=False))


def configure_logging(settings: Settings, *, secrets: Iterable[str] = ()) -> SecretMasker:
    """Send the process's log to standard error as the settings say.

    Returns:
        The masker of the log; values added to it later are hidden from then on.
    """
    masker = SecretMasker(secrets)
    handler = logging.StreamHandler(sys.stderr)
    if settings.log_format == "json":
        handler.setFormatter(JsonFormatter(masker))
    else:
        handler.setFormatter(TextFormatter(masker, colour=sys.stderr.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    level = settings.log_level.upper()
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(
            max(root.level, logging.WARNING) if settings.log_level != "debug" else root.level
        )
    return masker
