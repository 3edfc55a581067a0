from __future__ import annotations

from typing import Any

import pytest

from agent_core.testing.fake_sandbox import FakeAnswer, FakeRequest
from server.session.sandboxes import app_ports
from tests.contract.rest.conftest import MakeServer, Server


@pytest.fixture
async def conversation_id(server: Server) -> str:
    made = await server.create()
    await server.until_running(made)
    return made


async def say(server: Server, conversation_id: str, command: str) -> None:
    """A command of the user: it needs no model."""
    body = {"action": "run", "args": {"command": command}}
    response = await server.post(f"/api/conversations/{conversation_id}/events", json=body)
    assert (response.status_code, response.json()) == (200, {"success": True})
    stored = await server.events(conversation_id, start_id=response.headers["X-Event-Id"])
    assert (stored[0]["action"], stored[0]["args"]["command"]) == ("run", command)


async def answers(server: Server, conversation_id: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    async def answered() -> bool:
        nonlocal found
        found = [e for e in await server.events(conversation_id) if e.get("observation") == "run"]
        return len(found) >= count

    await server.until(answered)
    return found


async def test_a_fresh_log_begins_with_loading_and_the_system_prompt(server: Server, conversation_id: str) -> None:
    events = await server.events(conversation_id)
    assert [event["id"] for event in events] == list(range(len(events)))
    assert events[0]["observation"] == "agent_state_changed"
    assert events[0]["extras"]["agent_state"] == "loading"
    assert events[1]["action"] == "system"
    for event in events:
        assert {"id", "source", "message", "timestamp"} <= event.keys()


async def test_a_users_command_runs_and_is_answered(server: Server, conversation_id: str) -> None:
    await say(server, conversation_id, "echo hello")
    (answer,) = await answers(server, conversation_id, 1)
    assert answer["content"].startswith("ran echo hello")
    events = await server.events(conversation_id)
    (action,) = [event for event in events if event.get("action") == "run"]
    assert action["source"] == "user"
    assert answer["cause"] == action["id"]


async def test_what_answers_an_event_that_is_not_there_is_refused_so_that_every_log_can_be_imported(
    server: Server, conversation_id: str
) -> None:
    path = f"/api/conversations/{conversation_id}"
    last = (await server.events(conversation_id))[-1]["id"]
    observation = {"observation": "success", "content": "done", "extras": {}}
    refused = await server.post(f"{path}/events", json={**observation, "cause": last + 1})
    assert refused.status_code == 400
    assert refused.json()["error"].startswith(f"cause: {last + 1} is not the id of an event before this one; ")
    taken = await server.post(f"{path}/events", json={**observation, "cause": last})
    assert taken.status_code == 200
    exported = (await server.get(f"{path}/trajectory")).json()
    assert (await server.post("/api/conversations/import", json=exported)).status_code == 200


async def test_a_range_of_events_either_way(server: Server, conversation_id: str) -> None:
    for number in range(3):
        await say(server, conversation_id, f"echo {number}")
    await answers(server, conversation_id, 3)
    path = f"/api/conversations/{conversation_id}/events"
    every = await server.events(conversation_id)

    async def read(**query: Any) -> dict[str, Any]:
        page: dict[str, Any] = (await server.get(path, params=query)).json()
        return page

    def page(events: list[dict[str, Any]], following: int | None) -> dict[str, Any]:
        next_page_id = None if following is None else str(following)
        return {"events": events, "has_more": following is not None, "next_page_id": next_page_id}

    last = every[-1]["id"]
    assert await read(start_id=2, end_id=4) == page(every[2:5], None)
    assert await read(limit=2) == page(every[:2], 2)
    assert await read(limit=2, reverse=True) == page(every[:-3:-1], last - 2)
    assert await read(start_id=1, end_id=3, reverse=True) == page(every[3:0:-1], None)
    assert await read(start_id=10_000) == page([], None)
    assert await read(start_id=-5, limit=1) == page(every[:1], 1)
    assert await read(limit=0) == page([], 0)


async def pages(server: Server, conversation_id: str, wanted: Any = None, **query: Any) -> list[list[dict[str, Any]]]:
    """All pages, one after the other."""
    found = []
    while True:
        path = f"/api/conversations/{conversation_id}/events"
        page = (await server.client.request("GET", path, params=query, json=wanted)).json()
        found.append(page["events"])
        if not page["has_more"]:
            return found
        query["page_id"] = page["next_page_id"]


async def test_pages_follow_one_another_from_either_end(server: Server, conversation_id: str) -> None:
    for number in range(3):
        await say(server, conversation_id, f"echo {number}")
    await answers(server, conversation_id, 3)
    every = await server.events(conversation_id, end_id=9)
    for limit in (1, 3, 7, 100):
        for reverse in (False, True):
            found = await pages(server, conversation_id, end_id=9, limit=limit, reverse=reverse)
            assert [event for page in found for event in page] == (every[::-1] if reverse else every)
            assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)


async def test_a_filter_ends_its_page_where_enough_was_looked_at_and_goes_on_there(
    server: Server, conversation_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.routes.conversations.events.MAX_LOOKED_AT", 3)
    for number in range(3):
        await say(server, conversation_id, f"echo {number}")
    await answers(server, conversation_id, 3)
    every = await server.events(conversation_id, end_id=9)
    wanted = [event for event in every if event["source"] == "user"]
    for reverse in (False, True):
        found = await pages(server, conversation_id, {"source": "user"}, end_id=9, reverse=reverse)
        assert [event for page in found for event in page] == (wanted[::-1] if reverse else wanted)
        assert len(found) == 4  # ten events, three at a time


async def test_a_page_that_was_never_handed_out_is_a_400(server: Server, conversation_id: str) -> None:
    for page_id in ("x", "-1", "1.5", "", "9" * 16, "²"):
        response = await server.get(f"/api/conversations/{conversation_id}/events", params={"page_id": page_id})
        assert response.status_code == 400, page_id
        assert response.json() == {"detail": "page_id is not valid; use the next_page_id of the page before, or none"}


@pytest.mark.parametrize("limit", [-1, 101])
async def test_a_limit_beyond_the_bounds_is_a_400(server: Server, conversation_id: str, limit: int) -> None:
    response = await server.get(f"/api/conversations/{conversation_id}/events", params={"limit": limit})
    assert (response.status_code, response.json()) == (400, {"detail": "Invalid limit"})


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"action": "initialize"}, "initialize"),
        ({"action": "message", "args": {"content": 5}}, "content"),
        ({"action": "message", "args": []}, "args"),
        ({"args": {}}, "action"),
        ([], "list"),
        ("text", "text"),
        (None, ""),
        ({"action": "message", "args": {"content": "x"}, "id": 5}, "id"),
        ({"action": "change_agent_state", "args": {"agent_state": "dancing"}}, "dancing"),
    ],
)
async def test_an_event_that_makes_no_sense_is_refused_with_a_reason_and_not_stored(
    server: Server, conversation_id: str, body: Any, word: str
) -> None:
    before = await server.events(conversation_id)
    response = await server.post(f"/api/conversations/{conversation_id}/events", json=body)
    assert response.status_code in {400, 422}
    assert word in response.text
    assert await server.events(conversation_id) == before


async def test_every_event_of_the_log_is_there_and_the_ids_have_no_gap(server: Server, conversation_id: str) -> None:
    response = await server.post(f"/api/conversations/{conversation_id}/events", json={"action": "null"})
    assert response.status_code == 200
    events = await server.events(conversation_id)
    assert [event["id"] for event in events] == list(range(len(events)))
    assert (events[-1]["action"], events[-1]["message"], events[-1]["source"]) == ("null", "No action", "user")


async def test_a_body_says_which_events_are_wanted(server: Server, conversation_id: str) -> None:
    await say(server, conversation_id, "first thing")
    await answers(server, conversation_id, 1)
    hidden = {"action": "run", "args": {"command": "secret thing", "hidden": True}}
    await server.post(f"/api/conversations/{conversation_id}/events", json=hidden)
    await answers(server, conversation_id, 2)
    events = await server.events(conversation_id)

    async def found(**wanted: Any) -> list[int]:
        response = await server.client.request(
            "GET", f"/api/conversations/{conversation_id}/events", json=wanted, params={"limit": 100}
        )
        assert response.status_code == 200, response.text
        assert response.json()["has_more"] is False
        return [event["id"] for event in response.json()["events"]]

    everything = [event["id"] for event in events]
    assert await found() == everything
    assert await found(source="user") == [event["id"] for event in events if event["source"] == "user"]
    assert await found(query="FIRST") == [event["id"] for event in events if "first" in str(event)]
    assert await found(exclude_hidden=True) == [event["id"] for event in events if "secret thing" not in str(event)]
    middle = events[3]["timestamp"]
    assert await found(start_date=middle) == everything[3:]
    assert await found(end_date=middle.removesuffix("Z")) == everything[:4]


@pytest.mark.parametrize(
    "wanted",
    [
        {"source": "sky"},
        {"start_date": "soon"},
        {"start_date": "0001-01-01T00:00:00+14:00"},
        {"end_date": "9999-12-31T23:59:59-14:00"},
        {"colour": 1},
        [],
        5,
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused(server: Server, conversation_id: str, wanted: Any) -> None:
    path = f"/api/conversations/{conversation_id}/events"
    assert (await server.client.request("GET", path, json=wanted)).status_code == 422


async def test_a_message_to_a_stopped_conversation_starts_it(server: Server, conversation_id: str) -> None:
    await server.post(f"/api/conversations/{conversation_id}/stop")
    response = await server.post(f"/api/conversations/{conversation_id}/message", json={"message": "go on"})
    assert response.json() == {"success": True}
    assert (await server.info(conversation_id))["status"] in {"STARTING", "RUNNING"}
    assert any(event["message"] == "go on" for event in await server.events(conversation_id))


async def test_an_empty_message_is_refused(server: Server, conversation_id: str) -> None:
    response = await server.post(f"/api/conversations/{conversation_id}/message", json={"message": " "})
    assert (response.status_code, response.json()["success"]) == (400, False)


async def test_the_trajectory_has_all_but_hidden_events(server: Server, conversation_id: str) -> None:
    body = {"action": "run", "args": {"command": "echo secretly", "hidden": True}}
    await server.post(f"/api/conversations/{conversation_id}/events", json=body)
    await say(server, conversation_id, "echo openly")
    await answers(server, conversation_id, 2)
    trajectory = (await server.get(f"/api/conversations/{conversation_id}/trajectory")).json()["trajectory"]
    text = str(trajectory)
    assert "echo openly" in text
    assert "echo secretly" not in text


async def no_repository(call: FakeRequest) -> FakeAnswer:
    return {"error": "Not a git repository", "code": "no_repository"}


async def test_what_the_page_asks_when_it_opens_a_conversation(server: Server, conversation_id: str) -> None:
    base = f"/api/conversations/{conversation_id}"
    assert (await server.get(f"{base}/config")).json() == {"runtime_id": None, "session_id": conversation_id}
    assert (await server.get(f"{base}/vscode-url")).json() == {
        "vscode_url": f"{server.client.base_url}{base}/workspace"
    }
    hosts = (await server.get(f"{base}/web-hosts")).json()["hosts"]
    assert tuple(hosts.values()) == app_ports(conversation_id)
    (sandbox,) = server.provider.sandboxes.values()
    sandbox.runner.handlers["git.status"] = no_repository
    changes = await server.get(f"{base}/git/changes")
    assert (changes.status_code, changes.json()) == (404, {"error": "Not a git repository"})


async def test_no_page_of_the_workspace_is_named_where_a_browser_could_not_open_it(make_server: MakeServer) -> None:
    async with make_server(token="a-token-that-is-long-enough") as server:
        server.client.headers["x-session-api-key"] = "a-token-that-is-long-enough"
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        assert (await server.get(f"/api/conversations/{conversation_id}/vscode-url")).json() == {"vscode_url": None}
        del server.client.headers["x-session-api-key"]
        assert (await server.get(f"/api/conversations/{conversation_id}/workspace")).status_code == 401


async def test_changes_in_the_workspaces_repository_are_listed(server: Server, conversation_id: str) -> None:
    async def status(call: FakeRequest) -> FakeAnswer:
        assert call.args == {"directory": "", "since": "commit"}
        changes = [{"status": "M", "path": "a.py"}, {"status": "A", "path": "b.py"}]
        return {"repositories": [{"path": "", "changes": changes}], "errors": []}

    (sandbox,) = server.provider.sandboxes.values()
    sandbox.runner.handlers["git.status"] = status
    changes = await server.get(f"/api/conversations/{conversation_id}/git/changes")
    assert changes.json() == [{"status": "M", "path": "a.py"}, {"status": "A", "path": "b.py"}]


async def test_a_page_is_bounded_in_bytes_and_says_how_to_go_on(server: Server, conversation_id: str) -> None:
    large = "x" * 1_500_000
    for number in range(5):
        body = {"action": "run", "args": {"command": f"true {number} # {large}"}}
        assert (await server.post(f"/api/conversations/{conversation_id}/events", json=body)).status_code == 200
    for backward in (False, True):
        seen: list[int] = []
        query: dict[str, Any] = {"limit": 100, "reverse": backward}
        while True:
            answer = await server.get(f"/api/conversations/{conversation_id}/events", params=query)
            page = answer.json()
            assert page["events"]
            assert len(answer.content) < 4.5 * 1024 * 1024 or len(page["events"]) == 1
            seen.extend(event["id"] for event in page["events"])
            if not page["has_more"]:
                break
            query["page_id"] = page["next_page_id"]
        assert seen == sorted(set(seen), reverse=backward)
        assert sum(1 for event_id in seen) >= 10
