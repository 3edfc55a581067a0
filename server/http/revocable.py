"""`Revocable`: answers that go on end soon after who asked for them is let in no more."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.auth.identity import IDENTITY, Watch
from server.errors import broke_off


class Revocable:
    """ASGI application around one: what comes in pieces breaks off; what is answered at once is answered."""

    def __init__(self, app: ASGIApp, watch: Watch) -> None:
        self._app = app
        self._watch = watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or IDENTITY not in scope:
            await self._app(scope, receive, send)
            return
        is_over = goes_on = False

        def end() -> None:
            nonlocal is_over
            is_over = True
            if goes_on:
                limit.reschedule(0)

        async def noting_send(message: Message) -> None:
            nonlocal goes_on
            await send(message)
            goes_on = bool(message.get("more_body"))
            if goes_on and is_over:
                limit.reschedule(0)

        unwatch = self._watch(scope[IDENTITY], end)
        try:
            async with asyncio.timeout(None) as limit:
                await self._app(scope, receive, noting_send)
        except TimeoutError:
            if not limit.expired():
                raise
            broke_off.set(True)
        finally:
            unwatch()
