"""Proxy of HTTP requests to a preview: h11 over a connection to the program's port, in bounded memory."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import h11
from starlette.types import Message, Receive, Scope, Send

from agent_core.errors import DrydockError, SandboxError
from server.doors.preview.headers import Headers, PreviewPlace, for_browser, for_sandbox
from server.doors.preview.other_servers import PortStream
from server.http.user_header import HIDDEN_HEADERS

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


@dataclass(slots=True)
class PreviewProxy:
    """Passes one request on over a `connection` to the program's port; calls `touch` whenever something flows."""

    place: PreviewPlace
    connection: PortStream
    limits: PreviewLimits
    touch: Callable[[], None]
    keys: Collection[bytes]


@dataclass(slots=True)
class HttpProxy(PreviewProxy):
    """An HTTP request: passed on into the sandbox and answered from there, both ways as they flow."""

    _protocol: h11.Connection = field(
        init=False, default_factory=lambda: h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
    )
    _is_sent: bool = field(init=False, default=False)
    _until_answer: asyncio.Timeout | None = field(init=False, default=None)

    async def pass_on(self, target: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass request and answer on.

        `UpstreamError`: nothing was sent yet; `IncompleteAnswerError`: it was; `ClientGoneError`: the browser has gone.
        """
        headers = [*self._head(scope), (b"connection", b"close")]
        try:
            request = h11.Request(method=scope["method"], target=target, headers=headers)
        except h11.LocalProtocolError as error:
            raise UpstreamError(f"The request cannot be passed on: {error}.", status=400) from error
        await self._send(request)
        sending = asyncio.create_task(self._send_body(receive), name="preview-upload")
        answering = asyncio.create_task(self._answer(send), name="preview-answer")
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
        passed = for_sandbox(headers, self.place, self.keys, scope.get(HIDDEN_HEADERS, ()))
        lengths = {value for name, value in headers if name == b"content-length"}
        if any(name == b"transfer-encoding" for name, _ in headers):
            passed.append((b"transfer-encoding", b"chunked"))
        elif len(lengths) == 1:
            passed.append((b"content-length", lengths.pop()))
        elif lengths:
            raise UpstreamError("The request has several lengths.", status=400)
        return passed

    async def _send_body(self, receive: Receive) -> None:
        with contextlib.suppress(UpstreamError):  # what the program has answered, or its end, says why
            is_last = False
            while not is_last:
                message = await self._receive(receive)
                is_last = not message.get("more_body", False)
                if data := message.get("body", b""):
                    await self._send(h11.Data(data=data))
            await self._send(h11.EndOfMessage())
        self._is_sent = True
        if self._until_answer is not None:
            self._until_answer.reschedule(asyncio.get_running_loop().time() + self.limits.answer_seconds)
        while True:
            await self._receive(receive)

    async def _receive(self, receive: Receive) -> Message:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        self.touch()
        return message

    async def _answer(self, send: Send) -> None:
        answer = await self._answer_head()
        status = answer.status_code
        if not 200 <= status <= 599:
            raise UpstreamError(f"The program answered with the status {status}.")
        for name, value in answer.headers:
            if _CONTROL.search(value):
                raise UpstreamError(f"The program's answer is no valid HTTP: {name.decode()} has a control character.")
        headers = for_browser(answer.headers, self.place)
        if status in _WITHOUT_BODY:
            headers = [header for header in headers if header[0] != b"content-length"]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        try:
            while (piece := await self._piece()) is not None:
                self.touch()
                async with asyncio.timeout(self.limits.idle_seconds):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except (UpstreamError, TimeoutError) as error:
            # The head is out: all that is left is to close the connection, by which the browser knows.
            raise IncompleteAnswerError(str(error)) from error
        await send({"type": "http.response.body", "body": b""})

    async def _answer_head(self) -> h11.Response:
        """The head of the answer; provisional ones are left out."""
        # An upload may take its time, as long as it goes on.
        seconds = self.limits.answer_seconds if self._is_sent else self.limits.idle_seconds
        try:
            async with asyncio.timeout(seconds) as self._until_answer:
                while True:
                    event = await self._next()
                    if isinstance(event, h11.Response):
                        return event
                    if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                        raise UpstreamError("The program closed the connection without an answer.")
        except TimeoutError:
            raise UpstreamError("The program did not answer in time.", status=504) from None
        finally:
            self._until_answer = None

    async def _piece(self) -> bytes | None:
        """The next piece of the answer's body; None at its end."""
        try:
            async with asyncio.timeout(self.limits.idle_seconds):
                event = await self._next()
        except TimeoutError:
            raise UpstreamError("The program stopped in the middle of its answer.", status=504) from None
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            raise UpstreamError("The program broke the answer off.")
        return None

    async def _next(self) -> object:
        try:
            while True:
                event = self._protocol.next_event()
                if event is not h11.NEED_DATA:
                    return event
                self._protocol.receive_data(await self.connection.read())
        except h11.RemoteProtocolError as error:
            raise UpstreamError(f"The program's answer is no valid HTTP: {error}.") from error
        except SandboxError as error:
            raise UpstreamError(str(error)) from error

    async def _send(self, event: h11.Event) -> None:
        try:
            if data := self._protocol.send(event):
                async with asyncio.timeout(self.limits.idle_seconds):
                    await self.connection.write(data)
        except h11.LocalProtocolError as error:
            raise UpstreamError(f"The request cannot be passed on: {error}.", status=400) from error
        except TimeoutError:
            raise UpstreamError("The program does not take the request.", status=504) from None
        except SandboxError as error:
            raise UpstreamError(str(error)) from error
