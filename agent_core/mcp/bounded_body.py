"""What a server at an address answers, bounded before anybody parses it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterable, AsyncIterator
from typing import Final

from agent_core.json_values import TooManyValuesError, counted, may_have_more
from agent_core.mcp.incoming import COMPRESSED, MAX_BYTES, MAX_VALUES, TOO_MUCH

_EVENT_END: Final = re.compile(rb"\n\n|\r\r|\r\n\r\n")
_SEAM: Final = 3
"""Bytes of an end that may have come with the part before."""


async def bounded(
    parts: AsyncIterable[bytes], error: type[Exception], *, is_stream: bool, encoding: str
) -> AsyncIterator[bytes]:
    """The parts of a document, or of a stream of events, when it is known how much there is to parse in them.

    Raises:
        error: there is too much, or it is compressed.
    """
    if encoding != "identity":
        raise error(COMPRESSED)
    waiting = bytearray()
    async for part in parts:
        begin = max(0, len(waiting) - _SEAM)
        waiting += part
        ends = [match.end() for match in _EVENT_END.finditer(waiting, begin)] if is_stream else []
        if ends:
            whole = bytes(waiting[: ends[-1]])
            del waiting[: ends[-1]]
            await _check(whole, error)
            yield whole
        if len(waiting) > MAX_BYTES:
            raise error(TOO_MUCH)
    whole = bytes(waiting)
    await _check(whole, error)
    yield whole


async def _check(document: bytes, error: type[Exception]) -> None:
    if may_have_more(document, MAX_VALUES):
        try:
            for _ in counted(document, most=MAX_VALUES):
                await asyncio.sleep(0)
        except TooManyValuesError:
            raise error(TOO_MUCH) from None
