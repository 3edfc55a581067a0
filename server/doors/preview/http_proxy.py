"""Proxy of HTTP requests to a preview: h11 over a connection to the program's port, in bounded memory."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import NamedTuple

import h11
from starlette.types import Message, Receive, Scope, Send

from agent_core.errors import DrydockError, SandboxError
from agent_core.runtime.channel.tunnels import PortConnection
from server.doors.preview.headers import Headers, PreviewPlace, for_browser, for_sandbox

MAX_HEAD_BYTES = 64 * 1024
_WITHOUT_BODY = frozenset({204, 304})
_CONTROL = re.compile(rb"[\x00-\x08\n-\x1f\x7f]")
"""No server can pass these on in the value of a header."""


@dataclass(frozen=True, slots=True)
class PreviewLimits:
    """Bounds in seconds: on the head of an answer to a whole request, and on silence in the middle of something."""

    answer_seconds: float = 120.0
    idle_seconds: float = 3600.0


class UpstreamError(DrydockError):
    """The program in the sandbox did not answer as a web server does; `status` is what the browser is told."""

    def __init__(self, message: str, *, status: int = 502) -> None:
        super().__init__(message)
        self.status = status


class ClientGoneError(Exception):
    """The browser has closed the connection: nobody waits for the answer."""


class IncompleteAnswerError(Exception):
    """The answer ended before its end, after its head was sent."""


@dataclass(frozen=True, slots=True)
class PreviewProxy:
    """Passes one request on over a `connection` to the program's port; calls `touch` whenever something flows."""

    place: PreviewPlace
    connection: PortConnection
    limits: PreviewLimits
    touch: Callable[[], None]
    is_drydocks: Callable[[bytes], bool]


class HttpProxy(PreviewProxy):
    """An HTTP request: passed on into the sandbox and answered from there, both ways as they flow."""

    async def pass_on(self, target: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass request and answer on. `UpstreamError`: nothing was sent yet; `IncompleteAnswerError`: it was."""
        exchange = Exchange(self.connection, self.limits)
        await exchange.send_head(scope["method"], target, self._head(scope))
        sending = asyncio.create_task(self._send_body(exchange, receive), name="preview-upload")
        answering = asyncio.create_task(self._answer(exchange, scope, send), name="preview-answer")
        try:
            await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
            (answering if answering.done() else sending).result()
        finally:
            for task in (sending, answering):
                task.cancel()
            await asyncio.wait({sending, answering})
            for task in (sending, answering):
                if not task.cancelled():
                    task.exception()

    def _head(self, scope: Scope) -> Headers:
        headers: Headers = scope["headers"]
        if sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEAD_BYTES:
            raise UpstreamError("The headers of the request are too long.", status=431)
        passed = for_sandbox(headers, self.place, self.is_drydocks)
        lengths = {value for name, value in headers if name == b"content-length"}
        if any(name == b"transfer-encoding" for name, _ in headers):
            passed.append((b"transfer-encoding", b"chunked"))
        elif len(lengths) == 1:
            passed.append((b"content-length", lengths.pop()))
        elif lengths:
            raise UpstreamError("The request has several lengths.", status=400)
        return passed

    async def _send_body(self, exchange: Exchange, receive: Receive) -> None:
        message = await self._receive(receive)
        try:
            while True:
                is_last = not message.get("more_body", False)
                await exchange.send_body(message.get("body", b""), is_last=is_last)
                if is_last:
                    break
                message = await self._receive(receive)
        except UpstreamError:
            exchange.sent()  # what the program has answered, or its end, says why
        while True:
            await self._receive(receive)

    async def _receive(self, receive: Receive) -> Message:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        self.touch()
        return message

    async def _answer(self, exchange: Exchange, scope: Scope, send: Send) -> None:
        answer = await exchange.answer()
        headers = for_browser(answer.headers, self.place)
        if answer.status in _WITHOUT_BODY:
            headers = [header for header in headers if header[0] != b"content-length"]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        try:
            async with contextlib.aclosing(exchange.body()) as body:
                async for piece in body:
                    self.touch()
                    async with asyncio.timeout(self.limits.idle_seconds):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
        except (UpstreamError, TimeoutError) as error:
            # The head is out: all that is left is to close the connection, by which the browser knows.
            raise IncompleteAnswerError(str(error)) from error
        await send({"type": "http.response.body", "body": b""})


class ResponseHead(NamedTuple):
    """The head of an answer."""

    status: int
    headers: Headers


class Exchange:
    """A request, sent by one task, and its answer, read by another one. Methods raise `UpstreamError`."""

    def __init__(self, connection: PortConnection, limits: PreviewLimits) -> None:
        self._connection = connection
        self._limits = limits
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._is_sent = False
        self._until_answer: asyncio.Timeout | None = None

    async def send_head(self, method: str, target: bytes, headers: Headers) -> None:
        try:
            request = h11.Request(method=method, target=target, headers=[*headers, (b"connection", b"close")])
        except h11.LocalProtocolError as error:
            raise UpstreamError(f"The request cannot be passed on: {error}.", status=400) from error
        await self._send(request)

    async def send_body(self, data: bytes, *, is_last: bool) -> None:
        if data:
            await self._send(h11.Data(data=data))
        if is_last:
            await self._send(h11.EndOfMessage())
            self.sent()

    def sent(self) -> None:
        self._is_sent = True
        if self._until_answer is not None:
            self._until_answer.reschedule(asyncio.get_running_loop().time() + self._limits.answer_seconds)

    async def answer(self) -> ResponseHead:
        """The head of the answer; provisional ones are left out."""
        # An upload may take its time, as long as it goes on.
        seconds = self._limits.answer_seconds if self._is_sent else self._limits.idle_seconds
        try:
            async with asyncio.timeout(seconds) as self._until_answer:
                while True:
                    event = await self._next()
                    if isinstance(event, h11.Response):
                        return _answer(event)
                    if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                        raise UpstreamError("The program closed the connection without an answer.")
        except TimeoutError:
            raise UpstreamError("The program did not answer in time.", status=504) from None
        finally:
            self._until_answer = None

    async def body(self) -> AsyncGenerator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._limits.idle_seconds):
                    event = await self._next()
            except TimeoutError:
                raise UpstreamError("The program stopped in the middle of its answer.", status=504) from None
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise UpstreamError("The program broke the answer off.")

    async def _next(self) -> object:
        try:
            while True:
                event = self._protocol.next_event()
                if event is not h11.NEED_DATA:
                    return event
                self._protocol.receive_data(await self._connection.read())
        except h11.RemoteProtocolError as error:
            raise UpstreamError(f"The program's answer is no valid HTTP: {error}.") from error
        except SandboxError as error:
            raise UpstreamError(str(error)) from error

    async def _send(self, event: h11.Event) -> None:
        try:
            data = self._protocol.send(event)
        except h11.LocalProtocolError as error:
            raise UpstreamError(f"The request cannot be passed on: {error}.", status=400) from error
        if data:
            try:
                async with asyncio.timeout(self._limits.idle_seconds):
                    await self._connection.write(data)
            except TimeoutError:
                raise UpstreamError("The program does not take the request.", status=504) from None
            except SandboxError as error:
                raise UpstreamError(str(error)) from error


def _answer(event: h11.Response) -> ResponseHead:
    if not 200 <= event.status_code <= 599:
        raise UpstreamError(f"The program answered with the status {event.status_code}.")
    headers = list(event.headers)
    for name, value in headers:
        if _CONTROL.search(value):
            raise UpstreamError(f"The program's answer is no valid HTTP: {name.decode()} has a control character.")
    return ResponseHead(event.status_code, headers)
