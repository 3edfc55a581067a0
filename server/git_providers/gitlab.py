"""GitLab, of gitlab.com and one's own."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import AliasPath, BeforeValidator, Field, SecretStr

from server.git_providers.http import Api, HttpPool, Nodes, NullableText, Shape, segments
from server.git_providers.model import (
    Branch,
    MadeRequest,
    PageWish,
    Repository,
    RequestWish,
    ResultPage,
    SuggestedTask,
    TaskType,
)
from server.git_providers.provider import BranchShape, GitProvider, ListedFile, RepositoryShape, what_works
from server.settings.git_hosts import Provider

_ORDERS = {"pushed": "last_activity_at", "updated": "last_activity_at", "stars": "star_count", "created": "created_at"}
_REQUESTS = """query { currentUser { authoredMergeRequests(state: opened, sort: UPDATED_DESC, first: 50) { nodes {
 iid title project { fullPath } conflicts headPipeline { status } resolvableDiscussionsCount
 resolvedDiscussionsCount } } } }"""


class GitLab(GitProvider):
    """One account at GitLab; see `GitProvider`."""

    def __init__(self, pool: HttpPool, name: Provider, base: str, token: SecretStr) -> None:
        self._graphql = f"{base}/api/graphql"
        headers = {"Authorization": f"Bearer {token.get_secret_value()}"}
        super().__init__(name, Api(pool, name, f"{base}/api/v4", headers=headers, secret=token))

    async def repositories(self, wish: PageWish, *, sort: str, installation: str | None) -> ResultPage[Repository]:
        order = _ORDERS.get(sort, "last_activity_at")
        params = {"membership": "true", "order_by": order, "sort": "desc", "page": wish.page, "per_page": wish.size}
        reply = await self._api.get("/projects", list[_Project], params)
        return ResultPage([self._told(one) for one in reply.data], link=reply.headers.get("link"), total=reply.total)

    async def repository(self, repository: str) -> Repository:
        return self._told((await self._api.get(_project(repository), _Project)).data)

    async def search_repositories(self, query: str, *, limit: int, sort: str, order: str) -> list[Repository]:
        params = {
            "search": query,
            "search_namespaces": "true",
            "membership": "true",
            "order_by": _ORDERS.get(sort),
            "sort": order,
            "per_page": limit,
        }
        return [self._told(one) for one in (await self._api.get("/projects", list[_Project], params)).data]

    async def branches(self, repository: str, wish: PageWish) -> ResultPage[Branch]:
        return await self._branches(repository, {"page": wish.page, "per_page": wish.size})

    async def search_branches(self, repository: str, query: str, *, limit: int) -> list[Branch]:
        return (await self._branches(repository, {"search": query, "per_page": limit})).items

    async def _branches(self, repository: str, params: dict[str, Any]) -> ResultPage[Branch]:
        reply = await self._api.get(f"{_project(repository)}/repository/branches", list[_Branch], params)
        return ResultPage(self._branches_in(reply.data), link=reply.headers.get("link"), total=reply.total)

    async def suggested_tasks(self) -> list[SuggestedTask]:
        lists = await what_works([self._requests(), self._issues()])
        return [task for tasks in lists for task in tasks]

    async def _requests(self) -> list[SuggestedTask]:
        data = await self._api.graphql(self._graphql, _REQUESTS, _TasksData, {})
        nodes = data.currentUser.authoredMergeRequests.nodes if data.currentUser is not None else ()
        return [
            self._task(task_type, one.path, one.iid, one.title)
            for one in nodes
            if (task_type := one.task_type) is not None
        ]

    async def _issues(self) -> list[SuggestedTask]:
        params = {"scope": "assigned_to_me", "state": "opened", "order_by": "updated_at", "per_page": 50}
        return [
            self._task("OPEN_ISSUE", one.reference.rpartition("#")[0], one.iid, one.title)
            for one in (await self._api.get("/issues", list[_Issue], params)).data
        ]

    async def is_request_open(self, repository: str, number: int) -> bool:
        return await self._open_in(f"{_project(repository)}/merge_requests/{number}", "opened")

    async def create_request(self, repository: str, wish: RequestWish) -> MadeRequest:
        body = {
            "source_branch": wish.source_branch,
            "target_branch": wish.target_branch,
            "title": f"Draft: {wish.title}" if wish.draft else wish.title,
            "description": wish.body,
        }
        if wish.labels:
            body["labels"] = ",".join(wish.labels)
        made = await self._api.post(f"{_project(repository)}/merge_requests", body, _Made)
        return MadeRequest(made.iid, made.web_url)

    async def files(self, repository: str, folder: str) -> list[str]:
        params = {"path": folder.strip("/"), "per_page": 100}
        return await self._paths(f"{_project(repository)}/repository/tree", list[ListedFile], "blob", params)

    async def file(self, repository: str, path: str) -> str:
        segments(path)  # there can be none of an odd name
        address = f"{_project(repository)}/repository/files/{quote(path.strip('/'), safe='')}/raw"
        return await self._api.text(address, {"ref": "HEAD"})


def _project(repository: str) -> str:
    segments(repository)
    return f"/projects/{quote(repository.strip('/'), safe='')}"


def _owner_type(kind: Any) -> Any:
    return {"user": "user", "group": "organization"}.get(kind)


class _Project(RepositoryShape):
    full_name: str = Field(validation_alias="path_with_namespace")
    is_public: Annotated[bool, BeforeValidator("public".__eq__)] = Field(default=False, validation_alias="visibility")
    stargazers_count: int | None = Field(default=None, validation_alias="star_count")
    pushed_at: str | None = Field(default=None, validation_alias="last_activity_at")
    owner_type: Annotated[Literal["user", "organization"] | None, BeforeValidator(_owner_type)] = Field(
        default=None, validation_alias=AliasPath("namespace", "kind")
    )
    main_branch: str | None = Field(default=None, validation_alias="default_branch")


class _Branch(BranchShape):
    commit_sha: str = Field(validation_alias=AliasPath("commit", "id"))
    protected: bool = False
    last_push_date: str | None = Field(default=None, validation_alias=AliasPath("commit", "committed_date"))


class _Made(Shape):
    iid: int
    web_url: str = ""


class _Issue(Shape):
    iid: int
    title: str
    reference: str = Field(validation_alias=AliasPath("references", "full"))


class _Request(Shape):
    iid: int
    title: str
    path: str = Field(validation_alias=AliasPath("project", "fullPath"))
    conflicts: bool = False
    pipeline: NullableText = Field(default="", validation_alias=AliasPath("headPipeline", "status"))
    discussions: int = Field(default=0, validation_alias="resolvableDiscussionsCount")
    resolved: int = Field(default=0, validation_alias="resolvedDiscussionsCount")

    @property
    def task_type(self) -> TaskType | None:
        if self.conflicts:
            return "MERGE_CONFLICTS"
        if self.pipeline == "FAILED":
            return "FAILING_CHECKS"
        return "UNRESOLVED_COMMENTS" if self.discussions > self.resolved else None


class _CurrentUser(Shape):
    authoredMergeRequests: Nodes[_Request]  # noqa: N815


class _TasksData(Shape):
    currentUser: _CurrentUser | None = None  # noqa: N815
