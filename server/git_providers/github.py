"""GitHub, of github.com and of companies."""

from __future__ import annotations

from operator import not_
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import SecretStr

from server.errors import GitProviderError
from server.git_providers.http import Api, At, Form, HttpPool, at, nodes_at, segments, text_at
from server.git_providers.model import (
    Branch,
    MissingError,
    PageWish,
    Repository,
    RequestWish,
    ResultPage,
    SuggestedTask,
    TaskType,
)
from server.git_providers.provider import GitProvider, what_works
from server.settings.git_hosts import Provider

_MAX_ORGANIZATIONS = 10
_REQUESTS = """query ($login: String!) { user(login: $login) { pullRequests(first: 50, states: [OPEN],
 orderBy: {field: UPDATED_AT, direction: DESC}) { nodes { number title repository { nameWithOwner } mergeable
 commits(last: 1) { nodes { commit { statusCheckRollup { state } } } }
 reviews(last: 20, states: [CHANGES_REQUESTED, COMMENTED]) { nodes { state } } } } } }"""
_ISSUES = """query ($login: String!) { user(login: $login) { issues(first: 50, states: [OPEN],
 filterBy: {assignee: $login}, orderBy: {field: UPDATED_AT, direction: DESC}) { nodes { number title
 repository { nameWithOwner } } } } }"""
_BRANCHES = """query ($owner: String!, $name: String!, $query: String!, $limit: Int!) {
 repository(owner: $owner, name: $name) { refs(refPrefix: "refs/heads/", query: $query, first: $limit,
 orderBy: {field: TAG_COMMIT_DATE, direction: DESC}) { nodes { name target { oid ... on Commit { committedDate } }
 branchProtectionRule { id } } } } }"""
_REF = Form(
    Branch,
    commit_sha="target.oid",
    last_push_date="target.committedDate",
    protected=At("branchProtectionRule", to=lambda rule: True, default=False),
)


class GitHub(GitProvider):
    """One account at GitHub; see `GitProvider`."""

    repository_form: ClassVar = Form(
        Repository,
        is_public=At("private", to=not_, default=True),
        owner_type=At("owner.type", to={"User": "user", "Organization": "organization"}.get),
        main_branch="default_branch",
    )
    branch_form: ClassVar = Form(Branch, commit_sha="commit.sha", protected=At("protected", default=False))
    task_form: ClassVar = Form(SuggestedTask, repo="repository.nameWithOwner", issue_number="number")

    def __init__(self, pool: HttpPool, name: Provider, base: str, token: SecretStr) -> None:
        host = urlsplit(base).netloc
        if base == "https://github.com" or host.endswith(".ghe.com"):
            api, self._graphql = f"https://api.{host}", f"https://api.{host}/graphql"
        else:
            api, self._graphql = f"{base}/api/v3", f"{base}/api/graphql"
        headers = {"Authorization": f"Bearer {token.get_secret_value()}", "Accept": "application/vnd.github+json"}
        super().__init__(name, Api(pool, name, api, headers=headers, secret=token))

    async def installations(self) -> list[str]:
        try:
            reply = await self._api.get_list("/user/installations", {"per_page": 100}, "installations")
        except MissingError:
            return []
        except GitProviderError as error:
            if error.status == 403:  # only tokens that an app was given have any
                return []
            raise
        return [str(at(one, "id")) for one in reply.items if at(one, "id") is not None]

    async def repositories(self, wish: PageWish, *, sort: str, installation: str | None) -> ResultPage[Repository]:
        if installation:
            path = f"/user/installations/{segments(installation)}/repositories"
            return await self._page(path, self._repository, self._paging(wish), "repositories")
        by = sort if sort in {"created", "updated", "pushed", "full_name"} else "pushed"
        return await self._page("/user/repos", self._repository, {**self._paging(wish), "sort": by})

    async def search_repositories(self, query: str, *, limit: int, sort: str, order: str) -> list[Repository]:
        owner, slash, text = query.rpartition("/")
        if slash:
            places = [owner.strip("/")]
        else:
            organizations = {"per_page": _MAX_ORGANIZATIONS}
            users = [await self._api.get("/user"), *(await self._api.get_list("/user/orgs", organizations)).items]
            places = [text_at(user, "login", self.name, "") for user in users]
        words = " ".join(word for word in text.split() if ":" not in word)  # no qualifiers from outside
        within = " ".join(f"user:{place}" for place in places if not place.count(" "))
        by = sort if sort in {"stars", "forks", "updated"} else None
        terms = f"{words} in:name fork:true {within}".strip()
        params = {"q": terms, "per_page": limit, "sort": by, "order": order if by else None}
        try:
            return (await self._page("/search/repositories", self._repository, params, "items")).items
        except GitProviderError as error:
            if error.status == 422:  # there is no such owner, or none that this token may see
                return []
            raise

    async def search_branches(self, repository: str, query: str, *, limit: int) -> list[Branch]:
        owner, _, name = repository.partition("/")
        variables = {"owner": owner, "name": name, "query": query, "limit": limit}
        refs = at(await self._api.graphql(self._graphql, _BRANCHES, variables), "repository.refs")
        if refs is None:
            raise MissingError(f"{self.name}: not found")
        found = nodes_at(refs, "nodes", self.name)
        return [_REF.read(ref, self.name) for ref in found if text_at(ref, "target.oid", self.name, "")]

    async def suggested_tasks(self) -> list[SuggestedTask]:
        variables = {"login": (await self.user()).login}
        lists = await what_works([self._open_requests(variables), self._open_issues(variables)])
        return [task for tasks in lists for task in tasks]

    async def _open_requests(self, variables: dict[str, Any]) -> list[SuggestedTask]:
        data = await self._api.graphql(self._graphql, _REQUESTS, variables)
        return await self._needy(self._requests(nodes_at(data, "user.pullRequests.nodes", self.name)))

    async def _open_issues(self, variables: dict[str, Any]) -> list[SuggestedTask]:
        data = await self._api.graphql(self._graphql, _ISSUES, variables)
        return self._tasks(nodes_at(data, "user.issues.nodes", self.name))

    async def _trouble(self, request: Any, task: SuggestedTask) -> TaskType | None:
        if text_at(request, "mergeable", self.name, "") == "CONFLICTING":
            return "MERGE_CONFLICTS"
        checks = "commits.nodes.0.commit.statusCheckRollup.state"
        if text_at(request, checks, self.name, "") in {"FAILURE", "ERROR"}:
            return "FAILING_CHECKS"
        return "UNRESOLVED_COMMENTS" if nodes_at(request, "reviews.nodes", self.name) else None

    def _request_body(self, wish: RequestWish) -> dict[str, Any]:
        return {
            "head": wish.source_branch,
            "base": wish.target_branch,
            "body": wish.body,
            "title": wish.title,
            "draft": wish.draft,
        }
