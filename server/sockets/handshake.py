"""What a client asks for when it connects: the query of its handshake."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

from server.auth.identity import Authenticator, Identity
from server.settings.git_hosts import PROVIDERS
from server.sockets.ports import JoinRefusedError
from server.wire.json_data import MAX_INTEGER

ABSENT: Final = frozenset({"", "null", "undefined"})
"""What browser clients send for a key that they do not have."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,4000}")
_CONVERSATION_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True, slots=True)
class Handshake:
    """A connection's wish.

    Attributes:
        after: the last event that the client has, -1 for none.
        replay_limit: how many events it wants to be sent of what it has missed; None: all of them.
    """

    conversation_id: str
    after: int
    replay_limit: int | None
    identity: Identity


def read_handshake(environ: Mapping[str, Any], authenticator: Authenticator) -> Handshake:
    """The wish behind a connection, its key checked.

    Raises:
        JoinRefusedError: it is refused, with the message that the protocol has for the case.
    """
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    after = _latest_event_id(_first(query, "latest_event_id"))
    _check_providers(query.get("providers_set", []))
    conversation_id = _first(query, "conversation_id")
    if not conversation_id:
        raise JoinRefusedError("No conversation_id in query params")
    identity = _identity(environ, _first(query, "session_api_key"), authenticator)
    if identity is None:
        raise JoinRefusedError("invalid_session_api_key")
    if _CONVERSATION_ID.fullmatch(conversation_id) is None:
        raise JoinRefusedError(f"Conversation {conversation_id[:128]} not found")
    return Handshake(conversation_id, after, _replay_limit(_first(query, "replay_limit")), identity)


def _first(query: Mapping[str, list[str]], name: str) -> str:
    return query.get(name, [""])[0]


def _latest_event_id(text: str) -> int:
    return min(max(int(text), -1), MAX_INTEGER) if _INTEGER.fullmatch(text.strip()) else -1


def _replay_limit(text: str) -> int | None:
    """An addition to the protocol, so garbage is told."""
    if text in ABSENT:
        return None
    if not _INTEGER.fullmatch(text) or int(text) < 1:
        raise JoinRefusedError("replay_limit is no number of events; send 1 or more, or leave it out")
    return int(text)


def _check_providers(values: list[str]) -> None:
    names = [name for value in values for name in value.split(",") if name]
    for name in names:
        if name not in PROVIDERS:
            known = ", ".join(PROVIDERS)
            raise JoinRefusedError(f"providers_set names {name[:80]!r}, which is no provider; known are {known}")


def _identity(environ: Mapping[str, Any], key: str, authenticator: Authenticator) -> Identity | None:
    if key not in ABSENT:
        return authenticator.identify_token(key)
    # Programs may show their key as they do for HTTP.
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_") and isinstance(value, str)
    }
    return authenticator.identify(headers)
