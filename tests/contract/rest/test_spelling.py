"""A name that is not known is answered with the nearest one and the whole way to it, whatever the route."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.rest.conftest import MakeServer


@pytest.mark.parametrize(
    ("path", "body", "meant"),
    [
        ("/api/conversations", {"initial_usr_msg": "Hi"}, "initial_user_msg"),
        ("/api/conversations", {"agent_options": {"enable_brwsing": False}}, "agent_options.enable_browsing"),
        (
            "/api/conversations",
            {"mcp_config": {"sse_servers": [{"ur": "https://a/b"}]}},
            "mcp_config.sse_servers.0.url",
        ),
        ("/api/settings", {"mcp_config": {"stdio_servers": [{"comand": "x"}]}}, "mcp_config.stdio_servers.0.command"),
        ("/api/settings", {"agent_options": {"tools": [{"nam": "grep"}]}}, "agent_options.tools.0.name"),
        ("/api/webhooks", {"url": "https://a.example/", "evnts": []}, "events"),
    ],
)
async def test_an_unknown_field_is_refused_with_the_nearest_and_the_way_to_it(
    make_server: MakeServer, path: str, body: dict[str, Any], meant: str
) -> None:
    async with make_server() as server:
        answer = await server.post(path, json=body)
    assert answer.status_code == 422
    assert f"did you mean {meant!r}?" in answer.json()["message"]
    assert any(f"did you mean {meant!r}?" in problem["msg"] for problem in answer.json()["detail"])


async def test_a_field_that_is_like_no_other_is_answered_with_what_there_is(make_server: MakeServer) -> None:
    async with make_server() as server:
        answer = await server.post("/api/conversations", json={"zzzzzz": "sk-a-secret-of-mine"})
    assert answer.status_code == 422
    assert "initial_user_msg" in answer.json()["message"]
    assert "sk-a-secret" not in answer.text


async def test_settings_ignore_what_they_do_not_know_and_say_what_was_probably_meant(make_server: MakeServer) -> None:
    async with make_server() as server:
        answer = await server.post("/api/settings", json={"confirmation_mod": True, "language": "en", "whatever": 1})
        assert answer.status_code == 200
        assert answer.json() == {
            "message": "Settings stored",
            "warnings": ["confirmation_mod is not known and was ignored; did you mean 'confirmation_mode'?"],
        }
        stored = (await server.get("/api/settings")).json()
        assert (stored["confirmation_mode"], stored["language"]) == (None, "en")
        echo = await server.post("/api/settings", json=stored)
        assert echo.json() == {"message": "Settings stored"}, "what was answered can be sent back"
        for given in (
            {"provider_tokens": {"github": {"token": "t"}}},
            {"secrets_store": {"provider_tokens": {"a": "t"}}},
        ):
            [told] = (await server.post("/api/settings", json=given)).json()["warnings"]
            assert told == "provider_tokens was ignored; tokens are stored by POST /api/add-git-providers"
        many = {f"languag{number}" + "e" * (number * 90): "x" for number in range(50)}
        assert len((await server.post("/api/settings", json=many)).json().get("warnings", [])) <= 12
