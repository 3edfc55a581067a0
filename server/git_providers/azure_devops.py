"""Azure DevOps: repositories are named ``organisation/project/repository``."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from pydantic import AliasPath, Field, SecretStr

from server.git_providers.http import Api, HttpPool, NullableText, ProviderReply, Shape, Values, segments
from server.git_providers.kinds import host_lacks, organization
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
    sliced,
)
from server.git_providers.provider import GitProvider, what_works
from server.settings.git_hosts import Provider

_T = TypeVar("_T")

_VERSION = {"api-version": "7.0"}
_HEADS = "refs/heads/"
_MAX_REFS = 1000
_MAX_REF_PAGES = 10
_MAX_PROJECTS = 20
_MAX_REQUESTS = 20
_REFUSALS = frozenset({-5, -10})
"""Votes of reviewers: waiting for the author, rejected."""


class AzureDevOps(GitProvider):
    """One account in one organisation of Azure DevOps, whose whole lists are cut into pages here; see `GitProvider`."""

    def __init__(self, pool: HttpPool, name: Provider, base: str, token: SecretStr) -> None:
        self._organization = organization(base)
        self._lacking = host_lacks(name, base)
        plain = base64.b64encode(f":{token.get_secret_value()}".encode()).decode()
        headers = {"Authorization": f"Basic {plain}", "Accept": "application/json"}
        super().__init__(name, Api(pool, name, base, headers=headers, secret=token, signs_in=True))

    async def user(self) -> User:
        user = (await self._get("/_apis/connectionData", _Connection, version=False)).authenticatedUser
        login = user.account
        name = user.customDisplayName or user.providerDisplayName
        return User(
            id=user.id, login=login or name or user.id, avatar_url="", name=name, email=login if "@" in login else None
        )

    async def installations(self) -> list[str]:
        return [self._organization] if self._organization else []

    async def repositories(self, wish: PageWish, *, sort: str, installation: str | None) -> ResultPage[Repository]:
        return sliced([self._found(one) for one in await self._all()], wish, self._api.base)

    async def _all(self) -> list[_Repository]:
        found = (await self._get("/_apis/git/repositories", Values[_Repository])).value
        return sorted((one for one in found if not one.isDisabled), key=lambda one: (one.project.name, one.name))

    async def repository(self, repository: str) -> Repository:
        return self._found(await self._get(self._path(repository), _Repository))

    async def search_repositories(self, query: str, *, limit: int, sort: str, order: str) -> list[Repository]:
        found = [self._found(one) for one in await self._all()]
        return [one for one in found if query.lower() in one.full_name.lower()][:limit]

    async def branches(self, repository: str, wish: PageWish) -> ResultPage[Branch]:
        return sliced(await self._branches(repository, {"filter": "heads/"}), wish, self._api.base)

    async def search_branches(self, repository: str, query: str, *, limit: int) -> list[Branch]:
        return (await self._branches(repository, {"filterContains": query}))[:limit]

    async def _branches(self, repository: str, params: dict[str, Any]) -> list[Branch]:
        refs = [ref async for ref in self._refs(repository, params)]
        return [
            Branch(name=one.name.removeprefix(_HEADS), commit_sha=one.objectId, protected=one.isLocked)
            for one in refs
            if one.name.startswith(_HEADS)
        ]

    async def _refs(self, repository: str, params: dict[str, Any]) -> AsyncIterator[_Ref]:
        token: str | None = None
        for _ in range(_MAX_REF_PAGES):
            reply = await self._reply(
                f"{self._path(repository)}/refs",
                Values[_Ref],
                {**_VERSION, **params, "$top": _MAX_REFS, "continuationToken": token},
            )
            for ref in reply.data.value:
                yield ref
            token = reply.headers.get("x-ms-continuationtoken")
            if not token:
                return

    async def suggested_tasks(self) -> list[SuggestedTask]:
        user = (await self._get("/_apis/connectionData", _Connection, version=False)).authenticatedUser
        projects = sorted({one.project.name for one in await self._all()})[:_MAX_PROJECTS]
        lists = await what_works(self._requests(one, user.id) for one in projects)
        requests = [one for found in lists for one in found][:_MAX_REQUESTS]
        tasks = await what_works(self._needed(one) for one in requests)
        return [task for task in tasks if task is not None]

    async def _requests(self, project: str, user: str) -> tuple[_Request, ...]:
        params = {"searchCriteria.creatorId": user, "searchCriteria.status": "active", "$top": 50}
        return (await self._get(f"/{segments(project)}/_apis/git/pullrequests", Values[_Request], params)).value

    async def _needed(self, request: _Request) -> SuggestedTask | None:
        task_type = await self._task_type(request)
        name = self._full_name(request.repository)
        return self._task(task_type, name, request.pullRequestId, request.title) if task_type else None

    async def _task_type(self, request: _Request) -> TaskType | None:
        if request.mergeStatus == "conflicts":
            return "MERGE_CONFLICTS"
        path = self._path(self._full_name(request.repository))
        statuses = await self._get(f"{path}/pullRequests/{request.pullRequestId}/statuses", Values[_Status])
        newest = {one.context: one.state for one in sorted(statuses.value, key=lambda one: one.id)}
        if {"failed", "error"} & set(newest.values()):
            return "FAILING_CHECKS"
        return "UNRESOLVED_COMMENTS" if any(one.vote in _REFUSALS for one in request.reviewers) else None

    async def is_request_open(self, repository: str, number: int) -> bool:
        found = await self._get(f"{self._path(repository)}/pullRequests/{number}", _RequestStatus)
        return found.status == "active"

    async def create_request(self, repository: str, wish: RequestWish) -> MadeRequest:
        body: dict[str, Any] = {
            "sourceRefName": f"{_HEADS}{wish.source_branch.removeprefix(_HEADS)}",
            "targetRefName": f"{_HEADS}{wish.target_branch.removeprefix(_HEADS)}",
            "title": wish.title,
            "description": wish.body,
            "isDraft": wish.draft,
        }
        if wish.labels:
            body["labels"] = [{"name": label} for label in wish.labels]
        self._check_host()
        path = self._path(repository)
        made = await self._api.post(f"{path}/pullrequests", body, _Made, _VERSION)
        page = path.replace("/_apis/git/repositories/", "/_git/")
        return MadeRequest(made.pullRequestId, f"{self._api.base}{page}/pullrequest/{made.pullRequestId}")

    async def files(self, repository: str, folder: str) -> list[str]:
        try:
            params = {"scopePath": f"/{folder.strip('/')}", "recursionLevel": "OneLevel"}
            entries = (await self._get(f"{self._path(repository)}/items", Values[_Entry], params)).value
        except MissingError:
            return []
        return [entry.path.lstrip("/") for entry in entries if not entry.isFolder]

    async def file(self, repository: str, path: str) -> str:
        segments(path)  # there can be none of an odd name
        params = {"path": f"/{path.strip('/')}", "includeContent": "true", "$format": "json"}
        return (await self._get(f"{self._path(repository)}/items", _File, params)).content

    async def _get(
        self, path: str, kind: type[_T], params: dict[str, Any] | None = None, *, version: bool = True
    ) -> _T:
        return (await self._reply(path, kind, {**(_VERSION if version else {}), **(params or {})})).data

    async def _reply(self, path: str, kind: type[_T], params: dict[str, Any]) -> ProviderReply[_T]:
        self._check_host()
        return await self._api.get(path, kind, params)

    def _check_host(self) -> None:
        if self._lacking:
            raise GitProviderError(f"{self.name}: the host {self._lacking}")

    def _path(self, repository: str) -> str:
        parts = segments(repository).split("/")
        if len(parts) > 2 and parts[-3].lower() != segments(self._organization).lower():
            raise MissingError(f"{self.name}: {repository[:200]!r} is not in the organisation {self._organization}")
        return f"/{parts[-2] if len(parts) > 1 else parts[-1]}/_apis/git/repositories/{parts[-1]}"

    def _full_name(self, one: _Repository) -> str:
        return f"{self._organization}/{one.project.name}/{one.name}"

    def _found(self, one: _Repository) -> Repository:
        return Repository(
            id=one.id,
            full_name=self._full_name(one),
            git_provider=self.name,
            is_public=one.project.visibility == "public",
            owner_type="organization",
            main_branch=one.defaultBranch.removeprefix(_HEADS) if one.defaultBranch else None,
        )


class _Identity(Shape):
    id: str
    providerDisplayName: str | None = None  # noqa: N815 - the names here are the provider's
    customDisplayName: str | None = None  # noqa: N815
    account: NullableText = Field(default="", validation_alias=AliasPath("properties", "Account", "$value"))


class _Connection(Shape):
    authenticatedUser: _Identity  # noqa: N815


class _Project(Shape):
    name: str
    visibility: str = ""


class _Repository(Shape):
    id: str
    name: str
    project: _Project
    defaultBranch: str | None = None  # noqa: N815
    isDisabled: bool = False  # noqa: N815


class _Ref(Shape):
    name: str
    objectId: str  # noqa: N815
    isLocked: bool = False  # noqa: N815


class _Reviewer(Shape):
    vote: int = 0


class _Request(Shape):
    pullRequestId: int  # noqa: N815
    title: str
    repository: _Repository
    mergeStatus: str = ""  # noqa: N815
    reviewers: tuple[_Reviewer, ...] = ()


class _Made(Shape):
    pullRequestId: int  # noqa: N815


class _RequestStatus(Shape):
    status: str = ""


class _Context(Shape):
    genre: str | None = None
    name: str = ""


class _Status(Shape):
    id: int = 0
    state: str = ""
    context: _Context | None = None


class _Entry(Shape):
    path: str
    isFolder: bool = False  # noqa: N815


class _File(Shape):
    content: str = ""
