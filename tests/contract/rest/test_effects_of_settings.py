"""What settings do to conversations and to the server, for those of which no other test shows it.

Which test shows the effect of which setting stands in `tests/architecture/test_effects_of_settings.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_core.mcp.config import McpAuth
from agent_core.mcp.grants import Challenge
from agent_core.mcp.oauth import SignInError
from agent_core.runtime.sandbox import SandboxLimits
from agent_core.testing.fake_sandbox import FakeAnswer, FakeHandler, FakeProvider, FakeRequest
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish, say
from server.app import create_app
from server.cli.process_log import configure_logging
from server.db.database import open_database
from server.db.repositories.conversations import ConversationRecord
from server.metrics import ServerMetrics
from server.session.capacity import Capacity
from server.session.crash_guard import CrashGuard
from server.session.recovery import Recovery, interrupted
from server.session.run_queue import RunQueue
from server.settings.settings import Settings
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server, facts, kill, shell
from tests.waiting import until

REACH = {"llm_api_key": "key-of-the-test"}
MIB = 1024 * 1024


async def states(server: Server, conversation_id: str) -> list[str]:
    events = await server.events(conversation_id)
    return [one["extras"]["agent_state"] for one in events if one.get("observation") == "agent_state_changed"]


async def work(
    make_server: MakeServer, script: Callable[[ModelRequest], Turn], *, model: str = "openai/x", **settings: Any
) -> tuple[list[ModelRequest], list[str]]:
    """The requests of a conversation of a user with these settings, and the states of its agent until it rests."""
    async with ModelServer(script) as served, make_server(generate_titles=False) as server:
        stored = await server.post(
            "/api/settings", json={"llm_model": model, "llm_base_url": served.url, **REACH, **settings}
        )
        assert stored.status_code == 200, stored.text
        conversation_id = await server.create(initial_user_msg="Begin.")
        found: list[str] = []

        async def rests() -> bool:
            found[:] = await states(server, conversation_id)
            return bool(found) and found[-1] in ("finished", "error")

        await server.until(rests, seconds=MODEL_SECONDS)
        return list(served.requests), found


def thinking(times: int) -> Callable[[ModelRequest], Turn]:
    """A model that thinks so often before it finishes, and sums up when it is asked to."""
    left = iter(range(times))

    def turn(request: ModelRequest) -> Turn:
        if not request.json.get("tools"):
            return say("USER_CONTEXT: a summary of it all")
        number = next(left, None)
        return finish("Done.") if number is None else call("think", {"thought": f"Thought {number}."})

    return turn


def is_summary(request: ModelRequest) -> bool:
    return not request.json.get("tools")


async def test_the_agent_of_a_user_is_that_of_their_conversations(make_server: MakeServer) -> None:
    requests, _ = await work(make_server, thinking(0), agent="ReadOnlyAgent")
    offered = {tool["function"]["name"] for tool in requests[0].json["tools"]}
    assert "grep" in offered
    assert "terminal" not in offered


async def test_an_agent_stops_after_the_max_iterations_of_its_user(make_server: MakeServer) -> None:
    requests, seen = await work(make_server, thinking(9), max_iterations=3)
    assert (len(requests), seen[-1]) == (3, "error")


async def test_an_agent_stops_at_the_max_budget_per_task_of_its_user(make_server: MakeServer) -> None:
    requests, seen = await work(make_server, thinking(9), model="openai/gpt-4o", max_budget_per_task=0.00001)
    assert (len(requests), seen[-1]) == (1, "error")


async def test_a_history_over_the_condenser_max_size_is_summed_up(make_server: MakeServer) -> None:
    requests, seen = await work(make_server, thinking(14), condenser_max_size=20)
    assert any(map(is_summary, requests))
    assert seen[-1] == "finished"
    requests, _ = await work(make_server, thinking(14), condenser_max_size=200)
    assert not any(map(is_summary, requests))


async def test_without_the_default_condenser_nothing_is_summed_up(make_server: MakeServer) -> None:
    requests, _ = await work(make_server, thinking(14), condenser_max_size=20, enable_default_condenser=False)
    assert not any(map(is_summary, requests))


CLIENTS = (
    *("language", "email", "email_verified", "user_consents_to_analytics", "enable_sound_notifications"),
    *("enable_proactive_conversation_starters", "enable_solvability_analysis"),
)


async def test_what_is_kept_for_clients_is_said_to_be_and_comes_back(make_server: MakeServer) -> None:
    async with make_server() as server:
        document = (await server.get("/openapi.json")).json()
        fields = document["components"]["schemas"]["SettingsChange"]["properties"]
        said = {name for name, field in fields.items() if "Kept for clients" in field.get("description", "")}
        assert said == set(CLIENTS)
        values = {name: "x" if name in ("language", "email") else True for name in CLIENTS}
        assert (await server.post("/api/settings", json=values)).status_code == 200
        stored = (await server.get("/api/settings")).json()
        assert {name: stored[name] for name in CLIENTS} == values


LIMITS: dict[str, tuple[float, str, float]] = {
    "sandbox_memory_mb": (256, "memory", 256 * MIB),
    "sandbox_cpus": (1.5, "cpus", 1.5),
    "sandbox_processes": (99, "processes", 99),
    "sandbox_tmp_mb": (77, "tmp_size", 77 * MIB),
    "sandbox_disk_mb": (123, "disk", 123 * MIB),
    "sandbox_inodes": (4321, "inodes", 4321),
    "sandbox_read_only": (False, "read_only", False),
    "sandbox_start_seconds": (33, "start_seconds", 33),
    "sandbox_grace_seconds": (3, "stop_seconds", 3),
}


async def spec_of(make_server: MakeServer, **settings: Any) -> Any:
    provider = FakeProvider(handlers={"shell.run": shell, "workspace.facts": facts, "shell.kill": kill})
    async with make_server(provider, **settings) as server:
        await server.until_running(await server.create())
        (sandbox,) = provider.sandboxes.values()
        return sandbox.spec


@pytest.mark.parametrize("setting", LIMITS)
async def test_a_limit_of_the_settings_is_that_of_each_sandbox(make_server: MakeServer, setting: str) -> None:
    value, name, expected = LIMITS[setting]
    limits = (await spec_of(make_server, **{setting: value})).limits
    assert getattr(limits, name) == expected
    assert getattr(SandboxLimits(), name) != expected or setting == "sandbox_read_only"


async def test_the_image_and_the_network_of_the_settings_are_those_of_each_sandbox(make_server: MakeServer) -> None:
    spec = await spec_of(make_server, sandbox_image="mine:1", sandbox_network="internal")
    assert (spec.image, spec.network) == ("mine:1", "internal")


@pytest.mark.parametrize(
    "sandbox",
    [
        pytest.param("docker", marks=pytest.mark.docker),
        pytest.param("local", marks=pytest.mark.bubblewrap),
        "unconfined",
    ],
)
async def test_conversations_run_in_the_sandbox_of_the_settings(tmp_path: Path, sandbox: str) -> None:
    app = create_app(Settings.model_validate({"data_dir": tmp_path / "data", "sandbox": sandbox}))
    transport = httpx.ASGITransport(app=app)
    async with (
        app.api.router.lifespan_context(app.api),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3000") as client,
    ):
        place = f"/api/conversations/{(await client.post('/api/conversations', json={})).json()['conversation_id']}"
        manager, conversation_id = app.services.manager, place.rpartition("/")[2]
        async with asyncio.timeout(MODEL_SECONDS):
            while (connection := manager.sandbox(conversation_id)) is None:  # noqa: ASYNC110 - only seen by asking
                await asyncio.sleep(0.03)
        where = await connection.request("shell.run", {"command": "pwd; cat /proc/1/comm; ls /.dockerenv"})
        record = await app.services.database.conversations.get(conversation_id)
        assert (await client.delete(place)).json() is True
    assert record is not None
    assert (record.sandbox or {}).get("provider") == sandbox
    assert where.result["output"].split()[0] == connection.working_dir


async def test_a_clone_has_the_git_clone_depth_and_the_git_clone_seconds_of_the_settings(
    make_server: MakeServer,
) -> None:
    asked: list[FakeRequest] = []

    async def clone(call: FakeRequest) -> FakeAnswer:
        asked.append(call)
        return {"path": "/workspace/shop", "branch": "main"}

    handlers: dict[str, FakeHandler] = {
        "git.clone": clone,
        "shell.run": shell,
        "workspace.facts": facts,
        "shell.kill": kill,
    }
    settings = {"git_clone_depth": 3, "git_clone_seconds": 77, "verify_git_tokens": False}
    async with make_server(FakeProvider(handlers=handlers), **settings) as server:
        await server.create(repository="ours/shop", git_provider="github")

        async def was_asked() -> bool:
            return bool(asked)

        await server.until(was_asked)
    assert (asked[0].args["depth"], asked[0].args["timeout"]) == (3, 77)


@pytest.mark.parametrize("enable_snapshots", [True, False])
async def test_files_are_kept_only_where_enable_snapshots_says_so(
    make_server: MakeServer, enable_snapshots: bool
) -> None:
    taken: list[FakeRequest] = []

    async def take(call: FakeRequest) -> FakeAnswer:
        taken.append(call)
        return {}

    handlers: dict[str, FakeHandler] = {
        "workspace.snapshot": take,
        "shell.run": shell,
        "workspace.facts": facts,
        "shell.kill": kill,
    }
    async with ModelServer([call("terminal", {"command": "ls"}), finish("Done.")]) as model:
        chosen = {"llm_model": "openai/x", "llm_base_url": model.url, "llm_api_key": "k", "generate_titles": False}
        provider = FakeProvider(handlers=handlers)
        async with make_server(provider, enable_snapshots=enable_snapshots, **chosen) as server:
            conversation_id = await server.create(initial_user_msg="Begin.")

            async def done() -> bool:
                return "finished" in await states(server, conversation_id)

            await server.until(done, seconds=MODEL_SECONDS)
    assert bool(taken) is enable_snapshots


async def test_conversations_over_the_conversation_max_age_seconds_are_not_listed(make_server: MakeServer) -> None:
    async with make_server(conversation_max_age_seconds=3600) as server:
        old = ConversationRecord(id="old", created_at=datetime.now(UTC) - timedelta(hours=2))
        await server.app.services.database.conversations.create(old)
        new = await server.create()
        listed = (await server.get("/api/conversations")).json()["results"]
    assert [one["conversation_id"] for one in listed] == [new]


async def test_the_database_is_where_the_database_url_says(make_server: MakeServer, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.db"
    async with make_server(database_url=f"sqlite+aiosqlite:///{path}") as server:
        conversation_id = await server.create()
    with sqlite3.connect(path) as database:
        assert conversation_id in str(database.execute("SELECT id FROM conversations").fetchall())
    assert not (tmp_path / "data" / "drydock.db").exists()


@pytest.mark.parametrize(("database_synchronous", "level"), [("FULL", 2), ("NORMAL", 1)])
async def test_the_database_writes_as_database_synchronous_says(
    make_server: MakeServer, database_synchronous: str, level: int
) -> None:
    async with make_server(database_synchronous=database_synchronous) as server:
        ((found,),) = await server.app.services.database.engines.fetch("PRAGMA synchronous")
    assert found == level


def test_a_feed_waits_when_its_client_has_max_feed_buffer_bytes_to_read(tmp_path: Path) -> None:
    """With the tests of slow clients, which show what the limit of the sockets does."""
    app = create_app(Settings.model_validate({"data_dir": tmp_path, "max_feed_buffer_bytes": 70001}))
    assert app.socket_limits.max_buffer_bytes == 70001


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_log_has_the_log_format_and_the_log_level_of_the_settings(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        configure_logging(Settings.model_validate({"log_format": log_format, "log_level": "warning"}))
        logging.getLogger("server.x").info("left out")
        logging.getLogger("server.x").warning("told")
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
    (line,) = capsys.readouterr().err.splitlines()
    assert (json.loads(line)["message"] == "told") if log_format == "json" else line.endswith("server.x: told")


@pytest.mark.parametrize("generate_titles", [True, False])
async def test_a_model_is_asked_for_a_title_where_generate_titles_says_so(
    make_server: MakeServer, generate_titles: bool
) -> None:
    async with ModelServer(lambda request: say("A title") if is_summary(request) else finish("Done.")) as model:
        chosen = {"llm_model": "openai/x", "llm_base_url": model.url, "llm_api_key": "k"}
        async with make_server(generate_titles=generate_titles, **chosen) as server:
            conversation_id = await server.create(initial_user_msg="Begin.")

            async def named() -> bool:
                title = (await server.info(conversation_id))["title"]
                return bool(title == ("A title" if generate_titles else "Begin."))

            await server.until(named, seconds=MODEL_SECONDS)
            await server.until(lambda: rests(server, conversation_id), seconds=MODEL_SECONDS)
        assert any(map(is_summary, model.requests)) is generate_titles


async def rests(server: Server, conversation_id: str) -> bool:
    return "finished" in await states(server, conversation_id)


@pytest.mark.parametrize("log_all_events", [True, False])
async def test_every_event_is_logged_where_log_all_events_says_so(
    make_server: MakeServer, log_all_events: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with make_server(log_all_events=log_all_events) as server:
            conversation_id = await server.create(initial_user_msg="A word to be found in the log.")
            await server.until_running(conversation_id)
    assert ("A word to be found in the log." in caplog.text) is log_all_events


@pytest.mark.parametrize("setting", ["max_iterations", "max_budget_per_task"])
async def test_the_servers_own_limits_count_where_its_user_has_none(make_server: MakeServer, setting: str) -> None:
    limits = {"max_iterations": 2, "max_budget_per_task": 0.00001}
    async with ModelServer(thinking(9)) as model:
        chosen = {"llm_model": "openai/gpt-4o", "llm_base_url": model.url, "llm_api_key": "k", "generate_titles": False}
        async with make_server(**{setting: limits[setting]}, **chosen) as server:
            conversation_id = await server.create(initial_user_msg="Begin.")

            async def stopped() -> bool:
                return "error" in await states(server, conversation_id)

            await server.until(stopped, seconds=MODEL_SECONDS)
        assert len(model.requests) == (2 if setting == "max_iterations" else 1)


async def test_a_conversation_has_the_agent_class_of_the_server_where_its_user_chose_none(
    make_server: MakeServer,
) -> None:
    async with ModelServer([finish("Done.")]) as model:
        chosen = {"llm_model": "openai/x", "llm_base_url": model.url, "llm_api_key": "k", "generate_titles": False}
        async with make_server(agent_class="ReadOnlyAgent", **chosen) as server:
            conversation_id = await server.create(initial_user_msg="Begin.")
            await server.until(lambda: rests(server, conversation_id), seconds=MODEL_SECONDS)
        offered = {tool["function"]["name"] for tool in model.requests[0].json["tools"]}
    assert "terminal" not in offered


async def nothing_to_free(to_work: bool) -> bool:
    return not to_work and False


@pytest.mark.parametrize("resume_concurrency", [1, 3])
async def test_no_more_than_resume_concurrency_start_at_a_time(resume_concurrency: int, tmp_path: Path) -> None:
    running, most = 0, 0

    async def start(conversation_id: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await until(lambda: most >= resume_concurrency)
        running -= 1

    async with open_database(tmp_path) as database:
        for number in range(5):
            await database.conversations.create(ConversationRecord(id=f"c{number}", agent_state="running"))
        guard = CrashGuard(
            database.conversations,
            database.events,
            retry_seconds=0,
            tell=lambda *_: asyncio.sleep(0),
            take_up=start,
            metrics=ServerMetrics(),
        )
        queue = RunQueue(
            Capacity(9, 9, 9),
            database.conversations,
            others={},
            free_sandbox=nothing_to_free,
            on_turn=lambda *_: None,
            metrics=ServerMetrics(),
        )
        left = await interrupted(database.conversations)
        await Recovery(start, queue, guard, concurrency=resume_concurrency).resume_all(left)
    assert most == resume_concurrency


async def test_the_model_of_the_server_is_asked_with_its_key_at_its_address(make_server: MakeServer) -> None:
    async with ModelServer([finish("Done.")]) as model:
        chosen = {"llm_model": "openai/mine", "llm_base_url": model.url, "llm_api_key": "key-of-the-server"}
        async with make_server(generate_titles=False, **chosen) as server:
            conversation_id = await server.create(initial_user_msg="Begin.")
            await server.until(lambda: rests(server, conversation_id), seconds=MODEL_SECONDS)
        request = model.requests[0]
    assert (request.json["model"], request.api_key) == ("mine", "key-of-the-server")


async def test_an_agent_class_has_the_agent_configs_of_the_server(make_server: MakeServer) -> None:
    async with ModelServer([finish("Done.")]) as model:
        chosen = {"llm_model": "openai/x", "llm_base_url": model.url, "llm_api_key": "k", "generate_titles": False}
        configs = {"CodeActAgent": {"enable_think": False}, "ReadOnlyAgent": {"enable_finish": False}}
        async with make_server(agent_configs=configs, **chosen) as server:
            conversation_id = await server.create(initial_user_msg="Begin.")
            await server.until(lambda: rests(server, conversation_id), seconds=MODEL_SECONDS)
        offered = {tool["function"]["name"] for tool in model.requests[0].json["tools"]}
    assert "think" not in offered
    assert "finish" in offered


@pytest.mark.parametrize("mcp_oauth_hosts", [["localhost"], []])
async def test_signing_in_leads_to_the_mcp_oauth_hosts_and_to_no_other_that_is_not_public(
    make_server: MakeServer, mcp_oauth_hosts: list[str]
) -> None:
    for_others = {"host": "0.0.0.0", "token": "t" * 24}  # noqa: S104 - where it listens for this machine alone, it may
    async with (
        make_server(mcp_oauth_hosts=mcp_oauth_hosts, **for_others) as server,
        server.app.services.mcp_sign_ins.of("")._client("https://8.8.8.8/mcp") as client,
    ):
        lead = Challenge(metadata_url="https://localhost:1/.well-known/oauth-protected-resource")
        with pytest.raises(SignInError) as caught:
            await client.begin(redirect_uri="http://127.0.0.1:3000/back", auth=McpAuth(), challenge=lead)
    assert ("no public address" in str(caught.value)) is not bool(mcp_oauth_hosts)


@pytest.mark.parametrize("plugin_hosts", [["localhost"], []])
async def test_plugins_come_from_the_plugin_hosts_and_from_no_other_that_is_not_public(
    make_server: MakeServer, plugin_hosts: list[str]
) -> None:
    token = "t" * 24
    async with make_server(plugin_hosts=plugin_hosts, host="0.0.0.0", token=token) as server:  # noqa: S104 - for others
        answer = await server.post(
            "/api/plugins", json={"source": "https://localhost:1/x.git"}, headers={"x-session-api-key": token}
        )
    assert answer.status_code >= 400
    assert ("setting plugin_hosts" in answer.text) is not bool(plugin_hosts)


@pytest.mark.parametrize("load_public_skills", [True, False])
async def test_public_skills_are_told_where_load_public_skills_of_the_server_says_so(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, load_public_skills: bool
) -> None:
    (tmp_path / "public/skills").mkdir(parents=True)
    (tmp_path / "public/skills/sea.md").write_text("The sea is wide.")
    monkeypatch.setenv("EXTENSIONS_URL", str(tmp_path / "public"))
    async with ModelServer([finish("Done.")]) as model:
        chosen = {"llm_model": "openai/x", "llm_base_url": model.url, "llm_api_key": "k", "generate_titles": False}
        async with make_server(load_public_skills=load_public_skills, **chosen) as server:
            conversation_id = await server.create(initial_user_msg="Begin.")
            await server.until(lambda: rests(server, conversation_id), seconds=MODEL_SECONDS)
        assert ("The sea is wide." in json.dumps(model.requests[0].json)) is load_public_skills
