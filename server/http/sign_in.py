"""Signs a browser in before another client's page (``--page``), which has no place of its own for an access token."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable
from html import escape
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_core.errors import EventStoreError
from server.auth.audit import Actor, actor_of
from server.auth.doorkeeper import Doorkeeper, NotLetIn, address_of
from server.auth.identity import PageSessions
from server.http.base_path import base_path_of

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
MAX_FORM_BYTES: Final = 16 * 1024

_SCRIPT: Final = (
    "const given=new URLSearchParams(location.hash.slice(1)).get('token');"
    "if(given&&!document.querySelector('[role=alert]')){history.replaceState(null,'',location.pathname+location.search);"
    "const form=document.forms[0];form.token.value=given;form.submit()}"
)
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    f"script-src 'sha256-{base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()}'"
)
_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;color-scheme:light dark;max-width:26rem;margin:18vh auto;padding:0 1rem}"
    "input,button{font:inherit;padding:.5rem .7rem;width:100%;box-sizing:border-box;margin-top:.6rem}"
    "[role=alert]{color:light-dark(#b3261e,#f2b8b5)}h1{font-size:1.3rem}p{opacity:.85}"
)


class SignIn:
    """ASGI application around a page: a browser that has not shown the access token is asked for it once, by a form.

    The address that the server prints at its start fills that in by its fragment. `/sign-out` ends the session.
    """

    def __init__(self, page: ASGIApp, *, keeper: Doorkeeper, sessions: PageSessions) -> None:
        self._page = page
        self._keeper = keeper
        self._sessions = sessions
        self.on_signed_in: Callable[[Actor], Awaitable[None]] = _nobody_is_told
        """Told of each sign-in before it is answered; what it raises refuses that."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(Request(scope, receive)) if scope["type"] == "http" else None
        await (self._page if answer is None else answer)(scope, receive, send)

    async def _answer(self, request: Request) -> Response | None:
        path, is_read = request.url.path, request.method in {"GET", "HEAD"}
        base = base_path_of(request.scope)
        if path == SIGN_OUT and is_read and request.headers.get("sec-fetch-site") not in {"cross-site", "same-site"}:
            answer = _form("/", base, status=200)
            answer.headers["set-cookie"] = self._sessions.end(is_safe=request.url.scheme == "https")
            return answer
        if path == SIGN_IN and request.method == "POST":
            return await self._signed_in(request)
        if is_read and _is_page(request.headers):
            judged = await self._keeper.by_headers(request.headers, address_of(request.scope), "a page")
            if isinstance(judged, NotLetIn):
                query = f"?{request.url.query}" if request.url.query else ""
                return _refused("/" if path in {SIGN_IN, SIGN_OUT} else f"{path}{query}", base, judged)
            if path == SIGN_IN:
                return RedirectResponse(f"{base}/", 303)
        return None

    async def _signed_in(self, request: Request) -> Response:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MAX_FORM_BYTES:
                return JSONResponse({"detail": f"The form is larger than {MAX_FORM_BYTES} bytes."}, 413)
        fields = parse_qs(body.decode("utf-8", "replace"))
        token, then = fields.get("token", [""])[0].strip(), own_address(fields.get("then", ["/"])[0])
        base = base_path_of(request.scope)
        if not token:
            return _form(then, base, wrong="Enter the access token.")
        judged = await self._keeper.by_token(token, address_of(request.scope), "the sign-in")
        if isinstance(judged, NotLetIn):
            return _refused(then, base, judged)
        try:
            await self.on_signed_in(actor_of(judged, request.scope, {}, key=token))
        except EventStoreError as error:
            return _form(then, base, wrong=f"You cannot be signed in just now: {error}.", status=503)
        answer = RedirectResponse(f"{base}{then}", 303)
        answer.headers["set-cookie"] = self._sessions.begin(is_safe=request.url.scheme == "https")
        return answer


async def _nobody_is_told(_actor: Actor) -> None:
    return


def _is_page(headers: Headers) -> bool:
    """Whether a browser asks for what it will show as a page."""
    mode = headers.get("sec-fetch-mode")
    return mode == "navigate" if mode is not None else "text/html" in headers.get("accept", "")


def own_address(address: str) -> str:
    """The address of this server to go on with; anything else leads to its beginning."""
    is_own = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_own else "/"


def _refused(then: str, base: str, judged: NotLetIn) -> Response:
    answer = _form(then, base, wrong=judged.text if judged.was_shown else "", status=judged.status)
    if judged.retry_after is not None:
        answer.headers["retry-after"] = str(judged.retry_after)
    return answer


def _form(then: str, base: str, *, wrong: str = "", status: int = 401) -> Response:
    alert = f'<p role="alert">{escape(wrong)}</p>' if wrong else ""
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Sign in to Drydock</title><style>{_STYLE}</style><h1>Sign in to Drydock</h1>{alert}"
        "<p>The server printed its access token in the address it showed when it started; it is also in the file "
        "<code>token</code> of its data folder, or what you have set as <code>DRYDOCK_TOKEN</code>.</p>"
        f'<form method="post" action="{base}{SIGN_IN}"><input type="hidden" name="then" value="{escape(then)}">'
        '<input type="password" name="token" aria-label="Access token" placeholder="Access token" autofocus required '
        'autocomplete="current-password"><button>Sign in</button></form>'
        f"<script>{_SCRIPT}</script></html>",
        status,
        # Without a referrer a browser sends the form as one of nobody's (``Origin: null``), which is refused.
        headers={"content-security-policy": _POLICY, "cache-control": "no-store", "referrer-policy": "same-origin"},
    )
