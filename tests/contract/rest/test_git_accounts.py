"""What a user has at git providers, asked of providers that are played over HTTP."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from server.db.repositories.conversations import ConversationRecord
from tests.contract.rest.conftest import MakeServer, Server, serving
from tests.contract.rest.played.azure_devops import PlayedAzureDevOps
from tests.contract.rest.played.bitbucket import PlayedBitbucket
from tests.contract.rest.played.forgejo import PlayedForgejo
from tests.contract.rest.played.github import PlayedGitHub
from tests.contract.rest.played.gitlab import PlayedGitLab
from tests.contract.rest.played.provider import Asked, PlayedProvider, Told
from tests.contract.rest.played.world import BOAT, EXPIRED, ISSUES, REPOS, REQUESTS, TOKEN

PLAYED: dict[str, type[PlayedProvider]] = {
    "github": PlayedGitHub,
    "enterprise_sso": PlayedGitHub,
    "gitlab": PlayedGitLab,
    "bitbucket": PlayedBitbucket,
    "azure_devops": PlayedAzureDevOps,
    "forgejo": PlayedForgejo,
}
pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = [
    "info",
    "repositories",
    "repositories?selected_provider={}&page=1&per_page=30",
    "search/repositories?query=boat",
    "search/branches?repository=ann/boat&query=main",
    "repository/branches?repository=ann/boat",
    "suggested-tasks",
    "repository/ann/boat/microagents",
    "repository/ann/boat/microagents/content?file_path=.cursorrules",
]
REPOSITORY_KEYS = {
    *("id", "full_name", "git_provider", "is_public", "stargazers_count"),
    *("link_header", "pushed_at", "owner_type", "main_branch"),
}
NEXT = re.compile(r'<[^>]*[?&]page=(\d+)(?:&[^>]*)?>;\s*rel="next"')
"""How the protocol's browser client finds the next page."""


def full(kind: str, name: str) -> str:
    return f"shipyard/{name}" if kind == "azure_devops" else name


async def store(server: Server, **played: PlayedProvider) -> None:
    tokens = {kind: {"token": TOKEN, "host": one.host} for kind, one in played.items()}
    response = await server.post("/api/add-git-providers", json={"provider_tokens": tokens})
    assert response.status_code == 200, response.text


class Account:
    """A server with a token for one played provider."""

    def __init__(self, server: Server, kind: str, provider: PlayedProvider) -> None:
        self.server = server
        self.kind = kind
        self.provider = provider

    def full(self, name: str) -> str:
        return full(self.kind, name)

    async def get(self, path: str, **params: Any) -> Any:
        response = await self.server.get(f"/api/user/{path}", params=params)
        assert response.status_code == 200, response.text
        return response.json()


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=sorted(PLAYED))
async def account(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Account]:
    """One server for all tests of a provider: they only read."""
    kind: str = request.param
    async with PLAYED[kind]() as provider, serving(tmp_path_factory.mktemp(kind)) as server:
        await store(server, **{kind: provider})
        yield Account(server, kind, provider)


async def test_every_provider_tells_the_same_in_the_protocols_shapes(account: Account) -> None:
    kind, name = account.kind, account.full("ann/boat")

    user = await account.get("info")
    assert set(user) == {"id", "login", "avatar_url", "company", "name", "email"}
    assert (user["login"], user["name"]) == ("ann@example.com" if kind == "azure_devops" else "ann", "Ann Mariner")
    assert all(isinstance(user[key], str) for key in ("id", "login", "avatar_url"))

    listed = await account.get("repositories", selected_provider=kind, sort="pushed", page=1, per_page=30)
    assert all(set(one) == REPOSITORY_KEYS for one in listed)
    assert {one["full_name"] for one in listed} == {account.full(one.full_name) for one in REPOS}
    boat = next(one for one in listed if one["full_name"] == name)
    assert isinstance(boat["id"], str)
    assert {key: boat[key] for key in ("git_provider", "is_public", "main_branch", "link_header")} == {
        "git_provider": kind,
        "is_public": True,
        "main_branch": "main",
        "link_header": None,
    }
    assert boat["pushed_at"] == (None if kind == "azure_devops" else BOAT.updated)
    assert boat["stargazers_count"] == (None if kind in {"azure_devops", "bitbucket"} else BOAT.stars)
    owners = {one["full_name"]: one["owner_type"] for one in listed}
    if kind in {"github", "enterprise_sso", "gitlab"}:
        assert (owners["ann/boat"], owners["acme/harbour"]) == ("user", "organization")

    assert {one["full_name"] for one in await account.get("repositories")} == {one["full_name"] for one in listed}

    page = await account.get("repository/branches", repository=name, page=1, per_page=4)
    assert set(page) == {"branches", "has_next_page", "current_page", "per_page", "total_count"}
    assert (page["has_next_page"], page["current_page"], page["per_page"]) == (True, 1, 4)
    assert page["total_count"] == (None if kind in {"github", "enterprise_sso"} else 6)
    last = await account.get("repository/branches", repository=name, page=2, per_page=4)
    assert last["has_next_page"] is False
    branches = page["branches"] + last["branches"]
    assert [one["name"] for one in branches] == [one.name for one in BOAT.branches]
    assert all(set(one) == {"name", "commit_sha", "protected", "last_push_date"} for one in branches)
    assert branches[0]["commit_sha"] == "a" * 40
    assert branches[0]["protected"] is (kind != "bitbucket")

    found = await account.get("search/branches", repository=name, query="fix/", per_page=3)
    assert [one["name"] for one in found] == ["fix/1", "fix/2", "fix/3"]
    assert found[0]["last_push_date"] == (None if kind == "azure_devops" else "2026-11-01T10:00:00Z")

    repos = await account.get("search/repositories", query="boat", per_page=5, selected_provider=kind)
    assert {one["full_name"] for one in repos} == {account.full("ann/boat"), account.full("acme/boathouse")}
    if kind not in {"azure_devops", "bitbucket"}:
        assert [one["full_name"] for one in repos] == ["acme/boathouse", "ann/boat"], "most stars first"
    assert len(await account.get("search/repositories", query="boat", per_page=1)) == 1
    assert await account.get("search/repositories", query=" ") == []
    owned = await account.get("search/repositories", query="acme/boat", selected_provider=kind)
    assert [one["full_name"] for one in owned] == [account.full("acme/boathouse")]
    assert await account.get("search/repositories", query="nobody/boat", selected_provider=kind) == []

    agents = await account.get(f"repository/{name}/microagents")
    assert all(set(one) == {"name", "path", "created_at"} for one in agents)
    assert [(one["name"], one["path"]) for one in agents] == [
        ("cursorrules", ".cursorrules"),
        ("ropes", ".openhands/microagents/ropes.md"),
        ("tides", ".openhands/microagents/tides.md"),
    ]
    assert agents[0]["created_at"].endswith("Z")
    agent = await account.get(f"repository/{name}/microagents/content", file_path=agents[2]["path"])
    assert agent == {
        "content": "Mind the tides.",
        "path": agents[2]["path"],
        "triggers": ["tide", "ebb"],
        "git_provider": kind,
    }
    assert await account.get(f"repository/{account.full('ann/raft')}/microagents") == []


async def test_suggested_tasks_are_the_requests_that_need_a_hand_and_the_issues(account: Account) -> None:
    tasks = await account.get("suggested-tasks")
    expected = [
        (one.trouble, account.full(one.repo.full_name), one.number, one.title)
        for one in REQUESTS
        if one.trouble and not (account.kind == "bitbucket" and one.trouble == "MERGE_CONFLICTS")
    ]
    if account.kind not in {"bitbucket", "azure_devops"}:
        expected += [("OPEN_ISSUE", repo.full_name, number, title) for repo, number, title in ISSUES]
    keys = ("task_type", "repo", "issue_number", "title")
    assert sorted(tuple(task[key] for key in keys) for task in tasks) == sorted(expected)
    assert all(task["git_provider"] == account.kind and len(task) == 5 for task in tasks)


async def test_the_pages_of_repositories_are_found_by_the_link_as_the_client_does_it(account: Account) -> None:
    names: list[str] = []
    number: int | None = 1
    params: dict[str, Any] = {"selected_provider": account.kind, "sort": "pushed", "per_page": 3}
    if account.kind == "bitbucket":
        params |= {"installation_id": "ann", "per_page": 1}
    while number is not None:
        page = await account.get("repositories", page=number, **params)
        assert len({one["link_header"] for one in page}) == 1
        names += [one["full_name"] for one in page]
        match = NEXT.search(page[0]["link_header"] or "")
        number = int(match[1]) if match else None
    wanted = [one.full_name for one in REPOS if account.kind != "bitbucket" or one.owner == "ann"]
    assert sorted(names) == sorted(account.full(one) for one in wanted)
    assert await account.get("repositories", page=9, **params) == []


async def test_the_address_of_a_web_page_finds_its_repository(account: Account) -> None:
    pages = {"gitlab": "ann/boat/-/tree/main/src", "azure_devops": "ann/_git/boat?path=/README.md"}
    path = pages.get(account.kind, "ann/boat/tree/main")
    found = await account.get("search/repositories", query=f"{account.provider.host}/{path}")
    assert [one["full_name"] for one in found] == [account.full("ann/boat")]
    missing = path.replace("boat", "nothing")
    assert await account.get("search/repositories", query=f"{account.provider.host}/{missing}") == []
    account.provider.asked.clear()
    assert await account.get("search/repositories", query="https://elsewhere.example.com/ann/boat") == []
    assert account.provider.asked == [], "a token goes to its own provider only"


async def test_a_search_for_more_than_a_provider_gives_at_once_finds_what_it_gives(account: Account) -> None:
    query: dict[str, Any] = {"query": "boat", "selected_provider": account.kind}
    found = await account.get("search/repositories", per_page=100, **query)
    assert account.full("ann/boat") in {one["full_name"] for one in found}
    before = len(account.provider.asked)
    assert await account.get("search/repositories", per_page=500, **query) == found
    sizes = {value for asked in account.provider.asked[before:] for value in asked.query.values()}
    assert "500" not in sizes, "which a port, a time or an id that is asked with may hold all the same"


async def test_a_token_that_is_wrong_or_has_expired_is_a_401_that_says_so(
    account: Account, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = account.kind
    refused = await account.server.post(
        "/api/add-git-providers", json={"provider_tokens": {kind: {"token": EXPIRED, "host": account.provider.host}}}
    )
    assert refused.status_code == 401
    assert refused.json() == {"error": f"Invalid token. Please make sure it is a valid {kind} token."}
    monkeypatch.setattr(account.provider, "authorization", "somebody else's")  # what was stored has expired since
    for route in ROUTES:
        response = await account.server.get(f"/api/user/{route.format(kind).replace('ann/', account.full('ann/'))}")
        assert response.status_code == 401, route
        assert response.json().startswith(f"Invalid {kind} token."), route
    assert TOKEN not in caplog.text
    assert EXPIRED not in caplog.text


async def test_a_repository_that_is_not_there_is_a_401_that_names_it(account: Account) -> None:
    name = account.full("ann/nothing")
    for route in (
        f"repository/branches?repository={name}",
        f"search/branches?repository={name}&query=x",
        f"repository/{name}/microagents",
        f"repository/{name}/microagents/content?file_path=x.md",
    ):
        response = await account.server.get(f"/api/user/{route}")
        assert (response.status_code, response.json()) == (401, f"Unable to access repo {name}"), route
    name = account.full("ann/boat")
    response = await account.server.get(f"/api/user/repository/{name}/microagents/content?file_path=../x.md")
    assert (response.status_code, response.json()) == (401, f"Unable to access file ../x.md in {name}")


async def test_conversations_about_microagents_are_listed_until_their_requests_are_merged(account: Account) -> None:
    name = account.full("ann/boat")
    store_record = account.server.app.services.database.conversations.create
    given: dict[str, tuple[int, ...]] = {"none": (), "open": (11,), "merged": (31,), "later": (11, 31)}
    for key, numbers in given.items():
        record = ConversationRecord(
            id=f"{account.kind}-{key}".replace("_", "-"),
            trigger="microagent_management",
            selected_repository=name,
            git_provider=account.kind,
            pr_number=numbers,
        )
        await store_record(record)
    await store_record(ConversationRecord(id=f"{account.kind}-gui", trigger="gui", selected_repository=name))
    path = "/api/microagent-management/conversations"
    found = (await account.server.get(path, params={"selected_repository": name, "limit": 1000})).json()
    assert sorted(one["conversation_id"].rpartition("-")[2] for one in found["results"]) == ["none", "open"]
    assert found["next_page_id"] is None
    account.provider.failures = [Told("", 500)] * 3
    found = (await account.server.get(path, params={"selected_repository": name, "limit": 4})).json()
    assert len(found["results"]) == 4, "a provider that does not say hides nothing"
    assert (await account.server.get(path)).status_code == 422
    assert (await account.server.get(path, params={"selected_repository": "ann/raft"})).json()["results"] == []
    assert (await account.server.get(path, params={"selected_repository": "x", "page_id": "?"})).status_code == 400


async def test_installations_are_those_of_github_and_the_workspaces_of_bitbucket(make_server: MakeServer) -> None:
    async with (
        PlayedGitHub() as github,
        PlayedBitbucket() as bitbucket,
        PlayedGitLab() as gitlab,
        make_server() as server,
    ):
        await store(server, github=github, bitbucket=bitbucket, gitlab=gitlab)
        get = server.get
        assert (await get("/api/user/installations?provider=github")).json() == ["501", "502"]
        assert (await get("/api/user/installations?provider=bitbucket")).json() == ["ann", "acme"]
        refused = await get("/api/user/installations?provider=gitlab")
        assert (refused.status_code, refused.json()) == (400, "Provider gitlab doesn't support installations")
        params = "selected_provider=github&page=1&per_page=30&installation_id=502"
        listed = (await get(f"/api/user/repositories?{params}")).json()
        assert [one["full_name"] for one in listed] == ["acme/harbour", "acme/boathouse"]
        assert isinstance(bitbucket, PlayedBitbucket)
        bitbucket.is_old = True
        assert (await get("/api/user/installations?provider=bitbucket")).json() == ["ann", "acme"]
        github.failures = [Told({"message": "You must authenticate with an app's token"}, 403)]
        assert (await get("/api/user/installations?provider=github")).json() == []


async def test_without_a_token_every_route_is_a_401_with_a_text(make_server: MakeServer) -> None:
    async with make_server() as server:
        for route in [*ROUTES, "installations?provider=github"]:
            response = await server.get(f"/api/user/{route.format('github')}")
            assert response.status_code == 401, route
            assert response.json() == "Git provider token required. (such as GitHub).", route


async def test_without_a_token_for_the_provider_that_is_meant_it_is_a_401_too(make_server: MakeServer) -> None:
    async with PlayedGitHub() as github, make_server() as server:
        await store(server, github=github)
        for route in (
            "repositories?selected_provider=gitlab",
            "search/repositories?query=x&selected_provider=gitlab",
            "installations?provider=bitbucket",
        ):
            response = await server.get(f"/api/user/{route}")
            assert response.status_code == 401, route
            assert response.json().startswith("Git provider token required. Store one for "), route


async def test_what_cannot_be_asked_for_is_a_422_that_names_the_parameter(make_server: MakeServer) -> None:
    async with PlayedGitHub() as github, make_server() as server:
        await store(server, github=github)
        github.asked.clear()
        for route, parameter in {
            "repositories?page=0": "page",
            "repositories?per_page=0": "per_page",
            "repositories?selected_provider=sourcehut": "selected_provider",
            "search/repositories": "query",
            "search/repositories?query=x&order=up": "order",
            "search/branches?repository=ann/boat": "query",
            "repository/branches": "repository",
            "repository/branches?repository=ann/boat&page=x": "page",
            "repository/ann/boat/microagents/content": "file_path",
            "installations": "provider",
            "installations?provider=sourcehut": "provider",
        }.items():
            response = await server.get(f"/api/user/{route}")
            assert response.status_code == 422, route
            assert response.json()["detail"][0]["loc"] == ["query", parameter], route
        assert github.asked == []


async def test_all_providers_are_asked_together_and_one_that_fails_hides_no_other(make_server: MakeServer) -> None:
    async with PlayedGitHub() as github, PlayedForgejo() as forgejo, make_server() as server:
        await store(server, github=github, forgejo=forgejo)
        both = (await server.get("/api/user/repositories")).json()
        assert [one["git_provider"] for one in both] == ["github"] * 4 + ["forgejo"] * 4
        github.authorization = "somebody else's"
        assert (await server.get("/api/user/info")).json()["email"] == "ann@example.com", "the second one"
        for route in ("repositories", "search/repositories?query=boat", "suggested-tasks"):
            found = (await server.get(f"/api/user/{route}")).json()
            assert {one["git_provider"] for one in found} == {"forgejo"}, route
        branches = await server.get("/api/user/repository/branches?repository=ann/boat")
        assert len(branches.json()["branches"]) == 6
        forgejo.authorization = "nobody's"
        for route in ("info", "repositories", "suggested-tasks", "repository/branches?repository=ann/boat"):
            response = await server.get(f"/api/user/{route}")
            assert response.status_code == 401
            assert response.json().startswith("Invalid github token.")


async def test_the_latest_of_a_provider_that_gives_few_on_a_page_are_all_listed(make_server: MakeServer) -> None:
    class Sparing(PlayedForgejo):
        def repositories(self, asked: Asked) -> Told:
            number = asked.number("page", 1)
            link = {"Link": f'<{asked.origin}{asked.path}?page={number + 1}>; rel="next"'} if number < 7 else {}
            return Told([{"id": number, "full_name": f"ann/boat{number}"}], headers=link)

    async with Sparing() as forgejo, make_server() as server:
        await store(server, forgejo=forgejo)
        found = (await server.get("/api/user/repositories")).json()
        assert [one["full_name"] for one in found] == [f"ann/boat{number}" for number in range(1, 8)]


async def test_addresses_of_the_servers_own_configuration_count_where_users_name_none(make_server: MakeServer) -> None:
    async with PlayedGitLab() as gitlab, make_server(git_hosts={"gitlab": gitlab.host}) as server:
        tokens = {"gitlab": {"token": TOKEN, "host": ""}}
        assert (await server.post("/api/add-git-providers", json={"provider_tokens": tokens})).status_code == 200
        assert (await server.get("/api/settings")).json()["provider_tokens_set"] == {"gitlab": None}
        assert (await server.get("/api/user/info")).json()["login"] == "ann"


async def test_azure_devops_needs_its_organisation(make_server: MakeServer) -> None:
    async with make_server() as server:
        tokens = {"azure_devops": {"token": TOKEN, "host": ""}}
        response = await server.post("/api/add-git-providers", json={"provider_tokens": tokens})
        assert response.status_code == 422
        assert "must name the organisation, such as dev.azure.com/acme" in response.json()["error"]
