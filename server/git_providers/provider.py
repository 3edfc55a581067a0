"""The interface of a provider of git repositories, with one user's token."""

from __future__ import annotations

from typing import Protocol

from server.git_hosts import Provider
from server.git_providers.model import (
    Branch,
    MadeRequest,
    Page,
    PageWish,
    Repository,
    RequestWish,
    SuggestedTask,
    User,
)


class GitProvider(Protocol):
    """One account at one provider.

    Repositories are named as the provider names them in `Repository.full_name`. Every method asks the provider, within
    bounded time, and raises:

        TokenRefusedError: the token is wrong or has expired.
        RateLimitedError: the provider wants to be left alone for a while.
        MissingError: there is no such repository, folder or file, or none for this token.
        GitProviderError: anything else; the base of them all.
    """

    @property
    def name(self) -> Provider:
        """Which provider it is."""
        ...

    async def user(self) -> User:
        """Whose token it is."""
        ...

    async def installations(self) -> list[str]:
        """What repositories can be listed by: installations of an app, workspaces, organisations; empty: nothing."""
        ...

    async def repositories(self, wish: PageWish, *, sort: str, installation: str | None) -> Page[Repository]:
        """The user's repositories, or those of one installation; `sort` is ``pushed`` (latest first) or a field."""
        ...

    async def repository(self, repository: str) -> Repository:
        """One repository."""
        ...

    async def search_repositories(self, query: str, *, limit: int, sort: str, order: str) -> list[Repository]:
        """Repositories in the user's reach whose names have `query` in them."""
        ...

    async def branches(self, repository: str, wish: PageWish) -> Page[Branch]:
        """The branches of a repository."""
        ...

    async def search_branches(self, repository: str, query: str, *, limit: int) -> list[Branch]:
        """Branches whose names have `query` in them."""
        ...

    async def suggested_tasks(self) -> list[SuggestedTask]:
        """The user's open requests that need a hand, and, where there are such, the issues that they were given."""
        ...

    async def is_request_open(self, repository: str, number: int) -> bool:
        """Whether a pull or merge request waits to be merged."""
        ...

    async def create_request(self, repository: str, wish: RequestWish) -> MadeRequest:
        """Make a pull or merge request. It is asked for once.

        Raises:
            UnknownOutcomeError: whether it was made cannot be said.
        """
        ...

    async def files(self, repository: str, folder: str) -> list[str]:
        """The paths of the files right in a folder; empty when there is no such folder."""
        ...

    async def file(self, repository: str, path: str) -> str:
        """A text file of the main branch."""
        ...
