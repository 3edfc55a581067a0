"""A provider of git repositories with one user's token: the interface, and what most providers have in common."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from pydantic import AliasChoices, ConfigDict, Field

from server.git_providers.http import Api, Shape
from server.git_providers.model import (
    Branch,
    GitProviderError,
    MadeRequest,
    MissingError,
    PageWish,
    Repository,
    RequestWish,
    ResultPage,
    SuggestedTask,
    TaskType,
    User,
)
from server.settings.git_hosts import Provider


class TokenOwner(Shape):
    """Whose token it is, as most providers tell it."""

    id: int | str
    login: str = Field(validation_alias=AliasChoices("login", "username"))
    name: str | None = Field(None, validation_alias=AliasChoices("name", "full_name"))
    email: str | None = None
    avatar_url: str = ""
    company: str | None = Field(None, validation_alias=AliasChoices("company", "organization"))

    def user(self) -> User:
        """The same in the protocol's form; an empty text is as good as none."""
        return User(
            id=str(self.id),
            login=self.login,
            avatar_url=self.avatar_url,
            company=self.company or None,
            name=self.name or None,
            email=self.email or None,
        )


class WithState(Shape):
    """Anything with a state."""

    state: str = ""


class ListedFile(Shape):
    """A file or a folder in a list of them."""

    path: str
    type: str = ""


class RepositoryShape(Repository, Shape):
    """A repository as a provider tells it; subclasses say under which names."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    git_provider: Provider = "github"


class BranchShape(Branch, Shape):
    """A branch as a provider tells it; subclasses say under which names."""


_BRANCH = set(Branch.model_fields)
_REPOSITORY = set(Repository.model_fields)


class GitProvider(ABC):
    """One account at one provider; repositories are named by their `Repository.full_name`.

    Every method asks the provider, within bounded time, and raises `TokenRefusedError`, `RateLimitedError`,
    `MissingError` (nothing there, or nothing for this token) or their base, `GitProviderError`.
    """

    def __init__(self, name: Provider, api: Api) -> None:
        self.name = name
        self._api = api

    async def user(self) -> User:
        """Whose token it is."""
        return (await self._api.get("/user", TokenOwner)).data.user()

    async def installations(self) -> list[str]:
        """What repositories can be listed by: installations of an app, workspaces, organisations; empty: nothing."""
        return []

    @abstractmethod
    async def repositories(self, wish: PageWish, *, sort: str, installation: str | None) -> ResultPage[Repository]:
        """The user's repositories, or those of one installation; `sort` is ``pushed`` (latest first) or a field."""

    @abstractmethod
    async def repository(self, repository: str) -> Repository:
        """One repository."""

    @abstractmethod
    async def search_repositories(self, query: str, *, limit: int, sort: str, order: str) -> list[Repository]:
        """Repositories in the user's reach whose names have `query` in them."""

    @abstractmethod
    async def branches(self, repository: str, wish: PageWish) -> ResultPage[Branch]:
        """The branches of a repository."""

    @abstractmethod
    async def search_branches(self, repository: str, query: str, *, limit: int) -> list[Branch]:
        """Branches whose names have `query` in them."""

    @abstractmethod
    async def suggested_tasks(self) -> list[SuggestedTask]:
        """The user's open requests that need a hand, and, where there are such, the issues that they were given."""

    @abstractmethod
    async def is_request_open(self, repository: str, number: int) -> bool:
        """Whether a pull or merge request waits to be merged."""

    @abstractmethod
    async def create_request(self, repository: str, wish: RequestWish) -> MadeRequest:
        """Ask once for a pull or merge request. UnknownOutcomeError: whether it was made cannot be said."""

    @abstractmethod
    async def files(self, repository: str, folder: str) -> list[str]:
        """The paths of the files right in a folder; empty when there is no such folder."""

    @abstractmethod
    async def file(self, repository: str, path: str) -> str:
        """A text file of the main branch."""

    @staticmethod
    def _branches_in(found: Iterable[Branch]) -> list[Branch]:
        return [Branch(**one.model_dump(include=_BRANCH)) for one in found]

    def _told(self, one: Repository) -> Repository:
        return Repository(**{**one.model_dump(include=_REPOSITORY), "git_provider": self.name, "link_header": None})

    async def _open_in(self, path: str, state: str) -> bool:
        return (await self._api.get(path, WithState)).data.state == state

    async def _paths(self, path: str, kind: type[Any], wanted: str, params: dict[str, Any] | None = None) -> list[str]:
        """The paths of the entries of a folder that are of the kind `wanted`; empty where there is no such folder."""
        try:
            found = (await self._api.get(path, kind, params)).data
        except MissingError:
            return []
        entries: Iterable[ListedFile] = found if isinstance(found, list) else found.values
        return [entry.path for entry in entries if entry.type == wanted]

    def _task(self, task_type: TaskType, repository: str, number: int, title: str) -> SuggestedTask:
        return SuggestedTask(
            git_provider=self.name, task_type=task_type, repo=repository, issue_number=number, title=title
        )


T = TypeVar("T")

_log = logging.getLogger(__name__)


async def what_works(questions: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers that came, the others' errors logged; raises the first GitProviderError when all failed."""
    answers = await asyncio.gather(*questions, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, GitProviderError):
            raise answer
    failures = [answer for answer in answers if isinstance(answer, GitProviderError)]
    if failures and len(failures) == len(answers):
        raise failures[0]
    for failure in failures:
        _log.warning("a part is left out: %s", failure)
    return [answer for answer in answers if not isinstance(answer, BaseException)]
