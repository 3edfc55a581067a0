"""Conversations that begin with a repository of a user's account, or with a card of the client."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.rest.conftest import MakeServer, Server
from tests.contract.rest.played.forgejo import PlayedForgejo
from tests.contract.rest.played.github import PlayedGitHub
from tests.contract.rest.played.gitlab import PlayedGitLab
from tests.contract.rest.played.provider import Told
from tests.contract.rest.test_git_accounts import store

TASK = {"git_provider": "gitlab", "repo": "ann/boat", "issue_number": 12, "title": "New\nsail"}


async def listed(server: Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await server.get("/api/conversations")).json()["results"]
    return found


async def test_a_repository_that_the_stored_token_gives_no_access_to_is_a_401_and_no_conversation(
    make_server: MakeServer,
) -> None:
    async with PlayedGitHub() as github, make_server(sandbox_network="none") as server:
        await store(server, github=github)
        for body in (
            {"repository": "ann/nothing", "git_provider": "github"},
            {"repository": "ann/nothing"},
            {"repository": f"{github.host}/ann/nothing.git"},
            {"repository": "../../etc"},
        ):
            response = await server.post("/api/conversations", json=body)
            assert (response.status_code, response.json()) == (401, f"Unable to access repo {body['repository']}")
        github.authorization = "somebody else's"
        response = await server.post("/api/conversations", json={"repository": "ann/boat"})
        assert (response.status_code, response.json()) == (401, "Unable to access repo ann/boat"), "an expired token"
        assert await listed(server) == []


async def test_the_provider_of_a_repository_is_the_one_whose_account_has_it(make_server: MakeServer) -> None:
    async with PlayedGitHub() as github, PlayedForgejo() as forgejo, make_server(sandbox_network="none") as server:
        await store(server, github=github, forgejo=forgejo)
        made = await server.create(repository="ann/boat", selected_branch="sail")
        info = await server.info(made)
        assert (info["git_provider"], info["selected_repository"], info["selected_branch"]) == (
            "github",
            "ann/boat",
            "sail",
        )
        github.asked.clear()
        made = await server.create(repository="ann/boat", git_provider="forgejo")
        assert (await server.info(made))["git_provider"] == "forgejo"
        assert github.asked == []
        github.failures = [github.missing]
        assert (await server.info(await server.create(repository="ann/boat")))["git_provider"] == "forgejo"


async def test_a_provider_that_is_not_asked_or_does_not_say_decides_nothing(make_server: MakeServer) -> None:
    async with PlayedGitHub() as github, make_server(sandbox_network="none") as server:
        await store(server, github=github)
        github.asked.clear()
        await server.create(repository="ann/nothing", git_provider="gitlab")
        await server.create(repository="https://elsewhere.example.com/ann/nothing")
        assert github.asked == []
        github.failures = [Told({"message": "oh"}, 500)]
        made = await server.create(repository="ann/nothing", git_provider="github")
        assert (await server.info(made))["git_provider"] == "github"
    async with make_server(sandbox_network="none", verify_git_tokens=False) as server:
        await server.create(repository="ann/nothing", git_provider="github")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("MERGE_CONFLICTS", "merge request #12"),
        ("FAILING_CHECKS", "merge request #12"),
        ("UNRESOLVED_COMMENTS", "merge request #12"),
        ("OPEN_ISSUE", "issue #12"),
    ],
)
async def test_a_suggested_task_becomes_the_first_message(make_server: MakeServer, kind: str, words: str) -> None:
    async with PlayedGitLab() as gitlab, make_server(sandbox_network="none") as server:
        await store(server, gitlab=gitlab)
        made = await server.create(suggested_task={**TASK, "task_type": kind}, initial_user_msg="Be quick.")
        info = await server.info(made)
        assert (info["trigger"], info["selected_repository"], info["git_provider"]) == (
            "suggested_task",
            "ann/boat",
            "gitlab",
        )
        first = next(one for one in await server.events(made) if one.get("action") == "message")
        assert first["source"] == "user"
        content = first["args"]["content"]
        assert f"{words} of the repository ann/boat (New sail) " in content
        assert (
            "Ask the API of GitLab about it; the token for that is in the environment variable GITLAB_TOKEN." in content
        )
        assert content.endswith("Be quick.")


async def test_a_wish_for_a_microagent_names_the_repository_and_where_the_conversation_comes_from(
    make_server: MakeServer,
) -> None:
    async with make_server(sandbox_network="none") as server:
        card = {"repo": "ann/boat", "git_provider": "github", "title": "Tides"}
        made = await server.create(create_microagent=card, initial_user_msg="Write about tides.")
        info = await server.info(made)
        assert (info["trigger"], info["selected_repository"], info["git_provider"]) == (
            "microagent_management",
            "ann/boat",
            "github",
        )
        made = await server.create(create_microagent=card, repository="ann/raft", git_provider="gitlab")
        info = await server.info(made)
        assert (info["selected_repository"], info["git_provider"]) == ("ann/raft", "gitlab")
        found = await server.get("/api/conversations", params={"conversation_trigger": "microagent_management"})
        assert len(found.json()["results"]) == 2


async def test_a_wish_for_a_microagent_gives_the_conversation_its_title(make_server: MakeServer) -> None:
    async with make_server(sandbox_network="none") as server:
        await server.post("/api/secrets", json={"name": "TIDE_KEY", "value": "high-water-mark"})
        for title, shown in (
            ("  Tides \n of high-water-mark", "Tides of <secret_hidden>"),
            ("潮" * 300, "潮" * 200),
            (" ", None),
        ):
            made = await server.create(create_microagent={"repo": "ann/boat", "title": title})
            assert (await server.info(made))["title"] == (shown or f"Conversation {made[:5]}")
            await server.post(f"/api/conversations/{made}/stop")


async def test_cards_that_cannot_be_begun_with_are_refused(server: Server) -> None:
    cards: list[tuple[dict[str, Any], int, str]] = [
        ({"suggested_task": {**TASK, "task_type": "OPEN_PR"}}, 400, "OPEN_PR stands for no work"),
        ({"suggested_task": {**TASK, "task_type": "CREATE_MICROAGENT"}}, 400, "stands for no work"),
        ({"suggested_task": {**TASK, "task_type": "DANCE"}}, 422, "task_type"),
        ({"suggested_task": {**TASK, "task_type": "OPEN_ISSUE", "issue_number": -1}}, 422, "issue_number"),
        ({"suggested_task": {**TASK, "task_type": "OPEN_ISSUE", "more": 1}}, 422, "more"),
        ({"create_microagent": {"git_provider": "github"}}, 422, "repo"),
        (
            {"suggested_task": {**TASK, "task_type": "OPEN_ISSUE"}, "create_microagent": {"repo": "a/b"}},
            400,
            "send one of them",
        ),
    ]
    for body, status, words in cards:
        response = await server.post("/api/conversations", json=body)
        assert response.status_code == status, body
        assert words in response.text
    assert await listed(server) == []
