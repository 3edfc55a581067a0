"""An older client's App tab: it asks for the hosts once, and then polls them until something answers."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx
import pytest

from agent_core.testing.sandbox_contract import eventually
from tests.integration.server.conftest import MakeProcess, create, following

pytestmark = pytest.mark.bubblewrap

SERVE = (
    "mkdir -p site && echo hull > site/index.html && "
    "(cd site && python3 -m http.server $APP_PORT_2 --bind 127.0.0.1 > /dev/null 2>&1 &); echo $APP_PORT_1 $APP_PORT_2"
)


async def polled(address: str) -> httpx.Response:
    """What the client's page gets for a host: from another origin, by a plain GET."""
    place = urlsplit(address)
    url = f"http://127.0.0.1:{place.port}{place.path or '/'}?{place.query}"
    headers = {"Host": place.netloc, "Origin": "http://localhost:3000"}
    async with httpx.AsyncClient() as client:
        return await client.get(url, headers=headers)


async def test_a_host_that_was_asked_for_once_answers_as_soon_as_something_listens(make_process: MakeProcess) -> None:
    server = await make_process("--sandbox", "local")
    conversation_id = await create(server)
    async with following(server, conversation_id) as follower:
        await follower.until(
            lambda: any(
                frame.get("extras", {}).get("agent_state") == "awaiting_user_input" for frame in follower.frames
            )
        )
        async with server.client() as client:
            hosts = (await client.get(f"/api/conversations/{conversation_id}/web-hosts")).json()["hosts"]
        (first, first_port), (second, second_port) = hosts.items()
        assert [(await polled(host)).status_code for host in hosts] == [502, 502]
        await follower.run(SERVE)
        await follower.until(lambda: follower.count(observation="run") == 1)
        told = next(frame for frame in follower.frames if frame.get("observation") == "run")
        assert told["content"].split() == [str(first_port), str(second_port)]

        async def answers() -> bool:
            return (await polled(second)).status_code == 200

        await eventually(answers, limit=30)
        found = await polled(second)
        assert found.text == "hull\n"
        assert found.headers["access-control-allow-origin"] in ("*", "http://localhost:3000")
        assert (await polled(first)).status_code == 502
