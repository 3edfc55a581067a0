"""Whose request this is. The one-token mode knows a single user; several users are another `Authenticator`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from server.auth.page_session import PageSessions
from server.auth.tokens import presented_token, token_matches


@dataclass(frozen=True, slots=True)
class Identity:
    """A user. The empty `user_id` is the only user of a server without accounts."""

    user_id: str = ""


class Authenticator(Protocol):
    """Finds out who asks."""

    @property
    def required(self) -> bool:
        """Whether a client has to show something at all."""
        ...

    @property
    def opens_addresses(self) -> bool:
        """Whether a browser whose user may use the server is let in with nothing but an address."""
        ...

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        """The user behind an HTTP request (header names in lower case); None refuses it."""
        ...

    def identify_token(self, token: str | None) -> Identity | None:
        """The user behind a bare token (the socket's ``session_api_key``); None refuses it."""
        ...

    def shown(self, headers: Mapping[str, str]) -> str | None:
        """What a request that was refused had shown that was wrong; None: it showed nothing."""
        ...


class OneTokenAuthenticator:
    """An `Authenticator` with one shared token, or (token None) none at all.

    With `sessions` a browser that has shown it once is known by its cookie.
    """

    def __init__(self, token: str | None, *, sessions: PageSessions | None = None) -> None:
        self._token = token
        self._sessions = sessions

    @property
    def required(self) -> bool:
        return self._token is not None

    @property
    def opens_addresses(self) -> bool:
        return self._token is None or self._sessions is not None

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        presented = presented_token(headers)
        if presented is None and self._sessions is not None and self._sessions.holds(headers.get("cookie", "")):
            return Identity()
        return self.identify_token(presented)

    def identify_token(self, token: str | None) -> Identity | None:
        return Identity() if token_matches(self._token, token) else None

    def shown(self, headers: Mapping[str, str]) -> str | None:
        presented, cookie = presented_token(headers), headers.get("cookie", "")
        if presented is None and self._sessions is not None and self._sessions.is_forged(cookie):
            return cookie
        return presented
