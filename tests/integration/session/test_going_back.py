"""Going back in a conversation whose files are in a container, and a fork of it in another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_core.events.branches import Rewind
from agent_core.events.control import AgentState
from agent_core.events.llm_events import MessageEvent, ObservationEvent
from agent_core.runtime.snapshots import packed
from agent_core.session.agent_session import AgentSession
from agent_core.session.rewind import StoredLog, fork_log
from agent_core.testing.model_turns import Turn
from tests.integration.session.conftest import House, finish, run, until_state, user

pytestmark = pytest.mark.docker


async def files(session: AgentSession) -> dict[str, str]:
    """What is in the workspace, by name."""
    command = "cd /workspace && for f in $(ls); do echo $f $(cat $f); done"
    args = {"command": command, "timeout": 10, "session": "look"}
    output = str((await session.sandbox.request("shell.run", args)).result["output"])
    return dict(line.split(" ", 1) for line in output.split("\n") if " " in line)


async def test_files_go_back_also_after_the_container_was_stopped_and_forks_get_them(
    house: House, tmp_path: Path
) -> None:
    model = await house.model(
        [
            Turn(calls=(run("echo one > a"),)),
            Turn(calls=(run("echo two > a; echo x > b"),)),
            finish(),
            Turn(calls=(run("cat a"),)),
            finish(),
        ]
    )
    session = await house.session("going-back", model)
    await session.start(user("go"))
    events = await until_state(session, AgentState.FINISHED)
    message = next(event.id for event in events if isinstance(event, MessageEvent))
    first = next(event.id for event in events if isinstance(event, ObservationEvent))
    await session.close(stopped=True, sandbox="stop")

    session = await house.session("going-back", model)
    await session.start()
    try:
        assert await files(session) == {"a": "two", "b": "x"}
        end = session.stream.last_id
        rewind = await session.rewinder.rewind(first)
        assert isinstance(rewind, Rewind)
        assert (rewind.to, rewind.note) == (first, "")
        assert await files(session) == {"a": "one"}
        await session.rewinder.rewind(message)
        assert await files(session) == {}
        await session.rewinder.rewind(end)
        assert await files(session) == {"a": "two", "b": "x"}
        moments = await fork_log(StoredLog(house.store, "going-back"), StoredLog(house.store, "forked"), upto=first)
        seed = tmp_path / "seed.tar"
        with seed.open("wb") as file:
            async for part in packed(session.sandbox, "going-back", moments):
                file.write(part)
    finally:
        await session.close(stopped=False, sandbox="destroy")

    fork = await house.session("forked", model, seed=seed)
    await fork.start(user("look"))
    try:
        assert await files(fork) == {"a": "one"}
        assert not seed.exists()
        await until_state(fork, AgentState.FINISHED)
        assert "one" in str(model.last_request.messages[-1])
    finally:
        await fork.close(stopped=False, sandbox="destroy")
