"""GitLab, of gitlab.com and one's own."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import SecretStr

from server.git_providers.http import Api, At, Form, HttpPool, at, nodes_at, number_at, segments, text_at
from server.git_providers.model import (
    Branch,
    CreatedRequest,
    PageWish,
    Repository,
    RequestWish,
    ResultPage,
    SuggestedTask,
    TaskType,
)
from server.git_providers.provider import GitProvider, what_works
from server.settings.git_hosts import Provider

_ORDERS = {"pushed": "last_activity_at", "updated": "last_activity_at", "stars": "star_count", "created": "created_at"}
_REQUESTS = """query { currentUser { authoredMergeRequests(state: opened, sort: UPDATED_DESC, first: 50) { nodes {
 iid title project { fullPath } conflicts headPipeline { status } resolvableDiscussionsCount
 resolvedDiscussionsCount } } } }"""


class GitLab(GitProvider):
    """One account at GitLab; see `GitProvider`."""

    repository_form: ClassVar = Form(
        Repository,
        full_name="path_with_namespace",
        is_public=At("visibility", to=lambda text: text == "public", default=False),
        stargazers_count="star_count",
        pushed_at="last_activity_at",
        owner_type=At("namespace.kind", to={"user": "user", "group": "organization"}.get),
        main_branch="default_branch",
    )
    branch_form: ClassVar = Form(
        Branch,
        commit_sha="commit.id",
        last_push_date="commit.committed_date",
        protected=At("protected", default=False),
    )
    task_form: ClassVar = Form(
        SuggestedTask,
        repo=At("project.fullPath", "references.full", to=lambda path: str(path).partition("#")[0]),
        issue_number="iid",
    )
    request_form: ClassVar = Form(CreatedRequest, number="iid", url=At("web_url", default=""))
    branches_path: ClassVar = "/repository/branches"
    requests_path: ClassVar = "/merge_requests"
    open_state: ClassVar = "opened"
    file_type: ClassVar = "blob"
    has_labels_apart: ClassVar = False

    def __init__(self, pool: HttpPool, name: Provider, base: str, token: SecretStr) -> None:
        self._graphql = f"{base}/api/graphql"
        headers = {"Authorization": f"Bearer {token.get_secret_value()}"}
        super().__init__(name, Api(pool, name, f"{base}/api/v4", headers=headers, secret=token))

    async def repositories(self, wish: PageWish, *, sort: str, installation: str | None) -> ResultPage[Repository]:
        order = _ORDERS.get(sort, "last_activity_at")
        params = {"membership": "true", "order_by": order, "sort": "desc", **self._paging(wish)}
        return await self._page("/projects", self._repository, params)

    async def search_repositories(self, query: str, *, limit: int, sort: str, order: str) -> list[Repository]:
        params = {
            "search": query,
            "search_namespaces": "true",
            "membership": "true",
            "order_by": _ORDERS.get(sort),
            "sort": order,
            "per_page": limit,
        }
        return (await self._page("/projects", self._repository, params)).items

    async def search_branches(self, repository: str, query: str, *, limit: int) -> list[Branch]:
        return (await self._branches(repository, {"search": query, "per_page": limit})).items

    async def suggested_tasks(self) -> list[SuggestedTask]:
        lists = await what_works([self._open_requests(), self._open_issues()])
        return [task for tasks in lists for task in tasks]

    async def _open_requests(self) -> list[SuggestedTask]:
        data = await self._api.graphql(self._graphql, _REQUESTS, {})
        return await self._needy(self._requests(nodes_at(data, "currentUser.authoredMergeRequests.nodes", self.name)))

    async def _open_issues(self) -> list[SuggestedTask]:
        params = {"scope": "assigned_to_me", "state": "opened", "order_by": "updated_at", "per_page": 50}
        return self._tasks(await self._list("/issues", params))

    async def _trouble(self, request: Any, task: SuggestedTask) -> TaskType | None:
        if at(request, "conflicts"):
            return "MERGE_CONFLICTS"
        if text_at(request, "headPipeline.status", self.name, "") == "FAILED":
            return "FAILING_CHECKS"
        discussions = number_at(request, "resolvableDiscussionsCount")
        return "UNRESOLVED_COMMENTS" if discussions > number_at(request, "resolvedDiscussionsCount") else None

    def _request_body(self, wish: RequestWish) -> dict[str, Any]:
        return {
            "source_branch": wish.source_branch,
            "target_branch": wish.target_branch,
            "title": f"Draft: {wish.title}" if wish.draft else wish.title,
            "description": wish.body,
            **({"labels": ",".join(wish.labels)} if wish.labels else {}),
        }

    async def files(self, repository: str, folder: str) -> list[str]:
        params = {"path": folder.strip("/"), "per_page": 100}
        return await self._files(f"{self._path(repository)}/repository/tree", params)

    async def file(self, repository: str, path: str) -> str:
        segments(path)  # there can be none of an odd name
        address = f"{self._path(repository)}/repository/files/{quote(path.strip('/'), safe='')}/raw"
        return await self._api.text(address, {"ref": "HEAD"})

    def _path(self, repository: str) -> str:
        segments(repository)
        return f"/projects/{quote(repository.strip('/'), safe='')}"
