"""What may be written as a webhook's address."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from agent_core.destinations import PORTS

MAX_URL_CHARS: Final = 2_000


def url_problem(url: str) -> str | None:
    """Why this cannot be a webhook's address; None when it can."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is no address; write it as https://host/path"
    if len(url) > MAX_URL_CHARS:
        return f"is longer than {MAX_URL_CHARS} characters"
    if parts.scheme not in PORTS or not parts.hostname:
        return "is no address for HTTP; write it as https://host/path"
    if parts.username is not None or parts.password is not None:
        return "holds a name or a password, which anybody who sees it could read; the signature proves who sends"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "holds characters that no address has; write them as %XX"
    return "has a fragment, which is never sent; leave it out" if parts.fragment else _port_problem(port)


def _port_problem(port: int | None) -> str | None:
    return "has the port 0, to which nothing can be sent" if port == 0 else None
