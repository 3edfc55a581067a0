"""HTTP client for requests that carry secrets: no redirects, and bounded answers."""

from __future__ import annotations

from http.client import HTTPException, HTTPMessage
from typing import IO
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener


def http_address(value: str) -> str:
    """`value`, if it is the address of an HTTP server.

    Raises:
        ValueError: it is not.
    """
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("url must be a complete http or https address, for example https://host/path")
    return value


def fetch(request: Request, *, limit_seconds: float, limit_bytes: int) -> bytes:
    """The body of the answer; blocks.

    Raises:
        OSError, HTTPException: there is no answer within the limit, or it is a redirect or an error.
        ValueError: it is longer than `limit_bytes`.
    """
    with build_opener(_NoRedirects).open(request, timeout=limit_seconds) as answer:
        data: bytes = answer.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise ValueError(f"the answer is longer than {limit_bytes} bytes")
    return data


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        raise HTTPException("redirects are not followed")
