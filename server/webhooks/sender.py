"""One request to a receiver: bounded in time and size, signed, with an outcome in words."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from agent_core.version import VERSION
from server.db.webhooks import Webhook
from server.webhooks.destination import Destination, DestinationError, Destinations
from server.webhooks.signing import signed_headers

if TYPE_CHECKING:
    import httpx

LIMIT_SECONDS: Final = 15.0
MAX_WISHED_SECONDS: Final = 3600.0
_MAX_CONNECTIONS: Final = 20
_SHORT_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request.

    Attributes:
        problem: why it counts as not received; empty when it was acknowledged.
        is_gone: the receiver wants no more.
        wished_seconds: the pause that the receiver asked for; 0 when it did not.
    """

    problem: str = ""
    is_gone: bool = False
    wished_seconds: float = 0.0


class Sender:
    """Sends; the library is loaded, and connections are made, with the first request. Close it in the end."""

    def __init__(self, destinations: Destinations, *, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._destinations = destinations
        self._limit_seconds = limit_seconds
        self._client: httpx.AsyncClient | None = None

    async def send(self, webhook: Webhook, message_id: str, body: bytes) -> Outcome:
        """Send the body once. A status of 2xx acknowledges it; redirects are not followed."""
        import httpx  # a fifth of a second that a server without webhooks need not spend

        try:
            async with asyncio.timeout(self._limit_seconds):
                destinations = await self._destinations.find(webhook.url)
                headers = {
                    "Content-Type": "application/json",
                    "User-Agent": f"drydock/{VERSION}",
                    **signed_headers(webhook.secret, message_id, int(time.time()), body),
                }
                return await self._sent(destinations, headers, body)
        except DestinationError as error:
            return Outcome(f"url: {error}")
        except TimeoutError:
            return Outcome(f"the receiver did not answer within {self._limit_seconds:g} seconds")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Outcome(f"the receiver cannot be reached: {str(error) or type(error).__name__}")

    async def _sent(self, destinations: list[Destination], headers: dict[str, str], body: bytes) -> Outcome:
        """The outcome at the first of them that takes a connection; whoever took one is the only one that is told."""
        import httpx  # see send

        client = await self._connections()
        limits = httpx.Timeout(self._limit_seconds, connect=self._limit_seconds / len(destinations))
        *others, last = destinations
        for destination in others:
            with contextlib.suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await self._told(client, destination, headers, body, limits)
        return await self._told(client, last, headers, body, limits)

    async def _told(
        self,
        client: httpx.AsyncClient,
        destination: Destination,
        headers: dict[str, str],
        body: bytes,
        limits: httpx.Timeout,
    ) -> Outcome:
        async with client.stream(
            "POST",
            destination.url,
            content=body,
            headers={"Host": destination.host, **headers},
            timeout=limits,
            extensions={"sni_hostname": destination.name},
        ) as answer:
            await _skip(answer)
            return _outcome(answer.status_code, answer.headers.get("retry-after", ""))

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _connections(self) -> httpx.AsyncClient:
        if self._client is None:
            made = await asyncio.to_thread(_new_client, self._limit_seconds)  # beside the loop: it is slow, once
            self._client = self._client or made
        return self._client


def _new_client(limit_seconds: float) -> httpx.AsyncClient:
    import httpx

    return httpx.AsyncClient(
        timeout=limit_seconds,
        # None is kept: the pool knows them by address, and each was checked, and encrypted, for one name.
        limits=httpx.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=0),
        follow_redirects=False,
        trust_env=False,
    )


async def _skip(answer: httpx.Response) -> None:
    """Let a short answer pass, so that the receiver is not cut off in it; a long one is of no use."""
    passed = 0
    async for piece in answer.aiter_raw():
        passed += len(piece)
        if passed > _SHORT_BYTES:
            return


def _outcome(status: int, retry_after: str) -> Outcome:
    if 200 <= status < 300:
        return Outcome()
    if status == HTTPStatus.GONE:
        return Outcome("the receiver answered 410: it wants no more", is_gone=True)
    if 300 <= status < 400:
        return Outcome(f"the receiver answered {status}: it has moved, and redirects are not followed; change the url")
    wished = min(float(retry_after), MAX_WISHED_SECONDS) if retry_after.isdecimal() else 0.0
    return Outcome(f"the receiver answered {status}; it acknowledges with a status of 2xx", wished_seconds=wished)
