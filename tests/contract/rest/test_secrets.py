"""A user's own secrets: the routes, and what conversations get of them."""

from __future__ import annotations

import asyncio
import base64
from typing import Any
from urllib.parse import quote

import pytest

from agent_core.testing.fake_sandbox import FakeAnswer, FakeProvider, FakeRequest
from server.errors import coded_page
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server, facts, kill, shell
from tests.unit.db.another_program import another_program

VALUE = "s3cr+t/välue whose end shows: ~!?%s"  # of 36 bytes, so that no padding stays behind in base64
HIDDEN = "<secret_hidden>"
CREATED = (201, {"message": "Secret created successfully"})
UPDATED = (200, {"message": "Secret updated successfully"})
DELETED = (200, {"message": "Secret deleted successfully"})

UNAUTHORIZED = {"detail": "Unauthorized", **coded_page("invalid_api_key")}


async def create(server: Server, name: str = "API_KEY", value: str = VALUE, **more: Any) -> tuple[int, Any]:
    response = await server.post("/api/secrets", json={"name": name, "value": value, **more})
    return response.status_code, response.json()


async def update(server: Server, secret_id: str, **body: Any) -> tuple[int, Any]:
    response = await server.client.put(f"/api/secrets/{secret_id}", json=body)
    return response.status_code, response.json()


async def remove(server: Server, secret_id: str) -> tuple[int, Any]:
    response = await server.client.delete(f"/api/secrets/{secret_id}")
    return response.status_code, response.json()


async def listed(server: Server) -> list[dict[str, str]]:
    response = await server.get("/api/secrets")
    assert response.status_code == 200
    assert response.json().keys() == {"custom_secrets"}
    found: list[dict[str, str]] = response.json()["custom_secrets"]
    return found


async def test_without_any_the_list_is_empty(server: Server) -> None:
    assert await listed(server) == []


async def test_secrets_are_listed_with_name_and_description_and_never_with_their_values(server: Server) -> None:
    assert await create(server) == CREATED
    assert await create(server, "A", "another", description="of the shop") == CREATED
    assert await create(server, "b", "third", description=None, unknown=1) == CREATED
    assert await listed(server) == [
        {"name": "A", "description": "of the shop"},
        {"name": "API_KEY", "description": ""},
        {"name": "b", "description": ""},
    ]
    assert VALUE not in (await server.get("/api/secrets")).text
    assert (await server.get("/api/settings")).status_code == 404, "secrets are no settings"


async def test_a_name_that_is_taken_is_a_400_and_the_first_value_stays(server: Server) -> None:
    await create(server, description="first")
    assert await create(server, value="other") == (400, {"message": "Secret API_KEY already exists"})
    assert await listed(server) == [{"name": "API_KEY", "description": "first"}]
    assert await values(server) == {"API_KEY": VALUE}


async def test_a_secret_can_be_renamed_and_keeps_its_value(server: Server) -> None:
    await create(server, description="old")
    assert await update(server, "API_KEY", name="SHOP_KEY", description="new") == UPDATED
    assert await listed(server) == [{"name": "SHOP_KEY", "description": "new"}]
    assert await update(server, "SHOP_KEY", name="SHOP_KEY", description="newer") == UPDATED
    assert await update(server, "SHOP_KEY", name="KEY") == UPDATED
    assert await listed(server) == [{"name": "KEY", "description": "newer"}]
    assert await update(server, "KEY", name="KEY", description="") == UPDATED
    assert await listed(server) == [{"name": "KEY", "description": ""}]
    assert await values(server) == {"KEY": VALUE}


async def test_a_secret_can_be_given_another_value(server: Server) -> None:
    await create(server, description="kept")
    assert await update(server, "API_KEY", name="API_KEY", value="rotated") == UPDATED
    assert await values(server) == {"API_KEY": "rotated"}
    assert await listed(server) == [{"name": "API_KEY", "description": "kept"}]


async def test_a_secret_that_is_not_there_is_a_404_and_with_none_at_all_an_update_succeeds(server: Server) -> None:
    assert await update(server, "NONE", name="NONE") == UPDATED
    assert await listed(server) == []
    assert await remove(server, "NONE") == (404, {"error": "Secret with ID NONE not found"})
    await create(server)
    assert await update(server, "NONE", name="X") == (404, {"error": "Secret with ID NONE not found"})
    assert await remove(server, "NONE") == (404, {"error": "Secret with ID NONE not found"})


async def test_a_secret_cannot_take_the_name_of_another(server: Server) -> None:
    await create(server)
    await create(server, "OTHER", "other")
    assert await update(server, "OTHER", name="API_KEY") == (400, {"message": "Secret API_KEY already exists"})
    assert await values(server) == {"API_KEY": VALUE, "OTHER": "other"}


async def test_a_deleted_secret_is_gone(server: Server) -> None:
    await create(server)
    assert await remove(server, "API_KEY") == DELETED
    assert await listed(server) == []
    assert await create(server, value="anew") == CREATED


GOOD = {"name": "API_KEY", "value": "value"}


async def test_what_can_be_no_secret_is_a_422_that_names_it_and_nothing_is_stored(server: Server) -> None:
    cases: list[tuple[Any, str]] = [
        ({}, "name"),
        ({"name": "API_KEY"}, "value"),
        ({"value": "v"}, "name"),
        ([], "object"),
        ("text", "object"),
        (None, "required"),
        ({**GOOD, "name": None}, "name"),
        ({**GOOD, "name": 7}, "name"),
        ({**GOOD, "name": ["API_KEY"]}, "name"),
        ({**GOOD, "name": ""}, "name"),
        ({**GOOD, "name": "my-key"}, "name"),
        ({**GOOD, "name": "my key"}, "name"),
        ({**GOOD, "name": "1ST"}, "name"),
        ({**GOOD, "name": "KEY\n"}, "name"),
        ({**GOOD, "name": "a/b"}, "name"),
        ({**GOOD, "name": "CLÉ"}, "name"),
        ({**GOOD, "name": "A" * 201}, "name"),
        ({**GOOD, "name": "A\0B"}, "NUL"),
        ({**GOOD, "value": None}, "value"),
        ({**GOOD, "value": 7}, "value"),
        ({**GOOD, "value": {"secret": "do-not-echo"}}, "value"),
        ({**GOOD, "value": ""}, "value"),
        ({**GOOD, "value": " \n"}, "value"),
        ({**GOOD, "value": "do-not-echo\0"}, "NUL"),
        ({**GOOD, "value": "do-not-echo" * 6000}, "value"),
        ({**GOOD, "value": "é" * 40_000}, "value"),
        ({**GOOD, "description": 7}, "description"),
        ({**GOOD, "description": "d" * 2001}, "description"),
    ]
    for body, says in cases:
        response = await server.post("/api/secrets", json=body)
        assert response.status_code == 422, response.text
        assert says in response.text, body
        assert "do-not-echo" not in response.text
    assert await listed(server) == []


async def test_an_update_of_the_wrong_shape_is_a_422_and_changes_nothing(server: Server) -> None:
    await create(server, description="as it was")
    bodies: list[Any] = [
        {},
        {"name": 7},
        {"name": "my-key"},
        {"name": "A", "description": []},
        {"name": "A", "value": ""},
        [],
    ]
    for body in bodies:
        response = await server.client.put("/api/secrets/API_KEY", json=body)
        assert response.status_code == 422, body
    assert await listed(server) == [{"name": "API_KEY", "description": "as it was"}]
    assert await values(server) == {"API_KEY": VALUE}


async def test_there_is_a_limit_to_their_number(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.db.repositories.user_secrets.MAX_SECRETS", 3)
    for number in range(3):
        assert await create(server, f"S{number}") == CREATED
    status, body = await create(server)
    assert status == 400
    assert "delete one first" in body["error"]
    assert len(await listed(server)) == 3
    assert await create(server, "S1") == (400, {"message": "Secret S1 already exists"})


async def test_of_many_who_create_the_same_secret_at_once_one_succeeds(server: Server) -> None:
    answers = await asyncio.gather(*(create(server, value=f"value {number}") for number in range(8)))
    assert sorted(status for status, _ in answers) == [201] + [400] * 7
    winner = [status for status, _ in answers].index(201)
    assert await values(server) == {"API_KEY": f"value {winner}"}


async def test_with_a_token_nobody_else_gets_at_them(make_server: MakeServer) -> None:
    async with make_server(token="the-right-token-of-24-chars") as server:
        for method, path in (("GET", ""), ("POST", ""), ("PUT", "/API_KEY"), ("DELETE", "/API_KEY")):
            response = await server.client.request(method, f"/api/secrets{path}", json=GOOD)
            assert (response.status_code, response.json()) == (
                401,
                {"detail": "Unauthorized", **coded_page("invalid_api_key")},
            ), method


async def test_a_database_that_fails_is_told_without_internals(server: Server) -> None:
    with another_program(server.app.services.database) as other:
        # In a thread: what the server is writing ends only while its loop runs.
        await asyncio.to_thread(other.execute, "DROP TABLE secrets")
    response = await server.get("/api/secrets")
    assert (response.status_code, response.json()) == (500, {"error": "Failed to get secret names"})
    for status, body in (await create(server), await update(server, "A", name="B"), await remove(server, "A")):
        assert (status, body) == (500, {"error": "Something went wrong storing the secret"})


# --- what conversations get ---


async def values(server: Server, user_id: str = "") -> dict[str, str]:
    """The secrets as conversations are given them."""
    found = await server.app.services.database.user_secrets.values(user_id)
    return {name: one.secret.get_secret_value() for name, one in found.items()}


async def revealing(call: FakeRequest) -> FakeAnswer:
    """A shell whose commands print what they were given, in all the ways in which a secret shows."""
    given = call.args.get("env", {})
    lines = []
    for name, value in sorted(given.items()):
        encoded = base64.b64encode(value.encode()).decode()
        lines += [f"{name}={value}", f"{name} base64 {encoded}", f"{name} url {quote(value, safe='')}"]
    answer = await shell(call)
    assert isinstance(answer, dict)
    return {**answer, "output": "\n".join(lines) or "nothing was given"}


def revealing_provider() -> FakeProvider:
    return FakeProvider(handlers={"shell.run": revealing, "workspace.facts": facts, "shell.kill": kill})


async def run(server: Server, conversation_id: str, command: str) -> str:
    """What a command of the user's prints, as everybody is shown it."""
    before = len(await server.events(conversation_id))
    event = {"action": "run", "args": {"command": command}}
    assert (await server.post(f"/api/conversations/{conversation_id}/events", json=event)).status_code == 200
    found: list[dict[str, Any]] = []

    async def answered() -> bool:
        found[:] = [one for one in (await server.events(conversation_id))[before:] if one.get("observation") == "run"]
        return bool(found)

    await server.until(answered)
    return str(found[0]["content"])


def masked(*names: str) -> str:
    return "\n".join(f"{name}={HIDDEN}\n{name} base64 {HIDDEN}\n{name} url {HIDDEN}" for name in names)


async def test_commands_that_name_a_secret_get_it_and_it_is_masked_in_every_form(make_server: MakeServer) -> None:
    async with make_server(revealing_provider()) as server:
        await create(server)
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        assert await run(server, conversation_id, "echo $api_key") == masked("API_KEY")
        assert await run(server, conversation_id, "echo something else") == "nothing was given"


async def test_a_running_conversation_gets_new_changed_renamed_and_deleted_secrets_at_once(
    make_server: MakeServer,
) -> None:
    async with make_server(revealing_provider()) as server:
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        command = "echo $API_KEY $SHOP_KEY"
        assert await run(server, conversation_id, command) == "nothing was given"
        await create(server)
        assert await run(server, conversation_id, command) == masked("API_KEY")
        await update(server, "API_KEY", name="API_KEY", value="a rotated value")
        assert await run(server, conversation_id, command) == masked("API_KEY")
        await update(server, "API_KEY", name="SHOP_KEY")
        assert await run(server, conversation_id, command) == masked("SHOP_KEY")
        await remove(server, "SHOP_KEY")
        assert await run(server, conversation_id, command) == "nothing was given"
        said = {"action": "message", "args": {"content": f"The old one was {VALUE}, then 'a rotated value'."}}
        await server.post(f"/api/conversations/{conversation_id}/events", json=said)
        texts = [str(event) for event in await server.events(conversation_id)]
        assert any(f"The old one was {HIDDEN}, then '{HIDDEN}'." in text for text in texts), "once secret, ever hidden"
        assert server.app.log_masker.text(f"{VALUE} a rotated value") == f"{HIDDEN} {HIDDEN}"


async def test_tokens_of_git_providers_reach_running_conversations_and_leave_them(make_server: MakeServer) -> None:
    async with make_server(revealing_provider(), verify_git_tokens=False) as server:
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        command = "git push # $GITHUB_TOKEN"
        assert await run(server, conversation_id, command) == "nothing was given"
        tokens = {"github": {"token": "gh-012345678", "host": ""}}
        assert (await server.post("/api/add-git-providers", json={"provider_tokens": tokens})).status_code == 200
        assert await run(server, conversation_id, command) == masked("GITHUB_TOKEN")
        assert (await server.post("/api/unset-provider-tokens")).status_code == 200
        assert await run(server, conversation_id, command) == "nothing was given"


async def test_a_conversation_that_is_started_again_has_the_secrets_of_then(make_server: MakeServer) -> None:
    async with make_server(revealing_provider()) as server:
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        await server.post(f"/api/conversations/{conversation_id}/stop")
        await create(server)
        await server.post(f"/api/conversations/{conversation_id}/start", json={})
        await server.until_running(conversation_id)
        assert await run(server, conversation_id, "echo $API_KEY") == masked("API_KEY")


async def test_the_agent_is_told_names_and_descriptions_and_no_value(make_server: MakeServer) -> None:
    async with make_server(revealing_provider(), generate_titles=False) as server:
        await create(server, description="Of the shop's interface")
        conversation_id = await server.create(initial_user_msg="Hello")

        async def recalled() -> bool:
            return any(one.get("observation") == "recall" for one in await server.events(conversation_id))

        await server.until(recalled)
        events = await server.events(conversation_id)
        (recall,) = [one for one in events if one.get("observation") == "recall"]
        assert recall["extras"]["custom_secrets_descriptions"] == {"API_KEY": "Of the shop's interface"}
        assert VALUE not in str(events)


async def test_the_agent_is_told_of_a_secret_that_came_later_with_the_next_message(make_server: MakeServer) -> None:
    async with make_server(revealing_provider(), generate_titles=False) as server:
        await create(server)
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        await create(server, name="LATER", description="Of the bank")
        told = []
        for number in range(2):
            await server.post(f"/api/conversations/{conversation_id}/message", json={"message": "Hello"})

            async def recalled(number: int = number) -> bool:
                nonlocal told
                told = [one for one in await server.events(conversation_id) if one.get("cause") is not None]
                told = [one for one in told if one.get("observation") in {"recall", "null"}]
                return len(told) > number

            await server.until(recalled)
            if number == 0:
                await create(server, name="LAST", description="Of the harbour")
        first, second = (one["extras"]["custom_secrets_descriptions"] for one in told)
        assert set(first) == {"API_KEY", "LATER"}
        assert second == {"LAST": "Of the harbour"}


async def test_secrets_of_another_user_do_not_reach_a_conversation(make_server: MakeServer) -> None:
    async with make_server(revealing_provider()) as server:
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        await server.app.services.database.user_secrets.create("API_KEY", VALUE, "", "eve")
        await server.app.services.manager.refresh_secrets("eve")
        assert await run(server, conversation_id, "echo $API_KEY") == "nothing was given"
        assert await listed(server) == []


async def test_the_title_and_the_instructions_of_a_conversation_hide_secrets_too(server: Server) -> None:
    await create(server)
    conversation_id = await server.create(conversation_instructions=f"Never use {VALUE}.")
    title = {"title": f"About {VALUE}"}
    assert (await server.client.patch(f"/api/conversations/{conversation_id}", json=title)).status_code == 200
    record = await server.app.services.database.conversations.get(conversation_id)
    assert record is not None
    assert (record.title, record.options["conversation_instructions"]) == (f"About {HIDDEN}", f"Never use {HIDDEN}.")


async def test_the_instructions_of_a_conversation_reach_its_agent(server: Server) -> None:
    conversation_id = await server.create(conversation_instructions="Be quick.", initial_user_msg="Hello")

    async def recalled() -> list[str]:
        recalls = [event for event in await server.events(conversation_id) if event.get("observation") == "recall"]
        return [event["extras"]["conversation_instructions"] for event in recalls]

    async def is_told() -> bool:
        return bool(await recalled())

    await server.until(is_told, seconds=MODEL_SECONDS)
    assert (await recalled())[0] == "Be quick."


@pytest.mark.parametrize("address", ["https://ann:pw@git.example.com/x.git", "http://token@git.example.com/x"])
async def test_a_repository_whose_address_has_a_password_is_refused_with_what_to_do(
    server: Server, address: str
) -> None:
    response = await server.post("/api/conversations", json={"repository": address})
    assert response.status_code == 400
    assert response.json()["message"].startswith("repository: is an address with a user name or password in it")
    assert (await server.get("/api/conversations")).json()["results"] == []
