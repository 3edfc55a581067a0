"""HTTP as the proxy speaks it: strictly with clients, and with the engine on its own behalf."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from deploy.engine_proxy.rules import ForbiddenCallError

HEAD_LIMIT: Final = 32 * 1024
_REQUEST_LINE: Final = re.compile(r"([A-Z]{1,10}) (/[!-~]{0,8000}) HTTP/1\.[01]")
_HEADER_LINE: Final = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")
ANSWER_LIMIT: Final = 32 * 1024 * 1024
_READ: Final = 256 * 1024
STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ")


class MalformedError(Exception):
    """The request is not HTTP as this proxy reads it; answered with 400."""


class EngineAnswerError(Exception):
    """The engine's error of HTTP ``status`` about a question, which becomes the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request's head. Header names are in lower case; each occurs once."""

    method: str
    target: str
    headers: dict[str, str]

    @property
    def content_length(self) -> int:
        return int(self.headers.get("content-length", "0"))

    @property
    def is_chunked(self) -> bool:
        return "transfer-encoding" in self.headers

    @property
    def wants_upgrade(self) -> bool:
        """Whether the client asks for the connection itself, as Docker's exec does."""
        tokens = [token.strip().lower() for token in self.headers.get("connection", "").split(",")]
        return "upgrade" in tokens and self.headers.get("upgrade", "").lower() == "tcp"


def parse_head(block: bytes) -> RequestHead:
    """Parse a request's head, given with its closing empty line.

    Raises `MalformedError` for all that two readers could understand differently: folded or repeated headers, a length
    beside chunks, another transfer coding, bare line feeds.
    """
    lines = block.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    matched = _REQUEST_LINE.fullmatch(lines[0])
    if matched is None:
        raise MalformedError("the request line is not one of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        header = _HEADER_LINE.fullmatch(line)
        if header is None:
            raise MalformedError("a header line is malformed")
        name = header[1].lower()
        if name in headers:
            raise MalformedError(f"the header {name} is given twice")
        headers[name] = header[2]
    if not re.fullmatch(r"[0-9]{1,15}", headers.get("content-length", "0")):
        raise MalformedError("the content length is not a number")
    if "transfer-encoding" in headers and (
        "content-length" in headers or headers["transfer-encoding"].lower() != "chunked"
    ):
        raise MalformedError("the transfer coding is not acceptable")
    return RequestHead(matched[1], matched[2], headers)


async def read_head(reader: asyncio.StreamReader) -> RequestHead | None:
    """Read a client's request head; None when it left at once. Raises `MalformedError`, also when it is cut off."""
    try:
        return parse_head(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.IncompleteReadError as error:
        if error.partial.strip():
            raise MalformedError("the request breaks off") from None
        return None
    except asyncio.LimitOverrunError:
        raise MalformedError("the request's head is too long") from None


def answer(status: int, content: bytes) -> bytes:
    """A whole answer with a JSON document."""
    known = status in HTTPStatus.__members__.values()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase if known else 'Answer'}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + content


def error_answer(status: int, message: str) -> bytes:
    """An answer in the form of the engine's own errors, so that Docker's clients show its message."""
    return answer(status, json.dumps({"message": message}).encode("ascii"))


@dataclass(frozen=True, slots=True)
class EngineResponse:
    """The engine's whole answer to a call."""

    status: int
    content: bytes

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status < 300

    def document(self) -> dict[str, object]:
        """The JSON object; raises `EngineAnswerError` when the engine refused, `ForbiddenCallError` otherwise."""
        value = self.parsed()
        if not self.succeeded:
            raise EngineAnswerError(self.status, str(value.get("message", "")) if isinstance(value, dict) else "")
        if not isinstance(value, dict):
            raise ForbiddenCallError("the engine's answer could not be understood")
        return value

    def parsed(self) -> object:
        try:
            value: object = json.loads(self.content)
        except (ValueError, RecursionError):
            return None
        return value


class Engine:
    """An engine at a unix socket; every question is a connection of its own."""

    def __init__(self, socket_path: str) -> None:
        self.socket_path = socket_path

    async def ask(self, method: str, target: str, body: object = None) -> EngineResponse:
        """Make a call and read its whole answer; the caller limits the time. All of ``target`` is quoted.

        Raises `OSError` when the engine does not answer, `ForbiddenCallError` when its answer is too long.
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
        status = STATUS_LINE.match(answered)
        if status is None:
            raise OSError("the engine's answer breaks off")
        return EngineResponse(int(status[1]), bytes(answered.partition(b"\r\n\r\n")[2]))
