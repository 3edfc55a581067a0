"""The pieces of an answer on their way: as long as the server serves, and with signs of life where none comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from anyio import CancelScope

from server.chat.turn import ChatFailedError, Piece


async def while_serving(pieces: AsyncGenerator[Piece, None], ending: asyncio.Event) -> AsyncGenerator[Piece, None]:
    """The pieces; closed with this.

    Raises:
        ChatFailedError: the server is ending.
    """
    over = asyncio.create_task(ending.wait(), name="chat-server-ending")
    coming: asyncio.Task[Piece | None] | None = None
    async with aclosing(pieces):
        try:
            while True:
                coming = asyncio.create_task(_next(pieces), name="chat-next")
                await asyncio.wait({over, coming}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    raise ChatFailedError("the server is ending, and the agent is paused; go on when it is back")
                if (piece := coming.result()) is None:
                    return
                yield piece
        finally:
            await _cancelled(over, coming)


async def with_signs_of_life(
    pieces: AsyncGenerator[Piece, None], *, silence_seconds: float
) -> AsyncGenerator[Piece | None, None]:
    """The pieces, and None where nothing came for so long."""
    coming: asyncio.Task[Piece | None] | None = None
    try:
        while True:
            coming = coming or asyncio.create_task(_next(pieces), name="chat-piece")
            done, _ = await asyncio.wait({coming}, timeout=silence_seconds)
            if not done:
                yield None
                continue
            piece, coming = coming.result(), None
            if piece is None:
                return
            yield piece
    finally:
        await _cancelled(coming)


async def _next(pieces: AsyncGenerator[Piece, None]) -> Piece | None:
    return await anext(pieces, None)


async def _cancelled(*tasks: asyncio.Task[bool] | asyncio.Task[Piece | None] | None) -> None:
    there = [task for task in tasks if task is not None]
    for task in there:
        task.cancel()
    if there:
        with CancelScope(shield=True):  # who hangs up has the answer cancelled again and again, until it has ended
            await asyncio.wait(there)
