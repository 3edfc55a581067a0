"""Signing in with MCP servers that want it (OAuth 2.1): begun on the page, gone on with where they send browsers."""

from __future__ import annotations

from html import escape
from typing import Annotated, Literal
from urllib.parse import urlsplit

from fastapi import Path, Request
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from agent_core.mcp.grants import SIGN_IN_SECONDS
from agent_core.mcp.oauth import SignInError, client_document
from server.auth.audit import actor_of
from server.auth.identity import Identity
from server.db.repositories.mcp_sign_ins import TooManySignInsError
from server.dependencies import IdentityDependency, ServicesDependency, find_conversation, services_of
from server.errors import ConversationNotFoundError
from server.http.base_path import base_path_of
from server.routes.replies import errors
from server.routes.route_classes import make_router
from server.session.agents.mcp_sign_ins import CALLBACK, CLIENT_DOCUMENT, SignInUnknownError

router = make_router("/api/mcp-sign-ins")

SignInId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$", description="As the list has it, and the event that asks.")]


class McpSignIn(BaseModel):
    """Where a user has signed in, or may."""

    id: str
    server: str = Field(description="The MCP server's address, without what may be secret in it.")
    state: Literal["signed_in", "wanted", "unknown"] = Field(
        description="`wanted`: the server asked for it; `unknown`: it was not asked yet whether it wants that."
    )
    scope: str | None = Field(description="The rights that were given; null where none are known.")


class McpSignInList(BaseModel):
    """A user's sign-ins."""

    results: list[McpSignIn]


class SignInWish(BaseModel, extra="forbid"):
    """The body of a beginning."""

    conversation_id: str | None = Field(None, description="The conversation that the browser is to come back to.")


class SignInBegun(BaseModel):
    """A sign-in that was begun."""

    url: str = Field(description="The page to open in the browser that asked, within ten minutes.")


class SignedOut(BaseModel):
    """The tokens are forgotten here."""

    revoked: bool = Field(description="Whether they were revoked where they came from.")
    message: str = Field(description="Why they were not; empty where they were, or that is not offered.")


@router.get("")
async def list_mcp_sign_ins(services: ServicesDependency, identity: IdentityDependency) -> McpSignInList:
    """The user's MCP servers that are shown no key, and others where they have signed in or were to."""
    found = await services.mcp_sign_ins.entries(identity.user_id)
    return McpSignInList(results=[McpSignIn(**one._asdict()) for one in found])


@router.post("/{sign_in_id}", responses=errors(404, 409), response_model=SignInBegun)
async def begin_mcp_sign_in(
    sign_in_id: SignInId,
    request: Request,
    services: ServicesDependency,
    identity: IdentityDependency,
    body: SignInWish | None = None,
) -> Response:
    """Begin to sign in; what was begun with this server before is over. The browser gets a cookie with the answer.

    409 says why it cannot begin: what the server says of itself is wrong, or lets nobody in.
    """
    conversation_id = body.conversation_id if body is not None else None
    if conversation_id is not None and await find_conversation(services, identity, conversation_id) is None:
        raise ConversationNotFoundError(conversation_id)
    base = public_address(request)
    try:
        begun = await services.mcp_sign_ins.begin(
            identity.user_id, sign_in_id, base=base, conversation_id=conversation_id
        )
    except SignInUnknownError as error:
        raise HTTPException(404, str(error)) from error
    except (SignInError, TooManySignInsError) as error:
        raise HTTPException(409, f"The sign-in cannot begin: {error}.") from error
    answer = JSONResponse(SignInBegun(url=begun.url).model_dump())
    answer.set_cookie(
        begun.cookie_name,
        begun.cookie,
        max_age=int(SIGN_IN_SECONDS),
        path=base_path_of(request.scope) + CALLBACK,
        secure=base.startswith("https://"),
        httponly=True,
        samesite="lax",
    )
    return answer


@router.delete("/{sign_in_id}", responses=errors(404))
async def end_mcp_sign_in(
    sign_in_id: SignInId, services: ServicesDependency, identity: IdentityDependency
) -> SignedOut:
    """Forget the tokens, here and, where that is offered, where they came from."""
    try:
        return SignedOut(revoked=await services.mcp_sign_ins.sign_out(identity.user_id, sign_in_id), message="")
    except SignInUnknownError as error:
        raise HTTPException(404, str(error)) from error
    except SignInError as error:
        return SignedOut(revoked=False, message=str(error))


def public_address(request: Request) -> str:
    """The server as the client sees it, by the ``Host`` that the gate has let in.

    A proxy that ends TLS and does not say so is seen through where a browser says what its page's origin is.
    """
    host, scheme = request.headers["host"], request.url.scheme
    origin = urlsplit(request.headers.get("origin", ""))
    if origin.scheme == "https" and origin.netloc.lower().removesuffix(":443") == host.lower().removesuffix(":443"):
        scheme = "https"
    return f"{scheme}://{host}{base_path_of(request.scope)}"


async def _come_back(request: Request) -> Response:
    """The browser comes back: on to the conversation, or to the settings. Nothing in the request says where to."""
    services = services_of(request)
    headers = {name.lower(): value for name, value in request.headers.items()}
    identity = await services.authenticator.identify(headers) if services.authenticator.required else None
    answer, own = dict(request.query_params), base_path_of(request.scope)
    ending = await services.mcp_sign_ins.finish(
        answer, cookies=request.cookies, user_id=identity.user_id if identity is not None else None
    )
    if ending is None:
        text = "This sign-in was not begun in this browser, was gone on with already, or is over. Begin it again."
        return words_page(text, f"{own}/settings", status=400)
    to = f"{own}/conversations/{ending.conversation_id}" if ending.conversation_id else f"{own}/settings"
    if ending.problem:
        return words_page(ending.problem, to, status=409)
    actor = actor_of(identity or Identity(ending.user_id), request.scope, headers)
    await services.database.audit.record("mcp_sign_in.finished", ("mcp_sign_in", ""), actor=actor)
    return RedirectResponse(to, 303, headers={"cache-control": "no-store", "referrer-policy": "no-referrer"})


async def _describe(request: Request) -> Response:
    """Who this client is (OAuth Client ID Metadata Document), for servers of tokens that read it."""
    base = public_address(request)
    return JSONResponse(
        {
            "client_id": base + CLIENT_DOCUMENT,
            "client_uri": base,
            "token_endpoint_auth_method": "none",
            **client_document(base + CALLBACK),
        }
    )


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_STYLE = "body{font:16px/1.5 system-ui,sans-serif;color-scheme:light dark;max-width:32rem;margin:18vh auto}"


def words_page(text: str, to: str, *, status: int) -> Response:
    """A page that tells a browser on its way back why it is not signed in, with a way on."""
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Sign-in</title><style>{_STYLE}</style><h1>Sign-in</h1>"
        f'<p role="alert">{escape(text)}</p><p><a href="{escape(to)}">Back to Drydock</a></p></html>',
        status,
        headers={"content-security-policy": _POLICY, "cache-control": "no-store", "referrer-policy": "no-referrer"},
    )


OPEN_ROUTES: list[BaseRoute] = [
    Route(CALLBACK, _come_back, methods=["GET"]),
    Route(CLIENT_DOCUMENT, _describe, methods=["GET"]),
]
"""What is asked without an access token, by browsers on their way back and by servers of tokens: no part of the API."""
