"""Images at web addresses, fetched for models that take them only within the request (agent-core 9.6)."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from agent_core.llm.render import WireMessage, has_images

MAX_BYTES = 20 * 1024 * 1024
SECONDS = 30.0
KEPT = 16
"""How many fetched images are kept for the next requests of the same conversation or another."""

IsPublic = Callable[[str], Awaitable[bool]]

_kept: dict[str, str] = {}


async def inlined(
    messages: Sequence[WireMessage], http: Any, *, is_public: IsPublic | None = None
) -> list[WireMessage]:
    """The messages with images in place of their addresses; the given ones stay as they are.

    An image that cannot be fetched is replaced by a text that says so. Addresses that are not of the public internet
    are not asked: nobody is to look into this host's networks through a message. `http` is an ``httpx.AsyncClient``.
    """
    return [
        {
            **message,
            "content": [await _inlined(part, http, is_public or has_public_address) for part in message["content"]],
        }
        if has_images(message)
        else message
        for message in messages
    ]


async def has_public_address(host: str) -> bool:
    """Whether a host's name means addresses of the public internet only."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_global for entry in found)


async def _inlined(part: dict[str, Any], http: Any, is_public: IsPublic) -> dict[str, Any]:
    url = part.get("image_url", {}).get("url", "") if part.get("type") == "image_url" else ""
    if not url.lower().startswith(("http://", "https://")):
        return part
    try:
        async with asyncio.timeout(SECONDS):
            data = _kept.get(url) or await _fetched(url, http, is_public)
    except Exception as error:  # noqa: BLE001 - whatever the client raises: the model is told, and goes on
        cause = str(error) if isinstance(error, _Unfetched) else type(error).__name__
        return {"type": "text", "text": f"[The image at {url[:200]} could not be fetched: {cause}]"}
    _kept[url] = data
    while len(_kept) > KEPT:
        del _kept[next(iter(_kept))]
    return {**part, "image_url": {**part["image_url"], "url": data}}


class _Unfetched(Exception):  # noqa: N818 - a reason, told in words
    """Why an image was not fetched."""


async def _fetched(url: str, http: Any, is_public: IsPublic) -> str:
    """The image as a data URL."""
    host = urlsplit(url).hostname
    if not host or not await is_public(host):
        raise _Unfetched("its address is not one of the public internet")
    async with http.stream("GET", url, follow_redirects=False) as response:
        if response.status_code != 200:
            raise _Unfetched(f"the server answered {response.status_code}")
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not kind.startswith("image/"):
            raise _Unfetched(f"it is {kind or 'of no type'}, not an image")
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > MAX_BYTES:
                raise _Unfetched(f"it is larger than {MAX_BYTES // 1024 // 1024} MiB")
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
