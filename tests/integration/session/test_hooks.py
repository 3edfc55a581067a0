"""Hooks in a real sandbox: those of the settings, and those that the agent finds in its project."""

from __future__ import annotations

import json

import pytest

from agent_core.events.control import AgentState
from agent_core.events.llm_events import ObservationEvent, UserRejectObservation
from agent_core.security.hooks import HookConfig
from agent_core.testing.model_turns import Turn
from tests.integration.session.conftest import House, finish, run, until_state

pytestmark = pytest.mark.docker

GUARD = 'if grep -q forbidden; then echo "$OPENHANDS_TOOL_NAME: not that" >&2; exit 2; fi'
ECHO = """printf '{"additionalContext": "in %s"}' "$OPENHANDS_PROJECT_DIR" """


async def test_hooks_run_in_the_sandbox_and_block_or_comment_calls(house: House) -> None:
    hooks = HookConfig.from_json(
        json.dumps(
            {
                "PreToolUse": [{"matcher": "terminal", "hooks": [{"command": GUARD}]}],
                "PostToolUse": [{"matcher": "terminal", "hooks": [{"command": ECHO}]}],
            }
        )
    )
    turns = [Turn(calls=(run("touch forbidden"),)), Turn(calls=(run("ls; ls /tmp; echo 'it''s fine'"),)), finish()]
    model = await house.model(turns)
    async with house.running(model, "go", hooks=hooks) as session:
        events = await until_state(session, AgentState.FINISHED)
    (refused,) = [event for event in events if isinstance(event, UserRejectObservation)]
    assert (refused.rejection_reason, refused.rejection_source) == ("terminal: not that", "hook")
    fine = next(event for event in events if isinstance(event, ObservationEvent))
    assert "forbidden" not in fine.observation.text
    assert "hook-" not in fine.observation.text
    assert fine.observation.text.endswith("its fine\n\n[A hook says] in /workspace")
