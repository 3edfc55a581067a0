"""What the groups of calls have in common."""

from __future__ import annotations

from drydock_client.http import Http, segment


class Calls:
    """A group of calls of one client."""

    def __init__(self, http: Http) -> None:
        self._http = http


def conversation_path(conversation_id: str, what: str = "") -> str:
    """The path of a conversation's routes."""
    path = f"/api/conversations/{segment(conversation_id)}"
    return f"{path}/{what}" if what else path
