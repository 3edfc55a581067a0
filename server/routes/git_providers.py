"""Tokens for providers of git repositories (wire-protocol 4.7)."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from server.db.user_settings import ProviderToken, StoredSettings
from server.dependencies import IdentityDependency, ServicesDependency
from server.errors import ReplyError
from server.git_hosts import Provider, host_problem
from server.git_providers import is_refused
from server.routes.json_route import JsonRoute

router = APIRouter(prefix="/api", route_class=JsonRoute)

MAX_TOKEN = 500


class GivenToken(BaseModel):
    """A token and where it is for; what is empty stays as it is stored."""

    model_config = ConfigDict(extra="ignore")

    token: Annotated[str, Field(max_length=MAX_TOKEN)] | None = None
    host: str | None = None


class GivenTokens(BaseModel):
    """The body of ``POST /api/add-git-providers``."""

    model_config = ConfigDict(extra="ignore")

    provider_tokens: dict[Provider, GivenToken]


@router.post("/add-git-providers")
async def add_git_providers(
    body: GivenTokens, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, str]:
    """Store the tokens; one that its provider refuses is not stored, nor are the others then."""
    repository = services.database.settings
    stored = await repository.get(identity.user_id) or StoredSettings()
    tokens = dict(stored.provider_tokens)
    fresh: list[str] = []
    for name, given in body.provider_tokens.items():
        host, text = (given.host or "").strip(), (given.token or "").strip()
        problem = host_problem(host)
        if problem is not None:
            raise ReplyError(422, {"error": f"provider_tokens.{name}.host {problem}"})
        if not text.isprintable():
            raise ReplyError(422, {"error": f"provider_tokens.{name}.token must be one line of printable characters"})
        before = tokens.get(name)
        if text:
            tokens[name] = ProviderToken(token=SecretStr(text), host=host or None)
            fresh.append(name)
        elif before is not None and host:
            tokens[name] = before.model_copy(update={"host": host})
    if services.settings.verify_git_tokens:
        for one, refused in zip(fresh, await asyncio.gather(*(is_refused(n, tokens[n]) for n in fresh)), strict=True):
            if refused:
                text = f"Invalid token. Please make sure it is a valid {one} token."
                raise ReplyError(401, {"error": text})
    await repository.save(stored.model_copy(update={"provider_tokens": tokens}), identity.user_id)
    return {"message": "Git providers stored"}


@router.post("/unset-provider-tokens")
async def unset_provider_tokens(services: ServicesDependency, identity: IdentityDependency) -> dict[str, str]:
    """Forget all of them."""
    repository = services.database.settings
    stored = await repository.get(identity.user_id)
    if stored is not None and stored.provider_tokens:
        await repository.save(stored.model_copy(update={"provider_tokens": {}}), identity.user_id)
    return {"message": "Unset Git provider tokens"}
