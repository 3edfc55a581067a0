"""Tags of answers (RFC 9110, 8.8.3): who asks again and again is told in a few bytes that nothing has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

WHO_ASKS: Final = "Authorization, X-Session-API-Key"
"""The headers that answers depend on, for ``Vary``: another user's answer is another one."""

IN_DOCUMENT: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "If-None-Match",
            "in": "header",
            "required": False,
            "schema": {"type": "string"},
            "description": "The `ETag` of an answer that is at hand: the reply is 304 as long as nothing has changed.",
        }
    ]
}
"""What the OpenAPI document says of a route whose answers have tags, besides the reply 304."""


def is_named(tag: str, header: str | None) -> bool:
    """Whether an ``If-None-Match`` names this tag (with its quotation marks), compared weakly, or any."""
    if header is None:
        return False
    names = [name.strip().removeprefix("W/") for name in header.split(",")]
    return tag in names or names == ["*"]


def tagged(response: Response, request_headers: Mapping[str, str]) -> Response:
    """An answer with the tag of its content, or 304 where the client has this content.

    What is no whole 200 is returned as it is: errors, answers in pieces, and those that have a tag already.
    """
    body = getattr(response, "body", None)  # answers in pieces have none
    if response.status_code != 200 or "etag" in response.headers or body is None:
        return response
    tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    if is_named(tag, request_headers.get("if-none-match")):
        kept = {name: response.headers[name] for name in ("link",) if name in response.headers}
        response = Response(None, 304, kept)
    response.headers["etag"] = tag
    response.headers.append("vary", WHO_ASKS)
    return response
