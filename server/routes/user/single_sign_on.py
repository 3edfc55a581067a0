"""Signing in by an OpenID provider: a browser is sent there, and comes back."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import RedirectResponse, Response

from server.auth.oidc import SIGN_IN_SECONDS, OidcError
from server.dependencies import Services, ServicesDependency
from server.errors import RETRY_SECONDS, ReplyError
from server.http.base_path import base_path_of
from server.http.gate import OIDC_BEGIN, OIDC_FINISH
from server.http.sign_in import own_address
from server.routes.route_classes import make_router
from server.routes.user.mcp_sign_ins import public_address, words_page
from server.single_sign_on import ProviderSignIn, cookie_name

router = make_router("")

ToOpen = Annotated[str, Query(max_length=1000, description="The page of this server to show then.")]


@router.get(OIDC_BEGIN, response_class=RedirectResponse, status_code=303, include_in_schema=False)
async def begin_at_provider(request: Request, services: ServicesDependency, then: ToOpen = "/") -> Response:
    """Send the browser to the provider."""
    base = public_address(request)
    try:
        begun = await _provider(services).begin(base + OIDC_FINISH, own_address(then))
    except OidcError as error:
        return _refused(request, error)
    answer = RedirectResponse(begun.url, 303)
    answer.set_cookie(
        begun.cookie_name,
        begun.cookie,
        max_age=SIGN_IN_SECONDS,
        path=base_path_of(request.scope) + OIDC_FINISH,
        secure=base.startswith("https://"),
        httponly=True,
        samesite="lax",
    )
    return answer


@router.get(OIDC_FINISH, response_class=RedirectResponse, status_code=303, include_in_schema=False)
async def finish_at_provider(request: Request, services: ServicesDependency) -> Response:
    """The browser comes back: it is signed in, and shown what it wanted to see."""
    provider, base = _provider(services), base_path_of(request.scope)
    try:
        user, then = await provider.finish(dict(request.query_params), request.cookies)
    except OidcError as error:
        return _forgetting(request, _refused(request, error))
    assert services.accounts is not None  # noqa: S101 - there is no provider without
    answer = RedirectResponse(f"{base}{then}", 303)
    answer.headers["set-cookie"] = await services.accounts.begin(
        user,
        address=request.client.host if request.client else "",
        browser=request.headers.get("user-agent", ""),
        is_safe=request.url.scheme == "https",
        lasts=provider.lasts,
    )
    return _forgetting(request, answer)


def _provider(services: Services) -> ProviderSignIn:
    if services.provider_sign_in is None:
        raise ReplyError(404, {"detail": "Nobody signs in by a provider here.", "message": ""})
    return services.provider_sign_in


def _forgetting(request: Request, answer: Response) -> Response:
    """Have the browser forget what it had to bring back."""
    name = cookie_name(request.query_params.get("state", ""))
    answer.delete_cookie(name, path=base_path_of(request.scope) + OIDC_FINISH)
    return answer


def _refused(request: Request, error: OidcError) -> Response:
    text = f"You are not signed in: {error}."
    answer = words_page(text, f"{base_path_of(request.scope)}/", status=error.status)
    if error.status == 503:
        answer.headers["retry-after"] = str(RETRY_SECONDS)
    return answer
