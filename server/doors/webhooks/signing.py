"""What proves to a receiver who sent a request: the headers of the Standard Webhooks specification, version 1."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

from pydantic import SecretStr

PREFIX: Final = "whsec_"
KEY_BYTES: Final = range(24, 65)


def new_secret() -> SecretStr:
    """A secret that nobody can guess."""
    return SecretStr(PREFIX + base64.b64encode(secrets.token_bytes(32)).decode("ascii"))


def secret_problem(secret: str) -> str | None:
    """Why this cannot be a secret; None when it can."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if secret.startswith(PREFIX) and len(key) in KEY_BYTES:
        return None
    return f"must be {PREFIX} and {KEY_BYTES.start} to {KEY_BYTES.stop - 1} bytes in base64; leave it out to get one"


def signed_headers(secret: SecretStr, message_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """The headers for a body that is sent at this moment, in seconds since 1970."""
    key = base64.b64decode(secret.get_secret_value().removeprefix(PREFIX))
    digest = hmac.new(key, b".".join((message_id.encode(), str(seconds).encode(), body)), hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode('ascii')}",
    }
