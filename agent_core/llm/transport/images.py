"""Images at web addresses, fetched for models that take them only within the request."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

from agent_core.destinations import DestinationError, Destinations, DirectClient
from agent_core.llm.render import WireMessage, has_images

MAX_BYTES = 20 * 1024 * 1024
SECONDS = 30.0
KEPT = 16
"""How many fetched images are kept for the next requests."""
KEPT_CHARS = 64 * 1024 * 1024
"""How long they may be together."""

PUBLIC = Destinations()
"""Nobody is to look into this host's networks through a message."""

_kept: dict[str, str] = {}


async def inlined(messages: Sequence[WireMessage], destinations: Destinations = PUBLIC) -> list[WireMessage]:
    """The messages with images in place of addresses; one not to be had or not allowed becomes a text of that."""
    fetcher = _Fetcher(destinations)
    try:
        return [
            {**message, "content": [await fetcher.inlined(part) for part in message["content"]]}
            if has_images(message)
            else message
            for message in messages
        ]
    finally:
        await fetcher.aclose()


class _Unfetched(Exception):  # noqa: N818 - a reason, told in words
    """Why an image was not fetched."""


class _Fetcher:
    """Fetches the images of one request; at the very addresses that were found to be allowed."""

    def __init__(self, destinations: Destinations) -> None:
        self._client = DirectClient(destinations, SECONDS)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def inlined(self, part: dict[str, Any]) -> dict[str, Any]:
        url = part.get("image_url", {}).get("url", "") if part.get("type") == "image_url" else ""
        if not url.lower().startswith(("http://", "https://")):
            return part
        try:
            async with asyncio.timeout(SECONDS):
                data = _kept.get(url) or await self._fetched(url)
        except Exception as error:  # noqa: BLE001 - whatever the client raises: the model is told, and goes on
            cause = _cause(error)
            return {"type": "text", "text": f"[The image at {url[:200]} could not be fetched: {cause}]"}
        _keep(url, data)
        return {**part, "image_url": {**part["image_url"], "url": data}}

    async def _fetched(self, url: str) -> str:
        """The image as a data URL. It is taken as it comes: what is compressed may be of any size."""
        async with self._client.asked("GET", url, headers={"Accept-Encoding": "identity"}) as response:
            if response.status_code != 200:
                raise _Unfetched(f"the server answered {response.status_code}")
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if not kind.startswith("image/"):
                raise _Unfetched(f"it is {kind or 'of no type'}, not an image")
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise _Unfetched("the server compressed it, which it was asked not to do")
            content = bytearray()
            async for piece in response.aiter_raw():
                content += piece
                if len(content) > MAX_BYTES:
                    raise _Unfetched(f"it is larger than {MAX_BYTES // 1024 // 1024} MiB")
        return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _cause(error: Exception) -> str:
    if isinstance(error, DestinationError) and error.not_public:
        return "its address is not one of the public internet"
    return str(error) if isinstance(error, (_Unfetched, DestinationError)) else type(error).__name__


def _keep(url: str, data: str) -> None:
    _kept[url] = data
    while len(_kept) > KEPT or (len(_kept) > 1 and sum(map(len, _kept.values())) > KEPT_CHARS):
        del _kept[next(iter(_kept))]
