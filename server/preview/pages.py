"""What a preview shows where the program in the sandbox shows nothing."""

from __future__ import annotations

import html

from starlette.types import Send

from server.preview.headers import Headers

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<title>{title}</title><body style="font: 16px/1.5 system-ui; margin: 15vh auto; max-width: 34em; padding: 0 1em">
<h1 style="font-size: 1.3em">{title}</h1><p>{text}</p></body></html>
"""

TITLES = {
    400: "This request cannot be passed on",
    403: "This preview is not open to you",
    405: "This cannot be asked of a preview",
    429: "Too many wrong addresses",
    431: "This request cannot be passed on",
    502: "The preview does not answer",
    503: "The sandbox is not running",
    504: "The preview does not answer in time",
}


async def send_page(send: Send, status: int, text: str, headers: Headers) -> None:
    """Answer with a page that says what is the matter."""
    body = _PAGE.format(title=TITLES.get(status, TITLES[502]), text=html.escape(text)).encode()
    own = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})


async def refuse_websocket(scope_extensions: object, send: Send, status: int, text: str) -> None:
    """Answer the handshake of a WebSocket with an error."""
    if not isinstance(scope_extensions, dict) or "websocket.http.response" not in scope_extensions:
        await send({"type": "websocket.close", "code": 1008, "reason": text[:100]})
        return
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
