"""Wrong tokens are limited alike at every door, and count together; the right one is taken all the while."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from httpx import Response

from server.auth.doorkeeper import WRONG_AT_ONCE
from server.auth.preview_addresses import PATH_PREFIX
from tests.contract.rest.conftest import MakeServer, Server

TOKEN = "the-right-token-of-24-chars"
GUESS = "0123456789abcdef-guess-"
SOCKET = "/socket.io/?EIO=4&transport=polling&conversation_id=c1"
FORM = {"content-type": "application/x-www-form-urlencoded", "origin": "http://127.0.0.1:3000"}
TRIES = 3 * WRONG_AT_ONCE
Guess = Callable[[Server, str], Awaitable[Response]]


async def rest(server: Server, token: str) -> Response:
    return await server.get("/api/options/config", headers={"X-Session-API-Key": token})


async def openai(server: Server, token: str) -> Response:
    return await server.get("/v1/models", headers={"Authorization": f"Bearer {token}"})


async def mcp(server: Server, token: str) -> Response:
    return await server.post("/mcp/mcp", headers={"Authorization": f"Bearer {token}"}, json={})


async def document(server: Server, token: str) -> Response:
    return await server.get("/openapi.json", headers={"X-Session-API-Key": token})


async def info(server: Server, token: str) -> Response:
    return await server.get("/server_info", headers={"X-Session-API-Key": token})


async def sign_in(server: Server, token: str) -> Response:
    return await server.post("/sign-in", content=f"token={token}", headers=FORM)


async def preview(server: Server, token: str) -> Response:
    return await server.get(f"{PATH_PREFIX}{token}/")


async def later_packet(server: Server, token: str) -> Response:
    return await server.post(f"{SOCKET}&sid=x&session_api_key={token}", content="40")


DOORS: list[Guess] = [rest, openai, mcp, document, info, sign_in, preview, later_packet]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("<title>another client</title>")
    return page


@pytest.mark.parametrize("guess", DOORS)
async def test_whoever_guesses_is_told_to_wait_and_the_owner_is_not(
    make_server: MakeServer, folder: Path, guess: Guess, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_server(token=TOKEN, page=folder) as server:
        with caplog.at_level(logging.WARNING, "server.auth.doorkeeper"):
            answers = [await guess(server, f"{GUESS}{number}") for number in range(TRIES)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert {answer.status_code for answer in answers[:WRONG_AT_ONCE]} <= {401, 403}
        assert len(refused) >= TRIES - WRONG_AT_ONCE - 5  # a few are given back while a slow machine asks
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        lines = [record.getMessage() for record in caplog.records if record.name == "server.auth.doorkeeper"]
        assert len(lines) == 2
        assert GUESS not in " ".join(lines)
        for other in DOORS[:6]:
            assert (await other(server, TOKEN)).status_code not in {401, 403, 429}, other
        assert {(await other(server, GUESS)).status_code for other in DOORS} <= {401, 403, 429}


async def test_a_socket_is_refused_in_the_protocols_own_words(make_server: MakeServer) -> None:
    async with make_server(token=TOKEN) as server:
        for number in range(TRIES):
            opened = await server.get(f"{SOCKET}&session_api_key={GUESS}{number}")
            greeting, _, refusal = opened.text.partition("\x1e")
            assert greeting.startswith("0{")
            told = json.loads(refusal.removeprefix("44"))
            assert opened.status_code == 200
            if told["message"] != "invalid_session_api_key":
                break
        assert number >= WRONG_AT_ONCE
        assert told["message"].startswith("Too many wrong access tokens; try again in ")
        assert told["data"]["retry_after"] >= 1
        assert (await server.get(f"{SOCKET}&session_api_key={TOKEN}")).text.startswith('0{"sid"')


async def test_who_shows_no_token_is_unauthorized_for_as_long_as_he_likes(make_server: MakeServer) -> None:
    async with make_server(token=TOKEN) as server:
        assert {(await server.get("/api/settings")).status_code for _ in range(TRIES)} == {401}
