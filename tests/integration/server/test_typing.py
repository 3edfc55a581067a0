"""A user types at a command that runs, through each door of a real server with real sandboxes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from drydock_client import DrydockClient
from tests.integration.server.conftest import Follower, MakeProcess, ServerProcess

pytestmark = [pytest.mark.bubblewrap]

Send = Callable[[dict[str, Any]], Awaitable[object]]


def typed(command: str, *, is_input: bool = False) -> dict[str, Any]:
    return {"action": "run", "args": {"command": command, "is_input": is_input}}


def results(seen: Follower) -> dict[int, dict[str, Any]]:
    """What has come of actions, by the action."""
    answers = [frame for frame in seen.events.values() if frame.get("observation") in ("run", "error")]
    assert len({answer["cause"] for answer in answers}) == len(answers)
    return {answer["cause"]: answer for answer in answers}


def printed(seen: Follower) -> str:
    """What commands have shown live."""
    return "".join(str(delta.get("text")) for delta in seen.deltas)


def latest(seen: Follower, command: str) -> int:
    """The id of the newest action with this command; -1 if there is none."""
    return max(
        (ident for ident, frame in seen.events.items() if frame.get("args", {}).get("command") == command), default=-1
    )


@pytest.fixture
async def server(make_process: MakeProcess) -> ServerProcess:
    return await make_process("--sandbox", "local", environment={"DRYDOCK_REQUESTS_PER_SECOND": "0"})


async def test_input_and_a_key_reach_a_command_from_every_door_and_others_are_answered_meanwhile(
    server: ServerProcess,
) -> None:
    async with server.client() as rest, DrydockClient(server.url, server.token) as client:
        conversation_id = (await rest.post("/api/conversations", json={})).json()["conversation_id"]
        seen = Follower(server, conversation_id)
        await seen.connect()

        async def by_rest(event: dict[str, Any]) -> None:
            assert (await rest.post(f"/api/conversations/{conversation_id}/events", json=event)).status_code == 200

        async def by_client(event: dict[str, Any]) -> None:
            await client.send_action(conversation_id, event["action"], event["args"])

        doors: dict[str, Send] = {"REST": by_rest, "Socket.IO": seen.send, "client": by_client}
        for name, send in doors.items():
            command = f"printf 'reads %s\\n' {name}; read -r said; echo $said > {name}; echo begun $said; sleep 600"
            await send(typed(command))
            # What is typed before it runs reaches nothing: an action is shown before its command has begun.
            await seen.until(lambda name=name: f"reads {name}" in printed(seen))  # type: ignore[misc]
            ident = latest(seen, command)
            await send(typed(name, is_input=True))
            await seen.until(lambda name=name: f"begun {name}" in printed(seen))  # type: ignore[misc]
            await send(typed(f"echo refused {name}"))
            await seen.until(lambda name=name: latest(seen, f"echo refused {name}") in results(seen))  # type: ignore[misc]
            refused = results(seen)[latest(seen, f"echo refused {name}")]
            assert "NOT executed" in refused["extras"]["metadata"]["suffix"]
            assert ident not in results(seen), "it still runs"
            before = latest(seen, "C-c")
            await send(typed("C-c", is_input=True))
            await seen.until(lambda ident=ident: ident in results(seen))  # type: ignore[misc]
            assert results(seen)[ident]["extras"]["metadata"]["exit_code"] == 130
            await seen.until(lambda before=before: latest(seen, "C-c") > before)  # type: ignore[misc]
            await seen.until(lambda: latest(seen, "C-c") in results(seen))
        await send(typed("cat REST Socket.IO client"))
        await seen.until(lambda: latest(seen, "cat REST Socket.IO client") in results(seen))
        assert results(seen)[latest(seen, "cat REST Socket.IO client")]["content"].split() == list(doors)
        await seen.disconnect()


async def test_a_key_ends_a_command_that_went_on_while_the_server_was_killed(server: ServerProcess) -> None:
    async with server.client() as rest:
        conversation_id = (await rest.post("/api/conversations", json={})).json()["conversation_id"]
    seen = Follower(server, conversation_id)
    await seen.connect()
    await seen.run("echo begun; cat > typed")
    await seen.until(lambda: "begun" in printed(seen))
    command = latest(seen, "echo begun; cat > typed")
    await seen.send(typed("once", is_input=True))
    await seen.until(lambda: latest(seen, "once") >= 0)
    await seen.disconnect()
    await server.kill()
    await server.start()
    await seen.connect()
    await seen.until(lambda: latest(seen, "once") in results(seen))
    await seen.send(typed("C-d", is_input=True))
    await seen.until(lambda: command in results(seen))
    await seen.run("cat typed")
    await seen.until(lambda: latest(seen, "cat typed") in results(seen))
    assert results(seen)[latest(seen, "cat typed")]["content"].count("once") <= 1, "it is never typed twice"
    await seen.disconnect()
