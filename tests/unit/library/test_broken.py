"""A part of a session that fails for good ends the run with that: nothing waits for it for ever."""

from __future__ import annotations

import pytest

from agent_core import ConversationErrorEvent, ConversationRunError, ExecutionStatus
from agent_core.controller.agent_controller import AgentController
from agent_core.memory.memory import Memory
from agent_core.runtime.runtime import Runtime
from agent_core.session import running_agent
from tests.unit.library.playing import DONE, Script, agent, conversation, run


async def defective(_self: object) -> None:
    """What a part does that has a bug."""
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("part", [Memory, Runtime, AgentController])
def test_a_run_fails_when_a_part_of_its_session_does_for_good_and_the_next_one_may_go_on(
    part: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_agent, "RESTART_SECONDS", (0.0,))
    with conversation(agent(Script(run("ls"), DONE))) as one:
        one.send_message("Go.")
        with monkeypatch.context() as patched:
            patched.setattr(part, "run", defective)
            with pytest.raises(ConversationRunError, match="failed; send a message"):
                one.run()
        statuses = [one.state.execution_status]
        failures = [event.detail for event in one.state.events if isinstance(event, ConversationErrorEvent)]
        assert ["failed; send a message" in detail for detail in failures] == [True]
        one.run()
        assert [*statuses, one.state.execution_status] == [ExecutionStatus.ERROR, ExecutionStatus.FINISHED]
