"""Forgejo, of codeberg.org and one's own; Gitea speaks the same."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import SecretStr

from server.git_providers.http import Api, At, Form, HttpPool, at, segments, text_at
from server.git_providers.model import (
    Branch,
    PageWish,
    Repository,
    RequestWish,
    ResultPage,
    SuggestedTask,
    TaskType,
)
from server.git_providers.provider import GitProvider
from server.settings.git_hosts import Provider

_SEARCHED_PAGES = 5
_PAGE = 50
_MAX_REQUESTS = 20


class Forgejo(GitProvider):
    """One account at Forgejo; see `GitProvider`."""

    repository_form: ClassVar = Form(
        Repository,
        is_public=At("", to=lambda one: not (one.get("private") or one.get("internal"))),
        stargazers_count="stars_count",
        pushed_at="updated_at",
        main_branch="default_branch",
    )
    branch_form: ClassVar = Form(
        Branch, commit_sha="commit.id", last_push_date="commit.timestamp", protected=At("protected", default=False)
    )
    task_form: ClassVar = Form(SuggestedTask, repo="repository.full_name", issue_number="number")
    page_size: ClassVar = "limit"

    def __init__(self, pool: HttpPool, name: Provider, base: str, token: SecretStr) -> None:
        headers = {"Authorization": f"token {token.get_secret_value()}"}
        super().__init__(name, Api(pool, name, f"{base}/api/v1", headers=headers, secret=token))

    async def repositories(self, wish: PageWish, *, sort: str, installation: str | None) -> ResultPage[Repository]:
        params = {**self._paging(wish), "order_by": "recentupdate"}
        return await self._page("/user/repos", self._repository, params)

    async def search_repositories(self, query: str, *, limit: int, sort: str, order: str) -> list[Repository]:
        by = {"stars": "stars", "updated": "updated", "pushed": "updated", "created": "created"}.get(sort, "alpha")
        user = await self.user()
        owner, _, name = query.rpartition("/")  # it searches in names only
        params = {"q": name, "uid": user.id, "limit": _PAGE if owner else limit, "sort": by, "order": order}
        found = (await self._page("/repos/search", self._repository, params, "data")).items
        return [one for one in found if not owner or one.full_name.lower().startswith(f"{owner.lower()}/")][:limit]

    async def search_branches(self, repository: str, query: str, *, limit: int) -> list[Branch]:
        found: list[Branch] = []  # it has no search of its own
        for number in range(1, _SEARCHED_PAGES + 1):
            page = await self.branches(repository, PageWish(number, _PAGE))
            found += [one for one in page.items if query.lower() in one.name.lower()]
            if len(found) >= limit or not page.has_next:
                break
        return found[:limit]

    async def suggested_tasks(self) -> list[SuggestedTask]:
        requests = await self._open("pulls", {"created": "true"})
        issues = await self._open("issues", {"assigned": "true"})
        return [*await self._needy(self._requests(requests[:_MAX_REQUESTS])), *self._tasks(issues)]

    async def _open(self, kind: str, whose: dict[str, Any]) -> list[Any]:
        return await self._list("/repos/issues/search", {"type": kind, "state": "open", "limit": _PAGE, **whose})

    async def _trouble(self, request: Any, task: SuggestedTask) -> TaskType | None:
        path = self._path(task.repo)
        details = await self._api.get(f"{path}/pulls/{task.issue_number}")
        sha = text_at(details, "head.sha", self.name)
        if at(details, "mergeable") is False and not at(details, "draft"):  # a draft counts as none that can be merged
            return "MERGE_CONFLICTS"
        status = await self._api.get(f"{path}/commits/{segments(sha)}/status")
        if text_at(status, "state", self.name, "") in {"failure", "error"}:
            return "FAILING_CHECKS"
        reviews = await self._list(f"{path}/pulls/{task.issue_number}/reviews")
        states = {text_at(one, "state", self.name, "") for one in reviews if not at(one, "dismissed")}
        return "UNRESOLVED_COMMENTS" if states & {"REQUEST_CHANGES", "COMMENT"} else None

    def _request_body(self, wish: RequestWish) -> dict[str, Any]:
        return {
            "head": wish.source_branch,
            "base": wish.target_branch,
            "body": wish.body,
            "title": f"WIP: {wish.title}" if wish.draft else wish.title,
        }
