"""The search tool that a key brings: offered, carried out with the key at a played search service, or told why not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server
from tests.serving import serving as served

KEY, SERVERS_KEY = "tvly-key-of-the-user", "tvly-key-of-the-server"
FOUND = [{"title": "Boats", "url": "https://boats.example", "content": f"They float. {KEY}", "score": 0.9}]


@dataclass
class PlayedSearch:
    """A search service that takes some keys, and keeps what it was asked."""

    keys: set[str] = field(default_factory=lambda: {KEY, SERVERS_KEY})
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    checks: int = 0
    status: int = 200
    url: str = ""

    def _refusal(self, request: Request) -> JSONResponse | None:
        if self.status != 200:
            return JSONResponse({"detail": {"error": "out of order"}}, self.status)
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        if key not in self.keys:
            return JSONResponse({"detail": {"error": "Unauthorized: missing or invalid API key."}}, 401)
        return None

    async def usage(self, request: Request) -> JSONResponse:
        self.checks += 1
        return self._refusal(request) or JSONResponse({"key": {"usage": 1, "limit": 100}})

    async def search(self, request: Request) -> JSONResponse:
        refusal = self._refusal(request)
        self.asked.append((request.headers["authorization"], await request.json()))
        return refusal or JSONResponse({"query": "boats", "answer": None, "results": FOUND})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[PlayedSearch]:
        routes = [
            Route("/usage", self.usage, methods=["GET"]),
            Route("/search", self.search, methods=["POST"]),
        ]
        async with served(Starlette(routes=routes)) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self


@pytest.fixture
async def search() -> AsyncIterator[PlayedSearch]:
    async with PlayedSearch().running() as running:
        yield running


async def finished(server: Server, conversation_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    async def is_so() -> bool:
        found[:] = await server.events(conversation_id)
        return any(event.get("action") == "finish" for event in found)

    await server.until(is_so, seconds=MODEL_SECONDS)
    return found


def options(search: PlayedSearch, model: ModelServer, **more: Any) -> dict[str, Any]:
    usual = {"search_url": search.url, "verify_search_key": True, "generate_titles": False}
    return {**usual, "llm_model": "openai/x", "llm_api_key": "sk-model", "llm_base_url": model.url, **more}


def offered(model: ModelServer, number: int = 0) -> set[str]:
    return {tool["function"]["name"] for tool in model.requests[number].json["tools"]}


async def test_with_a_key_the_agent_searches_at_the_service_with_it_and_it_is_shown_nowhere(
    make_server: MakeServer, search: PlayedSearch
) -> None:
    turns = [call("tavily-search", {"query": "boats", "max_results": 3, "topic": "news"}), finish("They float.")]
    async with ModelServer(turns) as model, make_server(**options(search, model)) as server:
        assert (await server.post("/api/settings", json={"search_api_key": KEY})).status_code == 200
        conversation_id = await server.create(initial_user_msg="What do boats do?")
        events = await finished(server, conversation_id)
        assert "tavily-search" in offered(model)
        told = str(model.requests[1].json["messages"])
        assert "They float." in told
        assert "https://boats.example" in told
        assert KEY not in told
        assert KEY not in str(events)
        [(key, asked)] = search.asked
        assert (key, asked["query"], asked["max_results"], asked["topic"]) == (f"Bearer {KEY}", "boats", 3, "news")
        sandbox = next(iter(server.provider.sandboxes.values()))
        assert KEY not in str(sandbox.spec)
        assert KEY not in str([(one.op, one.args) for one in sandbox.runner.ran])
        assert KEY not in (await server.get("/api/settings")).text


async def test_without_a_key_no_search_is_offered_and_the_servers_key_counts_where_the_user_has_none(
    make_server: MakeServer, search: PlayedSearch
) -> None:
    async with ModelServer([finish("Done.")]) as model, make_server(**options(search, model)) as server:
        await finished(server, await server.create(initial_user_msg="Go"))
        assert "tavily-search" not in offered(model)
    turns = [call("tavily-search", {"query": "boats"}), finish("Done.")]
    async with (
        ModelServer(turns) as model,
        make_server(**options(search, model, search_api_key=SERVERS_KEY)) as server,
    ):
        events = await finished(server, await server.create(initial_user_msg=f"Go, {SERVERS_KEY}"))
        assert search.asked[0][0] == f"Bearer {SERVERS_KEY}"
        assert SERVERS_KEY not in str(events)


async def test_a_key_that_the_service_refuses_is_not_stored_and_begins_no_conversation(
    make_server: MakeServer, search: PlayedSearch
) -> None:
    async with ModelServer([]) as model, make_server(**options(search, model)) as server:
        response = await server.post("/api/settings", json={"language": "de", "search_api_key": "tvly-wrong"})
        assert response.status_code == 422
        assert response.json()["error"].startswith("search_api_key: the search service")
        assert "tvly-wrong" not in response.text
        assert (await server.get("/api/settings")).status_code == 404
        assert (await server.post("/api/settings", json={"search_api_key": KEY})).status_code == 200
    search.keys.clear()
    async with ModelServer([]) as model, make_server(**options(search, model)) as server:
        response = await server.post("/api/conversations", json={"initial_user_msg": "Go"})
        assert response.status_code == 400
        assert response.json()["message"].startswith("search_api_key: the search service")
        assert (await server.get("/api/conversations")).json()["results"] == []
        assert server.provider.sandboxes == {}


async def test_a_service_that_does_not_answer_is_named_and_holds_up_no_conversation(
    make_server: MakeServer, search: PlayedSearch
) -> None:
    turns = [call("tavily-search", {"query": "boats"}), finish("I could not search.")]
    async with ModelServer(turns) as model, make_server(**options(search, model)) as server:
        assert (await server.post("/api/settings", json={"search_api_key": KEY})).status_code == 200
        search.status = 500
        response = await server.post("/api/settings", json={"search_api_key": "tvly-another"})
        assert response.status_code == 502
        assert "Tavily answers 500" in response.json()["error"]
        events = await finished(server, await server.create(initial_user_msg="What do boats do?"))
        assert any(event.get("observation") and "Tavily answers 500" in str(event) for event in events)


async def test_a_key_that_is_refused_in_the_middle_is_told_to_the_agent_and_in_the_log(
    make_server: MakeServer, search: PlayedSearch
) -> None:
    turns = [call("tavily-search", {"query": "boats"}), finish("I could not search.")]
    async with ModelServer(turns) as model, make_server(**options(search, model)) as server:
        assert (await server.post("/api/settings", json={"search_api_key": KEY})).status_code == 200
        search.keys.clear()
        events = await finished(server, await server.create(initial_user_msg="What do boats do?"))
        assert any(event.get("observation") and "does not take this key" in str(event) for event in events)
        assert "does not take this key" in str(model.requests[1].json["messages"])


async def test_a_key_is_asked_about_once_and_clients_that_save_none_are_not_held_up(
    make_server: MakeServer, search: PlayedSearch
) -> None:
    async with ModelServer([]) as model, make_server(**options(search, model)) as server:
        assert (await server.post("/api/settings", json={"search_api_key": KEY})).status_code == 200
        for _ in range(3):
            response = await server.post("/api/settings", json={"language": "de", "search_api_key": ""})
            assert response.status_code == 200
            await server.create()
        assert search.checks == 1
