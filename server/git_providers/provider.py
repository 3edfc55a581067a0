"""A provider of git repositories with one user's token: what all of them do, in GitHub's form where that is common."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from server.errors import GitProviderError
from server.git_providers.http import Api, At, Form, segments, text_at
from server.git_providers.model import (
    Branch,
    CreatedRequest,
    MissingError,
    PageWish,
    Repository,
    RequestWish,
    ResultPage,
    SuggestedTask,
    TaskType,
    User,
    next_link,
)
from server.settings.git_hosts import Provider

T = TypeVar("T")

_log = logging.getLogger(__name__)


class GitProvider(ABC):
    """One account at one provider; repositories are named by their `Repository.full_name`.

    Every method asks the provider, within bounded time, and raises `TokenRefusedError`, `RateLimitedError`,
    `MissingError` (nothing there, or nothing for this token) or their base, `GitProviderError`.
    """

    user_form: ClassVar = Form(
        User,
        login=At("login", "username"),
        name=At("name", "full_name"),
        email=At("email"),
        company=At("company", "organization"),
        avatar_url=At("avatar_url", default=""),
    )
    repository_form: ClassVar[Form[Repository]]
    branch_form: ClassVar[Form[Branch]]
    task_form: ClassVar[Form[SuggestedTask]]
    """Issues and requests that are open."""
    request_form: ClassVar = Form(CreatedRequest, url=At("html_url", default=""))

    branches_path: ClassVar = "/branches"
    requests_path: ClassVar = "/pulls"
    open_state: ClassVar = "open"
    page_size: ClassVar = "per_page"
    """The parameter that says how many a page has."""
    frame: ClassVar = ""
    """The field that lists are in, where they are in an object."""
    file_type: ClassVar = "file"
    has_labels_apart: ClassVar = True
    """Labels are set when the request is there, instead of with it."""

    def __init__(self, name: Provider, api: Api) -> None:
        self.name = name
        self._api = api

    async def user(self) -> User:
        """Whose token it is."""
        return self.user_form.read(await self._api.get("/user"), self.name)

    async def installations(self) -> list[str]:
        """What repositories can be listed by: installations of an app, workspaces, organisations; empty: nothing."""
        return []

    @abstractmethod
    async def repositories(self, wish: PageWish, *, sort: str, installation: str | None) -> ResultPage[Repository]:
        """The user's repositories, or those of one installation; `sort` is ``pushed`` (latest first) or a field."""

    async def repository(self, repository: str) -> Repository:
        """One repository."""
        return self._repository(await self._api.get(self._path(repository)))

    @abstractmethod
    async def search_repositories(self, query: str, *, limit: int, sort: str, order: str) -> list[Repository]:
        """Repositories in the user's reach whose names have `query` in them."""

    async def branches(self, repository: str, wish: PageWish) -> ResultPage[Branch]:
        """The branches of a repository."""
        return await self._branches(repository, self._paging(wish))

    @abstractmethod
    async def search_branches(self, repository: str, query: str, *, limit: int) -> list[Branch]:
        """Branches whose names have `query` in them."""

    @abstractmethod
    async def suggested_tasks(self) -> list[SuggestedTask]:
        """The user's open requests that need a hand, and, where there are such, the issues that they were given."""

    async def is_request_open(self, repository: str, number: int) -> bool:
        """Whether a pull or merge request waits to be merged."""
        request = await self._api.get(f"{self._path(repository)}{self.requests_path}/{number}")
        return text_at(request, "state", self.name, "") == self.open_state

    async def create_request(self, repository: str, wish: RequestWish) -> CreatedRequest:
        """Ask once for a pull or merge request. UnknownOutcomeError: whether it was made cannot be said."""
        path = self._path(repository)
        request = await self._api.post(
            f"{path}{self.requests_path}",
            self._request_body(wish),
            lambda data: self.request_form.read(data, self.name),
        )
        if wish.labels and self.has_labels_apart:
            try:
                labels = {"labels": list(wish.labels)}
                await self._api.post(f"{path}/issues/{request.number}/labels", labels, lambda data: data)
            except GitProviderError as error:  # the request is there, and has to be told of
                return replace(request, note=f"its labels could not be set: {error}")
        return request

    async def files(self, repository: str, folder: str) -> list[str]:
        """The paths of the files right in a folder; empty when there is no such folder."""
        return await self._files(f"{self._path(repository)}/contents/{segments(folder)}")

    async def file(self, repository: str, path: str) -> str:
        """A text file of the main branch."""
        data = await self._api.get(f"{self._path(repository)}/contents/{segments(path)}")
        try:
            return base64.b64decode(text_at(data, "content", self.name)).decode("utf-8", "replace")
        except (binascii.Error, ValueError) as error:
            raise GitProviderError(f"{self.name} gives the file in an unknown form") from error

    def _path(self, repository: str) -> str:
        return f"/repos/{segments(repository)}"

    @abstractmethod
    def _request_body(self, wish: RequestWish) -> dict[str, Any]:
        """What is posted to make a request."""

    def _paging(self, wish: PageWish) -> dict[str, Any]:
        return {"page": wish.page, self.page_size: wish.size}

    def _repository(self, data: Any, place: str = "") -> Repository:
        return self.repository_form.read(data, self.name, place)

    def _branch(self, data: Any, place: str = "") -> Branch:
        return self.branch_form.read(data, self.name, place)

    def _task(self, data: Any, place: str, task_type: TaskType) -> SuggestedTask:
        return self.task_form.read(data, self.name, place, task_type=task_type)

    def _tasks(self, items: Iterable[Any], task_type: TaskType = "OPEN_ISSUE") -> list[SuggestedTask]:
        return [self._task(item, str(number), task_type) for number, item in enumerate(items)]

    async def _list(self, path: str, params: Mapping[str, Any] | None = None) -> list[Any]:
        return (await self._api.get_list(path, params, self.frame)).items

    async def _page(
        self, path: str, reads: Callable[[Any, str], T], params: Mapping[str, Any], frame: str | None = None
    ) -> ResultPage[T]:
        frame = self.frame if frame is None else frame
        reply = await self._api.get_list(path, params, frame)
        items = [reads(item, f"{frame}.{number}".lstrip(".")) for number, item in enumerate(reply.items)]
        link = next_link(self._api.base + path, params.get("page", 1)) if reply.frame.get("next") else None
        return ResultPage(items, link=link or reply.headers.get("link"), total=reply.total)

    async def _branches(self, repository: str, params: Mapping[str, Any]) -> ResultPage[Branch]:
        return await self._page(f"{self._path(repository)}{self.branches_path}", self._branch, params)

    async def _files(self, path: str, params: Mapping[str, Any] | None = None) -> list[str]:
        try:
            entries = await self._list(path, params)
        except MissingError:
            return []
        return [
            text_at(entry, "path", self.name)
            for entry in entries
            if text_at(entry, "type", self.name, "") == self.file_type
        ]

    def _requests(self, items: list[Any]) -> list[tuple[Any, SuggestedTask]]:
        """Open requests as the provider tells them, each with what it may be a task for."""
        return list(zip(items, self._tasks(items, "UNRESOLVED_COMMENTS"), strict=True))

    async def _needy(self, requests: Iterable[tuple[Any, SuggestedTask]]) -> list[SuggestedTask]:
        """Of open requests those that need a hand."""

        async def needy(request: Any, task: SuggestedTask) -> SuggestedTask | None:
            task_type = await self._trouble(request, task)
            return task.model_copy(update={"task_type": task_type}) if task_type is not None else None

        found = await what_works(needy(*pair) for pair in requests)
        return [task for task in found if task is not None]

    @abstractmethod
    async def _trouble(self, request: Any, task: SuggestedTask) -> TaskType | None:
        """Why an open request needs a hand; None: it needs none."""


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
