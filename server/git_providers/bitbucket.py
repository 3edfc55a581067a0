"""Bitbucket Cloud. Its lists are those of workspaces; these are what it has for installations."""

from __future__ import annotations

import base64
from operator import not_
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import AfterValidator, AliasChoices, AliasPath, Field, SecretStr

from server.git_providers.http import Api, HttpPool, NullableText, Shape, Values, segments
from server.git_providers.model import (
    Branch,
    MadeRequest,
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
from server.git_providers.provider import BranchShape, GitProvider, ListedFile, RepositoryShape, WithState, what_works
from server.settings.git_hosts import Provider

_MAX_WORKSPACES = 20
_MAX_REQUESTS = 20
_ORDERS = {"updated": "-updated_on", "pushed": "-updated_on", "created": "-created_on", "full_name": "full_name"}


class Bitbucket(GitProvider):
    """One account at Bitbucket; see `GitProvider`."""

    def __init__(self, pool: HttpPool, name: Provider, base: str, token: SecretStr) -> None:
        text = token.get_secret_value()
        plain = base64.b64encode(text.encode()).decode()
        headers = {"Authorization": f"Basic {plain}" if ":" in text else f"Bearer {text}"}
        api = "https://api.bitbucket.org/2.0" if base == "https://bitbucket.org" else f"{base}/2.0"
        super().__init__(name, Api(pool, name, api, headers=headers, secret=token))

    async def user(self) -> User:
        user = (await self._api.get("/user", _User)).data
        return User(
            id=user.account_id or user.uuid,
            login=user.username or user.nickname or user.display_name or user.uuid,
            avatar_url=user.avatar,
            name=user.display_name,
        )

    async def installations(self) -> list[str]:
        params = {"pagelen": 100}
        try:
            found = await self._api.get("/user/workspaces", Values[_Workspace], params)
        except MissingError:  # as it was until 2026
            found = await self._api.get("/workspaces", Values[_Workspace], params)
        return [one.slug for one in found.data.values if one.slug]

    async def repositories(self, wish: PageWish, *, sort: str, installation: str | None) -> ResultPage[Repository]:
        order = _ORDERS.get(sort, "-updated_on")
        if installation:
            return await self._of_workspace(installation, wish, order)
        workspaces = (await self.installations())[:_MAX_WORKSPACES]
        pages = await what_works(self._of_workspace(one, wish, order) for one in workspaces)
        link = next((page.link for page in pages if page.has_next), None)
        return ResultPage([one for page in pages for one in page.items], link=link)

    async def _of_workspace(
        self, workspace: str, wish: PageWish, order: str, query: str = ""
    ) -> ResultPage[Repository]:
        path = f"/repositories/{segments(workspace)}"
        params = {"page": wish.page, "pagelen": wish.size, "sort": order, "q": query or None}
        page = (await self._api.get(path, Values[_Repository], params)).data
        link = next_link(self._api.base + path, wish.page) if page.next else None
        return ResultPage([self._told(one) for one in page.values], link=link, total=page.size)

    async def repository(self, repository: str) -> Repository:
        return self._told((await self._api.get(f"/repositories/{segments(repository)}", _Repository)).data)

    async def search_repositories(self, query: str, *, limit: int, sort: str, order: str) -> list[Repository]:
        owner, slash, text = query.rpartition("/")
        workspaces = [owner] if slash else (await self.installations())[:_MAX_WORKSPACES]
        wish, wanted = PageWish(1, limit), f"name ~ {_quoted(text)}"
        by = _ORDERS.get(sort, "-updated_on")
        pages = await what_works(self._of_workspace(one, wish, by, wanted) for one in workspaces)
        return [one for page in pages for one in page.items][:limit]

    async def branches(self, repository: str, wish: PageWish) -> ResultPage[Branch]:
        return await self._branches(repository, wish, None)

    async def search_branches(self, repository: str, query: str, *, limit: int) -> list[Branch]:
        return (await self._branches(repository, PageWish(1, limit), f"name ~ {_quoted(query)}")).items

    async def _branches(self, repository: str, wish: PageWish, query: str | None) -> ResultPage[Branch]:
        path = f"/repositories/{segments(repository)}/refs/branches"
        params = {"page": wish.page, "pagelen": wish.size, "sort": "-target.date", "q": query}
        page = (await self._api.get(path, Values[_Branch], params)).data
        link = next_link(path, wish.page) if page.next else None
        return ResultPage(self._branches_in(page.values), link=link, total=page.size)

    async def suggested_tasks(self) -> list[SuggestedTask]:
        user = (await self._api.get("/user", _User)).data
        workspaces = (await self.installations())[:_MAX_WORKSPACES]
        pages = await what_works(self._requests(one, user.uuid) for one in workspaces)
        requests = [one for page in pages for one in page][:_MAX_REQUESTS]
        tasks = await what_works(self._needed(one) for one in requests)
        return [task for task in tasks if task is not None]

    async def _requests(self, workspace: str, user: str) -> tuple[_Request, ...]:
        path = f"/workspaces/{segments(workspace)}/pullrequests/{segments(user)}"
        return (await self._api.get(path, Values[_Request], {"state": "OPEN", "pagelen": 50})).data.values

    async def _needed(self, request: _Request) -> SuggestedTask | None:
        repository = request.repository
        path = f"/repositories/{segments(repository)}/pullrequests/{request.id}/statuses"
        states = (await self._api.get(path, Values[WithState], {"pagelen": 100})).data.values
        task_type: TaskType = "UNRESOLVED_COMMENTS"
        if any(one.state == "FAILED" for one in states):
            task_type = "FAILING_CHECKS"
        elif not request.task_count:
            return None
        return self._task(task_type, repository, request.id, request.title)

    async def is_request_open(self, repository: str, number: int) -> bool:
        return await self._open_in(f"/repositories/{segments(repository)}/pullrequests/{number}", "OPEN")

    async def create_request(self, repository: str, wish: RequestWish) -> MadeRequest:
        body: dict[str, Any] = {
            "title": wish.title,
            "description": wish.body,
            "source": {"branch": {"name": wish.source_branch}},
            "destination": {"branch": {"name": wish.target_branch}},
        }
        if wish.draft:
            body["draft"] = True
        made = await self._api.post(f"/repositories/{segments(repository)}/pullrequests", body, _Made)
        return MadeRequest(made.id, made.url)

    async def files(self, repository: str, folder: str) -> list[str]:
        try:
            path = f"{await self._source(repository)}/{segments(folder)}/"
        except MissingError:
            return []
        return await self._paths(path, Values[ListedFile], "commit_file", {"pagelen": 100})

    async def file(self, repository: str, path: str) -> str:
        return await self._api.text(f"{await self._source(repository)}/{segments(path)}")

    async def _source(self, repository: str) -> str:
        branch = (await self.repository(repository)).main_branch
        if not branch:
            raise MissingError(f"{self.name}: the repository has no main branch")
        return f"/repositories/{segments(repository)}/src/{quote(branch, safe='')}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _User(Shape):
    uuid: str
    account_id: str | None = None
    username: str | None = None
    nickname: str | None = None
    display_name: str | None = None
    avatar: NullableText = Field(default="", validation_alias=AliasPath("links", "avatar", "href"))


class _Workspace(Shape):
    slug: NullableText = Field(default="", validation_alias=AliasChoices(AliasPath("workspace", "slug"), "slug"))


class _Repository(RepositoryShape):
    id: str = Field(validation_alias="uuid")
    is_public: Annotated[bool, AfterValidator(not_)] = Field(default=False, validation_alias="is_private")
    pushed_at: str | None = Field(default=None, validation_alias="updated_on")
    owner_type: Literal["organization"] = "organization"
    main_branch: str | None = Field(default=None, validation_alias=AliasPath("mainbranch", "name"))


class _Branch(BranchShape):
    commit_sha: str = Field(validation_alias=AliasPath("target", "hash"))
    protected: bool = False
    last_push_date: str | None = Field(default=None, validation_alias=AliasPath("target", "date"))


class _Request(Shape):
    id: int
    title: str
    task_count: int = 0
    repository: str = Field(validation_alias=AliasPath("destination", "repository", "full_name"))


class _Made(Shape):
    id: int
    url: NullableText = Field(default="", validation_alias=AliasPath("links", "html", "href"))
