"""Skills of a real workspace and secrets for real commands."""

from __future__ import annotations

import pytest

from agent_core.events.control import AgentState, RecallObservation
from agent_core.events.llm_events import ObservationEvent
from agent_core.events.masking import MASK
from agent_core.testing.model_turns import Call, Turn
from tests.integration.session.conftest import House, finish, run, until_state, user

pytestmark = pytest.mark.docker

WRITE = (
    "mkdir -p .openhands/microagents && "
    r"printf -- '---\ntriggers: [ship]\n---\nShips sail on Mondays.\n' > .openhands/microagents/ships.md && "
    r"""printf -- '---\npaths: "*.txt"\n---\nOne line a file.\n' > .openhands/microagents/txt.md"""
)


def write(name: str) -> Call:
    return Call("file_editor", {"command": "create", "path": f"/workspace/{name}.txt", "file_text": name})


async def test_a_skill_in_the_workspace_is_told_and_a_named_secret_is_there_but_never_seen(house: House) -> None:
    shown = run("echo is $shop_token$SHOP_TOKEN; printf %s $SHOP_TOKEN | wc -c", security_risk="LOW")
    model = await house.model([Turn(calls=(run(WRITE),)), finish(), Turn(calls=(shown, *map(write, "ab"))), finish()])
    async with house.running(model, "write", conversation_id="c-skills") as session:
        await until_state(session, AgentState.FINISHED)
    secrets = {"SHOP_TOKEN": "correct-horse"}
    async with house.running(model, conversation_id="c-skills", named_secrets=secrets) as session:
        asked = await session.send(user("When does a ship go?"))
        events = await until_state(session, AgentState.FINISHED, after=asked.id)
    (recalled,) = [event for event in events if isinstance(event, RecallObservation)]
    assert [(known.name, known.trigger) for known in recalled.microagent_knowledge] == [("ships", "ship")]
    assert "Ships sail on Mondays." in str(model.requests[-1].messages)
    printed = next(event.observation.text for event in events if isinstance(event, ObservationEvent))
    assert printed.splitlines() == [f"is {MASK}", str(len("correct-horse"))]
    told = [event.extended_content for event in events if isinstance(event, ObservationEvent)][1:]
    assert [["One line a file." in part.text for part in parts] for parts in told] == [[True], [], []]
    assert "correct-horse" not in str([request.messages for request in model.requests])
