"""Long work on the loop, in steps between which others have their turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

BREATH: Final = 100
"""After so many steps others have their turn."""


async def breathing(steps: Iterable[T]) -> AsyncIterator[T]:
    """The same steps, with a pause for others now and then."""
    for number, step in enumerate(steps, start=1):
        yield step
        if number % BREATH == 0:
            await asyncio.sleep(0)
