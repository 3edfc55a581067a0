"""Asks the engine on the proxy's own behalf: small questions with whole answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass
from typing import Final

from deploy.engine_proxy.errors import EngineAnswerError, ForbiddenCallError

ANSWER_LIMIT: Final = 32 * 1024 * 1024
_READ: Final = 256 * 1024
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ")


@dataclass(frozen=True, slots=True)
class EngineResponse:
    """The engine's whole answer to a call."""

    status: int
    content: bytes

    @property
    def succeeded(self) -> bool:
        """Whether the engine did what it was asked for."""
        return 200 <= self.status < 300

    def document(self) -> dict[str, object]:
        """The JSON object in it.

        Raises:
            EngineAnswerError: the engine refused, in its own words.
            RefusedError: it is no JSON object.
        """
        if not self.succeeded:
            raise EngineAnswerError(self.status, self.message())
        value = self.parsed()
        if not isinstance(value, dict):
            raise ForbiddenCallError("the engine's answer could not be understood")
        return value

    def parsed(self) -> object:
        """The JSON value in it; None when there is none."""
        try:
            value: object = json.loads(self.content)
        except (ValueError, RecursionError):
            return None
        return value

    def message(self) -> str:
        """The engine's words about an error."""
        value = self.parsed()
        return str(value.get("message", "")) if isinstance(value, dict) else ""


class Engine:
    """An engine that listens at a unix socket; every question is a connection of its own."""

    def __init__(self, socket_path: str) -> None:
        self.socket_path = socket_path

    async def ask(self, method: str, target: str, body: object = None) -> EngineResponse:
        """Make a call and read its whole answer; the caller sets the limit of time.

        Args:
            method: of HTTP.
            target: path and query, with everything in them quoted.
            body: a JSON value, or None for no body.

        Raises:
            OSError: the engine does not answer.
            RefusedError: it answers more than is acceptable.
        """
        content = b"" if body is None else json.dumps(body).encode("ascii")
        head = f"{method} {target} HTTP/1.0\r\nHost: docker\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        reader, writer = await asyncio.open_unix_connection(self.socket_path)
        answered = bytearray()
        try:
            writer.write(f"{head}\r\n".encode("ascii") + content)
            while data := await reader.read(_READ):
                answered += data
                if len(answered) > ANSWER_LIMIT:
                    raise ForbiddenCallError("the engine's answer is too long")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        status = _STATUS_LINE.match(answered)
        if status is None:
            raise OSError("the engine's answer breaks off")
        return EngineResponse(int(status[1]), bytes(answered.partition(b"\r\n\r\n")[2]))
