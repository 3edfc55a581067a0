"""Conversations as resources: the transcript of each, as a text in Markdown."""

from __future__ import annotations

import re
from typing import Final

from drydock_client import NotFoundError
from server.mcp_doors.conversations import Conversations, DoorError, ReadPage
from server.mcp_doors.tools import Resource, ResourcePage

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

    def __init__(self, conversations: Conversations) -> None:
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
