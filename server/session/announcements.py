"""News about conversations that are no events, on their way to whoever is connected."""

from __future__ import annotations

from server.sockets.ports import Announcer


class Announcements:
    """Passes news on to the announcers that were added; made before them, so that neither has to know the other."""

    def __init__(self) -> None:
        self._announcers: list[Announcer] = []

    def add(self, announcer: Announcer) -> None:
        """Tell this one too, from now on."""
        self._announcers.append(announcer)

    async def announce_title(self, conversation_id: str, title: str) -> None:
        """Tell every client of the conversation its new title."""
        for announcer in self._announcers:
            await announcer.announce_title(conversation_id, title)
