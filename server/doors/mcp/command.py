"""``drydock mcp``: another program starts it, and works with conversations over its standard input and output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent_core.version import VERSION
from drydock_client import DrydockClient, NotFoundError
from server.doors.mcp.conversation_tools import conversation_tools
from server.doors.mcp.conversations import DoorConversations, DoorError, ReadPage
from server.doors.mcp.sdk import load, serve_stdio
from server.doors.mcp.tools import Offer, Resource, ResourcePage
from server.doors.stdio_program import run_over_stdio
from server.settings.running_server import client_of

PREFIX: Final = "drydock://conversations/"
PAGE: Final = 50
MAX_ENTRIES: Final = 500
MAX_CHARS: Final = 100_000
ENTRY_CHARS: Final = 4_000

_URI: Final = re.compile(re.escape(PREFIX) + r"([A-Za-z0-9_.~-]{1,100})")


class Transcripts:
    """The `tools.Resources` of a server's conversations."""

    mime_type = "text/markdown"
    template = Resource(
        f"{PREFIX}{{conversation_id}}",
        "transcript",
        "Transcript of a conversation",
        "What was said and done in a conversation, its end if it is long; read_conversation reads all of it.",
    )

    def __init__(self, conversations: DoorConversations) -> None:
        self._conversations = conversations

    async def page(self, cursor: str | None) -> ResourcePage:
        """Some conversations, newest first."""
        page = await self._conversations.page(PAGE, cursor, None)
        found = [
            Resource(f"{PREFIX}{one.conversation_id}", one.conversation_id, one.title or one.conversation_id)
            for one in page.conversations
        ]
        return ResourcePage(found, page.next_cursor)

    async def read(self, uri: str) -> str | None:
        """The transcript; None where there is no such conversation."""
        match = _URI.fullmatch(uri)
        if match is None:
            return None
        try:
            page = await self._conversations.last_entries(
                match[1], limit=MAX_ENTRIES, max_chars=MAX_CHARS, entry_chars=ENTRY_CHARS
            )
        except DoorError as error:
            if isinstance(error.__cause__, NotFoundError):
                return None
            raise
        return _written(page)


def _written(page: ReadPage) -> str:
    parts = [f"# Conversation {page.conversation_id}"]
    if page.entries and page.has_earlier:
        parts.append(f"(What came before entry {page.entries[0].id} is left out.)")
    for entry in page.entries:
        answered = f" of {entry.result_of}" if entry.result_of is not None else ""
        parts.append(f"## {entry.id} {entry.source}: {entry.kind}{answered}\n\n{entry.text}")
    return "\n\n".join(parts) + "\n"


INSTRUCTIONS: Final = (
    "Drydock runs software agents, each in a sandbox of its own. Start one with start_conversation, wait for it with"
    " wait_for_conversation (again, while at_rest is false), and say more with send_message. An agent in the state"
    " awaiting_user_confirmation asks whether it may do something: answer with answer_confirmation."
)


def conversation_offer(client: DrydockClient) -> Offer:
    """What the door offers: conversations of the server that the client is connected to."""
    conversations = DoorConversations(client)
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
