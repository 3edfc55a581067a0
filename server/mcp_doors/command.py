"""``drydock mcp``: another program starts it, and works with conversations over its standard input and output."""

from __future__ import annotations

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
from server.stdio_program import run_over_stdio

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
    client = client_of(url, key_file, environment)
    load()
    return run_over_stdio("mcp", _serve(client))


async def _serve(client: DrydockClient) -> None:
    async with client:
        await serve_stdio(conversation_offer(client))
