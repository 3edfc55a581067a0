"""Sending to a webhook: one request, bounded in time and size, signed as Standard Webhooks (version 1) has it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from pydantic import SecretStr

from agent_core.destinations import DestinationError, Destinations, DirectClient
from agent_core.version import VERSION
from server.db.repositories.webhooks import StoredWebhook

PREFIX: Final = "whsec_"
KEY_BYTES: Final = range(24, 65)
LIMIT_SECONDS: Final = 15.0
MAX_WISHED_SECONDS: Final = 3600.0
_SHORT_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """What came of a request: an empty `problem` acknowledges it; `is_gone`: the receiver wants no more."""

    problem: str = ""
    is_gone: bool = False
    wished_seconds: float = 0.0


class Sender:
    """Sends; httpx is loaded, and connections are made, with the first request. Close it in the end."""

    def __init__(self, destinations: Destinations, *, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._client = DirectClient(destinations, limit_seconds)
        self._limit_seconds = limit_seconds

    async def send(self, webhook: StoredWebhook, message_id: str, body: bytes) -> DeliveryOutcome:
        """Send the body once. A status of 2xx acknowledges it; redirects are not followed."""
        import httpx  # a fifth of a second that a server without webhooks need not spend

        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"drydock/{VERSION}",
            **signed_headers(webhook.secret, message_id, int(time.time()), body),
        }
        try:
            async with (
                asyncio.timeout(self._limit_seconds),
                self._client.stream("POST", webhook.url, headers=headers, content=body) as answer,
            ):
                passed = 0
                async for piece in answer.aiter_raw():
                    passed += len(piece)
                    if passed > _SHORT_BYTES:
                        break
                return _outcome(answer.status_code, answer.headers.get("retry-after", ""))
        except DestinationError as error:
            return DeliveryOutcome(f"url: {error}" + "; the setting webhook_hosts allows more" * error.not_public)
        except TimeoutError:
            return DeliveryOutcome(f"the receiver did not answer within {self._limit_seconds:g} seconds")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return DeliveryOutcome(f"the receiver cannot be reached: {str(error) or type(error).__name__}")

    async def aclose(self) -> None:
        await self._client.aclose()


def _outcome(status: int, retry_after: str) -> DeliveryOutcome:
    if 200 <= status < 300:
        return DeliveryOutcome()
    if status == HTTPStatus.GONE:
        return DeliveryOutcome("the receiver answered 410: it wants no more", is_gone=True)
    if 300 <= status < 400:
        return DeliveryOutcome(
            f"the receiver answered {status}: it has moved, and redirects are not followed; change the url"
        )
    wished = min(float(retry_after), MAX_WISHED_SECONDS) if retry_after.isdecimal() else 0.0
    return DeliveryOutcome(
        f"the receiver answered {status}; it acknowledges with a status of 2xx", wished_seconds=wished
    )


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
