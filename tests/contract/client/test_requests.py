"""Requests of the client: what is repeated and what is not, its limits, and what its errors say."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response

from drydock_client import (
    BusyError,
    ClientError,
    ConflictError,
    DrydockClient,
    FailedError,
    InvalidError,
    KeyRefusedError,
    LimitError,
    NotDrydockError,
    NotFoundError,
    RefusedError,
    SyncDrydockClient,
    UnreachableError,
)
from drydock_client.resources import Calls
from tests.contract.client.conftest import INFO, Played
from tests.listening import listening

SEND = "POST /api/conversations/c1/events"
READ = "GET /api/conversations/c1"


async def silent(request: Request) -> Response:
    await asyncio.Event().wait()
    raise AssertionError


def refused(status: int, body: object) -> Response:
    return JSONResponse(body, status)


async def test_a_message_whose_answer_was_lost_is_sent_again_under_the_same_key(
    played: Played, client: DrydockClient
) -> None:
    stored = JSONResponse({"success": True}, headers={"X-Event-Id": "7"})
    played.answers[SEND] = [refused(502, {}), stored]
    assert (await client.send("c1", "hello", images=["data:image/png;base64,AA"])).id == 7
    keys = {headers["idempotency-key"] for headers in played.headers}
    assert (played.count(SEND), len(keys)) == (2, 1)
    assert json.loads(played.bodies[1]) == {
        "action": "message",
        "args": {"content": "hello", "image_urls": ["data:image/png;base64,AA"], "file_urls": []},
    }
    await client.send("c1", "hello", idempotency_key="mine")
    assert played.headers[-1]["idempotency-key"] == "mine"


async def test_a_request_that_is_still_under_way_is_asked_for_again(played: Played, client: DrydockClient) -> None:
    stored = JSONResponse({"success": True}, headers={"X-Event-Id": "7"})
    played.answers[SEND] = [refused(409, {"error": "wait", "code": "key_in_use"}), stored]
    assert (await client.send("c1", "hello")).id == 7
    played.answers[SEND] = [refused(409, {"error": "taken", "code": "late"})]
    with pytest.raises(ConflictError) as caught:
        await client.send("c1", "hello")
    assert (caught.value.code, played.count(SEND)) == ("late", 3)


async def test_what_would_be_done_twice_is_not_repeated(played: Played, client: DrydockClient) -> None:
    played.answers["POST /api/secrets"] = [refused(503, {"error": "later"})]
    with pytest.raises(BusyError):
        await client.secrets.create("NAME", "value")
    assert played.count("POST /api/secrets") == 1
    played.answers["POST /api/secrets"] = [Response(status_code=429, headers={"Retry-After": "0"}), refused(201, {})]
    await client.secrets.create("NAME", "value")  # nothing was done at the first attempt
    assert played.count("POST /api/secrets") == 3


async def test_reading_is_repeated_and_given_up_in_the_end(played: Played, client: DrydockClient) -> None:
    played.answers[READ] = [refused(503, {}), JSONResponse(INFO)]
    assert (await client.conversation("c1")).title == "One"
    played.answers[READ] = [refused(503, {"detail": "too much at a time"})]
    with pytest.raises(BusyError, match="too much at a time"):
        await client.conversation("c1")
    assert played.count(READ) == 2 + 4


async def test_a_connection_that_breaks_is_told_of_after_several_attempts() -> None:
    attempts = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        await reader.readline()

    async with listening(hang_up) as port, DrydockClient(f"http://127.0.0.1:{port}") as other:
        with pytest.raises(UnreachableError, match="No answer from"):
            await other.conversation("c1")
        assert attempts == 4
        with pytest.raises(UnreachableError):
            await other.secrets.create("NAME", "value")
        assert attempts == 5


async def test_an_address_where_nothing_listens_is_an_error_with_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with DrydockClient(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(UnreachableError) as caught:
            await anext(client.follow("c1"))
        assert str(caught.value).startswith(f"No answer from http://127.0.0.1:{port}: ")
        assert "give the address that it prints" in caught.value.fix


@pytest.mark.parametrize("address", ["127.0.0.1:3000", "ftp://host", "http://", "http://host/?a=b", ""])
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(ValueError, match="is no address of a server; give one such as http"):
        DrydockClient(address)


@pytest.mark.parametrize(
    "answer",
    [
        HTMLResponse("<html>"),
        PlainTextResponse("ok"),
        RedirectResponse("https://elsewhere.example/"),
        JSONResponse([1]),
        JSONResponse({"title": "no id"}),
        HTMLResponse("<h1>404</h1>", 404),
        JSONResponse({"detail": "Not Found"}, 404),
        JSONResponse({"error": {"message": "no such route"}}, 404),
    ],
)
async def test_the_answer_of_another_server_is_told_as_such(
    played: Played, client: DrydockClient, answer: Response
) -> None:
    played.answers[READ] = [answer]
    with pytest.raises(NotDrydockError):
        await client.conversation("c1")


async def test_a_silent_server_ends_in_the_limit(played: Played) -> None:
    played.answers[READ] = [silent]
    async with DrydockClient(played.url, timeout=0.3) as client:
        with pytest.raises(LimitError, match=r"GET /api/conversations/c1 was not answered within 0\.3 s"):
            await client.conversation("c1")


async def test_a_call_is_cancelled_at_once(played: Played, client: DrydockClient) -> None:
    played.answers[READ] = [silent]
    task = asyncio.create_task(client.conversation("c1"))
    while not played.count(READ):  # noqa: ASYNC110 - the server is told of nothing else
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("status", "body", "kind", "message", "field", "code"),
    [
        (
            422,
            {"detail": [{"type": "x", "loc": ["body", "mcp_config", "sse_servers", 0], "msg": "is wrong"}]},
            InvalidError,
            "mcp_config.sse_servers.0: is wrong",
            "mcp_config.sse_servers.0",
            "",
        ),
        (400, {"status": "error", "message": "id: no", "detail": ""}, InvalidError, "id: no", "id", ""),
        (404, {"message": "gone", "msg_id": "A$NOT_FOUND"}, NotFoundError, "gone", "", "A$NOT_FOUND"),
        (401, "Unable to access repo o/n", KeyRefusedError, "Unable to access repo o/n", "", ""),
        (403, {"error": "not yours"}, KeyRefusedError, "not yours", "", ""),
        (409, {"error": "taken", "code": "late"}, ConflictError, "taken", "", "late"),
        (500, {"detail": "oh no"}, FailedError, "oh no", "", ""),
        (500, None, FailedError, "The server answered with status 500.", "", ""),
        (418, {"odd": 1}, InvalidError, "The server answered with status 418.", "", ""),
    ],
)  # fmt: skip
async def test_a_refusal_says_what_the_server_said(
    played: Played,
    client: DrydockClient,
    status: int,
    body: object,
    kind: type[RefusedError],
    message: str,
    field: str,
    code: str,
) -> None:
    played.answers["PATCH /api/conversations/c1"] = [refused(status, body)]
    with pytest.raises(RefusedError) as caught:
        await client.rename("c1", "x")
    error = caught.value
    assert (type(error), error.message, error.field, error.code) == (kind, message, field, code)
    assert (error.status, error.body, str(error)) == (status, body, message)


async def test_a_wrong_key_is_told_with_the_fix(played: Played, client: DrydockClient) -> None:
    played.answers[READ] = [refused(401, {"detail": "Unauthorized"})]
    with pytest.raises(KeyRefusedError, match=r"Unauthorized\. Give the server's access token as api_key"):
        await client.conversation("c1")
    assert played.headers[-1]["x-session-api-key"] == "a-key"


async def test_names_are_one_part_of_a_path_whatever_they_have_in_them(played: Played, client: DrydockClient) -> None:
    played.answers["GET /api/conversations/a/b?c"] = [JSONResponse(None)]
    with pytest.raises(NotFoundError, match=r"Conversation a/b\?c not found"):
        await client.conversation("a/b?c")


def test_importing_the_package_imports_nothing_that_is_slow() -> None:
    program = "import sys, drydock_client; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"httpx", "websockets", "socketio", "agent_core", "server"} & set(loaded)


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(ClientError, match=r"The client is not open\. Use it in an `async with`"):
        await DrydockClient().conversation("c1")


async def test_pages_of_conversations_are_asked_for_as_they_are_needed(played: Played, client: DrydockClient) -> None:
    route = "GET /api/conversations"
    played.answers[route] = [
        JSONResponse({"results": [INFO, {**INFO, "conversation_id": "c2", "new_field": 1}], "next_page_id": "p2"}),
        JSONResponse({"results": [{**INFO, "conversation_id": "c3", "status": "DREAMING"}], "next_page_id": None}),
    ]
    found = client.conversations(page_size=2)
    assert [(await anext(found)).id, played.count(route)] == ["c1", 1]
    assert [(one.id, one.status) async for one in found] == [("c2", "RUNNING"), ("c3", "DREAMING")]
    assert played.count(route) == 2


async def test_answers_to_a_question_name_what_contradicts(client: DrydockClient) -> None:
    with pytest.raises(ValueError, match="feedback says why an action is refused"):
        await client.confirm("c1", accept=True, feedback="no")
    with pytest.raises(ValueError, match="remember is for what is accepted"):
        await client.confirm("c1", accept=False, remember=True)


async def test_an_answer_to_a_call_of_a_tool_is_sent_as_its_action(played: Played, client: DrydockClient) -> None:
    played.answers["POST /api/conversations/c1/events"] = [JSONResponse({}, headers={"X-Event-Id": "9"})]
    blocks = [{"type": "text", "text": "no"}]
    assert (await client.answer_tool_call("c1", 7, blocks, is_error=True)).id == 9
    args = {"call_id": 7, "content": blocks, "is_error": True}
    assert json.loads(played.bodies[-1]) == {"action": "client_tool_result", "args": args}


async def test_ports_are_read_also_where_little_is_known_of_them(played: Played, client: DrydockClient) -> None:
    known = {"port": 8000, "addresses": ["127.0.0.1"], "pid": 7, "process": "python3", "command": "python3 app.py"}
    little = {"port": 9000, "addresses": ["::"], "pid": None, "process": None, "command": None}
    told = {"running": True, "mode": "path", "ports": [{**known, "url": "http://a/"}, {**little, "url": "http://b/"}]}
    played.answers["GET /api/conversations/c1/ports"] = [JSONResponse(told)]
    assert [(one.port, one.process, one.url) for one in await client.ports("c1")] == [
        (8000, "python3", "http://a/"),
        (9000, None, "http://b/"),
    ]


def test_the_blocking_client_has_every_call_of_the_other_one() -> None:
    def calls(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}

    waiting = SyncDrydockClient()
    assert calls(DrydockClient) - calls(SyncDrydockClient) == {"end_followings"}
    groups = {name: one for name, one in vars(DrydockClient()).items() if isinstance(one, Calls)}
    assert groups.keys() >= {"files", "git", "settings", "secrets", "webhooks"}
    for name, group in groups.items():
        assert calls(type(group)) <= calls(type(getattr(waiting, name))), name
