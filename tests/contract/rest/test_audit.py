"""What the audit log tells of requests: each that it should, with who and from where, and nothing secret."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import SecretStr

from server.app import create_app
from server.auth.audit import Means
from server.cli import main
from server.db.errors import DatabaseError
from server.db.page_ids import page_id as make_page_id
from server.db.repositories.audit import AuditLog
from server.routes.audited import AUDITED
from server.settings.settings import Settings
from tests.contract.rest.conftest import MakeServer, Server

TOKEN = "a-token-that-is-long-enough"
SECRET = "v4lue-that-nobody-may-see"

ELSEWHERE = {
    # Recorded where it is done, since other doors lead there, too.
    "delete_conversation": "with the deletion, in the manager",
    "add_event": "approvals and refusals, in the manager",
    "export_conversation": "by its handler, before the first byte",
    "sign_in": "with the sign-in, in the accounts",
    # In the log of the conversation, whose deletion is recorded.
    **dict.fromkeys(
        [
            *("create_conversation", "rename_conversation", "start_conversation", "stop_conversation"),
            *("rewind_conversation", "fork", "add_message", "add_to_log", "replace_program", "ask_sandbox"),
            *("replace_tools", "answer_call", "upload_files", "note_experiment", "complete_chat"),
            *("choose_conversation_llm_profile", "submit_feedback"),
        ],
        "work in a conversation",
    ),
    **dict.fromkeys(("create_note", "change_note", "delete_note"), "what agents keep, with a version of its own"),
    **dict.fromkeys(("look_at_link", "try_llm_profile"), "changes nothing"),
    **dict.fromkeys(
        ("reset_settings", "post_to_analyzer", "put_to_analyzer", "delete_from_analyzer", "refuse_path"),
        "is always refused",
    ),
}


@pytest.mark.parametrize("users", ["one", "accounts"])
def test_each_request_that_may_change_something_is_recorded_or_it_is_said_why_not(tmp_path: Path, users: str) -> None:
    app = create_app(Settings.model_validate({"data_dir": tmp_path, "users": users}))
    routes = [route for route in app.api.router.routes if isinstance(route, APIRoute)]
    changing = {
        (method, one.path): one.name for one in routes for method in (one.methods or set()) - {"GET", "HEAD", "OPTIONS"}
    }
    unsaid = {name for place, name in changing.items() if place not in AUDITED} - ELSEWHERE.keys()
    assert unsaid == set(), "add it to server/routes/audited.py, or say here why it has no record"
    if users == "accounts":
        assert AUDITED.keys() <= changing.keys()


@pytest.fixture
async def server(make_server: MakeServer) -> Any:
    async with make_server(token=SecretStr(TOKEN)) as running:
        running.client.headers["x-session-api-key"] = TOKEN
        yield running


async def records(server: Server, **query: Any) -> list[dict[str, Any]]:
    response = await server.get("/api/admin/audit", params=query)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["results"]
    return found


async def until_recorded(server: Server, action: str) -> None:
    async def recorded() -> bool:
        return bool(await records(server, action=action))

    await server.until(recorded)


async def test_changes_are_recorded_with_who_and_from_where_and_without_what_is_secret(server: Server) -> None:
    webhook = {"url": f"http://127.0.0.1:9/x?token={SECRET}", "events": ["message"]}
    calls: list[tuple[str, str, dict[str, Any] | None, str, str]] = [
        ("POST", "/api/secrets", {"name": "API_KEY", "value": SECRET}, "secret.created", "API_KEY"),
        ("PUT", "/api/secrets/API_KEY", {"name": "OTHER", "value": SECRET}, "secret.changed", "API_KEY"),
        ("DELETE", "/api/secrets/OTHER", None, "secret.deleted", "OTHER"),
        ("POST", "/api/settings", {"llm_api_key": SECRET, "language": "de"}, "settings.changed", ""),
        ("PUT", "/api/skills/tidy", {"content": "---\nname: tidy\n---\nTidy up."}, "skill.stored", "tidy"),
        ("PUT", "/api/skills/tidy", {"content": "---\nname: tidy\n---\nTidy up well."}, "skill.stored", "tidy"),
        ("PATCH", "/api/skills/tidy", {"enabled": False}, "skill.switched", "tidy"),
        ("DELETE", "/api/skills/tidy", None, "skill.deleted", "tidy"),
        ("PUT", "/api/llm-profiles/fast", {"model": "openai/x", "api_key": SECRET}, "llm_profile.stored", "fast"),
        ("DELETE", "/api/llm-profiles/fast", None, "llm_profile.deleted", "fast"),
        ("POST", "/api/unset-provider-tokens", None, "git_tokens.deleted", ""),
        ("POST", "/api/webhooks", webhook, "webhook.created", ""),
    ]
    for method, path, body, *_ in calls:
        response = await server.client.request(method, path, json=body)
        assert response.status_code < 300, (path, response.text)
    hook = (await server.get("/api/webhooks")).json()["results"][0]["id"]
    assert (await server.client.delete(f"/api/webhooks/{hook}")).status_code == 204
    found = (await records(server))[::-1]
    assert [(one["action"], one["target"]["id"]) for one in found] == [
        *((action, target) for *_, action, target in calls),
        ("webhook.deleted", hook),
    ]
    assert {one["means"] for one in found} == {Means.TOKEN}
    assert {one["address"] for one in found} == {"127.0.0.1"}
    assert found[3]["details"] == {"fields": ["language", "llm_api_key"]}
    assert SECRET not in json.dumps(found)
    assert TOKEN not in json.dumps(found)
    check = await server.app.services.database.audit.verify()
    assert (check.problems, check.records) == ([], len(calls) + 1)


async def test_what_was_refused_or_changed_nothing_has_no_record(server: Server) -> None:
    for method, path, body in (
        ("POST", "/api/secrets", {"name": "no variable", "value": "x"}),
        ("DELETE", "/api/secrets/NONE", None),
        ("PATCH", "/api/skills/none", {"enabled": False}),
        ("POST", "/api/settings", {"language": 7}),
        ("DELETE", "/api/conversations/none", None),
        ("POST", "/api/conversations/import", {"trajectory": "none"}),
    ):
        await server.client.request(method, path, json=body)
    assert await records(server) == []


async def test_a_change_whose_record_cannot_be_written_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation_id = await server.create()

    async def fail(*_: object, **__: object) -> None:
        raise DatabaseError("the disk is full")

    monkeypatch.setattr(AuditLog, "append", fail)
    response = await server.post("/api/secrets", json={"name": "API_KEY", "value": SECRET})
    assert response.status_code >= 500
    assert (await server.get("/api/secrets")).json() == {"custom_secrets": []}
    answer = {"action": "change_agent_state", "args": {"agent_state": "user_confirmed"}}
    response = await server.post(f"/api/conversations/{conversation_id}/events", json=answer)
    assert response.status_code >= 500
    assert (await server.get(f"/api/conversations/{conversation_id}/archive?files=false")).status_code >= 500
    assert (await server.client.delete(f"/api/conversations/{conversation_id}")).status_code >= 500
    monkeypatch.undo()
    assert (await server.info(conversation_id))["conversation_id"] == conversation_id


async def test_approvals_exports_imports_and_deletions_of_conversations_are_recorded(server: Server) -> None:
    conversation_id = await server.create()
    await server.until_running(conversation_id)
    for state in ("user_confirmed", "user_rejected"):
        answer = {"action": "change_agent_state", "args": {"agent_state": state}}
        await server.post(f"/api/conversations/{conversation_id}/events", json=answer)
    archive = await server.get(f"/api/conversations/{conversation_id}/archive?files=false")
    made = await server.post(
        "/api/conversations/import/archive", content=archive.content, headers={"content-type": "application/x-tar"}
    )
    assert made.status_code == 200, made.text
    assert (await server.client.delete(f"/api/conversations/{conversation_id}")).status_code == 200
    found = await records(server)
    assert [(one["action"], one["target"]["id"]) for one in found[::-1]] == [
        ("action.approved", conversation_id),
        ("action.refused", conversation_id),
        ("conversation.exported", conversation_id),
        ("conversation.imported", made.json()["conversation_id"]),
        ("conversation.deleted", conversation_id),
    ]
    assert found[-1]["details"]["behind_event"] >= 0
    assert {one["means"] for one in found} == {Means.TOKEN}


async def test_records_come_in_pages_the_newest_first_and_by_what_they_say(server: Server) -> None:
    for number in range(5):
        await server.post("/api/secrets", json={"name": f"KEY_{number}", "value": "x"})
    await server.post("/api/settings", json={"language": "de"})
    first = (await server.get("/api/admin/audit", params={"limit": 4})).json()
    assert [one["number"] for one in first["results"]] == [6, 5, 4, 3]
    second = (await server.get("/api/admin/audit", params={"limit": 4, "page_id": first["next_page_id"]})).json()
    assert [one["number"] for one in second["results"]] == [2, 1]
    assert second["next_page_id"] is None
    assert first["results"][3]["previous"] == second["results"][0]["hash"]
    assert len(await records(server, action="secret")) == 5
    assert len(await records(server, action="settings.changed", actor="")) == 1
    assert await records(server, actor="nobody") == []
    moment = first["results"][2]["at"]
    assert [one["number"] for one in await records(server, since=moment)] == [6, 5, 4]
    assert [one["number"] for one in await records(server, until=moment)] == [3, 2, 1]
    beyond = make_page_id(10**30)
    assert len((await server.get("/api/admin/audit", params={"page_id": beyond})).json()["results"]) == 6
    for wrong in ({"page_id": "x"}, {"since": "yesterday"}, {"limit": 0}):
        assert (await server.get("/api/admin/audit", params=wrong)).status_code in (400, 422)


async def test_strangers_are_refused_and_that_is_noted_a_few_times_a_minute(server: Server) -> None:
    for number in range(3):
        response = await server.get("/api/admin/audit", headers={"x-session-api-key": f"{SECRET}{number}"})
        assert response.status_code == 401
    await until_recorded(server, "sign_in.refused")
    (found,) = await records(server)
    assert (found["action"], found["actor"]["id"], found["address"]) == ("sign_in.refused", "", "127.0.0.1")
    assert "a wrong access token" in found["details"]["reason"]
    assert SECRET not in json.dumps(found)


async def test_with_accounts_each_record_names_its_user_and_administrators_alone_read_it(
    make_server: MakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with make_server(users="accounts") as server:
        link = await server.app.accounts.first_link()
        used = {"link": link.partition("=")[2], "name": "Ann", "password": f"{SECRET} of Ann"}
        assert (await server.post("/api/auth/link/use", json=used)).status_code == 200
        assert (await server.post("/api/admin/users", json={"name": "Bob", "role": "user"})).status_code == 201
        made = await server.post("/api/auth/tokens", json={"name": "laptop", "scopes": ["read", "write"]})
        assert made.status_code == 201, made.text
        found = await records(server)
        assert [(one["action"], one["actor"]["name"], one["means"]) for one in found[::-1]] == [
            ("link.used", "", Means.OPEN),
            ("sign_in.begun", "Ann", Means.SESSION),
            ("user.added", "Ann", Means.SESSION),
            ("token.created", "Ann", Means.SESSION),
        ]
        assert found[1]["details"]["role"] == "user"
        wrong = {"name": "Ann", "password": f"{SECRET} of somebody"}
        assert (await server.post("/api/auth/sign-in", json=wrong)).status_code == 401
        await until_recorded(server, "sign_in.refused")
        (refused,) = await records(server, action="sign_in.refused")
        assert refused["details"]["reason"] == "a wrong name or password from 127.0.0.1"
        server.client.cookies.clear()
        by_token = {"x-session-api-key": made.json()["token"]}
        assert (await server.get("/api/admin/audit", headers=by_token)).status_code == 403
        text = json.dumps(found)
        assert SECRET not in text
        assert made.json()["token"] not in text
    here = ("--data-dir", str(tmp_path / "data"))
    assert await asyncio.to_thread(main, ["users", "disable", "Bob", *here]) == 0
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["audit", "list", "-n", "1", *here]) == 0
    assert "user.disabled" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["users", "list", *here]) == 0
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["audit", "verify", *here]) == 0
    assert "6 records" in capsys.readouterr().out
