"""What a user has at git providers. Errors are JSON strings: 401 without a good token, else 500."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request
from pydantic import AfterValidator, BaseModel

from agent_core.events.event import utc_now
from agent_core.skills import frontmatter
from server.dependencies import identity_of, services_of
from server.errors import ReplyError
from server.git_providers.accounts import GitAccounts
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
from server.routes.json_route import JsonRoute
from server.routes.replies.errors import ErrorReply
from server.settings.git_hosts import Provider
from server.wire.envelope import wire_time

LEGACY_FILE = ".cursorrules"
SHARED: Final = frozenset({".openhands", "openhands-config"})
"""Names of an owner's repository for all others; clients look for the second one at GitLab and Azure DevOps."""


class MicroagentFile(BaseModel):
    """Where a microagent is."""

    name: str
    path: str


class Microagent(BaseModel):
    """A microagent: its text without the header, and the words that call it."""

    content: str
    path: str
    triggers: list[str]
    git_provider: str | None


def folder_of(repository: str) -> str:
    """Where a repository has them; the one that is there for all repositories of its owner is another case."""
    return "microagents" if repository.rstrip("/").rpartition("/")[2] in SHARED else ".openhands/microagents"


async def list_microagents(account: GitProvider, repository: str) -> list[MicroagentFile]:
    """The microagents of a repository, in the order of their names; empty when there are none.

    Raises:
        MissingError: there is no such repository.
        GitProviderError: see `GitProvider`.
    """
    await account.repository(repository)
    paths = await account.files(repository, folder_of(repository))
    found = [MicroagentFile(name=PurePosixPath(path).stem, path=path) for path in paths if _is_one(path)]
    try:
        await account.file(repository, LEGACY_FILE)
    except MissingError:
        pass
    else:
        found.append(MicroagentFile(name="cursorrules", path=LEGACY_FILE))
    return sorted(found, key=lambda one: one.name)


async def read_microagent(account: GitProvider, repository: str, path: str) -> Microagent:
    """One microagent.

    Raises:
        MissingError: there is no such repository.
        AccessRefusedError: there is no such file in it.
        GitProviderError: see `GitProvider`.
    """
    await account.repository(repository)
    try:
        text = await account.file(repository, path)
    except MissingError as error:
        raise AccessRefusedError(f"file {path} in {repository}") from error
    header: dict[str, Any] = {}
    try:
        read, body = frontmatter.split(text)
        header = dict(read)
    except ValueError:
        body = text
    words = header.get("triggers")
    triggers = [str(word) for word in words] if isinstance(words, list) else []
    return Microagent(content=body, path=path, triggers=triggers, git_provider=account.name)


def _is_one(path: str) -> bool:
    return path.endswith(".md") and PurePosixPath(path).name.lower() != "readme.md"


router = APIRouter(
    prefix="/api/user",
    route_class=JsonRoute,
    responses={
        401: {
            "model": str | ErrorReply,
            "description": "No token, one that its provider does not take, or no access with it",
        },
        500: {
            "model": str | ErrorReply,
            "description": "A provider that fails, or that wants to be left alone for a while",
        },
    },
)

WITH_INSTALLATIONS = frozenset({"github", "bitbucket", "azure_devops"})

PageNumber = Annotated[int, Query(ge=1, le=100_000)]
PageSize = Annotated[
    int,
    Query(ge=1, le=1000, description="More than 100 count as 100, which is what providers give at once."),
    AfterValidator(lambda size: min(size, 100)),
]
Name = Annotated[str, Query(max_length=500)]


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


@router.get("/info")
async def read_user(accounts: AccountsDependency) -> User:
    """Who the user is at the first provider that says so."""
    return await accounts.user()


@router.get("/installations", responses={400: {"model": str, "description": "A provider that has none"}})
async def list_installations(provider: Provider, accounts: AccountsDependency) -> list[str]:
    """What repositories can be listed by: installations of GitHub, workspaces of Bitbucket."""
    if provider not in WITH_INSTALLATIONS:
        raise ReplyError(400, f"Provider {provider} doesn't support installations")
    return await accounts.account(provider).installations()


@router.get("/repositories")
async def list_repositories(
    accounts: AccountsDependency,
    sort: Name = "pushed",
    selected_provider: Provider | None = None,
    page: PageNumber = 1,
    per_page: PageSize = 30,
    installation_id: Name | None = None,
) -> list[Repository]:
    """A page of the repositories at one provider, or the latest ones at all of them."""
    wish = PageWish(page, per_page)
    return await accounts.repositories(selected_provider, wish, sort=sort, installation=installation_id)


@router.get("/search/repositories")
async def search_repositories(
    query: Name,
    accounts: AccountsDependency,
    per_page: PageSize = 5,
    sort: Name = "stars",
    order: Annotated[str, Query(pattern="^(asc|desc)$")] = "desc",
    selected_provider: Provider | None = None,
) -> list[Repository]:
    """The user's repositories with this in their names, or the one that a web page's address is of."""
    return await accounts.search_repositories(selected_provider, query, limit=per_page, sort=sort, order=order)


@router.get("/search/branches")
async def search_branches(
    repository: Name,
    query: Name,
    accounts: AccountsDependency,
    per_page: PageSize = 30,
    selected_provider: Provider | None = None,
) -> list[Branch]:
    """The branches of a repository with this in their names."""
    return await accounts.of_repository(
        selected_provider, repository, lambda one: one.search_branches(repository, query, limit=per_page)
    )


@router.get("/repository/branches")
async def list_branches(
    repository: Name,
    accounts: AccountsDependency,
    page: PageNumber = 1,
    per_page: PageSize = 30,
    selected_provider: Provider | None = None,
) -> BranchesPage:
    """A page of the branches of a repository."""
    wish = PageWish(page, per_page)
    found = await accounts.of_repository(selected_provider, repository, lambda one: one.branches(repository, wish))
    return BranchesPage(
        branches=found.items,
        has_next_page=found.has_next,
        current_page=page,
        per_page=per_page,
        total_count=found.total,
    )


@router.get("/suggested-tasks")
async def list_suggested_tasks(accounts: AccountsDependency) -> list[SuggestedTask]:
    """What waits for the user at all providers."""
    return await accounts.suggested_tasks()


@router.get("/repository/{repository:path}/microagents")
async def list_repository_microagents(repository: str, accounts: AccountsDependency) -> list[MicroagentEntry]:
    """The microagents that are files of a repository's main branch."""
    found = await accounts.of_repository(None, repository, lambda one: list_microagents(one, repository))
    now = wire_time(utc_now())
    return [MicroagentEntry(name=one.name, path=one.path, created_at=now) for one in found]


@router.get("/repository/{repository:path}/microagents/content")
async def read_repository_microagent(repository: str, file_path: Name, accounts: AccountsDependency) -> Microagent:
    """One of them."""
    return await accounts.of_repository(None, repository, lambda one: read_microagent(one, repository, file_path))
