"""``drydock acp``: an editor starts it, and talks to it over its standard input and output."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from acp.connection import Connection

from agent_core.errors import DrydockError
from drydock_client import DrydockClient
from server.acp.agent import EditorsAgent
from server.acp.dispatch import Dispatcher
from server.acp.editor import Editor
from server.acp.stdio import Lines, standard_lines

DEFAULT_URL = "http://127.0.0.1:3000"
URL_VARIABLE = "DRYDOCK_URL"
KEY_VARIABLES = ("DRYDOCK_API_KEY", "DRYDOCK_TOKEN", "SESSION_API_KEY")


def acp(url: str | None, key_file: Path | None, environment: Mapping[str, str]) -> int:
    """Serve one editor until its end of standard input; returns the exit status.

    Args:
        url: the Drydock server; None for ``DRYDOCK_URL``, or else the address of a server with default settings.
        key_file: a file with its access token; None for the first of ``DRYDOCK_API_KEY``, ``DRYDOCK_TOKEN`` and
            ``SESSION_API_KEY``.
        environment: the process's.

    Raises:
        DrydockError: the options cannot be used.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="drydock acp: %(levelname)s: %(message)s")
    address = url or environment.get(URL_VARIABLE) or DEFAULT_URL
    try:
        client = DrydockClient(address, _key(key_file, environment))
    except ValueError as error:
        raise DrydockError(f"--url: {error}") from error
    asyncio.run(_main(client))
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


def _key(key_file: Path | None, environment: Mapping[str, str]) -> str | None:
    if key_file is None:
        return next((value for name in KEY_VARIABLES if (value := environment.get(name))), None)
    try:
        key = key_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise DrydockError(f"--key-file: {key_file} cannot be read: {error}") from error
    if not key:
        raise DrydockError(f"--key-file: {key_file} is empty; put the server's access token into it")
    return key
