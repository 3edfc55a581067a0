"""Named models on conversations of the server: who uses which, seen in the requests that arrive at a model server."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.llm.registry import NO_ROUTER
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, fail, finish, say
from server.errors import ConfigurationError
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server


def done(request: ModelRequest) -> Turn:
    return finish("Done.") if request.json.get("tools") else say("A title")


def at(model: ModelServer, name: str, **options: Any) -> dict[str, Any]:
    """A profile whose model has this name there, and a key that tells of it."""
    return {"model": f"openai/{name}", "base_url": model.url, "api_key": f"key-of-{name}", **options}


async def until_asked(server: Server, model: ModelServer, name: str) -> ModelRequest:
    """The newest request to the model of this name."""

    async def asked() -> bool:
        return any(request.model == name for request in model.requests)

    await server.until(asked, seconds=MODEL_SECONDS)
    return next(request for request in reversed(model.requests) if request.model == name)


async def until_finished(server: Server, conversation: str) -> None:
    async def finished() -> bool:
        return any(event.get("action") == "finish" for event in await server.events(conversation))

    await server.until(finished, seconds=MODEL_SECONDS)


async def test_the_servers_default_profile_answers_with_its_own_key(make_server: MakeServer) -> None:
    async with ModelServer(done) as model:
        profiles = {"strong": at(model, "strong", temperature=0.25), "other": at(model, "other")}
        async with make_server(generate_titles=False, llm_profiles=profiles, llm_profile="strong") as server:
            await server.create(initial_user_msg="hi")
            request = await until_asked(server, model, "strong")
        assert (request.api_key, request.json["temperature"]) == ("key-of-strong", 0.25)


async def test_an_agent_class_has_its_own_profile(make_server: MakeServer) -> None:
    async with ModelServer(done) as model:
        profiles = {"strong": at(model, "strong"), "cheap": at(model, "cheap")}
        chosen = {"llm_profiles": profiles, "llm_profile": "strong", "llm_agents": {"ReadOnlyAgent": "cheap"}}
        async with make_server(generate_titles=False, **chosen) as server:
            await server.post("/api/settings", json={"agent": "ReadOnlyAgent"})
            await server.create(initial_user_msg="hi")
            assert (await until_asked(server, model, "cheap")).api_key == "key-of-cheap"
            assert {request.model for request in model.requests} == {"cheap"}


async def test_titles_are_written_by_the_model_for_titles(make_server: MakeServer) -> None:
    async with ModelServer(done) as model:
        profiles = {"strong": at(model, "strong"), "cheap": at(model, "cheap")}
        async with make_server(llm_profiles=profiles, llm_profile="strong", llm_purposes={"title": "cheap"}) as server:
            await server.create(initial_user_msg="hi")
            request = await until_asked(server, model, "cheap")
            assert request.api_key == "key-of-cheap"
            assert "Name the conversation" in str(request.messages)
            assert (await until_asked(server, model, "strong")).json["tools"]


async def test_a_fallback_is_asked_where_a_profile_fails(make_server: MakeServer) -> None:
    def turn(request: ModelRequest) -> Turn:
        return fail(503) if request.model == "strong" else finish("Done.")

    async with ModelServer(turn) as model:
        strong = at(model, "strong", num_retries=1, fallbacks=["spare"])
        profiles = {"strong": strong, "spare": at(model, "spare")}
        async with make_server(generate_titles=False, llm_profiles=profiles, llm_profile="strong") as server:
            conversation = await server.create(initial_user_msg="hi")
            await until_finished(server, conversation)
        assert [(request.model, request.api_key) for request in model.requests] == [
            ("strong", "key-of-strong"),
            ("spare", "key-of-spare"),
        ]


async def test_a_router_chooses_among_profiles_for_each_step(make_server: MakeServer) -> None:
    picture = "data:image/png;base64,iVBORw0KGgo="
    async with ModelServer(done) as model:
        profiles = {
            "seeing": at(model, "seeing", disable_vision=False),
            "blind": at(model, "blind"),
            "routed": {"router": "multimodal_router", "models": {"primary": "seeing", "secondary": "blind"}},
        }
        async with make_server(generate_titles=False, llm_profiles=profiles, llm_profile="routed") as server:
            conversation = await server.create(initial_user_msg="hi")
            assert (await until_asked(server, model, "blind")).api_key == "key-of-blind"
            await until_finished(server, conversation)
            await server.create(initial_user_msg="look", image_urls=[picture])
            assert (await until_asked(server, model, "seeing")).api_key == "key-of-seeing"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"llm_profiles": {"r": {"router": "no_such", "models": {"a": "p"}}}}, "'no_such' is no router"),
        ({"llm_profiles": {"r": {"router": "multimodal_router", "models": {"a": "p"}}}}, "missing:"),
        ({"llm_profiles": {"r": {"router": NO_ROUTER, "models": {"a": "p"}}}}, NO_ROUTER),
        ({"llm_agents": {"NoSuchAgent": "p"}}, "llm_agents: there is no agent 'NoSuchAgent'"),
        ({"agent_configs": {"NoSuchAgent": {}}}, "agent_configs: there is no agent 'NoSuchAgent'"),
    ],
)
async def test_what_the_server_does_not_have_is_refused_before_it_starts(
    make_server: MakeServer, values: dict[str, Any], problem: str
) -> None:
    values = {**values, "llm_profiles": {"p": {"model": "openai/p"}, **values.get("llm_profiles", {})}}
    with pytest.raises(ConfigurationError, match=problem):
        async with make_server(**values):
            pass
