"""JSON-RPC messages over standard input and output, one a line, and the errors that answer them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from typing import IO, Any, Final, Protocol

from acp.exceptions import RequestError
from pydantic import BaseModel, ValidationError

from drydock_client import ClientError, KeyRefusedError, NotFoundError, RefusedError
from server.doors.stdio_program import MAX_LINE_BYTES, LineTooLongError, is_stream, read_line, standard_input
from server.settings.running_server import words_of

logger = logging.getLogger(__name__)

MAX_OPEN_REQUESTS: Final = 256
LAST_ANSWERS_SECONDS: Final = 2.0
MAX_PROBLEMS: Final = 10
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
BUSY = AUTH_REQUIRED = -32000
NOT_FOUND = -32002


class MessageWriter(Protocol):
    """A writer of messages."""

    def write(self, data: bytes) -> None:
        """Take data; they may wait in memory."""

    async def drain(self) -> None:
        """Return when there is room for more."""

    def close(self) -> None:
        """Take no more."""


class StdioTransport:
    """JSON-RPC messages, one a line. What is none is answered with an error here; only the end of input ends it."""

    def __init__(self, reader: asyncio.StreamReader, writer: MessageWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()
        self._open = 0
        self._sent = asyncio.Event()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end."""
        while True:
            try:
                line = await read_line(self._reader)
                if not line:
                    break
                if not line.strip():
                    continue
                message = _message_in(line)
                if "method" in message and "id" in message:
                    if self._open >= MAX_OPEN_REQUESTS:
                        problem = f"{MAX_OPEN_REQUESTS} requests are open; wait for some of the answers"
                        raise _RefusedError(BUSY, problem, message["id"])
                    self._open += 1
                return message
            except ConnectionError:
                break
            except LineTooLongError:
                problem = f"the line is longer than {MAX_LINE_BYTES} bytes; send less at once"
                await self._refuse(_RefusedError(INVALID_REQUEST, problem))
            except _RefusedError as refused:
                await self._refuse(refused)
        # Nothing more comes in; what was asked for is still answered, if that is soon.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_ANSWERS_SECONDS):
                while self._open > 0:
                    self._sent.clear()
                    await self._sent.wait()
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message, and wait for room for more; `ConnectionError`: the other side has gone."""
        if "method" not in message:
            self._open -= 1
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        async with self._sending:
            try:
                self._writer.write(data)
                await self._writer.drain()
            except ConnectionError as error:
                self._reader.set_exception(error)  # who cannot be answered is not listened to either
                raise
        self._sent.set()

    async def close(self) -> None:
        self._writer.close()

    async def _refuse(self, refused: _RefusedError) -> None:
        logger.warning("a message was refused: %s", refused)
        self._open += 1
        error = {"code": refused.code, "message": str(refused)}
        await self.send({"jsonrpc": "2.0", "id": refused.ident, "error": error})


class _RefusedError(Exception):
    def __init__(self, code: int, problem: str, ident: str | int | None = None) -> None:
        super().__init__(problem)
        self.code = code
        self.ident = ident


def _message_in(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _RefusedError(PARSE_ERROR, f"this line is no JSON: {error}; send one JSON-RPC object a line") from None
    if not isinstance(message, dict):
        raise _RefusedError(INVALID_REQUEST, "a message is a JSON object; send one a line, no batches")
    ident = message.get("id")
    if "id" in message and (isinstance(ident, bool) or not isinstance(ident, int | str | None)):
        raise _RefusedError(INVALID_REQUEST, "id: is neither a text nor a whole number; use one of them")
    if "method" not in message:
        if "id" not in message or not ("result" in message or isinstance(message.get("error"), dict)):
            raise _RefusedError(INVALID_REQUEST, "method: is missing; name a method, such as session/prompt")
    elif not isinstance(message["method"], str):
        raise _RefusedError(INVALID_REQUEST, "method: is no text; name a method, such as session/prompt", ident)
    return message


class _File:
    """A writer to a file, which no loop can wait for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        self._file.write(data)

    async def drain(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


async def standard_lines() -> StdioTransport:
    """Messages over this process's standard input and output; what prints from now on prints to standard error."""
    sys.stdout.flush()
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    reader = await standard_input()
    if reader is None:
        reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        reader.feed_data(await asyncio.to_thread(sys.stdin.buffer.read))
        reader.feed_eof()
    if not is_stream(output.fileno()):
        return StdioTransport(reader, _File(output))
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())  # for its flow control alone
    transport, _ = await loop.connect_write_pipe(lambda: protocol, output)
    return StdioTransport(reader, asyncio.StreamWriter(transport, protocol, None, loop))


def plain(form: BaseModel) -> dict[str, Any]:
    """A form as JSON, without what was not said."""
    dumped: dict[str, Any] = form.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
    return dumped


def invalid(field: str, problem: str) -> RequestError:
    """A value that cannot be used; `problem` says what it is, and what to do."""
    return RequestError(INVALID_PARAMS, f"{field}: {problem}", {"field": field})


def invalid_form(error: ValidationError) -> RequestError:
    """Parameters of the wrong form: what is wrong, by field."""
    problems = [
        {"field": ".".join(str(part) for part in one["loc"]) or "params", "problem": one["msg"]}
        for one in error.errors(include_url=False, include_context=False, include_input=False)[:MAX_PROBLEMS]
    ]
    text = "; ".join(f"{one['field']}: {one['problem']}" for one in problems)
    return RequestError(INVALID_PARAMS, text, {"errors": problems})


def from_server(error: ClientError) -> RequestError:
    """What the Drydock server refused, or that it could not be asked."""
    match error:
        case KeyRefusedError():
            return RequestError(AUTH_REQUIRED, f"Authentication required: {words_of(error)}")
        case NotFoundError():
            return RequestError(NOT_FOUND, str(error))
        case RefusedError():
            code = INVALID_PARAMS if error.status < 500 else INTERNAL_ERROR
            return RequestError(code, str(error), {"field": error.field} if error.field else None)
        case _:
            return RequestError(INTERNAL_ERROR, words_of(error))
