from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import socketio
import socketio.exceptions
import websockets

from server.cli import TO_DOCTOR
from tests.integration.server.conftest import MakeProcess, ServerProcess, create, following

UNCONFINED = ("--sandbox", "unconfined")


# Where starting, or ending, itself is what a test is about.
plainly = pytest.mark.parametrize("plainly", [True], ids=["plainly"])


@plainly
async def test_it_says_in_a_few_lines_where_it_is_and_what_it_runs_on(make_process: MakeProcess) -> None:
    server = await make_process(*UNCONFINED)
    async with server.client() as client:
        page = await client.get("/")
        assert page.headers["content-security-policy"]
    await server.until_printed("WITHOUT ISOLATION")
    await server.until_printed("database")
    printed = server.printed()
    assert printed.startswith("Drydock ")
    assert server.url.startswith("http://127.0.0.1:")
    assert re.findall(r"^  (\S+)", printed, re.MULTILINE)[:3] == ["sandbox", "model", "database"]
    assert "demo/tour" in printed
    assert await server.stop() == 0


@pytest.mark.bubblewrap
async def test_it_says_in_readable_lines_why_its_sandboxes_are_not_docker_containers(make_process: MakeProcess) -> None:
    server = await make_process(environment={"DOCKER_HOST": "unix:///nowhere/docker.sock"})
    await server.until_printed("sandbox   local: bubblewrap")
    await server.until_printed("DOCKER_HOST")  # named in the last of its lines
    printed = server.printed()
    assert "Not Docker: No Docker engine answers" in printed
    assert max(len(line) for line in printed.splitlines() if "database" not in line) <= 110


@pytest.mark.bubblewrap
async def test_the_sandbox_with_which_it_looks_what_works_may_take_as_long_as_any_other(
    make_process: MakeProcess,
) -> None:
    server = await make_process("--sandbox", "local", environment={"DRYDOCK_SANDBOX_START_SECONDS": "0.001"})
    await server.until_printed("not ready within 0.001 s")


@plainly
async def test_a_second_server_on_the_same_data_is_refused(make_process: MakeProcess) -> None:
    first = await make_process(*UNCONFINED)
    await first.until_printed("database")  # the last of its lines, in the same file as those of the second
    with pytest.raises(RuntimeError, match="another Drydock server") as caught:
        await make_process(*UNCONFINED)
    assert str(caught.value).splitlines()[1:] == TO_DOCTOR.splitlines()


async def test_a_taken_port_is_told_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ServerProcess(tmp_path / "data", "--port", str(taken.getsockname()[1]))
        with pytest.raises(RuntimeError, match="--port"):
            await server.start()


async def test_listening_to_others_without_a_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="DRYDOCK_TOKEN"):
        await ServerProcess(tmp_path / "data", "--host", "0.0.0.0").start()  # noqa: S104 - it refuses


async def test_an_unknown_setting_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", environment={"DRYDOCK_TOKN": "x"})
    with pytest.raises(RuntimeError, match="did you mean DRYDOCK_TOKEN"):
        await server.start()


async def test_a_made_token_is_in_the_address_and_opens_rest_and_sockets(make_process: MakeProcess) -> None:
    server = await make_process(*UNCONFINED, environment={"DRYDOCK_TOKEN": "auto"})
    assert server.token is not None
    async with httpx.AsyncClient(base_url=server.url) as stranger:
        assert (await stranger.get("/api/conversations")).status_code == 401
    conversation_id = await create(server)
    async with following(server, conversation_id) as follower:
        await follower.until(lambda: follower.count(action="system") == 1)
    for key in ("wrong", "null", ""):
        client = socketio.AsyncClient(reconnection=False)
        query = f"conversation_id={conversation_id}&latest_event_id=-1&session_api_key={key}"
        with pytest.raises(socketio.exceptions.ConnectionError):
            await client.connect(f"{server.url}?{query}", transports=["websocket"])
        await client.disconnect()
    assert server.token not in server.printed().split("\n", 1)[1]


async def test_foreign_pages_and_hosts_are_refused_on_http_polling_and_websocket(make_process: MakeProcess) -> None:
    server = await make_process(*UNCONFINED)
    async with server.client() as client:
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            for path in ("/health", "/api/conversations", "/socket.io/?EIO=4&transport=polling"):
                assert (await client.get(path, headers=headers)).status_code == 403
        own = {"Origin": server.url}
        assert (await client.get("/socket.io/?EIO=4&transport=polling", headers=own)).status_code == 200
    address = server.url.replace("http", "ws") + "/socket.io/?EIO=4&transport=websocket"
    with pytest.raises(websockets.InvalidStatus) as caught:
        async with websockets.connect(address, origin=websockets.Origin("http://evil.example")):
            pass
    assert caught.value.response.status_code == 403
    async with websockets.connect(address, origin=websockets.Origin(server.url)) as connection:
        assert str(await connection.recv()).startswith("0{")


@pytest.mark.parametrize("proxies", ["", "127.0.0.1"])
async def test_whom_a_client_says_it_asks_for_means_nothing_but_from_a_trusted_proxy(
    make_process: MakeProcess, proxies: str
) -> None:
    named = {"DRYDOCK_TOKEN": "auto", "DRYDOCK_TRUSTED_PROXIES": proxies, "FORWARDED_ALLOW_IPS": "*"}
    server = await make_process(*UNCONFINED, environment=named)
    async with server.client() as client:
        answers = [
            await client.get(
                "/api/settings", headers={"x-session-api-key": f"guess-{n}", "x-forwarded-for": f"192.0.2.{n}"}
            )
            for n in range(40)
        ]
    refused = [answer.status_code for answer in answers].count(429)
    assert refused == 0 if proxies else refused >= 10  # a few are given back while a slow machine asks
    assert ("from 192.0.2.7 at" in server.printed()) == bool(proxies)


async def test_an_oversized_body_is_refused_and_the_server_lives(make_process: MakeProcess) -> None:
    server = await make_process(*UNCONFINED, environment={"DRYDOCK_MAX_REQUEST_BYTES": "2000"})
    async with server.client() as client:
        response = await client.post("/api/conversations", json={"initial_user_msg": "x" * 3000})
        assert response.status_code == 413
        assert "max_request_bytes" in response.text

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b"x" * 1000

        chunked = await client.post(
            "/api/conversations", content=endless(), headers={"content-type": "application/json"}
        )
        assert chunked.status_code == 413
    await create(server)


async def test_an_oversized_socket_message_is_told_and_the_conversation_goes_on(make_process: MakeProcess) -> None:
    server = await make_process(*UNCONFINED, environment={"DRYDOCK_MAX_MESSAGE_BYTES": "2000"})
    conversation_id = await create(server)
    async with following(server, conversation_id) as follower:
        await follower.send({"action": "run", "args": {"command": "echo " + "x" * 3000}})
        await follower.until(lambda: follower.count(error=True) == 1)
        await follower.run("echo small")
        await follower.until(lambda: follower.count(observation="run") == 1)


@plainly
async def test_who_cannot_wait_for_its_end_tells_it_twice_and_sees_no_traceback(make_process: MakeProcess) -> None:
    server = await make_process(*UNCONFINED)
    host, port = server.url.removeprefix("http://").split(":")
    # A request that never becomes whole: for that one it would wait a while.
    _reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /api/conversations HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n")
    await writer.drain()
    os.kill(server.pid, signal.SIGINT)
    async with asyncio.timeout(60):
        while True:
            try:
                _, other = await asyncio.open_connection(host, int(port))
            except ConnectionRefusedError:
                break
            other.close()
            await asyncio.sleep(0.01)
    assert await server.interrupt() == 0
    writer.close()
    assert "Traceback" not in server.printed()


@plainly
async def test_what_it_does_not_wait_for_at_its_end_is_told_in_one_line(make_process: MakeProcess) -> None:
    server = await make_process(*UNCONFINED)
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    # It is asked to go on sending: so it is being waited for.
    writer.write(b"POST /api/conversations HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n")
    writer.write(b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    assert await server.stop() == 0
    writer.close()
    assert "Cancel 1 running task(s)" in server.printed()
    assert "Traceback" not in server.printed()


@plainly
async def test_ending_it_suspends_conversations_and_the_next_start_shows_them(make_process: MakeProcess) -> None:
    server = await make_process(*UNCONFINED)
    conversation_id = await create(server)
    async with following(server, conversation_id) as follower:
        await follower.run("echo before")
        await follower.until(lambda: follower.count(observation="run") == 1)
        assert await server.hang_up() == 0
        await server.start()
        await follower.connect()
        await follower.run("echo after")
        await follower.until(lambda: follower.count(observation="run") == 2)
        ids = [frame["id"] for frame in follower.frames if isinstance(frame.get("id"), int)]
        assert ids == sorted(set(ids))


async def test_a_proxy_that_names_its_users_is_known_by_its_connection(tmp_path: Path) -> None:
    named = {
        "DRYDOCK_USERS": "accounts",
        "DRYDOCK_USER_HEADER": "Remote-User",
        "DRYDOCK_USER_HEADER_FROM": "127.0.0.1",
        "DRYDOCK_DEFAULT_ROLE": "user",
        "DRYDOCK_TRUSTED_PROXIES": "127.0.0.0/8",
    }
    # For whom it asks, each proxy says itself; the second one says that it asks for the one that may name users.
    headers = {"remote-user": "Ann", "x-forwarded-for": "127.0.0.1"}
    elsewhere = httpx.AsyncHTTPTransport(local_address="127.0.0.2", verify=False)
    server = ServerProcess(tmp_path / "data", *UNCONFINED, environment=named)
    try:
        await server.start()
        async with server.client() as client:
            answer = await client.get("/api/auth/me", headers=headers | {"x-forwarded-for": "192.0.2.1"})
            assert (answer.status_code, answer.json()["name"]) == (200, "Ann")
        async with httpx.AsyncClient(base_url=server.url, transport=elsewhere, timeout=30) as client:
            assert (await client.get("/api/auth/me", headers=headers)).status_code == 401
        assert "127.0.0.2 is none of the proxies whose word counts" in server.printed()
    finally:
        await server.stop()
