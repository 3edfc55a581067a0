"""Accounts: signing in, a user's own tokens and sign-ins, and for administrators who uses the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import BaseModel, Field

from server.accounts import LINK_PATH, Accounts
from server.auth.doorkeeper import NotLetIn, address_of
from server.auth.identity import Identity, Permission, Role
from server.auth.names import MAX_EMAIL_CHARS, MAX_NAME_CHARS, NameRefusedError
from server.auth.passwords import MAX_CHARS, PasswordRefusedError, PasswordsBusyError
from server.db.repositories.credentials import OF_SIGN_IN, BrowserSignIn, TokenRecord
from server.db.repositories.users import LinkOverError, UnknownUserError, UserError, UserRecord
from server.dependencies import IdentityDependency, Services, ServicesDependency
from server.errors import ReplyError, problems_body
from server.routes.replies import errors
from server.routes.route_classes import make_router

router = make_router("/api")

ChosenName = Annotated[str, Field(max_length=4 * MAX_NAME_CHARS)]
NameOrAddress = Annotated[str, Field(max_length=MAX_EMAIL_CHARS)]
PasswordField = Annotated[str, Field(max_length=MAX_CHARS)]
LinkField = Annotated[str, Field(max_length=200)]
Ident = Annotated[str, Path(max_length=100)]
UserName = Annotated[str, Path(max_length=MAX_EMAIL_CHARS)]


class _Body(BaseModel, extra="forbid", hide_input_in_errors=True):
    pass


class NameAndPassword(_Body):
    """The body of ``POST /api/auth/sign-in``; the name may be the user's address."""

    name: NameOrAddress
    password: PasswordField


class LinkShown(_Body):
    """The body of ``POST /api/auth/link``."""

    link: LinkField


class LinkUse(_Body):
    """The body of ``POST /api/auth/link/use``; the name is for a new user's link alone."""

    link: LinkField
    password: PasswordField
    name: ChosenName = ""
    email: NameOrAddress | None = None


class PasswordChange(_Body):
    """The body of ``POST /api/auth/password``."""

    current: PasswordField
    password: PasswordField


class NewToken(_Body):
    """The body of ``POST /api/auth/tokens``; without days it counts until it is revoked."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    scopes: Annotated[list[Permission], Field(min_length=1, max_length=3)] = [Permission.READ, Permission.WRITE]
    expires_in_days: Annotated[int, Field(ge=1, le=3650)] | None = 90


class NewUser(_Body):
    """The body of ``POST /api/admin/users``."""

    name: ChosenName
    role: Role = Role.USER
    email: NameOrAddress | None = None


class UserChange(_Body):
    """The body of ``PATCH /api/admin/users/{name}``: what is left out, or null, stays as it is."""

    role: Role | None = None
    disabled: bool | None = None


class NewInvitation(_Body):
    """The body of ``POST /api/admin/invitations``."""

    role: Role = Role.USER


class Account(BaseModel):
    """Who is signed in; `scopes` are those of what was shown."""

    name: str
    role: Role
    scopes: list[Permission]


class LinkInfo(BaseModel):
    """What a link is for: a new password of the user `name`, or, where that is null, a new user."""

    name: str | None
    role: Role
    expires_at: str


class TokenInfo(BaseModel):
    """An access token, without what it is shown by."""

    id: str
    name: str
    scopes: list[Permission]
    created_at: str
    expires_at: str | None
    used_at: str | None


class TokenList(BaseModel):
    """The user's own tokens that count, the newest first."""

    results: list[TokenInfo]


class MadeToken(TokenInfo):
    """A new access token: `token` is shown this once."""

    token: str


class SignInInfo(BaseModel):
    """A browser in which the user is signed in; `current`: this one."""

    id: str
    address: str
    browser: str
    created_at: str
    expires_at: str
    used_at: str
    current: bool


class SignInList(BaseModel):
    """Where the user is signed in, the latest used first."""

    results: list[SignInInfo]


class UserInfo(BaseModel):
    """A user, as administrators see them; `pending`: no password was chosen yet."""

    name: str
    email: str | None
    role: Role
    disabled: bool
    pending: bool
    created_at: str


class UserList(BaseModel):
    """All users, by name."""

    results: list[UserInfo]


class MadeLink(BaseModel):
    """A link that counts once: the page of this server at `path`; who has it may use it."""

    path: str
    expires_at: str


class MadeUser(MadeLink):
    """A new user, and the link by which they choose a password."""

    user: UserInfo


@router.post("/auth/sign-in", response_model=Account, responses=errors(401, 429))
async def sign_in(body: NameAndPassword, request: Request, response: Response, services: ServicesDependency) -> Account:
    """Sign a browser in: it is known by a cookie from now on. Whatever is wrong is answered alike."""
    async with _answered():
        found = await _accounts(services).sign_in(body.name, body.password, address_of(request.scope))
        if isinstance(found, NotLetIn):
            text = "The name or the password is wrong." if found.retry_after is None else found.text
            headers = {name.decode(): value.decode() for name, value in found.headers}
            raise ReplyError(found.status, {"detail": text, "message": text}, headers=headers)
        return await _begin(services, request, response, found)


@router.post("/auth/link", response_model=LinkInfo, responses=errors(410))
async def look_at_link(body: LinkShown, services: ServicesDependency) -> LinkInfo:
    """What a link is for; it counts on."""
    async with _answered():
        found = await services.database.users.link(body.link)
        name = None if found.user is None else found.user.name
        return LinkInfo(name=name, role=found.role, expires_at=found.expires_at.isoformat())


@router.post("/auth/link/use", response_model=Account, responses=errors(409, 410))
async def use_link(body: LinkUse, request: Request, response: Response, services: ServicesDependency) -> Account:
    """Use a link, which counts once: the new user, or the one with the new password, is signed in."""
    async with _answered():
        link = await services.database.users.link(body.link)  # before a password is hashed
        name = body.name if link.user is None else link.user.name
        password = await _accounts(services).hash(body.password, name)
        user = await services.database.users.use_link(body.link, name=name, email=body.email, password=password)
        return await _begin(services, request, response, user)


@router.post("/auth/sign-out", status_code=204)
async def sign_out(
    request: Request, response: Response, services: ServicesDependency, identity: IdentityDependency
) -> None:
    """End the sign-in of this browser."""
    if identity.credential.startswith(OF_SIGN_IN):
        ident = identity.credential.removeprefix(OF_SIGN_IN)
        await services.database.credentials.end_sign_in(identity.user_id, ident)
    response.headers["set-cookie"] = _accounts(services).forgotten(is_safe=request.url.scheme == "https")


@router.get("/auth/me", response_model=Account)
async def read_account(identity: IdentityDependency) -> Account:
    """Who asks."""
    return Account(name=identity.name, role=identity.role, scopes=sorted(identity.scopes))


@router.post("/auth/password", status_code=204, responses=errors(403, 429))
async def change_password(
    body: PasswordChange, request: Request, services: ServicesDependency, identity: IdentityDependency
) -> None:
    """Choose another password; all other sign-ins end."""
    async with _answered():
        accounts = _accounts(services)
        known = await accounts.sign_in(identity.name, body.current, address_of(request.scope))
        if isinstance(known, NotLetIn):
            text = "The current password is wrong." if known.retry_after is None else known.text
            raise ReplyError(403 if known.retry_after is None else 429, {"detail": text, "message": text})
        password = await accounts.hash(body.password, identity.name)
        keeps = identity.credential.removeprefix(OF_SIGN_IN)
        await services.database.users.set_password(identity.user_id, password, keeps=keeps)


@router.get("/auth/tokens", response_model=TokenList)
async def list_tokens(services: ServicesDependency, identity: IdentityDependency) -> TokenList:
    """The user's own access tokens."""
    found = await services.database.credentials.tokens(identity.user_id)
    return TokenList(results=[TokenInfo(**_token(one)) for one in found])


@router.post("/auth/tokens", response_model=MadeToken, status_code=201, responses=errors(403, 409))
async def make_token(body: NewToken, services: ServicesDependency, identity: IdentityDependency) -> MadeToken:
    """Make an access token, for programs; it may no more than what was shown for making it."""
    more = [scope for scope in body.scopes if not identity.may(scope)]
    if more:
        raise _refusal(403, f"scopes: {', '.join(more)}: you may not give more than you have; leave that out")
    lasts = None if body.expires_in_days is None else timedelta(days=body.expires_in_days)
    async with _answered():
        credentials = services.database.credentials
        secret, made = await credentials.make_token(identity.user_id, body.name, body.scopes, lasts=lasts)
        return MadeToken(token=secret, **_token(made))


@router.delete("/auth/tokens/{token_id}", status_code=204, responses=errors(404))
async def revoke_token(token_id: Ident, services: ServicesDependency, identity: IdentityDependency) -> None:
    """Revoke one of the user's own access tokens: it counts no more, and what it has opened ends."""
    if not await services.database.credentials.revoke(identity.user_id, token_id):
        raise _refusal(404, "There is no such token.")


@router.get("/auth/sign-ins", response_model=SignInList)
async def list_sign_ins(services: ServicesDependency, identity: IdentityDependency) -> SignInList:
    """The browsers in which the user is signed in."""
    found = await services.database.credentials.sign_ins(identity.user_id)
    return SignInList(results=[_sign_in(one, identity) for one in found])


@router.delete("/auth/sign-ins/{sign_in_id}", status_code=204, responses=errors(404))
async def end_sign_in(sign_in_id: Ident, services: ServicesDependency, identity: IdentityDependency) -> None:
    """End one of the user's own sign-ins."""
    if not await services.database.credentials.end_sign_in(identity.user_id, sign_in_id):
        raise _refusal(404, "There is no such sign-in.")


@router.get("/admin/users", response_model=UserList, responses=errors(403))
async def list_users(services: ServicesDependency, identity: IdentityDependency) -> UserList:
    """All users, for administrators."""
    return UserList(results=[_user(one) for one in await services.database.users.all()])


@router.post("/admin/users", response_model=MadeUser, status_code=201, responses=errors(403, 409))
async def add_user(body: NewUser, services: ServicesDependency, identity: IdentityDependency) -> MadeUser:
    """Add a user, who chooses a password by the link that is answered."""
    async with _answered():
        user = await services.database.users.add(body.name, body.role, email=body.email)
        return MadeUser(user=_user(user), **await _link(services, identity, name=user.name))


@router.patch("/admin/users/{name}", response_model=UserInfo, responses=errors(403, 404, 409))
async def change_user(
    name: UserName, body: UserChange, services: ServicesDependency, identity: IdentityDependency
) -> UserInfo:
    """Change a user's role, or let them in no more (`disabled`), or again; the last administrator stays one."""
    async with _answered():
        users = services.database.users
        changed = await users.change(name, role=body.role, disabled=body.disabled)
        return _user(changed)


@router.post("/admin/users/{name}/reset", response_model=MadeLink, responses=errors(403, 404, 409))
async def reset_password(name: UserName, services: ServicesDependency, identity: IdentityDependency) -> MadeLink:
    """A link by which a user chooses another password; the present one counts until then."""
    async with _answered():
        return MadeLink(**await _link(services, identity, name=name))


@router.post("/admin/invitations", response_model=MadeLink, status_code=201, responses=errors(403))
async def invite(body: NewInvitation, services: ServicesDependency, identity: IdentityDependency) -> MadeLink:
    """A link by which somebody becomes a user, with a name and a password of their own choice."""
    async with _answered():
        return MadeLink(**await _link(services, identity, role=body.role))


@asynccontextmanager
async def _answered() -> AsyncIterator[None]:
    """Context that answers what is refused within it."""
    try:
        yield
    except (NameRefusedError, PasswordRefusedError) as error:
        field, _, text = str(error).partition(": ")
        problem = {"type": "value_error", "loc": ["body", field], "msg": text}
        raise ReplyError(422, problems_body([problem])) from error
    except UnknownUserError as error:
        raise _refusal(404, "There is no such user.") from error
    except LinkOverError as error:
        raise _refusal(410, str(error)) from error
    except UserError as error:
        raise _refusal(409, str(error)) from error
    except PasswordsBusyError as error:
        raise _refusal(503, str(error)) from error


def _refusal(status: int, text: str) -> ReplyError:
    return ReplyError(status, {"detail": text, "message": text})


def _accounts(services: Services) -> Accounts:
    if services.accounts is None:
        raise _refusal(404, "This server has no accounts.")
    return services.accounts


async def _begin(services: Services, request: Request, response: Response, user: UserRecord) -> Account:
    response.headers["set-cookie"] = await _accounts(services).begin(
        user,
        address=request.client.host if request.client else "",
        browser=request.headers.get("user-agent", ""),
        is_safe=request.url.scheme == "https",
    )
    return Account(name=user.name, role=user.role, scopes=sorted(Permission))


async def _link(
    services: Services, identity: Identity, *, name: str | None = None, role: Role | None = None
) -> dict[str, Any]:
    link, ends = await services.database.users.make_link(name=name, role=role, made_by=identity.user_id)
    return {"path": f"{services.settings.base_path}{LINK_PATH}{link}", "expires_at": ends.isoformat()}


def _token(token: TokenRecord) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "scopes": sorted(token.scopes),
        "created_at": token.created_at.isoformat(),
        "expires_at": token.expires_at.isoformat() if token.expires_at else None,
        "used_at": token.used_at.isoformat() if token.used_at else None,
    }


def _sign_in(one: BrowserSignIn, identity: Identity) -> SignInInfo:
    return SignInInfo(
        id=one.id,
        address=one.address,
        browser=one.browser,
        created_at=one.created_at.isoformat(),
        expires_at=one.expires_at.isoformat(),
        used_at=one.used_at.isoformat(),
        current=identity.credential == OF_SIGN_IN + one.id,
    )


def _user(user: UserRecord) -> UserInfo:
    return UserInfo(
        name=user.name,
        email=user.email,
        role=user.role,
        disabled=user.disabled,
        pending=user.password is None,
        created_at=user.created_at.isoformat(),
    )
