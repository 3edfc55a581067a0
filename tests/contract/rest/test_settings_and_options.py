from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent_core.session.settings import SessionSettings
from server.errors import coded_page
from server.session.agents.experiments import ExperimentManager
from tests.contract.rest.conftest import MakeServer, Server

UNAUTHORIZED = {"detail": "Unauthorized", **coded_page("invalid_api_key")}


async def test_before_anything_is_stored_there_are_no_settings(server: Server) -> None:
    response = await server.get("/api/settings")
    assert (response.status_code, response.json()) == (404, {"error": "Settings not found"})


async def test_stored_settings_come_back_without_secrets(server: Server) -> None:
    body = {"llm_model": "openai/gpt-5", "llm_api_key": "very-secret", "language": "de", "unknown": 1}
    response = await server.post("/api/settings", json=body)
    assert (response.status_code, response.json()) == (200, {"message": "Settings stored"})
    stored = await server.get("/api/settings")
    assert "very-secret" not in stored.text
    found: dict[str, Any] = stored.json()
    assert (found["llm_model"], found["language"]) == ("openai/gpt-5", "de")
    assert (found["llm_api_key"], found["llm_api_key_set"], found["search_api_key_set"]) == (None, True, False)
    assert found["provider_tokens_set"] == {}
    assert set(found) >= {
        "agent",
        "max_iterations",
        "security_analyzer",
        "confirmation_mode",
        "llm_base_url",
        "remote_runtime_resource_factor",
        "secrets_store",
        "enable_default_condenser",
        "enable_sound_notifications",
        "enable_proactive_conversation_starters",
        "enable_solvability_analysis",
        "user_consents_to_analytics",
        "sandbox_base_container_image",
        "sandbox_runtime_container_image",
        "mcp_config",
        "search_api_key",
        "sandbox_api_key",
        "max_budget_per_task",
        "condenser_max_size",
        "email",
        "email_verified",
        "git_user_name",
        "git_user_email",
    }


async def test_clients_are_told_to_use_the_first_generation_whatever_they_store(server: Server) -> None:
    await server.post("/api/settings", json={"language": "de", "v1_enabled": True})
    assert (await server.get("/api/settings")).json()["v1_enabled"] is False
    await server.post("/api/settings", json={"mcp_config": {"sse_servers": []}, "v1_enabled": True})
    assert (await server.get("/api/settings")).json()["v1_enabled"] is False


async def test_a_partial_change_loses_nothing(server: Server) -> None:
    await server.post("/api/settings", json={"llm_model": "openai/gpt-5", "llm_api_key": "key", "language": "de"})
    await server.post("/api/settings", json={"mcp_config": {"sse_servers": []}})
    found = (await server.get("/api/settings")).json()
    assert (found["llm_model"], found["llm_api_key_set"], found["language"]) == ("openai/gpt-5", True, "de")


@pytest.mark.parametrize("body", [{"condenser_max_size": 19}, {"llm_model": 5}, [], "text", {"mcp_config": {"x": 1}}])
async def test_settings_of_the_wrong_shape_are_a_422_without_the_value(server: Server, body: Any) -> None:
    response = await server.post("/api/settings", json=body)
    assert response.status_code == 422
    assert (await server.get("/api/settings")).status_code == 404


async def test_what_is_wrong_is_said_in_words_too_since_clients_show_nothing_else(server: Server) -> None:
    servers = {"sse_servers": [{"url": "here"}], "stdio_servers": [{"name": "a", "command": "run"}] * 2}
    response = await server.post("/api/settings", json={"mcp_config": servers, "condenser_max_size": 3})
    assert response.status_code == 422
    assert response.json()["message"].startswith(
        "mcp_config.sse_servers.0.url: the address begins with http:// or https:// or ws://"
    )
    assert "; condenser_max_size: Input should be greater than or equal to 20" in response.json()["message"]
    many = dict.fromkeys(("max_iterations", "confirmation_mode", "condenser_max_size", "email_verified"), "x")
    assert (await server.post("/api/settings", json=many)).json()["message"].endswith("; and 1 more")


async def test_of_thousands_of_problems_a_hundred_are_listed_and_all_are_counted(server: Server) -> None:
    """Written out, all of them took a second for a quarter of a megabyte, and everybody waited."""
    reply = await server.post("/api/conversations", json={"image_urls": list(range(5000))})
    assert reply.status_code == 422
    assert len(reply.json()["detail"]) == 100
    assert reply.json()["message"].endswith("; and 4997 more")
    assert len(reply.content) < 20_000
    assert (await server.post("/api/settings", json=[])).json()["message"].startswith("body: ")


async def test_a_refused_key_is_not_repeated_in_the_reply(server: Server) -> None:
    response = await server.post("/api/settings", json={"llm_api_key": {"oops": "sk-secret"}})
    assert response.status_code == 422
    assert "sk-secret" not in response.text


async def test_a_stored_model_is_the_one_that_the_config_names(server: Server) -> None:
    before = (await server.get("/api/options/config")).json()["DRYDOCK"]
    assert (before["model"], before["demo"], before["auth_required"]) == ("demo/tour", True, False)
    await server.post("/api/settings", json={"llm_model": "openai/gpt-5", "llm_api_key": "key"})
    after = (await server.get("/api/options/config")).json()["DRYDOCK"]
    assert (after["model"], after["demo"]) == ("openai/gpt-5", False)


async def test_the_config_has_what_the_client_needs_and_the_sandbox(server: Server) -> None:
    await server.app.services.sandboxes.chosen()
    config = (await server.get("/api/options/config")).json()
    drydock = config.pop("DRYDOCK")
    assert config == {
        "APP_MODE": "oss",
        "GITHUB_CLIENT_ID": "",
        "POSTHOG_CLIENT_KEY": "",
        "FEATURE_FLAGS": {"ENABLE_BILLING": False, "HIDE_LLM_SETTINGS": False},
    }
    assert drydock["sandbox"] == {"provider": "fake", "reason": "fake sandboxes for tests"}


async def test_options_are_sorted_lists(server: Server) -> None:
    models = (await server.get("/api/options/models")).json()
    assert models == sorted(models)
    assert "demo/tour" in models
    defaults_of_clients = {"openhands/claude-opus-4-5-20251101", "openhands/claude-sonnet-4-20250514"}
    assert defaults_of_clients <= set(models), "the dialog of a first visit cannot show what is not offered"
    agents = (await server.get("/api/options/agents")).json()
    assert agents == sorted(agents)
    assert {
        "BrowsingAgent",
        "CodeActAgent",
        "DummyAgent",
        "LocAgent",
        "PlanningAgent",
        "ReadOnlyAgent",
        "VisualBrowsingAgent",
    } <= set(agents)
    analyzers = (await server.get("/api/options/security-analyzers")).json()
    assert analyzers == sorted(analyzers)
    assert {"llm", "rules", "rules+llm"} <= set(analyzers)


async def test_health(server: Server) -> None:
    assert (await server.get("/health")).json() == "OK"
    assert (await server.get("/alive")).json() == {"status": "ok"}
    info = (await server.get("/server_info")).json()
    assert info["uptime"] >= 0
    assert info["idle_time"] >= 0
    assert info["resources"]["memory"]["rss"] > 0
    assert set(info["resources"]) == {"cpu_percent", "memory", "disk", "io"}


async def test_resetting_settings_is_gone(server: Server) -> None:
    assert (await server.post("/api/reset-settings")).status_code == 410


async def test_with_a_token_the_api_asks_for_it_and_health_does_not(make_server: MakeServer) -> None:
    async with make_server(token="the-right-token-of-24-chars") as server:
        refused = await server.get("/api/settings")
        assert (refused.status_code, refused.json()) == (
            401,
            {"detail": "Unauthorized", **coded_page("invalid_api_key")},
        )
        assert (await server.get("/health")).status_code == 200
        for headers in (
            {"X-Session-API-Key": "the-right-token-of-24-chars"},
            {"Authorization": "Bearer the-right-token-of-24-chars"},
        ):
            assert (await server.get("/api/options/config", headers=headers)).json()["DRYDOCK"]["auth_required"] is True
        assert (await server.get("/api/settings", headers={"X-Session-API-Key": "wrong"})).status_code == 401


async def test_a_stranger_learns_of_the_server_what_it_is_and_no_more(make_server: MakeServer) -> None:
    async with make_server(token="the-right-token-of-24-chars") as server:
        stranger = await server.get("/server_info")
        assert (stranger.status_code, stranger.json()) == (200, {"server": "Drydock"})
        known = await server.get("/server_info", headers={"X-Session-API-Key": "the-right-token-of-24-chars"})
        assert set(known.json()) == {"uptime", "idle_time", "resources"}
        assert (await server.get("/server_info", headers={"X-Session-API-Key": "wrong"})).status_code == 401


async def test_new_settings_reach_a_conversation_only_when_it_is_started_again(server: Server) -> None:
    conversation_id = await server.create()
    await server.until_running(conversation_id)

    async def model() -> str | None:
        record = await server.app.services.database.conversations.get(conversation_id)
        return record.llm_model if record is not None else None

    await server.post("/api/settings", json={"llm_model": "ollama/other"})
    await server.post(f"/api/conversations/{conversation_id}/start", json={})
    assert await model() == "demo/tour"
    await server.post(f"/api/conversations/{conversation_id}/stop")
    await server.post(f"/api/conversations/{conversation_id}/start", json={})
    assert await model() == "ollama/other"


class AnotherModel(ExperimentManager):
    """Every conversation is tried with another model."""

    def variant(self, conversation_id: str, user_id: str, settings: SessionSettings) -> SessionSettings:
        return replace(settings, llm=settings.llm.model_copy(update={"model": "ollama/tried"}))


async def test_an_experiment_may_give_a_conversation_another_configuration(make_server: MakeServer) -> None:
    path = f"{AnotherModel.__module__}.{AnotherModel.__qualname__}"
    async with make_server(experiment_manager_class=path) as server:
        record = await server.app.services.database.conversations.get(await server.create())
        assert record is not None
        assert record.llm_model == "ollama/tried"


async def test_a_stored_key_is_hidden_in_the_log_from_the_next_start_of_a_conversation(server: Server) -> None:
    await server.post("/api/settings", json={"llm_model": "ollama/x", "llm_api_key": "sk-very-secret"})
    await server.create()
    assert server.app.log_masker.text("key sk-very-secret") == "key <secret_hidden>"


async def test_a_database_that_fails_is_told_without_internals(server: Server) -> None:
    # By the server's own writer: what it does behind its start may hold the lock that another program would wait for.
    await server.app.services.database.writer.execute(text("DROP TABLE settings"))
    response = await server.post("/api/settings", json={"language": "de"})
    assert response.status_code == 500
    assert response.json() == {"error": "Something went wrong storing settings"}
    response = await server.post("/api/conversations", json={})
    assert response.status_code == 500
    assert "database" in response.json()["detail"]
    assert "Traceback" not in response.text


async def test_an_error_that_nobody_expected_is_a_500_without_internals(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(request: Request) -> Response:
        raise ZeroDivisionError("a bug with the key sk-secret")

    server.app.api.router.routes.insert(0, Route("/api/broken", broken))
    response = await server.get("/api/broken")
    assert response.status_code == 500
    assert response.json() == {"detail": "Internal server error; the server's log has the details."}
    assert "GET /api/broken failed" in caplog.text


@pytest.mark.parametrize("wished", [True, False])
async def test_each_event_is_logged_where_that_is_wished_and_no_key_with_it(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture, wished: bool
) -> None:
    caplog.set_level("INFO")
    async with make_server(log_all_events=wished) as server:
        key = "a-key-that-nobody-should-see"
        await server.post("/api/settings", json={"llm_model": "demo/tour", "llm_api_key": key})
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        await server.post(f"/api/conversations/{conversation_id}/message", json={"message": f"My key is {key}."})
        count = len(await server.events(conversation_id))
    lines = [one.getMessage() for one in caplog.records if one.name == "agent_core.events.stream"]
    assert (len(lines) >= count) if wished else not lines
    assert any("My key is <secret_hidden>." in line for line in lines) is wished
    assert key not in caplog.text
