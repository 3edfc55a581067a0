"""The access token of the one-token mode: where it comes from, and how a request's is compared with it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from server.errors import ConfigurationError
from server.settings.settings import AUTO_TOKEN, MIN_TOKEN_LENGTH, SHORT_TOKEN, Settings

TOKEN_HEADER = "x-session-api-key"  # noqa: S105 - the name of a header
TOKEN_FILE = "token"  # noqa: S105 - the name of a file
_BEARER = "bearer "


def resolve_token(settings: Settings) -> str | None:
    """The token that this server asks for; None when it asks for none.

    With the setting ``auto`` a token is made on first start and kept, readable by the owner only, in the data folder.

    Raises:
        ConfigurationError: the kept token cannot be read or written, or is too short.
    """
    if settings.token is None:
        return None
    token = settings.token.get_secret_value()
    return _kept_token(settings.data_dir / TOKEN_FILE) if token == AUTO_TOKEN else token


def _kept_token(path: Path) -> str:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+", encoding="ascii") as file:
            token = file.read().strip()
            if not token:
                token = secrets.token_urlsafe(MIN_TOKEN_LENGTH)
                file.seek(0)
                file.write(token + "\n")
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"cannot keep the access token in {path}: {error}") from error
    if len(token) < MIN_TOKEN_LENGTH:
        raise ConfigurationError(f"the file {path}: {SHORT_TOKEN}; remove the file to have a new one made")
    return token


def presented_token(headers: Mapping[str, str]) -> str | None:
    """The token that a request's headers (names in lower case) carry, if any."""
    token = headers.get(TOKEN_HEADER)
    if token:
        return token
    authorization = headers.get("authorization", "")
    if authorization.lower().startswith(_BEARER):
        return authorization[len(_BEARER) :].strip() or None
    return None


def token_matches(expected: str | None, presented: str | None) -> bool:
    """Whether access is granted: no token is asked for, or the right one is given. Takes the same time either way."""
    if expected is None:
        return True
    return hmac.compare_digest(_digest(expected), _digest(presented or ""))


def _digest(token: str) -> bytes:
    # Of one length, so that the time that comparing takes says nothing about the token's.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
