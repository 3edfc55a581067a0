from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from sqlalchemy import text

from agent_core.errors import DrydockError
from agent_core.runtime.sandbox import Availability
from agent_core.testing.fake_sandbox import BROKEN, SLOW, FakeBehaviour, FakeProvider
from server.auth.identity import Identity
from server.conversation_manager.conversation_manager import LiveConversation
from server.conversation_manager.standalone import StandaloneConversationManager
from tests.contract.rest.conftest import MakeServer, Server

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


async def test_a_new_conversation_is_answered_as_the_protocol_says_and_is_complete_in_the_list_at_once(
    server: Server,
) -> None:
    response = await server.post("/api/conversations", json={})
    assert response.status_code == 200
    body = response.json()
    conversation_id = body["conversation_id"]
    assert re.fullmatch(r"[0-9a-f]{32}", conversation_id)
    assert body == {
        "status": "ok",
        "conversation_id": conversation_id,
        "message": None,
        "conversation_status": "STARTING",
    }
    listed = (await server.get("/api/conversations?limit=10")).json()
    assert listed["next_page_id"] is None
    (info,) = listed["results"]
    assert TIME.fullmatch(info.pop("created_at"))
    assert TIME.fullmatch(info.pop("last_updated_at"))
    assert info.pop("status") in {"STARTING", "RUNNING"}
    assert info.pop("runtime_status").startswith("STATUS$")
    assert info.pop("waiting") is None
    assert info.pop("agent_state") in {None, "loading", "awaiting_user_input"}
    assert info == {
        "conversation_id": conversation_id,
        "title": f"Conversation {conversation_id[:5]}",
        "selected_repository": None,
        "selected_branch": None,
        "git_provider": None,
        "trigger": "gui",
        "num_connections": 0,
        "runtime_warning": None,
        "url": f"/api/conversations/{conversation_id}",
        "session_api_key": None,
        "pr_number": [],
        "conversation_version": "V0",
        "sub_conversation_ids": [],
        "accumulated_cost": 0.0,
        "access": "owner",
    }


async def test_it_goes_from_starting_to_running_with_a_status_that_then_stays(server: Server) -> None:
    conversation_id = await server.create()
    await server.until_running(conversation_id)
    assert {(await server.info(conversation_id))["runtime_status"] for _ in range(5)} == {"STATUS$READY"}


async def test_a_body_is_not_needed(server: Server) -> None:
    assert (await server.post("/api/conversations")).status_code == 200


async def test_the_first_message_is_in_the_log_when_the_answer_comes(server: Server) -> None:
    conversation_id = await server.create(initial_user_msg="Build me a boat", image_urls=["data:image/png;base64,AA=="])
    messages = [event for event in await server.events(conversation_id) if event.get("action") == "message"]
    assert messages[0]["source"] == "user"
    assert messages[0]["args"]["content"] == "Build me a boat"
    assert messages[0]["args"]["image_urls"] == ["data:image/png;base64,AA=="]


async def test_a_first_image_that_the_model_cannot_see_is_refused_and_makes_nothing(server: Server) -> None:
    await server.post("/api/settings", json={"llm_model": "openai/gpt-3.5-turbo", "llm_api_key": "k"})
    body = {"initial_user_msg": "see", "image_urls": ["data:image/png;base64,AA=="]}
    response = await server.post("/api/conversations", json=body)
    refused = response.json()
    assert (response.status_code, refused["status"]) == (400, "error")
    assert refused["message"].startswith("image_urls: Model does not support image upload, change to a different model")
    assert (await server.get("/api/conversations")).json()["results"] == []


async def test_the_first_message_makes_the_title(server: Server) -> None:
    conversation_id = await server.create(initial_user_msg="Build me a boat that can cross the ocean")

    async def titled() -> bool:
        return bool((await server.info(conversation_id))["title"] == "Build me a boat that can cross...")

    await server.until(titled)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"unknown": 1}, 422),
        ({"initial_user_msg": 5}, 422),
        ({"image_urls": "x"}, 422),
        ({"image_urls": ["x"]}, 400),
        ({"git_provider": "sourcehut"}, 422),
        ([], 422),
        ({"conversation_id": "mine"}, 422),
        ({"replay_json": "[]"}, 400),
    ],
)
async def test_a_wrong_body_is_refused_and_makes_nothing(server: Server, body: Any, status: int) -> None:
    response = await server.post("/api/conversations", json=body)
    assert response.status_code == status
    assert response.json()["detail"]
    assert (await server.get("/api/conversations")).json()["results"] == []


async def test_a_replay_has_a_first_message_of_its_own(server: Server) -> None:
    replay = json.dumps([{"source": "user", "action": "message", "args": {"content": "hi"}}])
    for more in ({"initial_user_msg": "x"}, {"image_urls": ["data:image/png;base64,AA=="]}):
        response = await server.post("/api/conversations", json={"replay_json": replay, **more})
        assert response.status_code == 400
        assert response.json()["message"].startswith("replay_json: has a first message of its own")
    assert (await server.get("/api/conversations")).json()["results"] == []


async def test_a_new_title_is_told_to_clients_and_those_that_are_there_are_counted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []

    async def announce(conversation_id: str, title: str) -> None:
        told.append((conversation_id, title))

    conversation_id = await server.create()
    manager = server.app.services.manager
    monkeypatch.setattr(manager, "announce_title", announce)
    await server.client.patch(f"/api/conversations/{conversation_id}", json={"title": " New "})
    assert told == [(conversation_id, "New")]
    await manager.join(conversation_id, "a-connection", Identity())
    assert (await server.info(conversation_id))["num_connections"] == 1
    await manager.leave("a-connection")
    assert (await server.info(conversation_id))["num_connections"] == 0


async def test_a_client_may_choose_the_id_only_where_that_is_allowed(make_server: MakeServer) -> None:
    async with make_server(allow_set_conversation_id=True) as server:
        assert await server.create(conversation_id="my-own_id") == "my-own_id"
        again = await server.post("/api/conversations", json={"conversation_id": "my-own_id"})
        assert again.status_code == 409
        assert again.json()["msg_id"] == "CONVERSATION$ALREADY_EXISTS"
        for bad in ("task-1", "a/b", "..", "ä", "a" * 101, ""):
            assert (await server.post("/api/conversations", json={"conversation_id": bad})).status_code == 400


async def test_of_two_clients_that_create_the_same_id_one_gets_it_and_the_other_is_told(
    make_server: MakeServer,
) -> None:
    async with make_server(allow_set_conversation_id=True) as server:
        answers = await asyncio.gather(
            *(server.post("/api/conversations", json={"conversation_id": "same"}) for _ in range(8))
        )
        assert sorted(answer.status_code for answer in answers) == [200, *[409] * 7]
        assert len((await server.get("/api/conversations")).json()["results"]) == 1


async def test_without_settings_and_key_the_demo_runs_and_a_hosted_model_without_a_key_is_refused(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with make_server(llm_model="openai/gpt-5") as server:
        response = await server.post("/api/conversations", json={})
        assert response.status_code == 400
        assert response.json() == {
            "status": "error",
            "message": "Error authenticating with the LLM provider. Please check your API key",
            "msg_id": "STATUS$ERROR_LLM_AUTHENTICATION",
        }
        assert (await server.get("/api/conversations")).json()["results"] == []


async def test_pages_follow_one_another_newest_first_and_none_is_lost_or_twice(server: Server) -> None:
    made = [await server.create() for _ in range(5)]
    seen: list[str] = []
    page_id = None
    while True:
        query = {"limit": 2, **({"page_id": page_id} if page_id else {})}
        page = (await server.get("/api/conversations", params=query)).json()
        seen += [info["conversation_id"] for info in page["results"]]
        page_id = page["next_page_id"]
        if page_id is None:
            break
    assert seen == made[::-1]


async def test_conversations_that_come_and_go_between_pages_shift_none(server: Server) -> None:
    made = [await server.create() for _ in range(4)]
    first = (await server.get("/api/conversations?limit=2")).json()
    await server.create()
    await server.client.delete(f"/api/conversations/{made[2]}")
    rest = (await server.get("/api/conversations", params={"limit": 2, "page_id": first["next_page_id"]})).json()
    seen = [info["conversation_id"] for page in (first, rest) for info in page["results"]]
    assert (seen, rest["next_page_id"]) == (made[::-1], None)


async def test_a_text_is_looked_for_in_all_of_them_page_by_page(server: Server) -> None:
    made = [await server.create() for _ in range(4)]
    for one in made[:3]:
        await server.client.patch(f"/api/conversations/{one}", json={"title": f"Login {one[:4]}"})
    query = {"limit": 2, "query": "lOgIn"}
    first = (await server.get("/api/conversations", params=query)).json()
    rest = (await server.get("/api/conversations", params={**query, "page_id": first["next_page_id"]})).json()
    assert [info["conversation_id"] for page in (first, rest) for info in page["results"]] == made[2::-1]
    assert rest["next_page_id"] is None
    assert (await server.get("/api/conversations", params={"query": "a" * 201})).status_code == 422


async def test_a_page_id_that_nobody_gave_out_is_refused(server: Server) -> None:
    response = await server.get("/api/conversations?page_id=nonsense")
    assert response.status_code == 400
    assert "page_id" in response.json()["detail"]


async def test_an_unknown_conversation_is_null_and_changing_it_says_so(server: Server) -> None:
    base = "/api/conversations/unknown"
    assert (await server.get(base)).json() is None
    assert (await server.client.delete(base)).json() is False
    for response in (
        await server.client.patch(base, json={"title": "x"}),
        await server.post(f"{base}/start", json={}),
        await server.post(f"{base}/stop"),
    ):
        assert response.status_code == 404
        assert response.json()["msg_id"] == "CONVERSATION$NOT_FOUND"
        assert response.json()["status"] == "error"
    for path in ("events", "trajectory", "config", "vscode-url", "web-hosts"):
        response = await server.get(f"{base}/{path}")
        assert response.status_code == 404
        assert response.json() == {"detail": "Conversation unknown not found"}
    for path, body in (("events", {"action": "message"}), ("message", {"message": "hi"})):
        assert (await server.post(f"{base}/{path}", json=body)).status_code == 404


@pytest.mark.parametrize(
    ("conversation_id", "detail"),
    [
        ("a" * 101, "Conversation ID is too long"),
        ("a%00b", "Conversation ID contains invalid characters"),
        ("a..b", "Conversation ID contains invalid path characters"),
        ("a%5Cb", "Conversation ID contains invalid path characters"),
        ("a%07b", "Conversation ID contains control characters"),
    ],
)
async def test_an_id_that_can_be_none_is_a_400(server: Server, conversation_id: str, detail: str) -> None:
    response = await server.get(f"/api/conversations/{conversation_id}")
    assert (response.status_code, response.json()) == (400, {"detail": detail})


async def test_renaming_trims_and_refuses_what_is_no_title(server: Server) -> None:
    conversation_id = await server.create()
    path = f"/api/conversations/{conversation_id}"
    response = await server.client.patch(path, json={"title": "  A good name "})
    assert (response.status_code, response.json()) == (200, True)
    assert (await server.info(conversation_id))["title"] == "A good name"
    for bad in ({"title": " "}, {"title": "x" * 201}, {}, {"title": 5}, {"title": "a", "more": 1}):
        assert (await server.client.patch(path, json=bad)).status_code == 422


async def test_a_title_that_cannot_be_stored_is_told_as_the_protocol_has_it(server: Server) -> None:
    conversation_id = await server.create()
    await server.until_running(conversation_id)
    (server.app.services.database.data_dir / "drydock.db").unlink()
    response = await server.client.patch(f"/api/conversations/{conversation_id}", json={"title": "x"})
    assert (response.status_code, response.json()["status"]) == (503, "error")
    assert response.json()["msg_id"] == "CONVERSATION$UPDATE_ERROR"
    assert response.json()["message"].startswith("Failed to rename conversation: ")


class Refusing(StandaloneConversationManager):
    """Starts nothing a second time, and stops nothing."""

    refuses = False

    async def maybe_start_agent_loop(self, conversation_id: str) -> LiveConversation:
        if self.refuses:
            raise DrydockError("there is no room")
        return await super().maybe_start_agent_loop(conversation_id)

    async def stop(self, conversation_id: str) -> LiveConversation:
        raise DrydockError("it does not let go")


async def test_a_start_and_a_stop_that_fail_say_why_in_the_protocol_s_form(make_server: MakeServer) -> None:
    name = f"{Refusing.__module__}.{Refusing.__qualname__}"
    async with make_server(conversation_manager_class=name) as server:
        conversation_id = await server.create()
        manager = server.app.services.manager
        assert isinstance(manager, Refusing)
        manager.refuses = True
        for what, problem in (("start", "there is no room"), ("stop", "it does not let go")):
            response = await server.post(f"/api/conversations/{conversation_id}/{what}", json={})
            assert response.status_code == 500
            assert response.json() == {
                "status": "error",
                "conversation_id": conversation_id,
                "message": f"Failed to {what} conversation: {problem}",
            }


async def test_a_user_s_own_title_is_not_replaced_by_the_first_message(server: Server) -> None:
    conversation_id = await server.create()
    await server.client.patch(f"/api/conversations/{conversation_id}", json={"title": "Mine"})
    await server.post(f"/api/conversations/{conversation_id}/message", json={"message": "Something else"})

    async def said() -> bool:
        return any(event.get("action") == "message" for event in await server.events(conversation_id))

    await server.until(said)
    assert (await server.info(conversation_id))["title"] == "Mine"


async def test_stopping_says_what_it_was_and_starting_brings_it_back(server: Server) -> None:
    conversation_id = await server.create()
    path = f"/api/conversations/{conversation_id}"
    await server.until_running(conversation_id)
    stopped = await server.post(f"{path}/stop")
    assert stopped.json() == {
        "status": "ok",
        "conversation_id": conversation_id,
        "message": "Conversation stopped successfully",
        "conversation_status": "RUNNING",
    }
    info = await server.info(conversation_id)
    assert (info["status"], info["runtime_status"], info["url"]) == ("STOPPED", None, None)
    again = await server.post(f"{path}/stop")
    assert again.json()["message"] == "Conversation was not running"
    assert again.json()["conversation_status"] == "STOPPED"
    started = await server.post(f"{path}/start", json={"providers_set": []})
    assert started.json()["status"] == "ok"
    await server.until_running(conversation_id)


async def test_many_starts_at_once_start_one_session(make_server: MakeServer) -> None:
    provider = FakeProvider(behaviour=SLOW)
    async with make_server(provider) as server:
        conversation_id = await server.create()
        path = f"/api/conversations/{conversation_id}/start"
        answers = await asyncio.gather(*(server.post(path, json={}) for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        await server.until_running(conversation_id)
        (sandbox,) = provider.sandboxes.values()
        assert sandbox.starts == 1
        states = [e for e in await server.events(conversation_id) if e.get("observation") == "agent_state_changed"]
        assert [e["extras"]["agent_state"] for e in states].count("loading") == 1


async def test_deleting_while_it_starts_leaves_nothing(make_server: MakeServer) -> None:
    provider = FakeProvider(behaviour=SLOW)
    async with make_server(provider) as server:
        conversation_id = await server.create(initial_user_msg="work")
        path = f"/api/conversations/{conversation_id}"
        answers = await asyncio.gather(
            server.client.delete(path), server.client.delete(path), server.post(f"{path}/start", json={})
        )
        assert True in [answers[0].json(), answers[1].json()]
        assert await server.info(conversation_id) is None
        assert all(sandbox.status == "absent" for sandbox in provider.sandboxes.values())
        assert (await server.get(f"{path}/events")).status_code == 404


async def test_deleting_while_it_works_leaves_nothing(server: Server) -> None:
    conversation_id = await server.create(initial_user_msg="work")
    await server.until_running(conversation_id)
    response = await server.client.delete(f"/api/conversations/{conversation_id}")
    assert response.json() is True
    assert (await server.get("/api/conversations")).json()["results"] == []
    assert await server.app.services.database.events.last_id(conversation_id) == -1
    assert all(sandbox.status == "absent" for sandbox in server.provider.sandboxes.values())


@pytest.mark.parametrize("field", ["options", "sandbox"])
@pytest.mark.parametrize("works", [True, False])
async def test_one_whose_record_is_damaged_cannot_be_opened_and_can_be_deleted(
    field: str, works: bool, server: Server
) -> None:
    conversation_id = await server.create(initial_user_msg="work")
    await server.until_running(conversation_id)
    path = f"/api/conversations/{conversation_id}"
    if not works:
        await server.post(f"{path}/stop")
    database = server.app.services.database
    await database.conversations.flush()
    await database.writer.execute(text(f"UPDATE conversations SET {field} = '{{bad'"))  # noqa: S608
    refused = await server.get(path)
    assert (refused.status_code, "delete the conversation" in refused.text) == (503, True)
    assert (await server.client.delete(path)).json() is True
    assert (await server.get("/api/conversations")).json()["results"] == []
    assert await database.events.last_id(conversation_id) == -1
    if field == "options":  # else nobody knows any more which sandbox it was, until the next start looks for such
        assert all(sandbox.status == "absent" for sandbox in server.provider.sandboxes.values())


async def test_a_sandbox_that_cannot_be_had_is_told_in_the_log_and_starting_again_tries_again(
    make_server: MakeServer,
) -> None:
    provider = FakeProvider(behaviour=BROKEN)
    async with make_server(provider) as server:
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        assert (await server.info(conversation_id))["runtime_status"] == "STATUS$ERROR"
        last = (await server.events(conversation_id))[-1]
        assert last["extras"]["agent_state"] == "error"
        assert "Fetch some water" in last["extras"]["reason"]
        for sandbox in provider.sandboxes.values():
            sandbox.behaviour = SLOW
        await server.post(f"/api/conversations/{conversation_id}/start", json={})

        async def ready() -> bool:
            return bool((await server.info(conversation_id))["runtime_status"] == "STATUS$READY")

        await server.until(ready)


async def test_what_an_engine_was_away_for_starts_by_itself_when_it_answers_again(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.conversation_manager.failed_starts.ENGINE_AGAIN_SECONDS", 0.05)
    provider = FakeProvider(behaviour=BROKEN)
    async with make_server(provider) as server:
        provider.availability = Availability(False, "no engine answers")
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        assert (await server.info(conversation_id))["runtime_status"] == "STATUS$ERROR"
        (sandbox,) = provider.sandboxes.values()
        await asyncio.sleep(0.3)
        failures = [event for event in await server.events(conversation_id) if "on fire" in str(event)]
        sandbox.behaviour, provider.availability = SLOW, Availability(True, "it answers again")

        async def ready() -> bool:
            return bool((await server.info(conversation_id))["runtime_status"] == "STATUS$READY")

        await server.until(ready)
        now = [event for event in await server.events(conversation_id) if "on fire" in str(event)]
        assert now == failures, "nothing is tried while it is away"


async def test_a_network_that_could_not_be_had_is_told_until_a_start_brings_it(make_server: MakeServer) -> None:
    provider = FakeProvider(behaviour=FakeBehaviour(network_warning="This sandbox has no network: no cable"))
    async with make_server(provider) as server:
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        info = await server.info(conversation_id)
        assert (info["runtime_status"], info["runtime_warning"]) == (
            "STATUS$READY",
            "This sandbox has no network: no cable",
        )
        for sandbox in provider.sandboxes.values():
            sandbox.behaviour = FakeBehaviour()
        await server.post(f"/api/conversations/{conversation_id}/stop", json={})
        assert (await server.info(conversation_id))["runtime_warning"] is None
        await server.post(f"/api/conversations/{conversation_id}/start", json={})
        await server.until_running(conversation_id)
        assert (await server.info(conversation_id))["runtime_warning"] is None


async def test_a_sandbox_of_another_provider_is_kept_and_the_user_is_told(server: Server) -> None:
    conversation_id = await server.create()
    await server.until_running(conversation_id)
    conversations = server.app.services.database.conversations
    elsewhere = {"provider": "docker", "container": "c"}

    async def move(**options: Any) -> str:
        await server.post(f"/api/conversations/{conversation_id}/stop")
        await conversations.update(conversation_id, sandbox=elsewhere, options=options)
        await server.post(f"/api/conversations/{conversation_id}/start", json={})
        await server.until_running(conversation_id)
        events = await server.events(conversation_id)
        return [str(event["content"]) for event in events if event.get("observation") == "error"][-1]

    told = await move()
    assert "made by 'docker'" in told
    assert "empty workspace" in told
    assert "--sandbox docker" in told
    record = await conversations.get(conversation_id)
    assert record is not None
    assert record.sandbox is not None
    assert record.sandbox["provider"] == "fake"
    assert record.options["other_sandboxes"] == {"docker": elsewhere}
    told = await move(other_sandboxes={"fake": dict(record.sandbox)})
    assert "goes on in the workspace that it had there" in told
