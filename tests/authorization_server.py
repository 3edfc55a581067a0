"""A server of tokens, and a server of MCP tools that wants them, over real HTTP, whose behaviour a test chooses."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.serving import serving

ALL_SCOPES = ("read", "write")


@dataclass
class Issued:
    """A token that was given out."""

    scope: str
    resource: str
    client_id: str
    is_over: bool = False


@dataclass
class AuthorizationServer:
    """Gives out tokens. `changes` are laid over its description; `consent`: "at once", "ask" (a page) or "refuse".

    `asked` holds the parameters of all requests by path; `lifetime` is how long tokens last by what is said of them;
    `instead` has by path what answers in the place of the usual.
    """

    url: str = ""
    consent: str = "at once"
    lifetime: int | None = 3600
    rotates: bool = True
    gives_refresh_tokens: bool = True
    registers: bool = True
    revokes: bool = True
    method: str = "client_secret_basic"
    changes: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    clients: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[str, Issued] = field(default_factory=dict)
    refresh_tokens: dict[str, Issued] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    refresh_status: int = 200
    refresh_error: str = "server_error"
    instead: dict[str, Callable[[Request], Awaitable[Response]]] = field(default_factory=dict)

    def asked_at(self, path: str) -> list[dict[str, str]]:
        return [values for at, values in self.asked if at == path]

    def end_tokens(self) -> None:
        """What was given out is refused from now on; it may be renewed."""
        for token in self.tokens.values():
            token.is_over = True

    def app(self) -> Starlette:
        usual = {
            "/.well-known/oauth-authorization-server": self._describe,
            "/register": self._register,
            "/authorize": self._authorize,
            "/token": self._token,
            "/revoke": self._revoke,
        }

        async def answer(request: Request) -> Response:
            path = request.url.path
            return await self.instead.get(path, usual[path])(request)

        return Starlette(routes=[Route(path, answer, methods=["GET", "POST"]) for path in usual])

    async def _describe(self, request: Request) -> Response:
        described = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": [self.method],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            **({"registration_endpoint": f"{self.url}/register"} if self.registers else {}),
            **({"revocation_endpoint": f"{self.url}/revoke"} if self.revokes else {}),
            **self.changes,
        }
        self.asked.append(("describe", {}))
        return JSONResponse({name: value for name, value in described.items() if value is not None})

    async def _register(self, request: Request) -> Response:
        wish = await request.json()
        self.asked.append(("register", {name: json.dumps(value) for name, value in wish.items()}))
        made = {
            **wish,
            "client_id": f"client {len(self.clients)}:1",
            "client_secret": None if self.method == "none" else "se cret/" + secrets.token_hex(8),
            "token_endpoint_auth_method": self.method,
        }
        self.clients[made["client_id"]] = made
        return JSONResponse(made, 201)

    async def _authorize(self, request: Request) -> Response:
        values = dict(request.query_params)
        self.asked.append(("authorize", values))
        client = self.clients.get(values.get("client_id", ""))
        if client is None or values["redirect_uri"] not in client["redirect_uris"]:
            return HTMLResponse("Unknown client, or another redirect address than it registered.", 400)
        if self.consent == "ask" and request.method == "GET":
            page = html.escape(f"{values['client_id']} wants: {values.get('scope', '')}")
            buttons = "".join(f'<button name="say" value="{one}">{one}</button>' for one in ("Allow", "Deny"))
            return HTMLResponse(f"<!doctype html><p>{page}</p><form method=post>{buttons}</form>")
        said = parse_qs((await request.body()).decode()).get("say", ["Allow"])[0]
        answer = {"state": values["state"], "iss": self.url}
        if self.consent == "refuse" or said == "Deny":
            answer |= {"error": "access_denied", "error_description": "<b>no</b>"}
        else:
            code = secrets.token_hex(8)
            self.codes[code] = values
            answer |= {"code": code}
        return RedirectResponse(f"{values['redirect_uri']}?{urlencode(answer)}", 302)

    async def _token(self, request: Request) -> Response:
        values = await self._form(request, "token")
        client = self._client_of(request, values)
        if client is None:
            return JSONResponse({"error": "invalid_client"}, 401)
        if values["grant_type"] == "authorization_code":
            asked = self.codes.pop(values.get("code", ""), None)
            challenge = hashlib.sha256(values.get("code_verifier", "").encode()).digest()
            proves = asked and base64.urlsafe_b64encode(challenge).decode().rstrip("=") == asked["code_challenge"]
            same = asked and all(asked.get(name) == values.get(name) for name in ("redirect_uri", "resource"))
            if asked is None or not proves or not same or asked["client_id"] != client["client_id"]:
                return JSONResponse({"error": "invalid_grant"}, 400)
            return self._given(Issued(asked.get("scope", "read"), values["resource"], client["client_id"]))
        if self.refresh_status != 200:
            return JSONResponse({"error": self.refresh_error}, self.refresh_status)
        old = self.refresh_tokens.get(values.get("refresh_token", ""))
        if old is None or old.is_over or old.client_id != client["client_id"] or old.resource != values.get("resource"):
            return JSONResponse({"error": "invalid_grant"}, 400)
        old.is_over = self.rotates
        return self._given(Issued(old.scope, old.resource, old.client_id), renews=self.rotates)

    def _given(self, issued: Issued, *, renews: bool = True) -> Response:
        token = secrets.token_hex(16)
        self.tokens[token] = issued
        answer: dict[str, Any] = {"access_token": token, "token_type": "bearer", "scope": issued.scope}
        if self.lifetime is not None:
            answer["expires_in"] = self.lifetime
        if self.gives_refresh_tokens and renews:
            answer["refresh_token"] = secrets.token_hex(16)
            self.refresh_tokens[answer["refresh_token"]] = Issued(issued.scope, issued.resource, issued.client_id)
        return JSONResponse(answer)

    async def _revoke(self, request: Request) -> Response:
        values = await self._form(request, "revoke")
        if self._client_of(request, values) is None:
            return JSONResponse({"error": "invalid_client"}, 401)
        for known in (self.tokens, self.refresh_tokens):
            if values["token"] in known:
                known[values["token"]].is_over = True
        return JSONResponse({})

    async def _form(self, request: Request, path: str) -> dict[str, str]:
        values = {name: one[0] for name, one in parse_qs((await request.body()).decode()).items()}
        self.asked.append((path, values))
        return values

    def _client_of(self, request: Request, values: dict[str, str]) -> dict[str, Any] | None:
        client_id, secret = values.get("client_id", ""), values.get("client_secret")
        if (header := request.headers.get("authorization", "")).startswith("Basic "):
            pair = base64.b64decode(header.removeprefix("Basic ")).decode().partition(":")
            client_id, secret = unquote(pair[0]), unquote(pair[2])
        client = self.clients.get(client_id)
        return client if client is not None and client.get("client_secret") == secret else None


@dataclass
class ToolServer:
    """Serves the tools ``whoami`` (says what it was shown) and ``write`` (wants the right to) at ``/mcp``.

    `described` is laid over its description of itself; `header` replaces its whole ``WWW-Authenticate``; `called` are
    the tools that were called.
    """

    tokens: AuthorizationServer
    url: str = ""
    described: dict[str, Any] | None = field(default_factory=dict)
    header: str | None = None
    shown: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/oauth-protected-resource/mcp", self._describe),
                Route("/mcp", self._serve, methods=["POST", "GET", "DELETE"]),
            ]
        )

    async def _describe(self, request: Request) -> Response:
        if self.described is None:
            return Response(status_code=404)
        about = {
            "resource": self.url,
            "authorization_servers": [self.tokens.url],
            "scopes_supported": ["read"],
            **self.described,
        }
        return JSONResponse(about)

    async def _serve(self, request: Request) -> Response:
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.shown.append(shown)
        token = self.tokens.tokens.get(shown)
        if token is None or token.is_over or token.resource != self.url:
            origin = self.url.removesuffix("/mcp")
            usual = (
                f'Bearer error="invalid_token", resource_metadata="{origin}/.well-known/oauth-protected-resource/mcp"'
            )
            return Response(status_code=401, headers={"WWW-Authenticate": self.header or usual})
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        if "id" not in message:
            return Response(status_code=202)
        params = message.get("params", {})
        if message["method"] == "tools/call" and params["name"] not in ("whoami", *token.scope.split()):
            wanted = f'Bearer error="insufficient_scope", scope="{params["name"]}"'
            return Response(status_code=403, headers={"WWW-Authenticate": wanted})
        if message["method"] == "tools/call":
            self.called.append(params["name"])
        return JSONResponse(
            {"jsonrpc": "2.0", "id": message["id"], "result": _result(message["method"], params, shown)}
        )


def _result(method: str, params: dict[str, Any], shown: str) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "guarded", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object"}
        return {"tools": [{"name": name, "inputSchema": schema} for name in ("whoami", "write")]}
    return {"content": [{"type": "text", "text": f"{params['name']} with {shown}"}]}


@asynccontextmanager
async def guarded_tools(**options: Any) -> AsyncIterator[ToolServer]:
    """A server of tools and the server of its tokens, with these options of the latter."""
    tokens = AuthorizationServer(**options)
    tools = ToolServer(tokens)
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(tokens.app(), lifespan="off"))
        tokens.url = f"http://127.0.0.1:{port}"
        port = await stack.enter_async_context(serving(tools.app(), lifespan="off"))
        tools.url = f"http://127.0.0.1:{port}/mcp"
        yield tools


Browse = Callable[[str], Awaitable[dict[str, str]]]


async def browse(url: str) -> dict[str, str]:
    """What a browser that allows everything comes back with: the parameters of the redirect."""
    import httpx

    async with httpx.AsyncClient(trust_env=False) as browser:
        answer = await browser.get(url)
    assert answer.status_code == 302, answer.text
    return dict(httpx.URL(answer.headers["location"]).params)
