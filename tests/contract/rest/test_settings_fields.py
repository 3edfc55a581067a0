"""Settings field by field: type, default, limits and effect of each."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, NamedTuple

import pytest

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import finish, say
from server.settings.mcp_config import HIDDEN
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server


class Row(NamedTuple):
    """One setting: the field's default, two values that it takes, and some that it does not."""

    default: Any
    values: tuple[Any, Any]
    wrong: tuple[Any, ...]
    takes_null: bool = True


TEXT = (None, ("one", "two"), (7, True, ["one"], {"a": 1}, "x" * 5000, "a\0b"))
NO_ADDRESSES = (
    "a.example",
    "localhost:8000",
    "/v1",
    "ftp://a.example",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "http:a.example",
    "http://",
    "http:///v1",
    "http://:8000",
    "http://user@",
    "http://a.example:port",
    "http://a.example:0",
    "http://a.example:65536",
    "http://[::1",
    "http://a example/v1",
    "http://a.example/\tv1",
    "http://a.example\r\nHost: b.example",
    "http://a.example/\u200b",
)
MCP: dict[str, Any] = {"sse_servers": [], "stdio_servers": [], "shttp_servers": []}
PROGRAM = {"name": "a-B_1", "command": "run", "args": ["x"], "env": {}}

ROWS = {
    "language": Row(*TEXT),
    "agent": Row(None, ("CodeActAgent", "BrowsingAgent"), (*TEXT[2], "NoSuchAgent", "codeactagent", "A" * 4000)),
    "max_iterations": Row(None, (1, 500), (0, -1, 1.5, "many", [1], 2**53 + 1)),
    "security_analyzer": Row(*TEXT),
    "confirmation_mode": Row(None, (True, False), ("perhaps", 2, [True], {})),
    "llm_model": Row(*TEXT),
    "llm_base_url": Row(None, ("https://a.example/v1", "http://[::1]:8000"), (*TEXT[2], *NO_ADDRESSES)),
    "remote_runtime_resource_factor": Row(None, (1, 0), (-1, 1.5, 2, "much", [1])),
    "enable_default_condenser": Row(True, (False, True), (None, "perhaps", 2, []), takes_null=False),
    "enable_sound_notifications": Row(False, (True, False), (None, "perhaps", 2, []), takes_null=False),
    "enable_proactive_conversation_starters": Row(True, (False, True), (None, "perhaps", 2, []), takes_null=False),
    "enable_solvability_analysis": Row(True, (False, True), (None, "perhaps", 2, []), takes_null=False),
    "user_consents_to_analytics": Row(None, (True, False), ("perhaps", 2, [])),
    "sandbox_base_container_image": Row(None, ("drydock/sandbox:one", ""), (*TEXT[2], "a b", "Upper")),
    "sandbox_runtime_container_image": Row(None, ("drydock/sandbox:base", ""), (*TEXT[2], "-a", "other:1")),
    "max_budget_per_task": Row(None, (0.5, 20), (0, -1, "much", [1])),
    "condenser_max_size": Row(None, (20, 240), (19, 0, -1, 20.5, "many", [20])),
    "email": Row(*TEXT),
    "email_verified": Row(None, (True, False), ("perhaps", 2, [])),
    "git_user_name": Row(*TEXT),
    "git_user_email": Row(*TEXT),
    "mcp_config": Row(
        None,
        (
            {
                "sse_servers": [{"url": "https://a.example/sse", "api_key": None}],
                "stdio_servers": [PROGRAM],
                "shttp_servers": [{"url": "wss://b.example", "api_key": None, "timeout": 3600}],
            },
            MCP,
        ),
        (
            7,
            "text",
            [],
            {"other_servers": []},
            {"sse_servers": {}},
            {"sse_servers": [7]},
            {"sse_servers": [{}]},
            {"sse_servers": ["ftp://a.example"]},
            {"sse_servers": ["https://"]},
            {"sse_servers": ["https://[a"]},
            {"sse_servers": ["https://a.example:0"]},
            {"shttp_servers": ["https://a.example:70000/mcp"]},
            {"shttp_servers": ["https://a example/mcp"]},
            {"sse_servers": ["https://a.example", {"url": "https://a.example"}]},
            {"stdio_servers": [PROGRAM, PROGRAM]},
            {"shttp_servers": [{"url": "https://a.example", "api_key": "a\nb"}]},
            {"sse_servers": [{"url": "https://a.example", "timeout": 60}]},
            {"sse_servers": [{"url": "https://a.example", "other": 1}]},
            {"shttp_servers": [{"url": "https://a.example", "timeout": 0}]},
            {"shttp_servers": [{"url": "https://a.example", "timeout": 3601}]},
            {"shttp_servers": [{"url": "https://a.example", "timeout": "soon"}]},
            {"stdio_servers": [{**PROGRAM, "name": "a b"}]},
            {"stdio_servers": [{**PROGRAM, "name": ""}]},
            {"stdio_servers": [{**PROGRAM, "command": "run it"}]},
            {"stdio_servers": [{**PROGRAM, "command": ""}]},
            {"stdio_servers": [{**PROGRAM, "args": "x"}]},
            {"stdio_servers": [{**PROGRAM, "env": ["A=B"]}]},
            {"stdio_servers": [{**PROGRAM, "other": 1}]},
            {"stdio_servers": [{"name": "a"}]},
        ),
    ),
}
"""All fields but the secret ones."""

SECRETS = ("llm_api_key", "search_api_key", "sandbox_api_key")
KEYS = SECRETS[:2]
"""Those that can be stored: no service here would take the third."""
ADDED = {
    "agent_options",
    "llm_profile",
    "llm_purposes",
    "llm_agents",
    "system_message_suffix",
    "user_message_suffix",
    "disabled_skills",
    "load_public_skills",
    "load_org_skills",
    "load_project_skills",
    "disabled_plugins",
    "runtime_extra_deps",
    "runtime_startup_env_vars",
}
TOLD: dict[str, Any] = {"secrets_store": {"provider_tokens": {}}, "provider_tokens_set": {}}
FLAGS = {"llm_api_key_set": False, "search_api_key_set": False, "v1_enabled": False}
KEPT_WHEN_NULL = {"llm_model", "llm_base_url", "user_consents_to_analytics"}


async def settings(server: Server) -> dict[str, Any]:
    response = await server.get("/api/settings")
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


async def store(server: Server, **body: Any) -> None:
    response = await server.post("/api/settings", json=body)
    assert (response.status_code, response.json()) == (200, {"message": "Settings stored"})


async def test_the_least_that_is_stored_gives_every_field_with_its_default(server: Server) -> None:
    await store(server)
    defaults = {name: row.default for name, row in ROWS.items()}
    found = await settings(server)
    assert {name: found.pop(name) for name in ADDED} == dict.fromkeys(ADDED)
    assert found == {**defaults, **dict.fromkeys(SECRETS), **TOLD, **FLAGS}


async def test_every_field_keeps_what_it_is_given_and_null_takes_it_back_where_that_is_a_value(server: Server) -> None:
    for number in (0, 1):
        given = {name: row.values[number] for name, row in ROWS.items()}
        await store(server, **given)
        found = await settings(server)
        assert {name: found[name] for name in ROWS} == given
    await store(server, **dict.fromkeys(name for name, row in ROWS.items() if row.takes_null))
    found = await settings(server)
    for name, row in ROWS.items():
        kept = name in KEPT_WHEN_NULL or not row.takes_null
        assert found[name] == (row.values[1] if kept else row.default), name


async def test_a_field_alone_changes_no_other_one(server: Server) -> None:
    await store(server, **{name: row.values[0] for name, row in ROWS.items()}, llm_api_key="key", search_api_key="key")
    for field, row in ROWS.items():
        before = await settings(server)
        await store(server, **{field: row.values[1]})
        assert await settings(server) == {**before, field: row.values[1]}, field


async def test_a_wrong_value_is_a_422_that_names_its_field_and_nothing_is_stored(server: Server) -> None:
    await store(server, language="de")
    before = await settings(server)
    for field, row in ROWS.items():
        for wrong in row.wrong:
            response = await server.post("/api/settings", json={"language": "fr", field: wrong})
            assert response.status_code == 422, (field, wrong)
            assert field in response.text, (field, wrong)
    assert await settings(server) == before


async def test_a_wrong_agent_or_address_is_told_with_what_to_write_instead(server: Server) -> None:
    secret = "http://user:do-not-tell@a.example:0/v1"
    for field, wrong, fix in (
        ("agent", "CodeActAgnt", "did you mean 'CodeActAgent'?"),
        ("llm_base_url", "a.example", "the address begins with http:// or https://, such as http://127.0.0.1"),
        ("llm_base_url", "http://", "the address names a host"),
        ("llm_base_url", "http://a b", "holds a space or a character that cannot be seen; leave it out"),
        ("llm_base_url", secret, "the port is a number from 1 to 65535"),
    ):
        response = await server.post("/api/settings", json={field: wrong})
        told = response.json()
        assert response.status_code == 422
        assert told["message"].startswith(f"{field}: "), "this is what clients show"
        assert fix in told["message"]
        assert told["detail"][0]["loc"] == ["body", field]
        assert "do-not-tell" not in response.text
    assert (await server.get("/api/settings")).status_code == 404


async def test_what_is_around_names_and_addresses_is_cut_off_and_blanks_are_none(make_server: MakeServer) -> None:
    async with make_server(llm_model=" openai/own ", llm_base_url="\thttp://own.example ") as server:
        address = " https://a.example/v1\n"
        await store(server, llm_model="  ollama/x\n", llm_base_url=address, agent=" BrowsingAgent ")
        found = await settings(server)
        assert (found["llm_model"], found["llm_base_url"]) == ("ollama/x", "https://a.example/v1")
        assert found["agent"] == "BrowsingAgent"
        await store(server, llm_model=" \t\n", llm_base_url="  ", agent=" ")
        found = await settings(server)
        assert not any(found[name] for name in ("llm_model", "llm_base_url", "agent"))
        config = (await server.get("/api/options/config")).json()
        assert config["DRYDOCK"]["model"] == "openai/own"


@pytest.mark.parametrize("field", KEYS)
async def test_a_key_is_told_by_its_flag_only(server: Server, field: str) -> None:
    flag = f"{field}_set"
    await store(server, **{field: "  do-not-tell\n"})
    found = await settings(server)
    assert found[field] is None
    assert "do-not-tell" not in str(found)
    assert found.get(flag, True) is True
    stored = await server.app.services.database.settings.get()
    assert getattr(stored, field).get_secret_value() == "do-not-tell", "without the space around it"
    for wrong in (7, ["do-not-tell"], {"a": 1}, "x" * 5000, "do-not-tell\0", "do-not\ntell", "do-not-téll"):
        response = await server.post("/api/settings", json={field: wrong})
        assert response.status_code == 422
        assert field in response.text
        assert "do-not" not in response.text
    await store(server, **{field: ""})
    assert (await settings(server)).get(flag, False) is False


async def test_there_is_no_flag_for_the_key_of_sandboxes_and_only_none_is_taken(server: Server) -> None:
    for nothing in ("", "  ", None):
        await store(server, sandbox_api_key=nothing)
    response = await server.post("/api/settings", json={"sandbox_api_key": "do-not-tell"})
    assert response.status_code == 422
    assert response.json()["message"].startswith("sandbox_api_key: there is no remote service")
    assert "do-not-tell" not in response.text
    assert not any("sandbox_api_key" in name for name in (await settings(server)).keys() - {"sandbox_api_key"})


@pytest.mark.parametrize("field", ["llm_api_key", "search_api_key"])
async def test_null_keeps_a_key(server: Server, field: str) -> None:
    await store(server, **{field: "key"})
    await store(server, **{field: None, "language": "de"})
    assert (await settings(server))[f"{field}_set"] is True


async def test_the_empty_search_key_that_clients_send_along_keeps_it_and_an_empty_model_key_clears_that(
    server: Server,
) -> None:
    await store(server, llm_api_key="key", search_api_key="key")
    await store(server, language="de", llm_api_key="", search_api_key="")
    found = await settings(server)
    assert (found["llm_api_key_set"], found["search_api_key_set"]) == (False, True)


async def test_what_is_only_told_and_what_is_unknown_is_ignored(server: Server) -> None:
    told = {"provider_tokens_set": {"github": None}, "secrets_store": {"provider_tokens": {}}}
    await store(server, language="de", llm_api_key_set=True, unknown={"a": [1]}, **told)
    found = await settings(server)
    assert {name: found[name] for name in TOLD} == TOLD
    assert found["llm_api_key_set"] is False
    assert "unknown" not in found


async def test_changes_at_the_same_time_do_not_lose_each_other(make_server: MakeServer) -> None:
    async with make_server(verify_git_tokens=False) as server:
        texts = ["language", "llm_model", "email", "git_user_name", "git_user_email", "security_analyzer"]
        tokens = [{"provider_tokens": {name: {"token": f"token of {name}"}}} for name in ("github", "gitlab")]
        await asyncio.gather(
            *(store(server, **{name: name}) for name in texts),
            *(server.post("/api/add-git-providers", json=body) for body in tokens),
        )
        found = await settings(server)
        assert {name: found[name] for name in texts} == {name: name for name in texts}
        assert found["provider_tokens_set"] == {"github": None, "gitlab": None}


# --- keys of MCP servers ---

WITH_KEYS: dict[str, Any] = {
    "sse_servers": [{"url": "https://a.example/sse", "api_key": "secret-sse"}],
    "stdio_servers": [{**PROGRAM, "env": {"TOKEN": "secret-env", "MY.TOKEN": "secret-dot", "REF": "${API_KEY}"}}],
    "shttp_servers": [{"url": "https://a.example/mcp", "api_key": "secret-shttp", "timeout": 60}],
}
AS_SHOWN: dict[str, Any] = {
    "sse_servers": [{"url": "https://a.example/sse", "api_key": HIDDEN}],
    "stdio_servers": [{**PROGRAM, "env": {"TOKEN": HIDDEN, "MY.TOKEN": HIDDEN, "REF": "${API_KEY}"}}],
    "shttp_servers": [{"url": "https://a.example/mcp", "api_key": HIDDEN, "timeout": 60}],
}


async def stored_servers(server: Server) -> Any:
    found = await server.app.services.database.settings.get()
    assert found is not None
    return found.mcp_config


async def test_keys_of_mcp_servers_are_never_shown_and_what_is_shown_can_be_sent_back(server: Server) -> None:
    await store(server, mcp_config=WITH_KEYS)
    found = await settings(server)
    assert found["mcp_config"] == AS_SHOWN
    await store(server, **found)
    assert await stored_servers(server) == WITH_KEYS
    more = {**AS_SHOWN, "sse_servers": ["https://b.example", *AS_SHOWN["sse_servers"]]}
    await store(server, mcp_config=more)
    assert (await stored_servers(server))["sse_servers"] == [
        {"url": "https://b.example", "api_key": None},
        *WITH_KEYS["sse_servers"],
    ]


async def test_a_key_of_an_mcp_server_can_be_changed_and_taken_away(server: Server) -> None:
    await store(server, mcp_config=WITH_KEYS)
    other: dict[str, Any] = {
        "sse_servers": [{"url": "https://a.example/sse", "api_key": "another"}],
        "stdio_servers": [{**PROGRAM, "env": {"TOKEN": HIDDEN}}],
        "shttp_servers": [{"url": "https://a.example/mcp"}],
    }
    await store(server, mcp_config=other)
    assert await stored_servers(server) == {
        "sse_servers": other["sse_servers"],
        "stdio_servers": [{**PROGRAM, "env": {"TOKEN": "secret-env"}}],
        "shttp_servers": [{"url": "https://a.example/mcp", "api_key": None, "timeout": 60}],
    }


MOVED: list[tuple[dict[str, Any], str]] = [
    ({"sse_servers": [{"url": "https://b.example", "api_key": HIDDEN}]}, "secret-sse"),
    ({"shttp_servers": [{"url": "https://a.example/sse", "api_key": HIDDEN}]}, "secret-sse"),
    ({"stdio_servers": [{**PROGRAM, "name": "other", "env": {"TOKEN": HIDDEN}}]}, "secret-env"),
    ({"stdio_servers": [{**PROGRAM, "env": {"MY.TOKEN": HIDDEN, "OTHER": HIDDEN}}]}, "secret-env"),
    ({"stdio_servers": [{**PROGRAM, "name": "other", "env": {"MY.TOKEN": HIDDEN, "NEW": HIDDEN}}]}, "secret-env"),
    ({**AS_SHOWN, "sse_servers": ["https://c.example", {"url": "https://b.example", "api_key": HIDDEN}]}, "secret-sse"),
]
"""A server, or a variable, under another name, address or kind, and the secret that goes along."""


@pytest.mark.parametrize(("config", "secret"), MOVED)
async def test_a_secret_stays_what_it_is_when_its_server_is_edited(
    server: Server, config: dict[str, Any], secret: str
) -> None:
    await store(server, mcp_config=WITH_KEYS)
    await store(server, mcp_config=config)
    stored = str(await stored_servers(server))
    assert secret in stored
    assert HIDDEN not in stored
    await store(server, mcp_config=(await settings(server))["mcp_config"])
    assert str(await stored_servers(server)) == stored


@pytest.mark.parametrize(("config", "secret"), MOVED)
async def test_a_conversation_of_its_own_servers_takes_no_stored_key_to_others(
    server: Server, config: dict[str, Any], secret: str
) -> None:
    await store(server, mcp_config=WITH_KEYS)
    response = await server.post("/api/conversations", json={"mcp_config": config})
    assert response.status_code == 422
    assert f"{HIDDEN} stands for a stored secret" in response.text


TWO: dict[str, Any] = {
    "sse_servers": [{"url": f"https://{name}.example", "api_key": f"secret-{name}"} for name in "ab"],
    "stdio_servers": [{**PROGRAM, "env": {"ONE": "secret-one", "TWO": "secret-two"}}],
}


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({"sse_servers": [{"url": "https://c.example", "api_key": HIDDEN}]}, "sse_servers.0.api_key"),
        (
            {"sse_servers": [{"url": f"https://{name}.example", "api_key": HIDDEN} for name in "cd"]},
            "sse_servers.0.api_key",
        ),
        (
            {"sse_servers": [{"url": f"https://{name}.example", "api_key": HIDDEN} for name in "abc"]},
            "sse_servers.2.api_key",
        ),
        (
            {"sse_servers": [TWO["sse_servers"][0], {"url": "http://b.example", "api_key": HIDDEN}]},
            "sse_servers.1.api_key",
        ),
        ({"shttp_servers": [{"url": "https://c.example", "api_key": HIDDEN}]}, "shttp_servers.0.api_key"),
        ({"stdio_servers": [{**PROGRAM, "env": {"ONE": "x", "TWO": "y", "NEW": HIDDEN}}]}, "stdio_servers.0.env.NEW"),
        ({"stdio_servers": [{**PROGRAM, "env": {"NEW": HIDDEN}}]}, "stdio_servers.0.env.NEW"),
        ({"stdio_servers": [{**PROGRAM, "env": {"NEW": HIDDEN, "NEWER": HIDDEN}}]}, "stdio_servers.0.env.NEW"),
    ],
)
async def test_a_hidden_secret_that_could_be_several_or_would_be_sent_in_the_clear_is_refused(
    server: Server, config: dict[str, Any], place: str
) -> None:
    await store(server, mcp_config=TWO)
    before = await stored_servers(server)
    for path in ("/api/settings", "/api/conversations"):
        response = await server.post(path, json={"mcp_config": config})
        assert response.status_code == 422
        assert f"mcp_config.{place}: {HIDDEN} stands for a stored secret" in response.text
    assert await stored_servers(server) == before


async def test_the_whole_servers_mcp_servers_do_not_become_the_users(make_server: MakeServer) -> None:
    async with make_server(mcp_config=WITH_KEYS) as server:
        await store(server, language="de")
        shown = (await settings(server))["mcp_config"]
        assert shown["sse_servers"] == [{"url": "https://a.example/sse", "api_key": None}]
        mine = {"url": "https://mine.example", "api_key": "secret-mine"}
        await store(server, mcp_config={**shown, "sse_servers": [*shown["sse_servers"], mine]})
        assert await stored_servers(server) == {**MCP, "sse_servers": [mine]}
        found = (await settings(server))["mcp_config"]["sse_servers"]
        assert [one["url"] for one in found] == ["https://a.example/sse", "https://mine.example"]


async def test_thousands_of_mcp_servers_are_refused_before_they_are_compared(server: Server) -> None:
    servers = [{"url": f"http://mcp.example/{number}"} for number in range(3_000)]
    refused = await server.post("/api/settings", json={"mcp_config": {"sse_servers": servers}})
    assert refused.status_code == 422
    assert "configure 400 at most" in refused.text
    taken = await server.post("/api/settings", json={"mcp_config": {"sse_servers": servers[:400]}})
    assert taken.status_code == 200


async def test_the_password_of_an_address_is_not_shown_and_stays_when_its_mask_comes_back(server: Server) -> None:
    async with ModelServer(lambda request: finish("Done.") if request.json.get("tools") else say("A title")) as model:
        address = model.url.replace("http://", "http://me:do-not-tell@")
        await store(server, llm_model="openai/x", llm_base_url=address, llm_api_key="")
        shown = (await server.get("/api/settings")).json()
        assert shown["llm_base_url"] == address.replace("do-not-tell", HIDDEN)
        await store(server, llm_model="openai/y", llm_base_url=shown["llm_base_url"])
        await server.create(initial_user_msg="hi")

        async def asked() -> bool:
            return bool(model.requests)

        await server.until(asked, seconds=MODEL_SECONDS)
        sent = model.requests[0].headers["authorization"].removeprefix("Basic ")
        assert (model.requests[0].model, base64.b64decode(sent)) == ("y", b"me:do-not-tell")
        elsewhere = shown["llm_base_url"].replace("127.0.0.1", "localhost")
        response = await server.post("/api/settings", json={"llm_base_url": elsewhere})
        assert (response.status_code, "llm_base_url: " in response.text) == (422, True)
        assert "do-not-tell" not in response.text
