"""Azure DevOps: repositories are named ``organisation/project/repository``."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import SecretStr

from server.git_providers.http import Api, At, Form, HttpPool, at, list_at, number_at, segments, text_at
from server.git_providers.kinds import host_lacks, organization
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
    sliced,
)
from server.git_providers.provider import GitProvider, what_works
from server.settings.git_hosts import Provider

_HEADS = "refs/heads/"
_MAX_REFS = 1000
_MAX_REF_PAGES = 10
_MAX_PROJECTS = 20
_MAX_REQUESTS = 20
_REFUSALS = (-5, -10)
"""Votes of reviewers: waiting for the author, rejected."""

_USER = "authenticatedUser"
_ACCOUNT = f"{_USER}.properties.Account.$value"
_NAMES = (f"{_USER}.customDisplayName", f"{_USER}.providerDisplayName")


def _branch_name(ref: Any) -> str:
    return str(ref).removeprefix(_HEADS)


class AzureDevOps(GitProvider):
    """One account in one organisation of Azure DevOps, whose whole lists are cut into pages here; see `GitProvider`."""

    user_form: ClassVar = Form(
        User,
        id=f"{_USER}.id",
        login=At(_ACCOUNT, *_NAMES, f"{_USER}.id"),
        avatar_url=At(default=""),
        company=At(),
        name=At(*_NAMES),
        email=At(_ACCOUNT, to=lambda account: account if "@" in str(account) else None),
    )
    repository_form: ClassVar = Form(
        Repository,
        is_public=At("project.visibility", to=lambda text: text == "public", default=False),
        stargazers_count=At(),
        pushed_at=At(),
        owner_type=At(default="organization"),
        main_branch=At("defaultBranch", to=_branch_name),
    )
    branch_form: ClassVar = Form(
        Branch,
        name=At("name", to=_branch_name),
        commit_sha="objectId",
        protected=At("isLocked", default=False),
        last_push_date=At(),
    )
    task_form: ClassVar = Form(SuggestedTask, issue_number="pullRequestId")
    request_form: ClassVar = Form(CreatedRequest, number="pullRequestId", url=At(default=""))
    requests_path: ClassVar = "/pullrequests"
    frame: ClassVar = "value"
    has_labels_apart: ClassVar = False

    def __init__(self, pool: HttpPool, name: Provider, base: str, token: SecretStr) -> None:
        self._organization = organization(base)
        plain = base64.b64encode(f":{token.get_secret_value()}".encode()).decode()
        headers = {"Authorization": f"Basic {plain}", "Accept": "application/json"}
        params, lacking = {"api-version": "7.0"}, host_lacks(name, base)
        super().__init__(
            name, Api(pool, name, base, headers=headers, secret=token, params=params, lacking=lacking, signs_in=True)
        )

    async def user(self) -> User:
        return self.user_form.read(await self._api.get("/_apis/connectionData", {"api-version": None}), self.name)

    async def installations(self) -> list[str]:
        return [self._organization] if self._organization else []

    async def repositories(self, wish: PageWish, *, sort: str, installation: str | None) -> ResultPage[Repository]:
        return sliced(await self._all(), wish, self._api.base)

    async def _all(self) -> list[Repository]:
        found = [one for one in await self._list("/_apis/git/repositories") if not at(one, "isDisabled")]
        return sorted(map(self._repository, found), key=lambda one: one.full_name.split("/"))

    async def search_repositories(self, query: str, *, limit: int, sort: str, order: str) -> list[Repository]:
        return [one for one in await self._all() if query.lower() in one.full_name.lower()][:limit]

    async def branches(self, repository: str, wish: PageWish) -> ResultPage[Branch]:
        return sliced(await self._heads(repository, {"filter": "heads/"}), wish, self._api.base)

    async def search_branches(self, repository: str, query: str, *, limit: int) -> list[Branch]:
        return (await self._heads(repository, {"filterContains": query}))[:limit]

    async def _heads(self, repository: str, params: dict[str, Any]) -> list[Branch]:
        found: list[Branch] = []
        token: str | None = None
        for _ in range(_MAX_REF_PAGES):
            more = {**params, "$top": _MAX_REFS, "continuationToken": token}
            reply = await self._api.get_list(f"{self._path(repository)}/refs", more, self.frame)
            heads = [ref for ref in reply.items if text_at(ref, "name", self.name).startswith(_HEADS)]
            found += map(self._branch, heads)
            token = reply.headers.get("x-ms-continuationtoken")
            if not token:
                break
        return found

    async def suggested_tasks(self) -> list[SuggestedTask]:
        user = await self.user()
        projects = sorted({one.full_name.split("/")[-2] for one in await self._all()})[:_MAX_PROJECTS]
        params = {"searchCriteria.creatorId": user.id, "searchCriteria.status": "active", "$top": 50}

        async def requests(project: str) -> list[tuple[Any, SuggestedTask]]:
            return self._requests(await self._list(f"/{segments(project)}/_apis/git/pullrequests", params))

        lists = await what_works(requests(one) for one in projects)
        return await self._needy([one for found in lists for one in found][:_MAX_REQUESTS])

    async def _trouble(self, request: Any, task: SuggestedTask) -> TaskType | None:
        if text_at(request, "mergeStatus", self.name, "") == "conflicts":
            return "MERGE_CONFLICTS"
        statuses = await self._list(f"{self._path(task.repo)}/pullRequests/{task.issue_number}/statuses")
        statuses.sort(key=lambda one: number_at(one, "id"))
        newest = {str(at(one, "context")): text_at(one, "state", self.name, "") for one in statuses}
        if {"failed", "error"} & set(newest.values()):
            return "FAILING_CHECKS"
        votes = [at(one, "vote") for one in list_at(request, "reviewers", self.name)]
        return "UNRESOLVED_COMMENTS" if any(vote in _REFUSALS for vote in votes) else None

    async def is_request_open(self, repository: str, number: int) -> bool:
        request = await self._api.get(f"{self._path(repository)}/pullRequests/{number}")
        return text_at(request, "status", self.name, "") == "active"

    async def create_request(self, repository: str, wish: RequestWish) -> CreatedRequest:
        self._api.check_host()
        request = await super().create_request(repository, wish)
        page = self._path(repository).replace("/_apis/git/repositories/", "/_git/")
        return replace(request, url=f"{self._api.base}{page}/pullrequest/{request.number}")

    def _request_body(self, wish: RequestWish) -> dict[str, Any]:
        return {
            "sourceRefName": f"{_HEADS}{wish.source_branch.removeprefix(_HEADS)}",
            "targetRefName": f"{_HEADS}{wish.target_branch.removeprefix(_HEADS)}",
            "title": wish.title,
            "description": wish.body,
            "isDraft": wish.draft,
            **({"labels": [{"name": label} for label in wish.labels]} if wish.labels else {}),
        }

    async def files(self, repository: str, folder: str) -> list[str]:
        try:
            params = {"scopePath": f"/{folder.strip('/')}", "recursionLevel": "OneLevel"}
            entries = await self._list(f"{self._path(repository)}/items", params)
        except MissingError:
            return []
        return [text_at(entry, "path", self.name).lstrip("/") for entry in entries if not at(entry, "isFolder")]

    async def file(self, repository: str, path: str) -> str:
        segments(path)  # there can be none of an odd name
        params = {"path": f"/{path.strip('/')}", "includeContent": "true", "$format": "json"}
        data = await self._api.get(f"{self._path(repository)}/items", params)
        return text_at(data, "content", self.name, "")

    def _path(self, repository: str) -> str:
        parts = segments(repository).split("/")
        if len(parts) > 2 and parts[-3].lower() != segments(self._organization).lower():
            raise MissingError(f"{self.name}: {repository[:200]!r} is not in the organisation {self._organization}")
        return f"/{parts[-2] if len(parts) > 1 else parts[-1]}/_apis/git/repositories/{parts[-1]}"

    def _full_name(self, data: Any) -> str:
        project = text_at(data, "project.name", self.name)
        return f"{self._organization}/{project}/{text_at(data, 'name', self.name)}"

    def _repository(self, data: Any, place: str = "") -> Repository:
        return self.repository_form.read(data, self.name, place, full_name=self._full_name(data))

    def _task(self, data: Any, place: str, task_type: TaskType) -> SuggestedTask:
        repo = self._full_name(at(data, "repository"))
        return self.task_form.read(data, self.name, place, task_type=task_type, repo=repo)
