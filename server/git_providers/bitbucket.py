"""Bitbucket Cloud. Its lists are those of workspaces; these are what it has for installations."""

from __future__ import annotations

import base64
from operator import not_
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import SecretStr

from server.git_providers.http import Api, At, Form, HttpPool, at, segments, text_at
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
)
from server.git_providers.provider import GitProvider, what_works
from server.settings.git_hosts import Provider

_MAX_WORKSPACES = 20
_MAX_REQUESTS = 20
_ORDERS = {"updated": "-updated_on", "pushed": "-updated_on", "created": "-created_on", "full_name": "full_name"}


class Bitbucket(GitProvider):
    """One account at Bitbucket; see `GitProvider`."""

    user_form: ClassVar = Form(
        User,
        id=At("account_id", "uuid"),
        login=At("username", "nickname", "display_name", "uuid"),
        avatar_url=At("links.avatar.href", default=""),
        name="display_name",
        email=At(),
        company=At(),
    )
    repository_form: ClassVar = Form(
        Repository,
        id="uuid",
        is_public=At("is_private", to=not_, default=False),
        pushed_at="updated_on",
        owner_type=At(default="organization"),
        main_branch="mainbranch.name",
    )
    branch_form: ClassVar = Form(
        Branch, commit_sha="target.hash", last_push_date="target.date", protected=At("protected", default=False)
    )
    task_form: ClassVar = Form(SuggestedTask, repo="destination.repository.full_name", issue_number="id")
    request_form: ClassVar = Form(CreatedRequest, number="id", url=At("links.html.href", default=""))
    branches_path: ClassVar = "/refs/branches"
    requests_path: ClassVar = "/pullrequests"
    open_state: ClassVar = "OPEN"
    page_size: ClassVar = "pagelen"
    frame: ClassVar = "values"
    file_type: ClassVar = "commit_file"
    has_labels_apart: ClassVar = False

    def __init__(self, pool: HttpPool, name: Provider, base: str, token: SecretStr) -> None:
        text = token.get_secret_value()
        plain = base64.b64encode(text.encode()).decode()
        headers = {"Authorization": f"Basic {plain}" if ":" in text else f"Bearer {text}"}
        api = "https://api.bitbucket.org/2.0" if base == "https://bitbucket.org" else f"{base}/2.0"
        super().__init__(name, Api(pool, name, api, headers=headers, secret=token))

    async def installations(self) -> list[str]:
        params = {"pagelen": 100}
        try:
            found = await self._list("/user/workspaces", params)
        except MissingError:  # as it was until 2026
            found = await self._list("/workspaces", params)
        slugs = [text_at(one, "workspace.slug", self.name, text_at(one, "slug", self.name, "")) for one in found]
        return list(filter(None, slugs))

    async def repositories(self, wish: PageWish, *, sort: str, installation: str | None) -> ResultPage[Repository]:
        params = {**self._paging(wish), "sort": _ORDERS.get(sort, "-updated_on")}
        if installation:
            return await self._of_workspace(installation, params)
        pages = await what_works(self._of_workspace(one, params) for one in await self._workspaces())
        link = next((page.link for page in pages if page.has_next), None)
        return ResultPage([one for page in pages for one in page.items], link=link)

    async def _workspaces(self) -> list[str]:
        return (await self.installations())[:_MAX_WORKSPACES]

    async def _of_workspace(self, workspace: str, params: dict[str, Any]) -> ResultPage[Repository]:
        return await self._page(f"/repositories/{segments(workspace)}", self._repository, params)

    async def search_repositories(self, query: str, *, limit: int, sort: str, order: str) -> list[Repository]:
        owner, slash, text = query.rpartition("/")
        workspaces = [owner] if slash else await self._workspaces()
        by = _ORDERS.get(sort, "-updated_on")
        params = {**self._paging(PageWish(1, limit)), "sort": by, "q": f"name ~ {_quoted(text)}"}
        pages = await what_works(self._of_workspace(one, params) for one in workspaces)
        return [one for page in pages for one in page.items][:limit]

    async def branches(self, repository: str, wish: PageWish) -> ResultPage[Branch]:
        return await self._branches(repository, {**self._paging(wish), "sort": "-target.date"})

    async def search_branches(self, repository: str, query: str, *, limit: int) -> list[Branch]:
        params = {**self._paging(PageWish(1, limit)), "sort": "-target.date", "q": f"name ~ {_quoted(query)}"}
        return (await self._branches(repository, params)).items

    async def suggested_tasks(self) -> list[SuggestedTask]:
        user = segments(text_at(await self._api.get("/user"), "uuid", self.name))
        params = {"state": "OPEN", "pagelen": 50}

        async def requests(workspace: str) -> list[tuple[Any, SuggestedTask]]:
            return self._requests(await self._list(f"/workspaces/{segments(workspace)}/pullrequests/{user}", params))

        lists = await what_works(requests(one) for one in await self._workspaces())
        return await self._needy([one for found in lists for one in found][:_MAX_REQUESTS])

    async def _trouble(self, request: Any, task: SuggestedTask) -> TaskType | None:
        path = f"{self._path(task.repo)}{self.requests_path}/{task.issue_number}/statuses"
        statuses = await self._list(path, {"pagelen": 100})
        if any(text_at(one, "state", self.name, "") == "FAILED" for one in statuses):
            return "FAILING_CHECKS"
        return "UNRESOLVED_COMMENTS" if at(request, "task_count") else None

    def _request_body(self, wish: RequestWish) -> dict[str, Any]:
        return {
            "title": wish.title,
            "description": wish.body,
            "source": {"branch": {"name": wish.source_branch}},
            "destination": {"branch": {"name": wish.target_branch}},
            **({"draft": True} if wish.draft else {}),
        }

    async def files(self, repository: str, folder: str) -> list[str]:
        try:
            path = f"{await self._source(repository)}/{segments(folder)}/"
        except MissingError:
            return []
        return await self._files(path, {"pagelen": 100})

    async def file(self, repository: str, path: str) -> str:
        return await self._api.text(f"{await self._source(repository)}/{segments(path)}")

    async def _source(self, repository: str) -> str:
        branch = (await self.repository(repository)).main_branch
        if not branch:
            raise MissingError(f"{self.name}: the repository has no main branch")
        return f"{self._path(repository)}/src/{quote(branch, safe='')}"

    def _path(self, repository: str) -> str:
        return f"/repositories/{segments(repository)}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
