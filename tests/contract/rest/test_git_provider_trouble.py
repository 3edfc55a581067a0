"""Providers that fail, are slow to recover, limit their clients, or answer with something else."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.git_providers import accounts as accounts_module
from server.git_providers import http as http_module
from server.git_providers.accounts import GitAccess
from server.git_providers.http import HttpPool
from server.routes.user.git_providers import WITH_INSTALLATIONS
from tests.contract.rest.conftest import MakeServer, Server
from tests.contract.rest.played.azure_devops import PlayedAzureDevOps
from tests.contract.rest.played.forgejo import PlayedForgejo
from tests.contract.rest.played.github import PlayedGitHub
from tests.contract.rest.played.provider import Told
from tests.contract.rest.played.world import TOKEN
from tests.contract.rest.test_git_accounts import store
from tests.listening import listening


@pytest.fixture
async def github() -> AsyncIterator[PlayedGitHub]:
    async with PlayedGitHub() as provider:
        assert isinstance(provider, PlayedGitHub)
        yield provider


@pytest.fixture
async def asking(make_server: MakeServer, github: PlayedGitHub) -> AsyncIterator[Server]:
    """A server whose second attempts come at once."""
    async with make_server() as server:
        object.__setattr__(server.app.services, "git", GitAccess({}, HttpPool(pause_seconds=0.001)))
        await store(server, github=github)
        github.asked.clear()
        yield server
        await server.app.services.git.aclose()


INFO = "/api/user/info"
RESET = "1800000000"
"""When a limit begins anew: a time of Unix."""


async def test_a_failure_that_may_pass_is_tried_again(asking: Server, github: PlayedGitHub) -> None:
    for failure in (None, Told("", 502), Told("", 503), Told("slow", 429, {"Retry-After": "0"})):
        github.failures = [failure, failure]
        assert (await asking.get(INFO)).json()["login"] == "ann", failure
        assert len(github.asked) == 3, failure
        github.asked.clear()


async def test_a_failure_of_a_provider_is_a_502_with_its_reason_and_without_the_token(
    asking: Server, github: PlayedGitHub, caplog: pytest.LogCaptureFixture
) -> None:
    cases: list[tuple[list[Told | None], str]] = [
        ([Told("", 503)] * 3, "github answers 503"),
        ([None] * 3, "github cannot be reached at http://127.0.0.1:"),
        ([Told({"message": f"the token {TOKEN} is too young"}, 500)], "github answers 500: the token *** is too young"),
        ([Told({"message": "Resource not accessible"}, 403)], "github answers 403: Resource not accessible"),
        ([Told("<html>", 200)], "github answers with something that is no JSON"),
        ([Told({"login": "ann"})], "github answers in an unknown form: id: Field required"),
        ([Told([])], "github answers in an unknown form"),
        ([Told("", 302, {"Location": "https://sso.example.com/x"})], "github sends elsewhere, to https://sso.example"),
        ([Told("", 301)] * 3, "github sends elsewhere, and nowhere in the end"),
        ([Told({"message": "Not Found"}, 404)], "github answers 404: is http://127.0.0.1:"),
        ([Told("x" * (8 * 1024 * 1024 + 1))], "github answers with more than"),
        ([Told("", 200, {"Content-Encoding": "gzip, gzip"})], "github answers with something that is packed"),
    ]
    for failures, says in cases:
        github.asked.clear()
        github.failures = list(failures)
        response = await asking.get(INFO)
        assert response.status_code == 502, says
        assert says in response.json()
        assert len(github.asked) == len(failures), says
        assert TOKEN not in response.text + caplog.text


async def test_a_provider_that_wants_to_be_left_alone_is_and_the_user_is_told(
    asking: Server, github: PlayedGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[Told, str | None]] = [
        (Told({"message": "slow down"}, 429, {"Retry-After": "60"}), "60"),
        (Told({"message": "secondary limit"}, 403, {"Retry-After": "30"}), "30"),
        (Told({"message": "API rate limit exceeded"}, 403, {"X-RateLimit-Remaining": "0"}), None),
        (Told({"message": "slow down"}, 429, {"Retry-After": "Sun, 22 Nov 2026 01:00:00 GMT"}), None),
        (Told({"message": "limit"}, 403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": RESET}), "90"),
        (Told({"message": "slow down"}, 429, {"RateLimit-Reset": RESET}), "90"),
        (Told({"message": "slow down"}, 429, {"RateLimit-Reset": "1000000000"}), None),
    ]
    monkeypatch.setattr(time, "time", lambda: float(RESET) - 90)
    for limit, after in cases:
        github.asked.clear()
        github.failures = [limit]
        response = await asking.get(INFO)
        assert response.status_code == 502
        assert response.json().startswith("github API rate limit exceeded; try again ")
        assert response.headers.get("retry-after") == after
        assert len(github.asked) == 1


async def test_a_renamed_repository_is_found_and_another_origin_never_gets_the_token(
    asking: Server, github: PlayedGitHub
) -> None:
    moved = "/api/v3/repos/ann/boat/branches"
    github.failures = [Told("", 301, {"Location": f"{github.origin}{moved}"})]
    found = await asking.get("/api/user/repository/branches?repository=ann/ship")
    assert found.json()["branches"][0]["name"] == "main"
    async with PlayedGitHub() as other:
        github.failures = [Told("", 301, {"Location": f"{other.origin}{moved}"})]
        response = await asking.get("/api/user/repository/branches?repository=ann/ship")
        assert response.status_code == 502
        assert other.asked == []
    github.failures = [Told("", 302, {"Location": moved})] * 9
    assert (await asking.get("/api/user/repository/branches?repository=ann/ship")).status_code == 502


async def test_an_owner_that_there_is_not_has_no_repositories(asking: Server, github: PlayedGitHub) -> None:
    said = "The listed users and repositories cannot be searched"
    github.failures = [Told({"message": "Validation Failed", "errors": [{"message": said, "code": "invalid"}]}, 422)]
    response = await asking.get("/api/user/search/repositories?query=nobody/boat")
    assert (response.status_code, response.json()) == (200, [])


async def test_a_token_is_hidden_also_in_the_form_that_it_is_sent_in(make_server: MakeServer) -> None:
    async with PlayedAzureDevOps() as provider, make_server() as server:
        await store(server, azure_devops=provider)
        sent = provider.authorization.rpartition(" ")[2]
        provider.failures = [Told({"message": f"what is {sent}?"}, 400)]
        response = await server.get(INFO)
        assert response.json() == "azure_devops answers 400: what is ***?"


async def test_an_error_of_graphql_without_data_is_told_and_one_part_that_fails_hides_no_other(
    asking: Server, github: PlayedGitHub
) -> None:
    path = "/api/user/search/branches?repository=ann/boat&query=x"
    github.failures = [Told({"data": None, "errors": [{"message": "Something went wrong"}]})]
    response = await asking.get(path)
    assert (response.status_code, response.json()) == (502, "github cannot answer: Something went wrong")
    limited = {"data": None, "errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}
    github.failures = [Told(limited, headers={"X-RateLimit-Remaining": "0"})]
    response = await asking.get(path)
    assert (response.status_code, response.json()) == (502, "github API rate limit exceeded; try again later")
    github.failures = [Told({"data": {"repository": None}, "errors": [{"type": "NOT_FOUND", "message": "none"}]})]
    response = await asking.get(path)
    assert (response.status_code, response.json()) == (401, "Unable to access repo ann/boat")
    user = github.user(None)  # type: ignore[arg-type] # the same for every request
    github.failures = [user, Told({"data": None, "errors": [{"message": "Resource not accessible"}]})]
    assert (await asking.get("/api/user/suggested-tasks")).json() != []


async def test_a_list_that_is_null_is_empty_as_gitea_has_it_for_a_repository_without_a_commit(
    make_server: MakeServer,
) -> None:
    async with PlayedForgejo() as provider, make_server() as server:
        await store(server, forgejo=provider)
        provider.failures = [Told(None)]
        page = await server.get("/api/user/repository/branches?repository=ann/boat")
        assert (page.status_code, page.json()["branches"]) == (200, [])
        provider.failures = [Told({"id": 1, "login": "ann"}), Told({"ok": True, "data": None})]
        found = await server.get("/api/user/search/repositories?query=boat")
        assert (found.status_code, found.json()) == (200, [])


async def test_what_is_null_in_a_list_of_graphql_is_left_out_and_what_has_a_default_may_be_null(
    asking: Server, github: PlayedGitHub
) -> None:
    ref = {"name": "x", "target": {"oid": "0" * 40, "committedDate": None}, "branchProtectionRule": None}
    github.failures = [Told({"data": {"repository": {"refs": {"nodes": [None, ref]}}}})]
    found = await asking.get("/api/user/search/branches?repository=ann/boat&query=x")
    assert (found.status_code, [one["name"] for one in found.json()]) == (200, ["x"])
    github.failures = [
        Told([{"id": 1, "full_name": "ann/boat", "private": None, "owner": {"login": "ann", "type": None}}])
    ]
    listed = await asking.get("/api/user/repositories?selected_provider=github")
    assert (listed.status_code, [one["full_name"] for one in listed.json()]) == (200, ["ann/boat"])


async def test_a_provider_that_does_not_answer_refuses_no_token(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts_module, "CHECK_SECONDS", 0.05)
    async with PlayedGitHub() as provider, make_server() as server:
        provider.failures = [Told("", 503)] * 9
        await store(server, github=provider)


async def test_a_name_that_can_be_no_repository_is_not_asked_for(asking: Server, github: PlayedGitHub) -> None:
    for name in ("..", "ann/..", "ann/../boat", "ann//boat", "ann/b\x07at"):
        response = await asking.get("/api/user/repository/branches", params={"repository": name})
        assert (response.status_code, response.json()) == (401, f"Unable to access repo {name}")
    assert github.asked == []


ROUTES = (
    "info",
    "installations?provider={kind}",
    "repositories",
    "repositories?selected_provider={kind}",
    "search/repositories?query=boat",
    "search/repositories?query=boat&selected_provider={kind}",
    "search/branches?repository=ann/boat&query=m",
    "repository/branches?repository=ann/boat",
    "suggested-tasks",
    "repository/ann/boat/microagents",
    "repository/ann/boat/microagents/content?file_path=a.md",
)


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def garbled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"what?\r\n\r\n")
    await writer.drain()


async def gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[")


@pytest.mark.parametrize("kind", ["github", "gitlab", "bitbucket", "forgejo", "azure_devops"])
async def test_a_host_that_cannot_be_reached_is_a_502_with_its_name_on_every_route(
    make_server: MakeServer, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_module, "LIMIT_SECONDS", 0.5)
    async with (
        listening(silent) as quiet,
        listening(garbled) as nonsense,
        listening(gone) as cut,
        make_server(verify_git_tokens=False) as server,
    ):
        object.__setattr__(server.app.services, "git", GitAccess({}, HttpPool(pause_seconds=0.001)))
        unused = socket.create_server(("127.0.0.1", 0))
        nobody = unused.getsockname()[1]
        unused.close()
        hosts = {
            "no name": "http://git.invalid",
            "nobody": f"http://127.0.0.1:{nobody}",
            "no certificate": f"https://127.0.0.1:{nonsense}",
            "nonsense": f"http://127.0.0.1:{nonsense}",
            "cut off": f"http://127.0.0.1:{cut}",
        }
        for case, host in hosts.items():
            address = f"{host}/acme"
            await server.post(
                "/api/add-git-providers", json={"provider_tokens": {kind: {"token": TOKEN, "host": address}}}
            )
            for path in ROUTES:
                if path.startswith("installations") and kind not in WITH_INSTALLATIONS:
                    continue
                response = await server.get(f"/api/user/{path.format(kind=kind)}")
                told = response.json()
                if response.status_code == 200 and path.startswith("installations"):
                    assert kind == "azure_devops", "its organisation is in its address"
                    continue
                assert response.status_code == 502, (case, path, told)
                assert kind in told, (case, path, told)
                assert host in told, (case, path, told)
                assert TOKEN not in told
        body = {"provider_tokens": {kind: {"token": TOKEN, "host": f"http://127.0.0.1:{quiet}/acme"}}}
        await server.post("/api/add-git-providers", json=body)
        response = await server.get("/api/user/repositories")
        assert response.status_code == 502
        assert f"{kind} did not answer within 0.5 seconds at http://127.0.0.1:{quiet}" in response.json()
        await server.app.services.git.aclose()
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "HTTPS_PROXY"])
async def test_certificates_and_proxies_that_are_no_good_are_a_502_too(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    broken = tmp_path / "certificates.pem"
    broken.write_text("none")
    monkeypatch.setenv(variable, str(broken) if variable == "SSL_CERT_FILE" else "gopher://nowhere")
    async with make_server(verify_git_tokens=False) as server:
        body = {"provider_tokens": {"github": {"token": TOKEN, "host": ""}}}
        await server.post("/api/add-git-providers", json=body)
        response = await server.get(INFO)
        assert response.status_code == 502
        assert response.json().startswith("github cannot be asked; SSL_CERT_FILE or a proxy of this server is no good")
