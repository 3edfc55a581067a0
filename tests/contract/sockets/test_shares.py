"""Sockets of whoever has a link to a conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import socketio

from tests.contract.rest.conftest import serving as serving_rest
from tests.contract.sockets.loopback import Client, until
from tests.contract.sockets.test_whole_server import message, states
from tests.serving import serving

TOKEN = "the-token-of-the-owner-of-this"


@pytest.mark.parametrize("transport", ["websocket", "polling"])
async def test_a_guest_follows_says_what_it_may_and_is_let_go_when_the_link_ends(
    tmp_path: Path, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.sockets.gateway.LOOK_SECONDS", 0.05)
    async with (
        serving_rest(tmp_path / "data", generate_titles=False, token=TOKEN) as rest,
        serving(rest.app, log_level="error", lifespan="off") as port,
    ):
        rest.client.headers["x-session-api-key"] = TOKEN
        made, other = await rest.create(), await rest.create()
        shares = f"/api/conversations/{made}/shares"
        links = {one: (await rest.post(shares, json={"access": one})).json() for one in ("read", "write")}

        def url(conversation_id: str, key: str) -> str:
            return f"http://127.0.0.1:{port}?conversation_id={conversation_id}&latest_event_id=-1&session_api_key={key}"

        async def refusal(address: str) -> dict[str, Any]:
            told: list[dict[str, Any]] = []
            async with Client() as client:
                client.socket.on("connect_error", told.append)
                with pytest.raises(socketio.exceptions.ConnectionError):
                    await client.connect(address)
                await until(lambda: told)
            return told[0]

        elsewhere, unknown = [await refusal(url(one, links["write"]["token"])) for one in (other, "unknown")]
        assert str(elsewhere).replace(other, "unknown") == str(unknown)
        async with Client(transports=(transport,)) as reader, Client(transports=(transport,)) as writer:
            await reader.connect(url(made, links["read"]["token"]))
            await writer.connect(url(made, links["write"]["token"]))
            await until(lambda: "awaiting_user_input" in states(reader))
            answer = await reader.socket.call("oh_user_action", message("let me in"))
            assert (answer["success"], answer["code"]) == (False, "read_only")
            answer = await writer.socket.call("oh_user_action", message("hello"))
            assert answer["success"]
            await until(lambda: [one for one in reader.frames if one.get("args", {}).get("content") == "hello"])
            assert (await rest.client.delete(f"{shares}/{links['write']['share_id']}")).json() is True
            await until(lambda: not writer.socket.connected)
            assert reader.socket.connected
            assert "let me in" not in str(await rest.events(made))
        assert "invalid_session_api_key" in str(await refusal(url(made, links["write"]["token"])))
