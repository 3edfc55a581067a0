"""``drydock acp``: an editor starts it, and talks to it over its standard input and output."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from acp.connection import Connection

from drydock_client import DrydockClient
from server.acp.agent import EditorsAgent
from server.acp.dispatch import Dispatcher
from server.acp.editor import Editor
from server.acp.stdio import Lines, standard_lines
from server.running_server import client_of


def acp(url: str | None, key_file: Path | None, environment: Mapping[str, str]) -> int:
    """Serve one editor until its end of standard input; returns the exit status.

    The arguments are those of `client_of`.

    Raises:
        DrydockError: the options cannot be used.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="drydock acp: %(levelname)s: %(message)s")
    asyncio.run(_main(client_of(url, key_file, environment)))
    return 0


async def serve_editor(client: DrydockClient, lines: Lines) -> None:
    """Answer one editor until it ends; conversations go on."""
    async with client:
        connection = Connection(lambda *request: dispatcher(*request), lines, listening=False)
        agent = EditorsAgent(client, Editor(connection))
        dispatcher = Dispatcher(agent.requests, agent.notifications)
        try:
            await connection.main_loop()
        finally:
            await agent.aclose()
            await connection.close()


async def _main(client: DrydockClient) -> None:
    serving = asyncio.create_task(serve_editor(client, await standard_lines()), name="acp")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    await asyncio.wait([serving])
    if not serving.cancelled() and (error := serving.exception()) is not None:
        raise error
