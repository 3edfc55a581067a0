"""Forgejo, of codeberg.org and one's own; Gitea speaks the same."""

from __future__ import annotations

from typing import Any

from pydantic import AliasPath, Field, SecretStr, model_validator

from server.git_providers.github import GitHubForm
from server.git_providers.http import Api, HttpPool, Shape, segments
from server.git_providers.model import (
    Branch,
    PageWish,
    Repository,
    RequestWish,
    ResultPage,
    SuggestedTask,
    TaskType,
)
from server.git_providers.provider import BranchShape, RepositoryShape, TokenOwner, WithState, what_works
from server.settings.git_hosts import Provider

_SEARCHED_PAGES = 5
_PAGE = 50
_MAX_REQUESTS = 20


class Forgejo(GitHubForm):
    """One account at Forgejo; see `GitProvider`."""

    def __init__(self, pool: HttpPool, name: Provider, base: str, token: SecretStr) -> None:
        headers = {"Authorization": f"token {token.get_secret_value()}"}
        super().__init__(name, Api(pool, name, f"{base}/api/v1", headers=headers, secret=token))

    async def repositories(self, wish: PageWish, *, sort: str, installation: str | None) -> ResultPage[Repository]:
        params = {"page": wish.page, "limit": wish.size, "order_by": "recentupdate"}
        reply = await self._api.get("/user/repos", list[_Repository], params)
        return ResultPage([self._told(one) for one in reply.data], link=reply.headers.get("link"), total=reply.total)

    async def repository(self, repository: str) -> Repository:
        return self._told((await self._api.get(f"/repos/{segments(repository)}", _Repository)).data)

    async def search_repositories(self, query: str, *, limit: int, sort: str, order: str) -> list[Repository]:
        by = {"stars": "stars", "updated": "updated", "pushed": "updated", "created": "created"}.get(sort, "alpha")
        user = (await self._api.get("/user", TokenOwner)).data
        owner, _, name = query.rpartition("/")  # it searches in names only
        params = {"q": name, "uid": user.id, "limit": _PAGE if owner else limit, "sort": by, "order": order}
        found = (await self._api.get("/repos/search", _Found, params)).data.data
        of_owner = [one for one in found if not owner or one.full_name.lower().startswith(f"{owner.lower()}/")]
        return [self._told(one) for one in of_owner[:limit]]

    async def branches(self, repository: str, wish: PageWish) -> ResultPage[Branch]:
        params = {"page": wish.page, "limit": wish.size}
        reply = await self._api.get(f"/repos/{segments(repository)}/branches", list[_Branch], params)
        return ResultPage(self._branches_in(reply.data), link=reply.headers.get("link"), total=reply.total)

    async def search_branches(self, repository: str, query: str, *, limit: int) -> list[Branch]:
        found: list[Branch] = []  # it has no search of its own
        for number in range(1, _SEARCHED_PAGES + 1):
            page = await self.branches(repository, PageWish(number, _PAGE))
            found += [one for one in page.items if query.lower() in one.name.lower()]
            if len(found) >= limit or not page.has_next:
                break
        return found[:limit]

    async def suggested_tasks(self) -> list[SuggestedTask]:
        requests, issues = (
            await self._open("pulls", {"created": "true"}),
            await self._open("issues", {"assigned": "true"}),
        )
        kinds = await what_works(self._kind(one) for one in requests[:_MAX_REQUESTS])
        tasks = [task for task in kinds if task is not None]
        return tasks + [self._about("OPEN_ISSUE", one) for one in issues]

    async def _open(self, kind: str, whose: dict[str, Any]) -> list[_Issue]:
        params = {"type": kind, "state": "open", "limit": _PAGE, **whose}
        return (await self._api.get("/repos/issues/search", list[_Issue], params)).data

    async def _kind(self, request: _Issue) -> SuggestedTask | None:
        path = f"/repos/{segments(request.repository)}"
        details = (await self._api.get(f"{path}/pulls/{request.number}", _Request)).data
        if not details.mergeable and not details.draft:  # a draft counts as none that can be merged
            return self._about("MERGE_CONFLICTS", request)
        status = await self._api.get(f"{path}/commits/{segments(details.sha)}/status", WithState)
        if status.data.state in {"failure", "error"}:
            return self._about("FAILING_CHECKS", request)
        reviews = (await self._api.get(f"{path}/pulls/{request.number}/reviews", list[_Review])).data
        if any(one.state in {"REQUEST_CHANGES", "COMMENT"} and not one.dismissed for one in reviews):
            return self._about("UNRESOLVED_COMMENTS", request)
        return None

    def _title(self, wish: RequestWish) -> dict[str, Any]:
        return {"title": f"WIP: {wish.title}" if wish.draft else wish.title}

    def _about(self, task_type: TaskType, one: _Issue) -> SuggestedTask:
        return self._task(task_type, one.repository, one.number, one.title)


class _Repository(RepositoryShape):
    is_public: bool = True
    stargazers_count: int | None = Field(default=None, validation_alias="stars_count")
    pushed_at: str | None = Field(default=None, validation_alias="updated_at")
    main_branch: str | None = Field(default=None, validation_alias="default_branch")

    @model_validator(mode="before")
    @classmethod
    def _is_public(cls, data: Any) -> Any:
        return (
            {**data, "is_public": not (data.get("private") or data.get("internal"))} if isinstance(data, dict) else data
        )


class _Found(Shape):
    data: tuple[_Repository, ...] = ()


class _Branch(BranchShape):
    commit_sha: str = Field(validation_alias=AliasPath("commit", "id"))
    protected: bool = False
    last_push_date: str | None = Field(default=None, validation_alias=AliasPath("commit", "timestamp"))


class _Issue(Shape):
    number: int
    title: str
    repository: str = Field(validation_alias=AliasPath("repository", "full_name"))


class _Request(Shape):
    mergeable: bool = True
    draft: bool = False
    sha: str = Field(validation_alias=AliasPath("head", "sha"))


class _Review(Shape):
    state: str = ""
    dismissed: bool = False
