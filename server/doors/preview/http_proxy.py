"""An HTTP request to a preview: passed on into the sandbox and answered from there, both ways as they flow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from starlette.types import Message, Receive, Scope, Send

from agent_core.runtime.channel.tunnels import PortConnection
from server.doors.preview.headers import Headers, PreviewPlace, for_browser, for_sandbox
from server.doors.preview.upstream import MAX_HEAD_BYTES, Exchange, PreviewLimits, UpstreamError

_WITHOUT_BODY = frozenset({204, 304})


class ClientGoneError(Exception):
    """The browser has closed the connection: nobody waits for the answer."""


class BrokenOffError(Exception):
    """The answer ended before its end, after its head was sent."""


class HttpProxy:
    """Passes one request on.

    Args:
        touch: called whenever something flows: the conversation is in use.
        is_drydocks: whether the value of an ``Authorization`` header is for this server.
    """

    def __init__(
        self,
        place: PreviewPlace,
        limits: PreviewLimits,
        *,
        touch: Callable[[], None],
        is_drydocks: Callable[[bytes], bool],
    ) -> None:
        self._place = place
        self._limits = limits
        self._touch = touch
        self._is_drydocks = is_drydocks

    async def pass_on(
        self, connection: PortConnection, target: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Pass the request on over this connection, and the answer back.

        Raises:
            UpstreamError: there is no answer; nothing was sent yet.
            BrokenOffError: the answer has begun and will not come to its end.
            ClientGoneError: the browser has gone.
        """
        exchange = Exchange(connection, self._limits)
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
        passed = for_sandbox(headers, self._place, self._is_drydocks)
        lengths = {value for name, value in headers if name == b"content-length"}
        if any(name == b"transfer-encoding" for name, _ in headers):
            passed.append((b"transfer-encoding", b"chunked"))
        elif len(lengths) == 1:
            passed.append((b"content-length", lengths.pop()))
        elif lengths:
            raise UpstreamError("The request has several lengths.", status=400)
        return passed

    async def _send_body(self, exchange: Exchange, receive: Receive) -> None:
        """Send the body, then wait until the browser goes."""
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
        self._touch()
        return message

    async def _answer(self, exchange: Exchange, scope: Scope, send: Send) -> None:
        answer = await exchange.answer()
        headers = for_browser(answer.headers, self._place)
        if answer.status in _WITHOUT_BODY:
            headers = [header for header in headers if header[0] != b"content-length"]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        try:
            async with contextlib.aclosing(exchange.body()) as body:
                async for piece in body:
                    self._touch()
                    async with asyncio.timeout(self._limits.idle_seconds):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
        except (UpstreamError, TimeoutError) as error:
            # The head is out: all that is left is to close the connection, by which the browser knows.
            raise BrokenOffError(str(error)) from error
        await send({"type": "http.response.body", "body": b""})
