"""Pull and merge requests that agents open with their user's accounts, at played providers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from server.db.repositories.conversations import ConversationRecord
from server.errors import ConversationNotFoundError
from server.git_providers.accounts import GitAccess
from server.git_providers.http import HttpPool
from server.git_providers.request_tools import TOOLS, RequestMaker
from tests.contract.rest.conftest import MakeServer, Server
from tests.contract.rest.played.provider import PlayedProvider, Told
from tests.contract.rest.played.world import EXPIRED, TOKEN
from tests.contract.rest.test_git_accounts import PLAYED, full, store

TOOL_OF = {
    "github": "create_pr",
    "enterprise_sso": "create_pr",
    "gitlab": "create_mr",
    "bitbucket": "create_bitbucket_pr",
    "azure_devops": "create_azure_devops_pr",
    "forgejo": "create_forgejo_pr",
}
PAGES = {
    "gitlab": "/ann/boat/-/merge_requests/41",
    "bitbucket": "/ann/boat/pull-requests/41",
    "azure_devops": "/tfs/shipyard/ann/_git/boat/pullrequest/41",
    "forgejo": "/ann/boat/pulls/41",
}


def arguments(kind: str, repository: str = "ann/boat", **changes: Any) -> dict[str, Any]:
    """The arguments of the tool for this provider."""
    place = "id" if kind == "gitlab" else "repo_name"
    body = "body" if kind in {"github", "enterprise_sso", "forgejo"} else "description"
    given = {place: full(kind, repository), "source_branch": "sail", "target_branch": "main"}
    return {**given, "title": "New sail", body: "It is red.", **changes}


async def make(server: Server, kind: str, conversation_id: str | None = None, **given: Any) -> Any:
    """Make a request, with pauses between attempts that nobody notices."""
    tool, git = TOOLS[TOOL_OF[kind]], GitAccess({}, HttpPool(pause_seconds=0.001))
    checked = tool.arguments.model_validate(given or arguments(kind))
    try:
        maker = RequestMaker(server.app.services.database, git)
        return await maker.make(tool, checked, user_id="", conversation_id=conversation_id)
    finally:
        await git.aclose()


@pytest.mark.parametrize("kind", sorted(PLAYED))
async def test_each_provider_is_asked_in_its_own_form_and_the_number_is_noted(
    kind: str, make_server: MakeServer
) -> None:
    async with PLAYED[kind]() as provider, make_server() as server:
        await store(server, **{kind: provider})
        repository = server.app.services.database.conversations
        await repository.create(ConversationRecord(id="mine", pr_number=(7,)))
        made = await make(server, kind, "mine")
        assert (made.number, made.note) == (41, "")
        assert made.url == f"{provider.origin}{PAGES.get(kind, '/ann/boat/pull/41')}"
        (told,) = provider.made
        is_draft = kind in {"github", "enterprise_sso", "forgejo"}
        wanted = {"title": "New sail", "body": "It is red.", "head": "sail", "base": "main", "draft": is_draft}
        assert told == wanted
        info = await server.info("mine")
        assert info["pr_number"] == [7, 41]
        response = await server.get("/api/conversations")
        assert response.json()["results"][0]["pr_number"] == [7, 41]


@pytest.mark.parametrize("kind", ["github", "gitlab", "forgejo"])
async def test_labels_are_set_in_each_providers_form(kind: str, make_server: MakeServer) -> None:
    async with PLAYED[kind]() as provider, make_server() as server:
        await store(server, **{kind: provider})
        await make(server, kind, **arguments(kind, labels=["sails", "red paint"]))
        assert provider.labels == ["sails", "red paint"]


async def test_labels_that_cannot_be_set_do_not_hide_the_request(make_server: MakeServer) -> None:
    async with PLAYED["github"]() as provider, make_server() as server:
        await store(server, github=provider)
        await server.app.services.database.conversations.create(ConversationRecord(id="mine"))
        provider.failures = []
        made_by = provider.answer

        def refuse_labels(asked: Any) -> Told | None:
            return Told({"message": "no labels"}, 403) if asked.path.endswith("/labels") else made_by(asked)

        provider.answer = refuse_labels  # type: ignore[method-assign] # a played provider plays another part
        made = await make(server, "github", "mine", **arguments("github", labels=["x"]))
        assert made.number == 41
        assert made.note == "its labels could not be set: github answers 403: no labels"
        assert (await server.info("mine"))["pr_number"] == [41]


async def test_gitlab_takes_the_number_of_a_project_its_path_and_the_path_encoded(make_server: MakeServer) -> None:
    async with PLAYED["gitlab"]() as provider, make_server() as server:
        await store(server, gitlab=provider)
        for ident in (101, "101", "ann/boat", "ann%2Fboat", f"{provider.origin}/ann/boat/-/tree/main"):
            made = await make(server, "gitlab", **arguments("gitlab", id=ident))
            assert made.url.endswith("/ann/boat/-/merge_requests/41"), ident


async def test_what_a_provider_refuses_is_told_with_its_reasons(make_server: MakeServer) -> None:
    cases = {
        "github": ({"source_branch": "nothing"}, "github answers 422: Validation Failed; head: invalid"),
        "gitlab": (
            {"source_branch": "fix/4"},
            "gitlab answers 409: Another open merge request already exists for this source branch: !11",
        ),
        "bitbucket": (
            {"source_branch": "fix/4"},
            "bitbucket answers 400: Bad request; source: branch not found: fix/4",
        ),
    }
    for kind, (changes, says) in cases.items():
        async with PLAYED[kind]() as provider, make_server() as server:
            await store(server, **{kind: provider})
            with pytest.raises(Exception, match=r".") as caught:
                await make(server, kind, **arguments(kind, **changes))
            assert str(caught.value) == says
    async with PLAYED["github"]() as provider, make_server() as server:
        await store(server, github=provider)
        with pytest.raises(Exception, match="Validation Failed; No commits between ann/boat"):
            await make(server, "github", **arguments("github", source_branch="main"))
        with pytest.raises(Exception, match="Unable to access repo ann/nothing at github"):
            await make(server, "github", **arguments("github", "ann/nothing"))
        provider.authorization = "somebody else's"
        with pytest.raises(Exception, match="Invalid github token") as refused:
            await make(server, "github")
        assert TOKEN not in str(refused.value) + EXPIRED


async def test_what_may_have_arrived_is_never_sent_again(make_server: MakeServer) -> None:
    async with PLAYED["github"]() as provider, make_server() as server:
        await store(server, github=provider)
        await server.app.services.database.conversations.create(ConversationRecord(id="mine"))
        for failure in (None, Told("", 502), Told("", 504), Told({"number": "odd"}, 201)):
            provider.asked.clear()
            provider.failures = [failure]
            with pytest.raises(Exception, match="it may have been made all the same: look before you try again"):
                await make(server, "github", "mine")
            assert len(provider.asked) == 1, failure
        assert (await server.info("mine"))["pr_number"] == []
        provider.asked.clear()
        provider.failures = [Told("slow down", 429, {"Retry-After": "0"})]
        assert (await make(server, "github", "mine")).number == 41, "what was refused is"
        assert len(provider.asked) == 2


async def test_without_an_account_there_the_error_says_what_to_store(make_server: MakeServer) -> None:
    async with PLAYED["github"]() as provider, make_server() as server:
        await store(server, github=provider)
        with pytest.raises(Exception, match=r"Git provider token required\. Store one for gitlab\."):
            await make(server, "gitlab")


async def test_a_conversation_of_somebody_else_is_none_and_nothing_is_made_for_it(make_server: MakeServer) -> None:
    async with PLAYED["github"]() as provider, make_server() as server:
        await store(server, github=provider)
        await server.app.services.database.conversations.create(ConversationRecord(id="theirs", user_id="bob"))
        for ident in ("theirs", "none"):
            with pytest.raises(ConversationNotFoundError):
                await make(server, "github", ident)
        assert provider.made == []


async def test_a_request_whose_caller_has_gone_is_noted_all_the_same(make_server: MakeServer) -> None:
    async with PLAYED["github"]() as provider, make_server() as server:
        await store(server, github=provider)
        await server.app.services.database.conversations.create(ConversationRecord(id="mine"))
        git = GitAccess({}, HttpPool(pause_seconds=0.001))
        maker = RequestMaker(server.app.services.database, git)
        checked = TOOLS["create_pr"].arguments.model_validate(arguments("github"))
        asking = asyncio.create_task(maker.make(TOOLS["create_pr"], checked, user_id="", conversation_id="mine"))
        made_by = provider.answer

        def cancelled_meanwhile(asked: Any) -> Told | None:
            if asked.path.endswith("/pulls"):
                asking.cancel()
            return made_by(asked)

        provider.answer = cancelled_meanwhile  # type: ignore[method-assign] # a played provider plays another part
        try:
            with pytest.raises(asyncio.CancelledError):
                await asking
            await maker.aclose()
        finally:
            await git.aclose()
        assert len(provider.made) == 1
        assert (await server.info("mine"))["pr_number"] == [41]


async def test_numbers_that_come_at_once_are_all_noted(make_server: MakeServer) -> None:
    async with make_server() as server:
        repository = server.app.services.database.conversations
        await repository.create(ConversationRecord(id="mine"))
        assert all(await asyncio.gather(*(repository.add_pr_number("mine", number) for number in range(20))))
        assert sorted((await server.info("mine"))["pr_number"]) == list(range(20))
        assert await repository.add_pr_number("none", 1) is False


@asynccontextmanager
async def agent_that_opens(
    make_server: MakeServer, given: Mapping[str, Any]
) -> AsyncIterator[tuple[Server, PlayedProvider, ModelServer]]:
    """A server whose agent calls ``create_pr`` with these arguments, and is done."""
    async with (
        PLAYED["github"]() as provider,
        ModelServer([call("create_pr", given), finish("Done.")]) as model,
        make_server(generate_titles=False) as server,
    ):
        await store(server, github=provider)
        settings = {"llm_model": "openai/scripted", "llm_base_url": model.url, "llm_api_key": "key"}
        assert (await server.post("/api/settings", json=settings)).status_code == 200
        yield server, provider, model


async def observed(server: Server, conversation_id: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            events = await server.events(conversation_id)
            if seen := [event for event in events if event.get("observation") in {"mcp", "error"}]:
                return seen[0]
            await asyncio.sleep(0.05)


async def test_an_agent_opens_a_request_with_a_tool_that_it_has_from_its_first_step(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> None:
        raise AssertionError("the client library is not needed for this")

    monkeypatch.setattr("agent_core.mcp.servers.load", load)
    given = arguments("github", body="Uses $GITHUB_TOKEN.", draft="false")
    async with agent_that_opens(make_server, given) as (server, provider, model):
        conversation_id = await server.create(initial_user_msg="Open it.")
        result = await observed(server, conversation_id)
        assert result["observation"] == "mcp"
        assert result["extras"]["name"] == "create_pr"
        content = json.loads(result["content"])
        assert content == {
            "content": [{"type": "text", "text": f"{provider.origin}/ann/boat/pull/41"}],
            "isError": False,
        }
        (told,) = provider.made
        assert told["draft"] is False
        assert told["body"] == "Uses $GITHUB_TOKEN.", "what anybody may read has no secret put into it"
        assert (await server.info(conversation_id))["pr_number"] == [41]
        offered = {tool["function"]["name"]: tool["function"] for tool in model.requests[0].json["tools"]}
        assert {"create_pr", "create_mr", "create_bitbucket_pr"} <= offered.keys()
        assert not {"create_azure_devops_pr", "create_forgejo_pr"} & offered.keys(), "no account there"
        parameters = offered["create_pr"]["parameters"]
        required = {"repo_name", "source_branch", "target_branch", "title", "body"}
        assert required <= set(parameters["required"])
        assert not {"draft", "labels"} & set(parameters["required"])
        assert TOKEN not in json.dumps(await server.events(conversation_id))


async def test_bad_arguments_are_told_to_the_model_and_nothing_is_asked(make_server: MakeServer) -> None:
    given = {**arguments("github"), "title": 7, "colour": "red"}
    del given["target_branch"]
    async with agent_that_opens(make_server, given) as (server, provider, _):
        conversation_id = await server.create(initial_user_msg="Open it.")
        result = await observed(server, conversation_id)
        assert result["observation"] == "error"
        for says in ("target_branch: Field required", "title: Input should be a valid string", "colour: Extra inputs"):
            assert says in result["content"]
        assert provider.made == []
