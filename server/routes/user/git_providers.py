"""The user's tokens and repositories at git providers. Errors under ``/api/user`` are JSON strings: 401 or 502."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from pydantic import AfterValidator, BaseModel, Field, SecretStr

from agent_core.events.event import utc_now
from agent_core.skills.files import split_frontmatter
from server.db.repositories.user_settings import ProviderToken, StoredSettings
from server.dependencies import IdentityDependency, Services, ServicesDependency, identity_of, services_of
from server.errors import ReplyError
from server.git_providers.accounts import GitAccounts
from server.git_providers.kinds import SHARED, SHARED_CONFIG
from server.git_providers.model import (
    AccessRefusedError,
    Branch,
    MissingError,
    PageWish,
    Repository,
    SuggestedTask,
    TokenMissingError,
    User,
)
from server.git_providers.provider import GitProvider
from server.routes.replies import Confirmation, ErrorReply, errors
from server.routes.route_classes import make_router
from server.settings.git_hosts import Provider, host_problem
from server.wire.envelope import wire_time

router = make_router("/api")
_accounts_router = make_router(
    "/api/user",
    responses={
        401: {
            "model": str | ErrorReply,
            "description": "No token, one that its provider does not take, or no access with it",
        },
        502: {
            "model": str | ErrorReply,
            "description": "A provider that cannot be reached, that fails, or that wants to be left alone",
        },
    },
)
MAX_TOKEN = 500
LEGACY_FILE = ".cursorrules"
WITH_INSTALLATIONS = frozenset({"github", "bitbucket", "azure_devops"})
PageNumber = Annotated[int, Query(ge=1, le=100_000)]
PageSize = Annotated[
    int,
    Query(ge=1, le=1000, description="More than 100 count as 100, which is what providers give at once."),
    AfterValidator(lambda size: min(size, 100)),
]
NameQuery = Annotated[str, Query(max_length=500)]


class GivenToken(BaseModel, extra="ignore", hide_input_in_errors=True):
    """A token and where it is for; what is empty stays as it is stored."""

    token: Annotated[str, Field(max_length=MAX_TOKEN)] | None = None
    host: str | None = None

    @property
    def text(self) -> str:
        return (self.token or "").strip()

    @property
    def address(self) -> str:
        return (self.host or "").strip()


class GivenTokens(BaseModel, extra="ignore", hide_input_in_errors=True):
    """The body of ``POST /api/add-git-providers``."""

    provider_tokens: dict[Provider, GivenToken]


@router.post("/add-git-providers", response_model=Confirmation, responses=errors(401))
async def add_git_providers(
    body: GivenTokens, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, str]:
    """Store the tokens; one that its provider refuses is not stored, nor are the others then."""
    repository = services.database.settings
    for name, new in body.provider_tokens.items():
        _check(services, name, new)
    if not any(new.text or new.address for new in body.provider_tokens.values()):
        return {"message": "Git providers stored"}  # nothing was given, so nothing is stored, not even settings
    tokens = _merged((await repository.get(identity.user_id) or StoredSettings()).provider_tokens, body)
    if services.settings.verify_git_tokens:
        fresh = [name for name, new in body.provider_tokens.items() if new.text]
        refusals = await asyncio.gather(*(services.git.is_refused(name, tokens[name]) for name in fresh))
        for one, refused in zip(fresh, refusals, strict=True):
            if refused:
                raise ReplyError(401, {"error": f"Invalid token. Please make sure it is a valid {one} token."})

    def with_tokens(stored: StoredSettings | None) -> StoredSettings:
        before = stored or StoredSettings()
        return before.model_copy(update={"provider_tokens": _merged(before.provider_tokens, body)})

    await repository.change(with_tokens, identity.user_id)
    await services.manager.refresh_secrets(identity.user_id)
    return {"message": "Git providers stored"}


def _check(services: Services, name: Provider, new: GivenToken) -> None:
    problem = host_problem(new.address)
    if problem is None and new.text:
        problem = services.git.host_lacks(name, new.address or None)
    if problem is not None:
        raise ReplyError(422, {"error": f"provider_tokens.{name}.host {problem}"})
    if not (new.text.isascii() and new.text.isprintable()):
        raise ReplyError(422, {"error": f"provider_tokens.{name}.token must be one line of printable ASCII characters"})


def _merged(stored: Mapping[str, ProviderToken], body: GivenTokens) -> dict[str, ProviderToken]:
    tokens = dict(stored)
    for name, new in body.provider_tokens.items():
        if new.text:
            tokens[name] = ProviderToken(token=SecretStr(new.text), host=new.address or None)
        elif name in tokens and new.address:
            tokens[name] = tokens[name].model_copy(update={"host": new.address})
    return tokens


@router.post("/unset-provider-tokens", response_model=Confirmation)
async def unset_provider_tokens(services: ServicesDependency, identity: IdentityDependency) -> dict[str, str]:
    """Forget all of them."""
    repository = services.database.settings
    if await repository.get(identity.user_id) is not None:
        await repository.change(
            lambda stored: (stored or StoredSettings()).model_copy(update={"provider_tokens": {}}),
            identity.user_id,
            sets={"provider_tokens"},
        )
        await services.manager.refresh_secrets(identity.user_id)
    return {"message": "Unset Git provider tokens"}


class Microagent(BaseModel):
    """A microagent: its text without the header, and the words that call it."""

    content: str
    path: str
    triggers: list[str]
    git_provider: str | None


class BranchesPage(BaseModel):
    """A page of branches."""

    branches: list[Branch]
    has_next_page: bool
    current_page: int
    per_page: int
    total_count: int | None


class MicroagentEntry(BaseModel):
    """A microagent in a list; `created_at` is the time of the answer, since providers know no other without asking."""

    name: str
    path: str
    created_at: str


async def _accounts(request: Request) -> GitAccounts:
    services = services_of(request)
    accounts = services.git.accounts(await services.database.settings.get(identity_of(request).user_id))
    if not accounts:
        raise TokenMissingError
    return accounts


AccountsDependency = Annotated[GitAccounts, Depends(_accounts)]


@_accounts_router.get("/info")
async def read_user(accounts: AccountsDependency) -> User:
    """Who the user is at the first provider that says so."""
    return await accounts.user()


@_accounts_router.get("/installations", responses={400: {"model": str, "description": "A provider that has none"}})
async def list_installations(provider: Provider, accounts: AccountsDependency) -> list[str]:
    """What repositories can be listed by: installations of GitHub, workspaces of Bitbucket."""
    if provider not in WITH_INSTALLATIONS:
        raise ReplyError(400, f"Provider {provider} doesn't support installations")
    return await accounts.account(provider).installations()


@_accounts_router.get("/repositories")
async def list_repositories(
    accounts: AccountsDependency,
    sort: NameQuery = "pushed",
    selected_provider: Provider | None = None,
    page: PageNumber = 1,
    per_page: PageSize = 30,
    installation_id: NameQuery | None = None,
) -> list[Repository]:
    """A page of the repositories at one provider, or the latest ones at all of them."""
    return await accounts.repositories(
        selected_provider, PageWish(page, per_page), sort=sort, installation=installation_id
    )


@_accounts_router.get("/search/repositories")
async def search_repositories(
    query: NameQuery,
    accounts: AccountsDependency,
    per_page: PageSize = 5,
    sort: NameQuery = "stars",
    order: Annotated[str, Query(pattern="^(asc|desc)$")] = "desc",
    selected_provider: Provider | None = None,
) -> list[Repository]:
    """The user's repositories with this in their names, or the one that a web page's address is of."""
    return await accounts.search_repositories(selected_provider, query, limit=per_page, sort=sort, order=order)


@_accounts_router.get("/search/branches")
async def search_branches(
    repository: NameQuery,
    query: NameQuery,
    accounts: AccountsDependency,
    per_page: PageSize = 30,
    selected_provider: Provider | None = None,
) -> list[Branch]:
    """The branches of a repository with this in their names."""
    return await accounts.of_repository(
        selected_provider, repository, lambda one: one.search_branches(repository, query, limit=per_page)
    )


@_accounts_router.get("/repository/branches")
async def list_branches(
    repository: NameQuery,
    accounts: AccountsDependency,
    page: PageNumber = 1,
    per_page: PageSize = 30,
    selected_provider: Provider | None = None,
) -> BranchesPage:
    """A page of the branches of a repository."""
    page_wish = PageWish(page, per_page)
    found = await accounts.of_repository(selected_provider, repository, lambda one: one.branches(repository, page_wish))
    return BranchesPage(
        branches=found.items,
        has_next_page=found.has_next,
        current_page=page,
        per_page=per_page,
        total_count=found.total,
    )


@_accounts_router.get("/suggested-tasks")
async def list_suggested_tasks(accounts: AccountsDependency) -> list[SuggestedTask]:
    """What waits for the user at all providers."""
    return await accounts.suggested_tasks()


def microagents_folder(repository: str) -> str:
    """Where a repository has them; the one that is there for all repositories of its owner is another case."""
    return (
        "microagents"
        if repository.rstrip("/").rpartition("/")[2] in (SHARED, SHARED_CONFIG)
        else ".openhands/microagents"
    )


async def _microagents(account: GitProvider, repository: str) -> dict[str, str]:
    await account.repository(repository)
    names = {
        path: PurePosixPath(path).stem
        for path in await account.files(repository, microagents_folder(repository))
        if path.endswith(".md") and PurePosixPath(path).name.lower() != "readme.md"
    }
    with suppress(MissingError):
        await account.file(repository, LEGACY_FILE)
        names[LEGACY_FILE] = "cursorrules"
    return dict(sorted(names.items(), key=lambda entry: entry[1]))


async def _microagent(account: GitProvider, repository: str, path: str) -> Microagent:
    await account.repository(repository)
    try:
        text = await account.file(repository, path)
    except MissingError as error:
        raise AccessRefusedError(f"file {path} in {repository}") from error
    header: Mapping[str, Any]
    try:
        header, body = split_frontmatter(text)
    except ValueError:
        header, body = {}, text
    words = header.get("triggers")
    triggers = [str(word) for word in words] if isinstance(words, list) else []
    return Microagent(content=body, path=path, triggers=triggers, git_provider=account.name)


@_accounts_router.get("/repository/{repository:path}/microagents")
async def list_repository_microagents(repository: str, accounts: AccountsDependency) -> list[MicroagentEntry]:
    """The microagents that are files of a repository's main branch."""
    found = await accounts.of_repository(None, repository, lambda one: _microagents(one, repository))
    now = wire_time(utc_now())
    return [MicroagentEntry(name=name, path=path, created_at=now) for path, name in found.items()]


@_accounts_router.get("/repository/{repository:path}/microagents/content")
async def read_repository_microagent(repository: str, file_path: NameQuery, accounts: AccountsDependency) -> Microagent:
    """One of them."""
    return await accounts.of_repository(None, repository, lambda one: _microagent(one, repository, file_path))


router.routes.extend(_accounts_router.routes)
