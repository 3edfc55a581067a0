"""Whose request this is. The one-token mode knows a single user; several users are another `Authenticator`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

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

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        """The user behind an HTTP request (header names in lower case); None refuses it."""
        ...

    def identify_token(self, token: str | None) -> Identity | None:
        """The user behind a bare token (the socket's ``session_api_key``); None refuses it."""
        ...


class OneTokenAuthenticator:
    """An `Authenticator` with one shared token, or (token None) none at all."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    @property
    def required(self) -> bool:
        return self._token is not None

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        return self.identify_token(presented_token(headers))

    def identify_token(self, token: str | None) -> Identity | None:
        return Identity() if token_matches(self._token, token) else None
