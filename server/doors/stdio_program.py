"""Programs that another one starts and talks to over standard input and output: ``drydock acp``, ``drydock mcp``."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine


def run_over_stdio(name: str, serve: Coroutine[object, object, None]) -> int:
    """Serve until the other program ends its output, or a signal ends this one; returns the exit status.

    Messages go to standard error, each after ``drydock <name>:``: standard output belongs to the protocol.

    Raises:
        Exception: what ended the serving.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=f"drydock {name}: %(levelname)s: %(message)s")
    asyncio.run(_until_signalled(name, serve))
    return 0


async def _until_signalled(name: str, serve: Coroutine[object, object, None]) -> None:
    serving = asyncio.create_task(serve, name=name)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    await asyncio.wait([serving])
    if not serving.cancelled() and (error := serving.exception()) is not None:
        raise error
