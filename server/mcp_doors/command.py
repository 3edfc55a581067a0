"""``drydock mcp``: another program starts it, and works with conversations over its standard input and output."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent_core.version import VERSION
from drydock_client import DrydockClient
from server.mcp_doors.conversation_tools import conversation_tools
from server.mcp_doors.conversations import Conversations
from server.mcp_doors.sdk import load, serve_stdio
from server.mcp_doors.tools import Offer
from server.mcp_doors.transcripts import Transcripts
from server.running_server import client_of

INSTRUCTIONS: Final = (
    "Drydock runs software agents, each in a sandbox of its own. Start one with start_conversation, wait for it with"
    " wait_for_conversation (again, while at_rest is false), and say more with send_message. An agent in the state"
    " awaiting_user_confirmation asks whether it may do something: answer with answer_confirmation."
)


def conversation_offer(client: DrydockClient) -> Offer:
    """What the door offers: conversations of the server that the client is connected to."""
    conversations = Conversations(client)
    return Offer("drydock", VERSION, conversation_tools(conversations), INSTRUCTIONS, Transcripts(conversations))


def mcp(url: str | None, key_file: Path | None, environment: Mapping[str, str]) -> int:
    """Serve one client until its end of standard input; conversations go on. Returns the exit status.

    The arguments are those of `client_of`.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="drydock mcp: %(levelname)s: %(message)s")
    client = client_of(url, key_file, environment)
    load()
    asyncio.run(_main(client))
    return 0


async def _main(client: DrydockClient) -> None:
    serving = asyncio.create_task(_serve(client), name="mcp")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    await asyncio.wait([serving])
    if not serving.cancelled() and (error := serving.exception()) is not None:
        raise error


async def _serve(client: DrydockClient) -> None:
    async with client:
        await serve_stdio(conversation_offer(client))
