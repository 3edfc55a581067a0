"""GitHub, of github.com and of companies."""

from __future__ import annotations

from operator import not_
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasPath, BeforeValidator, Field, SecretStr

from server.git_providers.http import Api, EncodedFile, HttpPool, Nodes, Shape, segments
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
)
from server.git_providers.provider import (
    BranchShape,
    GitProvider,
    ListedFile,
    RepositoryShape,
    TokenOwner,
    WithState,
    what_works,
)
from server.settings.git_hosts import Provider


class _Made(Shape):
    number: int
    html_url: str = ""


class GitHubForm(GitProvider):
    """An account at a provider with requests and files in GitHub's form; see `GitProvider`."""

    async def is_request_open(self, repository: str, number: int) -> bool:
        return await self._open_in(f"/repos/{segments(repository)}/pulls/{number}", "open")

    async def create_request(self, repository: str, wish: RequestWish) -> MadeRequest:
        path = f"/repos/{segments(repository)}"
        body = {"head": wish.source_branch, "base": wish.target_branch, "body": wish.body, **self._title(wish)}
        made = await self._api.post(f"{path}/pulls", body, _Made)
        note = ""
        if wish.labels:
            try:
                await self._api.post(f"{path}/issues/{made.number}/labels", {"labels": list(wish.labels)}, list[Any])
            except GitProviderError as error:  # the request is there, and has to be told of
                note = f"its labels could not be set: {error}"
        return MadeRequest(made.number, made.html_url, note)

    def _title(self, wish: RequestWish) -> dict[str, Any]:
        return {"title": wish.title, "draft": wish.draft}

    async def files(self, repository: str, folder: str) -> list[str]:
        return await self._paths(f"/repos/{segments(repository)}/contents/{segments(folder)}", list[ListedFile], "file")

    async def file(self, repository: str, path: str) -> str:
        reply = await self._api.get(f"/repos/{segments(repository)}/contents/{segments(path)}", EncodedFile)
        return reply.data.text(self.name)


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


class GitHub(GitHubForm):
    """One account at GitHub; see `GitProvider`."""

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
            reply = await self._api.get("/user/installations", _Installations, {"per_page": 100})
        except MissingError:
            return []
        except GitProviderError as error:
            if error.status == 403:  # only tokens that an app was given have any
                return []
            raise
        return [str(one.id) for one in reply.data.installations]

    async def repositories(self, wish: PageWish, *, sort: str, installation: str | None) -> ResultPage[Repository]:
        params = {"page": wish.page, "per_page": wish.size}
        if installation:
            path = f"/user/installations/{segments(installation)}/repositories"
            found = await self._api.get(path, _Found, params)
            items, headers = list(found.data.repositories), found.headers
        else:
            by = sort if sort in {"created", "updated", "pushed", "full_name"} else "pushed"
            listed = await self._api.get("/user/repos", list[_Repository], {**params, "sort": by})
            items, headers = listed.data, listed.headers
        return ResultPage([self._told(one) for one in items], link=headers.get("link"))

    async def repository(self, repository: str) -> Repository:
        return self._told((await self._api.get(f"/repos/{segments(repository)}", _Repository)).data)

    async def search_repositories(self, query: str, *, limit: int, sort: str, order: str) -> list[Repository]:
        owner, slash, text = query.rpartition("/")
        if slash:
            places = [owner.strip("/")]
        else:
            user = (await self._api.get("/user", _Owner)).data
            params: dict[str, Any] = {"per_page": _MAX_ORGANIZATIONS}
            organizations = (await self._api.get("/user/orgs", list[_Owner], params)).data
            places = [owner.login for owner in [user, *organizations]]
        words = " ".join(word for word in text.split() if ":" not in word)  # no qualifiers from outside
        within = " ".join(f"user:{place}" for place in places if not place.count(" "))
        by = sort if sort in {"stars", "forks", "updated"} else None
        params = {"q": f"{words} in:name fork:true {within}".strip(), "per_page": limit, "sort": by}
        try:
            found = await self._api.get("/search/repositories", _Found, {**params, "order": order if by else None})
        except GitProviderError as error:
            if error.status == 422:  # there is no such owner, or none that this token may see
                return []
            raise
        return [self._told(one) for one in found.data.items]

    async def branches(self, repository: str, wish: PageWish) -> ResultPage[Branch]:
        params = {"page": wish.page, "per_page": wish.size}
        reply = await self._api.get(f"/repos/{segments(repository)}/branches", list[_Branch], params)
        return ResultPage(self._branches_in(reply.data), link=reply.headers.get("link"))

    async def search_branches(self, repository: str, query: str, *, limit: int) -> list[Branch]:
        owner, _, name = repository.partition("/")
        wanted = {"owner": owner, "name": name, "query": query, "limit": limit}
        data = await self._api.graphql(self._graphql, _BRANCHES, _RefsData, wanted)
        if data.repository is None or data.repository.refs is None:
            raise MissingError(f"{self.name}: not found")
        return self._branches_in(ref for ref in data.repository.refs.nodes if ref.commit_sha)

    async def suggested_tasks(self) -> list[SuggestedTask]:
        login = (await self._api.get("/user", TokenOwner)).data.login
        questions = (_REQUESTS, _ISSUES)
        answers = await what_works(
            self._api.graphql(self._graphql, query, _TasksData, {"login": login}) for query in questions
        )
        found: list[tuple[TaskType | None, _Item]] = []
        for answer in answers:
            if answer.user is not None:
                requests, issues = answer.user.pullRequests, answer.user.issues
                found += [(request.task_type, request) for request in (requests.nodes if requests else ())]
                found += [("OPEN_ISSUE", issue) for issue in (issues.nodes if issues else ())]
        return [
            self._task(task_type, item.repository.nameWithOwner, item.number, item.title)
            for task_type, item in found
            if task_type is not None
        ]


class _Owner(Shape):
    login: str = ""


def _owner_type(kind: Any) -> Any:
    return {"User": "user", "Organization": "organization"}.get(kind)


class _Repository(RepositoryShape):
    is_public: Annotated[bool, AfterValidator(not_)] = Field(default=True, validation_alias="private")
    owner_type: Annotated[Literal["user", "organization"] | None, BeforeValidator(_owner_type)] = Field(
        default=None, validation_alias=AliasPath("owner", "type")
    )
    main_branch: str | None = Field(default=None, validation_alias="default_branch")


class _Found(Shape):
    items: tuple[_Repository, ...] = ()
    repositories: tuple[_Repository, ...] = ()


class _Installation(Shape):
    id: int | str


class _Installations(Shape):
    installations: tuple[_Installation, ...] = ()


class _Branch(BranchShape):
    commit_sha: str = Field(validation_alias=AliasPath("commit", "sha"))
    protected: bool = False


class _Ref(BranchShape):
    commit_sha: str = Field(default="", validation_alias=AliasPath("target", "oid"))
    last_push_date: str | None = Field(default=None, validation_alias=AliasPath("target", "committedDate"))
    protected: Annotated[bool, BeforeValidator(lambda rule: rule is not None)] = Field(
        default=False, validation_alias="branchProtectionRule"
    )


class _Refs(Shape):
    refs: Nodes[_Ref] | None = None


class _RefsData(Shape):
    repository: _Refs | None = None


class _Named(Shape):
    nameWithOwner: str  # noqa: N815


class _CheckedCommit(Shape):
    statusCheckRollup: WithState | None = None  # noqa: N815


class _CommitNode(Shape):
    commit: _CheckedCommit


class _Item(Shape):
    number: int
    title: str
    repository: _Named


class _Request(_Item):
    mergeable: str = ""
    commits: Nodes[_CommitNode] | None = None
    reviews: Nodes[WithState] | None = None

    @property
    def task_type(self) -> TaskType | None:
        if self.mergeable == "CONFLICTING":
            return "MERGE_CONFLICTS"
        newest = self.commits.nodes[0].commit.statusCheckRollup if self.commits and self.commits.nodes else None
        if newest is not None and newest.state in {"FAILURE", "ERROR"}:
            return "FAILING_CHECKS"
        return "UNRESOLVED_COMMENTS" if self.reviews and self.reviews.nodes else None


class _TaskUser(Shape):
    pullRequests: Nodes[_Request] | None = None  # noqa: N815
    issues: Nodes[_Item] | None = None


class _TasksData(Shape):
    user: _TaskUser | None = None
