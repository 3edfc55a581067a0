"""JSON-RPC messages over standard input and output, one a line. Nothing that comes in ends it but its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import stat
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import IO, Any, Final, NamedTuple, Protocol

from acp.exceptions import RequestError
from pydantic import BaseModel, ValidationError

from drydock_client import ClientError, KeyRefusedError, NotFoundError, RefusedError
from server.settings.running_server import words_of

logger = logging.getLogger(__name__)

MAX_LINE_BYTES: Final = 32 * 1024 * 1024
MAX_OPEN_REQUESTS: Final = 256
LAST_ANSWERS_SECONDS: Final = 2.0
PARSE_ERROR, INVALID_REQUEST, BUSY = -32700, -32600, -32000


class MessageWriter(Protocol):
    """Where messages go."""

    def write(self, data: bytes) -> None:
        """Take data; they may wait in memory."""

    async def drain(self) -> None:
        """Return when there is room for more."""

    def close(self) -> None:
        """Take no more."""


class StdioTransport:
    """The transport of a connection: what it receives are JSON-RPC messages, all else is answered with an error here.

    Made by `standard_lines`, or from any pair of streams.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: MessageWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()
        self._open = 0
        self._sent = asyncio.Event()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end."""
        while True:
            line = await self._line()
            if line is None:
                await self._answered()
                return None
            if line.strip() and (message := await self._read(line)) is not None:
                return message

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message. Returns when the other side has room for more.

        Raises:
            ConnectionError: the other side has gone.
        """
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
        """Write no more."""
        self._writer.close()

    async def _answered(self) -> None:
        """Nothing more comes in; what was asked for is still answered, if that is soon."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_ANSWERS_SECONDS):
                while self._open > 0:
                    self._sent.clear()
                    await self._sent.wait()

    async def _line(self) -> bytes | None:
        is_too_long = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as error:
                line = error.partial
                if not line:
                    return None
            except ConnectionError:
                return None
            except asyncio.LimitOverrunError as error:
                is_too_long = True
                await self._reader.readexactly(max(error.consumed, 1))
                continue
            if not is_too_long:
                return line
            is_too_long = False
            await self._refuse(
                None, INVALID_REQUEST, f"the line is longer than {MAX_LINE_BYTES} bytes; send less at once"
            )

    async def _read(self, line: bytes) -> dict[str, Any] | None:
        """The message in a line; None where it is none, or wants no answer of ours."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            await self._refuse(None, PARSE_ERROR, f"this line is no JSON: {error}; send one JSON-RPC object a line")
            return None
        if not isinstance(message, dict):
            await self._refuse(None, INVALID_REQUEST, "a message is a JSON object; send one a line, no batches")
            return None
        ident = message.get("id")
        if "id" in message and (isinstance(ident, bool) or not isinstance(ident, int | str | None)):
            await self._refuse(None, INVALID_REQUEST, "id: is neither a text nor a whole number; use one of them")
            return None
        if "method" not in message:
            return await self._response(message)
        if not isinstance(message["method"], str):
            await self._refuse(ident, INVALID_REQUEST, "method: is no text; name a method, such as session/prompt")
            return None
        if "id" not in message:
            return message
        if self._open >= MAX_OPEN_REQUESTS:
            await self._refuse(ident, BUSY, f"{MAX_OPEN_REQUESTS} requests are open; wait for some of the answers")
            return None
        self._open += 1
        return message

    async def _response(self, message: dict[str, Any]) -> dict[str, Any] | None:
        if "id" not in message or not ("result" in message or isinstance(message.get("error"), dict)):
            await self._refuse(None, INVALID_REQUEST, "method: is missing; name a method, such as session/prompt")
            return None
        return message

    async def _refuse(self, ident: str | int | None, code: int, problem: str) -> None:
        logger.warning("a message was refused: %s", problem)
        self._open += 1
        await self.send({"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": problem}})


class _File:
    """Writes to a file, which no loop can wait for."""

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
    loop = asyncio.get_running_loop()
    output = _own_output()
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    if _is_stream(sys.stdin.fileno()):
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    else:
        reader.feed_data(await asyncio.to_thread(sys.stdin.buffer.read))
        reader.feed_eof()
    if not _is_stream(output.fileno()):
        return StdioTransport(reader, _File(output))
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())  # for its flow control alone
    transport, _ = await loop.connect_write_pipe(lambda: protocol, output)
    return StdioTransport(reader, asyncio.StreamWriter(transport, protocol, None, loop))


def _own_output() -> IO[bytes]:
    """The real standard output, for messages alone."""
    sys.stdout.flush()
    own = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return own


def _is_stream(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


INVALID_PARAMS, INTERNAL_ERROR, AUTH_REQUIRED, NOT_FOUND = -32602, -32603, -32000, -32002
MAX_PROBLEMS = 10

Answer = Callable[[Any], Awaitable[BaseModel | None]]


class Method(NamedTuple):
    """The form of a method's parameters, and what answers it."""

    form: type[BaseModel]
    answer: Answer


class Dispatcher:
    """Called with each request and notification; raises `RequestError` only."""

    def __init__(self, requests: Mapping[str, Method], notifications: Mapping[str, Method]) -> None:
        self._methods = {False: requests, True: notifications}

    async def __call__(self, method: str, params: Any, is_notification: bool) -> dict[str, Any] | None:
        known = self._methods[is_notification]
        found = known.get(method)
        if found is None:
            raise RequestError(-32601, f"{method[:100]}: no such method; there are {', '.join(known)}")
        try:
            wish = found.form.model_validate({} if params is None else params)
        except ValidationError as error:
            raise invalid_form(error) from None
        try:
            answer = await found.answer(wish)
        except ClientError as error:
            raise from_server(error) from error
        return {} if answer is None else plain(answer)


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
