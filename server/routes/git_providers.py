"""Tokens for providers of git repositories."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from server.db.user_settings import ProviderToken, StoredSettings
from server.dependencies import IdentityDependency, Services, ServicesDependency
from server.errors import ReplyError
from server.routes.json_route import JsonRoute
from server.routes.replies.errors import errors
from server.routes.replies.server import Confirmation
from server.settings.git_hosts import Provider, host_problem

router = APIRouter(prefix="/api", route_class=JsonRoute)

MAX_TOKEN = 500


class GivenToken(BaseModel):
    """A token and where it is for; what is empty stays as it is stored."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    token: Annotated[str, Field(max_length=MAX_TOKEN)] | None = None
    host: str | None = None

    @property
    def text(self) -> str:
        """The token itself; empty: none is given."""
        return (self.token or "").strip()

    @property
    def address(self) -> str:
        """The host as it is written; empty: none is given."""
        return (self.host or "").strip()


class GivenTokens(BaseModel):
    """The body of ``POST /api/add-git-providers``."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    provider_tokens: dict[Provider, GivenToken]


@router.post("/add-git-providers", response_model=Confirmation, responses=errors(401))
async def add_git_providers(
    body: GivenTokens, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, str]:
    """Store the tokens; one that its provider refuses is not stored, nor are the others then."""
    repository = services.database.settings
    for name, given in body.provider_tokens.items():
        _check(services, name, given)
    if not any(given.text or given.address for given in body.provider_tokens.values()):
        return {"message": "Git providers stored"}  # nothing was given, so nothing is stored, not even settings
    tokens = _merged((await repository.get(identity.user_id) or StoredSettings()).provider_tokens, body)
    if services.settings.verify_git_tokens:
        fresh = [name for name, given in body.provider_tokens.items() if given.text]
        refusals = await asyncio.gather(*(services.git.is_refused(name, tokens[name]) for name in fresh))
        for one, refused in zip(fresh, refusals, strict=True):
            if refused:
                raise ReplyError(401, {"error": f"Invalid token. Please make sure it is a valid {one} token."})

    def with_tokens(stored: StoredSettings | None) -> StoredSettings:
        """It may have changed while providers were asked."""
        before = stored or StoredSettings()
        return before.model_copy(update={"provider_tokens": _merged(before.provider_tokens, body)})

    await repository.change(with_tokens, identity.user_id)
    await services.manager.refresh_secrets(identity.user_id)
    return {"message": "Git providers stored"}


def _check(services: Services, name: Provider, given: GivenToken) -> None:
    problem = host_problem(given.address)
    if problem is None and given.text:
        problem = services.git.host_lacks(name, given.address or None)
    if problem is not None:
        raise ReplyError(422, {"error": f"provider_tokens.{name}.host {problem}"})
    if not (given.text.isascii() and given.text.isprintable()):
        raise ReplyError(422, {"error": f"provider_tokens.{name}.token must be one line of printable ASCII characters"})


def _merged(stored: Mapping[str, ProviderToken], body: GivenTokens) -> dict[str, ProviderToken]:
    """What is stored with what is given over it."""
    tokens = dict(stored)
    for name, given in body.provider_tokens.items():
        if given.text:
            tokens[name] = ProviderToken(token=SecretStr(given.text), host=given.address or None)
        elif name in tokens and given.address:
            tokens[name] = tokens[name].model_copy(update={"host": given.address})
    return tokens


@router.post("/unset-provider-tokens", response_model=Confirmation)
async def unset_provider_tokens(services: ServicesDependency, identity: IdentityDependency) -> dict[str, str]:
    """Forget all of them."""
    repository = services.database.settings
    if await repository.get(identity.user_id) is not None:
        await repository.change(_without_tokens, identity.user_id, sets={"provider_tokens"})
        await services.manager.refresh_secrets(identity.user_id)
    return {"message": "Unset Git provider tokens"}


def _without_tokens(stored: StoredSettings | None) -> StoredSettings:
    return (stored or StoredSettings()).model_copy(update={"provider_tokens": {}})
