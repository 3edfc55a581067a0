"""``drydock acp``: an editor starts it, and talks to it over its standard input and output."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from acp.connection import Connection

from drydock_client import DrydockClient
from server.doors.acp.agent import EditorsAgent
from server.doors.acp.dispatch import Dispatcher
from server.doors.acp.editor import EditorClient
from server.doors.acp.stdio import StdioTransport, standard_lines
from server.doors.stdio_program import run_over_stdio
from server.settings.running_server import client_of


def acp(url: str | None, key_file: Path | None, environment: Mapping[str, str]) -> int:
    """Serve one editor until its end of standard input; returns the exit status.

    The arguments are those of `client_of`.

    Raises:
        DrydockError: the options cannot be used.
    """
    return run_over_stdio("acp", _serve(client_of(url, key_file, environment)))


async def serve_editor(client: DrydockClient, lines: StdioTransport) -> None:
    """Answer one editor until it ends; conversations go on."""
    async with client:
        connection = Connection(lambda *request: dispatcher(*request), lines, listening=False)
        agent = EditorsAgent(client, EditorClient(connection))
        dispatcher = Dispatcher(agent.requests, agent.notifications)
        try:
            await connection.main_loop()
        finally:
            await agent.aclose()
            await connection.close()


async def _serve(client: DrydockClient) -> None:
    await serve_editor(client, await standard_lines())
