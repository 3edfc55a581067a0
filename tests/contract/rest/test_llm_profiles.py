"""Named models on conversations of the server: who uses which, seen in the requests that arrive at a model server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_core.agent.base import AgentBase
from agent_core.agent.codeact import CodeActAgent
from agent_core.events.masking import DUMP_MASK
from agent_core.llm.registry import NO_ROUTER
from agent_core.testing.fake_sandbox import FakeAnswer, FakeProvider, FakeRequest
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, fail, finish, say
from runtime_images.runner.files import line_ranges
from runtime_images.runner.files.edits import EditHistory
from runtime_images.runner.files.line_ranges import span_of
from server.db.repositories.user_settings import StoredSettings
from server.settings.llm_profiles import MAX_PROFILES, OPERATORS, REFUSED
from server.settings.settings import Settings
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server, facts
from tests.unit.db.conftest import save_settings


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
        ({"llm_agents": {"NoSuchAgent": "p"}}, r"llm_agents.NoSuchAgent\s+there is no agent 'NoSuchAgent'"),
        ({"agent_configs": {"NoSuchAgent": {}}}, r"agent_configs.NoSuchAgent\s+there is no agent 'NoSuchAgent'"),
    ],
)
def test_what_the_server_does_not_have_is_refused_before_it_starts(values: dict[str, Any], problem: str) -> None:
    values = {**values, "llm_profiles": {"p": {"model": "openai/p"}, **values.get("llm_profiles", {})}}
    with pytest.raises(ValueError, match=problem):
        Settings.model_validate(values)


# --- users' own profiles over REST ---

SECRETS: dict[str, Any] = {
    "api_key": "sk-do-not-tell",
    "base_url": "http://user:pw-do-not-tell@127.0.0.1:9/v1",
    "extra_headers": {"X-Api-Key": "header-do-not-tell", "X-Team": "tools"},
    "litellm_extra_body": {"proxy": {"auth_token": "body-do-not-tell"}, "user": "ann"},
}
MASKED: dict[str, Any] = {
    "api_key": DUMP_MASK,
    "base_url": f"http://user:{DUMP_MASK}@127.0.0.1:9/v1",
    "extra_headers": {"X-Api-Key": DUMP_MASK, "X-Team": "tools"},
    "litellm_extra_body": {"proxy": {"auth_token": DUMP_MASK}, "user": "ann"},
}


async def put(server: Server, name: str, **options: Any) -> httpx.Response:
    return await server.client.put(f"/api/llm-profiles/{name}", json=options)


async def store(server: Server, name: str, **options: Any) -> dict[str, Any]:
    response = await put(server, name, **options)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def stored(server: Server, name: str) -> dict[str, Any]:
    """The profile with its secrets, as the database has it."""
    found = await server.app.services.database.settings.get()
    assert found is not None
    assert found.llm_profiles is not None
    return found.llm_profiles[name]


async def test_a_profile_is_shown_without_secrets_and_what_is_shown_can_be_sent_back(server: Server) -> None:
    shown = await store(server, "mine", model="openai/m", temperature=0.5, **SECRETS)
    assert shown["options"] == {"model": "openai/m", "temperature": 0.5, **MASKED}
    for path in ("/api/llm-profiles", "/api/llm-profiles/mine", "/api/settings"):
        assert "do-not-tell" not in (await server.get(path)).text
    await store(server, "mine", **{**shown["options"], "temperature": 1})
    assert await stored(server, "mine") == {"model": "openai/m", "temperature": 1, **SECRETS}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"base_url": "http://evil.example/v1"}, "api_key"),
        ({"base_url": None}, "api_key"),
        ({"base_url": f"http://other:{DUMP_MASK}@127.0.0.1:9/v1"}, "api_key"),
        ({"ollama_base_url": "http://evil.example"}, "api_key"),
        ({"extra_headers": {"X-Other-Key": DUMP_MASK}}, "extra_headers.X-Other-Key"),
    ],
)
async def test_a_masked_secret_goes_to_no_other_place(server: Server, change: dict[str, Any], place: str) -> None:
    await store(server, "mine", model="openai/m", **SECRETS)
    response = await put(server, "mine", **{"model": "openai/m", **MASKED, **change})
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["body", *place.split(".")]
    assert "send the secret itself" in response.text
    assert await stored(server, "mine") == {"model": "openai/m", **SECRETS}


async def test_a_mask_for_a_key_of_another_provider_or_of_none_is_refused(server: Server) -> None:
    assert (await put(server, "new", model="openai/m", api_key=DUMP_MASK)).status_code == 422
    await store(server, "mine", model="openai/m", api_key="sk-do-not-tell")
    assert (await put(server, "mine", model="anthropic/m", api_key=DUMP_MASK)).status_code == 422
    assert (await put(server, "mine", model="claude-m", api_key=DUMP_MASK)).status_code == 422
    for model in ("openai/other", "gpt-m", "gpt-n"):  # a name alone is one of OpenAI's
        await store(server, "mine", model=model, api_key=DUMP_MASK)
        assert (await stored(server, "mine"))["api_key"] == "sk-do-not-tell"


@pytest.mark.parametrize(
    ("options", "field", "problem"),
    [
        ({"model": "openai/m", "temprature": 1}, "temprature", "did you mean 'temperature'?"),
        ({"model": "openai/m", "temperature": "warm"}, "temperature", "valid number"),
        ({"model": "openai/m", "reasoning_effort": "hihg"}, "reasoning_effort", "'high'"),
        ({}, "model", "name one"),
        ({"model": "openai/m", "models": {"a": "b"}}, "models", "only a router"),
        ({"router": "multimodal_router"}, "models", "chooses from profiles"),
        ({"router": "random_router", "models": {"usage_id": "cheap"}}, "models", "can be no key"),
        ({"router": "random_router", "models": {" ": "cheap"}}, "models", "can be no key"),
        ({"router": "random_router", "models": {"a": "cheap"}, "timeout": 5}, "timeout", "nothing but router"),
        ({"router": "randm_router", "models": {"a": "cheap"}}, "router", "did you mean 'random_router'?"),
        ({"model": "openai/m", "fallbacks": ["cheep"]}, "fallbacks", "did you mean 'cheap'?"),
        ({"model": "openai/m", "fallbacks": ["mine"]}, "fallbacks", "cannot name itself"),
        ({"model": "openai/m", "fallbacks": ["routed"]}, "fallbacks", "is a router"),
        ({"model": "openai/m", "base_url": "a.example"}, "base_url", "begins with http"),
        ({"model": "openai/m", "api_key": "a\nb"}, "api_key", "one line"),
        ({"model": "openai/m", "extra_headers": {"a b": "c"}}, "extra_headers", "no name of a header"),
        ({"model": "openai/m", "extra_headers": {"a": "b\r\nc: d"}}, "extra_headers", "one line"),
        ({"model": "openai/m", "capability_overrides": {"flies": True}}, "capability_overrides", "no capability"),
        ({"model": "openai/m", "litellm_extra_body": {"a": "x" * 70_000}}, "", "at most are stored"),
        ({"model": "openai/m", "kind": ["LLM"]}, "", "kind: "),
        ({"model": "replay/etc/passwd"}, "model", "file of the server's host"),
        ({"model": "bedrock/m", "aws_role_name": "r"}, "aws_role_name", "give aws_access_key_id"),
        (
            {"model": "bedrock/m", "aws_bedrock_runtime_endpoint": "http://e"},
            "aws_bedrock_runtime_endpoint",
            "give aws",
        ),
        ({"model": "bedrock/m", "base_url": "http://e"}, "model", "no address of a user gets"),
        ({"model": "vertex_ai/m", "base_url": "http://e"}, "model", "no address of a user gets"),
    ],
)
async def test_a_profile_that_cannot_be_is_a_422_that_names_the_field(
    make_server: MakeServer, options: dict[str, Any], field: str, problem: str
) -> None:
    profiles = {"cheap": {"model": "openai/c"}, "routed": {"router": "random_router", "models": {"a": "cheap"}}}
    async with make_server(llm_profiles=profiles) as server:
        response = await put(server, "mine", **options)
        assert response.status_code == 422
        found = response.json()["detail"][0]
        assert found["loc"] == ["body", *([field] if field else [])]
        assert problem in found["msg"]
        assert [one["name"] for one in (await server.get("/api/llm-profiles")).json()["results"]] == ["cheap", "routed"]


@pytest.mark.parametrize("option", [*(name for name in REFUSED if name != "kind"), *OPERATORS])
async def test_what_is_for_programs_or_reaches_into_the_host_is_no_users(server: Server, option: str) -> None:
    response = await put(server, "mine", model="openai/m", **{option: True if option == "log_completions" else "x"})
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["body", option]
    assert {**REFUSED, **OPERATORS}[option] in response.json()["message"]


async def test_no_users_flat_model_is_a_file_of_the_host(make_server: MakeServer, tmp_path: Path) -> None:
    stored = StoredSettings(llm_model="replay//etc/passwd")
    async with make_server(llm_model="replay/of-the-operator") as server:
        response = await server.post("/api/settings", json={"llm_model": "replay//etc/passwd"})
        assert (response.status_code, response.json()["detail"][0]["loc"]) == (422, ["body", "llm_model"])
        assert (await server.post("/api/settings", json={"llm_model": "replay/of-the-operator"})).status_code == 200
        await save_settings(server.app.services.database, stored)
        response = await server.post("/api/conversations", json={"initial_user_msg": "hi"})
        assert (response.status_code, "file of the server's host" in response.text) == (400, True)


@pytest.mark.parametrize("name", ["a b", "-a", "x" * 65, "ä"])
async def test_a_name_that_cannot_be_is_refused(server: Server, name: str) -> None:
    response = await put(server, name, model="openai/m")
    assert response.status_code == 422
    assert "cannot name a profile" in response.text


async def test_profiles_of_the_server_are_seen_without_the_way_to_them_and_changed_by_nobody(
    make_server: MakeServer,
) -> None:
    own = {"model": "openai/s", "temperature": 0.5, "timeout": 9, **SECRETS}
    async with make_server(llm_profiles={"shared": own}, llm_profile="shared") as server:
        await store(server, "mine", model="openai/m")
        found = (await server.get("/api/llm-profiles")).json()
        assert [(one["name"], one["owner"], one["is_default"], one["may_change"]) for one in found["results"]] == [
            ("mine", "user", False, True),
            ("shared", "server", True, False),
        ]
        assert (found["default"], found["may_add"]) == ("shared", True)
        assert found["results"][1]["options"] == {"model": "openai/s", "temperature": 0.5, "timeout": 9}
        assert (await put(server, "shared", model="openai/m")).status_code == 409
        assert (await server.client.delete("/api/llm-profiles/shared")).status_code == 404


async def test_a_profile_in_use_is_not_deleted_and_says_where_it_is_used(server: Server) -> None:
    await store(server, "cheap", model="openai/c")
    await store(server, "mine", model="openai/m", fallbacks=["cheap"])
    chosen = {"llm_profile": "cheap", "llm_purposes": {"title": "cheap"}, "llm_agents": {"CodeActAgent": "cheap"}}
    assert (await server.post("/api/settings", json=chosen)).status_code == 200
    response = await server.client.delete("/api/llm-profiles/cheap")
    assert response.status_code == 409
    for place in ("llm_profile", "llm_purposes.title", "llm_agents.CodeActAgent", "fallbacks of mine"):
        assert place in response.text
    taken_back: dict[str, Any] = {"llm_profile": "", "llm_purposes": {}, "llm_agents": None}
    assert (await server.post("/api/settings", json=taken_back)).status_code == 200
    assert (await server.client.delete("/api/llm-profiles/mine")).status_code == 204
    assert (await server.client.delete("/api/llm-profiles/cheap")).status_code == 204
    assert (await server.get("/api/llm-profiles/cheap")).status_code == 404


async def test_a_profile_becomes_no_router_while_others_name_it_as_a_model(server: Server) -> None:
    await store(server, "base", model="openai/b")
    await store(server, "cheap", model="openai/c")
    await store(server, "mine", model="openai/m", fallbacks=["cheap"])
    response = await put(server, "cheap", router="random_router", models={"a": "base"})
    assert response.status_code == 422
    assert "'mine' names this one" in response.text


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"llm_profile": "cheep"}, ["llm_profile"]),
        ({"llm_purposes": {"title": "cheep"}}, ["llm_purposes", "title"]),
        ({"llm_agents": {"CodeActAgent": "cheep"}}, ["llm_agents", "CodeActAgent"]),
    ],
)
async def test_settings_that_name_no_profile_are_a_422_with_the_nearest_name(
    server: Server, change: dict[str, Any], place: list[str]
) -> None:
    await store(server, "cheap", model="openai/c")
    response = await server.post("/api/settings", json={"language": "fr", **change})
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["body", *place]
    assert "did you mean 'cheap'?" in response.json()["message"]
    assert (await server.get("/api/settings")).json()["language"] is None


async def test_an_agent_without_a_name_has_no_profile(server: Server) -> None:
    await store(server, "mine", model="openai/mine")
    response = await server.post("/api/settings", json={"llm_agents": {"": "mine"}})
    assert (response.status_code, "llm_agents" in response.text) == (422, True)


async def test_an_unknown_purpose_and_an_unknown_agent_are_refused(server: Server) -> None:
    await store(server, "cheap", model="openai/c")
    response = await server.post("/api/settings", json={"llm_purposes": {"titel": "cheap"}})
    assert (response.status_code, "did you mean 'title'?" in response.text) == (422, True)
    response = await server.post("/api/settings", json={"llm_agents": {"NoAgent": "cheap"}})
    assert (response.status_code, "there is no such agent; did you mean" in response.text) == (422, True)


async def test_where_the_operator_forbids_it_nobody_has_profiles_and_stored_ones_count_no_more(
    make_server: MakeServer,
) -> None:
    async with make_server() as server:
        await store(server, "mine", model="openai/m", api_key="k", base_url="http://127.0.0.1:9/v1")
        conversation = await server.create(llm_profile="mine")
    async with make_server(allow_user_llm_profiles=False, generate_titles=False) as server:
        response = await put(server, "more", model="openai/m")
        assert (response.status_code, "allows no profiles of users" in response.text) == (403, True)
        found = (await server.get("/api/llm-profiles")).json()
        assert (found["may_add"], found["results"][0]["may_change"]) == (False, False)
        assert "allows no profiles of users" in found["results"][0]["problem"]
        response = await server.post("/api/conversations", json={"llm_profile": "mine"})
        assert (response.status_code, "allows no profiles of users" in response.text) == (422, True)
        await say_to(server, conversation, "hi")
        assert "allows no profiles of users" in await why_it_failed(server, conversation)


# --- conversations ---


async def say_to(server: Server, conversation: str, text: str) -> None:
    body = {"action": "message", "args": {"content": text}}
    response = await server.post(f"/api/conversations/{conversation}/events", json=body)
    assert response.status_code == 200, response.text


async def why_it_failed(server: Server, conversation: str) -> str:
    """What the conversation says in the state `error`."""
    found: list[str] = []

    async def failed() -> bool:
        events = await server.events(conversation)
        states = [one["extras"] for one in events if one.get("observation") == "agent_state_changed"]
        found[:] = [str(one) for one in states if one["agent_state"] == "error"]
        return bool(found)

    await server.until(failed, seconds=MODEL_SECONDS)
    return found[-1]


async def test_a_conversation_names_a_profile_and_can_be_given_another(make_server: MakeServer) -> None:
    async with ModelServer(done) as model, make_server(generate_titles=False) as server:
        for name in ("one", "two"):
            await store(server, name, **at(model, name))
        conversation = await server.create(llm_profile="one", initial_user_msg="hi")
        assert (await until_asked(server, model, "one")).api_key == "key-of-one"
        await until_finished(server, conversation)
        path = f"/api/conversations/{conversation}/llm-profile"
        assert (await server.get(path)).json() == {"llm_profile": "one"}
        refused = await server.client.put(path, json={"llm_profile": "tow"})
        assert (refused.status_code, "did you mean 'two'?" in refused.text) == (422, True)
        assert (await server.client.put(path, json={"llm_profile": "two"})).json() == {"llm_profile": "two"}
        await server.post(f"/api/conversations/{conversation}/stop")
        await say_to(server, conversation, "go on")
        assert (await until_asked(server, model, "two")).api_key == "key-of-two"
        fork = await server.post(
            f"/api/conversations/{conversation}/fork", json={"llm_profile": "one", "copy_files": False}
        )
        other = fork.json()["conversation_id"]
        assert (await server.get(f"/api/conversations/{other}/llm-profile")).json() == {"llm_profile": "one"}


@pytest.mark.parametrize("path", ["/api/conversations", "fork"])
async def test_a_conversation_with_a_profile_that_there_is_not_is_refused(server: Server, path: str) -> None:
    await store(server, "cheap", model="openai/c")
    if path == "fork":
        path = f"/api/conversations/{await server.create()}/fork"
    response = await server.post(path, json={"llm_profile": "cheep"})
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["body", "llm_profile"]
    assert "did you mean 'cheap'?" in response.text


async def test_a_conversation_whose_profile_is_gone_opens_and_says_so(server: Server) -> None:
    await store(server, "mine", model="openai/m", api_key="k", base_url="http://127.0.0.1:9/v1")
    conversation = await server.create(llm_profile="mine")
    assert (await server.client.delete("/api/llm-profiles/mine")).status_code == 204
    await server.post(f"/api/conversations/{conversation}/stop")
    await say_to(server, conversation, "hi")
    assert "there is no profile 'mine'" in await why_it_failed(server, conversation)


async def test_a_default_that_became_wrong_refuses_new_conversations_in_words(server: Server) -> None:
    await store(server, "mine", model="openai/m")
    await server.post("/api/settings", json={"llm_profile": "mine"})
    wrong = StoredSettings(llm_profile="mine", llm_profiles={"mine": {"model": 7}})
    await save_settings(server.app.services.database, wrong)
    response = await server.post("/api/conversations", json={})
    assert (response.status_code, "store it again" in response.text) == (400, True)
    listed = (await server.get("/api/llm-profiles")).json()["results"]
    assert "store it again" in listed[0]["problem"]


async def test_the_users_choices_go_before_the_servers_and_purposes_of_the_server_before_none(
    make_server: MakeServer,
) -> None:
    async with ModelServer(done) as model:
        profiles = {name: at(model, name) for name in ("server", "titles")}
        chosen = {"llm_profiles": profiles, "llm_profile": "server", "llm_purposes": {"title": "titles"}}
        async with make_server(**chosen) as server:
            await store(server, "mine", **at(model, "mine"))
            await server.post("/api/settings", json={"llm_profile": "mine"})
            await until_finished(server, await server.create(initial_user_msg="hi"))
            asked = {request.model for request in model.requests}
            assert asked == {"mine"}, "at the user's cost nothing is sent to a model that they did not choose"
            await server.post("/api/settings", json={"llm_purposes": {"title": "titles"}})
            await until_finished(server, await server.create(initial_user_msg="hi"))
            assert (await until_asked(server, model, "titles")).api_key == "key-of-titles"


async def test_a_profile_without_key_and_address_is_reached_like_the_model_of_its_provider(
    make_server: MakeServer,
) -> None:
    async with ModelServer(done) as model:
        flat = {"llm_model": "openai/flat", "llm_api_key": "flat-key", "llm_base_url": model.url}
        async with make_server(generate_titles=False, **flat) as server:
            await store(server, "mine", model="openai/mine", seed=7)
            await until_finished(server, await server.create(llm_profile="mine", initial_user_msg="hi"))
            request = await until_asked(server, model, "mine")
            assert (request.api_key, request.json["seed"]) == ("flat-key", 7)


async def test_no_key_of_the_environment_goes_to_an_address_that_a_user_typed(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "env-do-not-tell")
    monkeypatch.setenv("OPENAI_API_KEY", "env-do-not-tell")
    async with ModelServer(lambda request: fail(400)) as model, make_server(generate_titles=False) as server:
        for name in ("anthropic/m", "openai/m", "m", "deepseek/m"):
            await store(server, "mine", model=name, base_url=model.url, num_retries=1)
            assert (await server.post("/api/llm-profiles/mine/test")).json()["ok"] is False
            await server.post("/api/settings", json={"llm_model": name, "llm_base_url": model.url, "llm_api_key": ""})
            await why_it_failed(server, await server.create(initial_user_msg="hi"))
        assert len(model.requests) >= 8
        assert not any("env-do-not-tell" in str(request.headers) for request in model.requests)


# --- trying one ---


@pytest.mark.parametrize(
    ("turn", "kind"),
    [(fail(401), "key"), (fail(404), "model"), (fail(429), "limit"), (fail(503), "address"), (fail(400), "other")],
)
async def test_a_profile_is_tried_with_one_request_and_what_is_wrong_is_said(
    make_server: MakeServer, turn: Turn, kind: str
) -> None:
    turns = iter([say("OK"), turn])
    async with ModelServer(lambda request: next(turns)) as model, make_server() as server:
        await store(server, "mine", **at(model, "mine"))
        found = (await server.post("/api/llm-profiles/mine/test")).json()
        assert (found["ok"], found["answer"], found["kind"], found["problem"]) == (True, "OK", None, "")
        assert found["seconds"] >= 0
        found = (await server.post("/api/llm-profiles/mine/test")).json()
        assert (found["ok"], found["kind"], found["model"]) == (False, kind, "openai/mine")
        assert found["problem"]
        assert "key-of-mine" not in str(found)
        assert model.request_count == 2


async def test_trying_a_profile_of_the_server_does_not_tell_where_it_is_reached(make_server: MakeServer) -> None:
    def turn(request: ModelRequest) -> Turn:
        return fail(401, f"{request.headers['authorization']} is no key")

    async with ModelServer(turn) as model, make_server(llm_profiles={"shared": at(model, "shared")}) as server:
        found = await server.post("/api/llm-profiles/shared/test")
        assert found.json()["kind"] == "key"
        assert model.url not in found.text
        assert "key-of-shared" not in found.text
    async with make_server(llm_profiles={"gone": {"model": "openai/m", "base_url": model.url}}) as server:
        found = await server.post("/api/llm-profiles/gone/test")
        assert found.json()["kind"] == "address"
        assert "127.0.0.1" not in found.text


async def test_trying_a_profile_that_is_reached_like_the_servers_model_does_not_tell_where_that_is(
    make_server: MakeServer,
) -> None:
    flat = {"llm_model": "openai/flat", "llm_api_key": "flat-key", "llm_base_url": "http://hidden.invalid:9/v1"}
    async with make_server(**flat) as server:
        await store(server, "mine", model="openai/mine", num_retries=1)
        found = await server.post("/api/llm-profiles/mine/test")
        assert found.json()["ok"] is False
        assert "hidden.invalid" not in found.text
        await store(server, "mine", model="openai/mine", base_url="http://own.invalid/v1", num_retries=1)
        assert "own.invalid" in (await server.post("/api/llm-profiles/mine/test")).text


async def test_of_a_router_each_model_is_tried_and_no_profile_is_a_404(make_server: MakeServer) -> None:
    def turn(request: ModelRequest) -> Turn:
        return fail(404) if request.model == "b" else say("OK")

    async with ModelServer(turn) as model, make_server() as server:
        for name in ("a", "b"):
            await store(server, name, **at(model, name))
        await store(server, "routed", router="random_router", models={"x": "a", "y": "b"})
        found = (await server.post("/api/llm-profiles/routed/test")).json()
        assert (found["ok"], found["kind"], found["model"]) == (False, "model", "openai/b")
        assert [request.model for request in model.requests] == ["a", "b"]
        assert (await server.post("/api/llm-profiles/none/test")).status_code == 404


# --- stored, owned, kept ---


async def test_profiles_are_encrypted_and_the_secrets_of_conversations_are_hidden(make_server: MakeServer) -> None:
    async with ModelServer([finish("It is key-of-mine.")]) as model, make_server(generate_titles=False) as server:
        await store(server, "mine", **at(model, "mine"))
        rows = str(await server.app.services.database.engines.fetch("select document from settings"))
        assert "llm_profiles" in rows
        assert "key-of-mine" not in rows
        conversation = await server.create(llm_profile="mine", initial_user_msg="what is it?")
        await until_finished(server, conversation)
        assert "key-of-mine" not in str(await server.events(conversation))


async def test_another_users_profiles_are_as_little_there_as_none(server: Server) -> None:
    theirs = StoredSettings(llm_profiles={"theirs": {"model": "openai/t", "api_key": "k"}})
    await save_settings(server.app.services.database, theirs, "somebody")
    assert (await server.get("/api/llm-profiles")).json()["results"] == []
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/test")):
        response = await server.client.request(method, f"/api/llm-profiles/theirs{path}")
        assert response.status_code == 404
    await store(server, "theirs", model="openai/mine")
    assert await server.app.services.database.settings.get("somebody") == theirs


async def test_changes_at_the_same_time_do_not_lose_each_other(server: Server) -> None:
    names = [f"p{number}" for number in range(8)]
    await asyncio.gather(*(store(server, name, model="openai/m") for name in names))
    assert [one["name"] for one in (await server.get("/api/llm-profiles")).json()["results"]] == names


async def test_a_user_has_a_hundred_profiles_at_most(server: Server) -> None:
    many = {f"p{number}": {"model": "openai/m"} for number in range(MAX_PROFILES)}
    await save_settings(server.app.services.database, StoredSettings(llm_profiles=many))
    assert (await put(server, "more", model="openai/m")).status_code == 409
    await store(server, "p0", model="openai/other")


# --- purposes ---


async def test_what_is_forgotten_is_summed_up_by_the_model_for_that(make_server: MakeServer) -> None:
    summed_up = False

    def turn(request: ModelRequest) -> Turn:
        nonlocal summed_up
        if request.model == "cheap":
            summed_up = True
            return say("They have listed files.")
        return finish("Done.") if summed_up else call("terminal", {"command": f"ls {len(request.messages)}"})

    async with ModelServer(turn) as model:
        profiles = {"strong": at(model, "strong"), "cheap": at(model, "cheap")}
        chosen = {"llm_profiles": profiles, "llm_profile": "strong", "llm_purposes": {"condenser": "cheap"}}
        async with make_server(generate_titles=False, **chosen) as server:
            await server.post("/api/settings", json={"condenser_max_size": 20})
            await until_finished(server, await server.create(initial_user_msg="hi"))
            assert (await until_asked(server, model, "cheap")).api_key == "key-of-cheap"


async def test_drafts_are_written_out_by_the_model_for_drafts(make_server: MakeServer, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")

    async def edit(request: FakeRequest) -> FakeAnswer:
        return line_ranges.run(span_of(dict(request.args), str(tmp_path)), EditHistory(str(tmp_path / "state")))

    async def lint(request: FakeRequest) -> FakeAnswer:
        return {"problems": []}

    def turn(request: ModelRequest) -> Turn:
        if request.model == "drafter":
            return say("<updated_code>\nx = 2\n</updated_code>")
        if any(message["role"] == "tool" for message in request.messages):
            return finish("Done.")
        return call("edit_file", {"path": str(file), "content": "x = 2", "start": 1, "end": 1})

    provider = FakeProvider(handlers={"file.range": edit, "code.lint": lint, "workspace.facts": facts})
    async with ModelServer(turn) as model, make_server(provider, generate_titles=False) as server:
        for name in ("mine", "drafter"):
            await store(server, name, **at(model, name))
        chosen = {"llm_profile": "mine", "llm_purposes": {"draft_editor": "drafter"}}
        await server.post("/api/settings", json={**chosen, "agent_options": {"enable_llm_editor": True}})
        await until_finished(server, await server.create(initial_user_msg="hi"))
        assert (await until_asked(server, model, "drafter")).api_key == "key-of-drafter"
        assert file.read_text() == "x = 2\n"


async def test_an_agent_that_is_delegated_to_has_the_profile_and_the_options_of_its_class(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(AgentBase.agents, "BrowsingAgent", CodeActAgent)  # one that needs no browser

    def turn(request: ModelRequest) -> Turn:
        if request.model == "browsing" or any(message["role"] == "tool" for message in request.messages):
            return finish("Done.")
        return call("delegate_to_browsing_agent", {"task": "look it up"})

    async with ModelServer(turn) as model:
        profiles = {name: at(model, name) for name in ("strong", "browsing", "chosen")}
        chosen: dict[str, Any] = {"llm_profiles": profiles, "llm_profile": "strong"}
        chosen["llm_agents"] = {"BrowsingAgent": "browsing"}
        chosen["agent_configs"] = {"BrowsingAgent": {"tools": ["glob", "grep"]}}
        async with make_server(generate_titles=False, **chosen) as server:
            tools = {"tools": ["terminal", "delegate_to_browsing_agent"]}
            body = {"llm_profile": "chosen", "agent_options": tools, "initial_user_msg": "hi"}
            await until_finished(server, await server.create(**body))
            asked = await until_asked(server, model, "browsing")
            assert asked.api_key == "key-of-browsing"
            offered = {tool["function"]["name"] for tool in asked.json["tools"]}
            assert offered == {"glob", "grep", "finish", "think"}
            assert {request.model for request in model.requests} == {"chosen", "browsing"}
