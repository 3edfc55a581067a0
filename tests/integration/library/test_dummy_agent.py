"""The agent without a model, with a real sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_core import LLM, ActionEvent, AgentBase, Conversation, DummyAgent, Tool
from agent_core.tools import FinishAction

pytestmark = pytest.mark.bubblewrap

NOBODY = LLM(model="openai/nobody", base_url="http://127.0.0.1:9", num_retries=1)
"""A model that would be an error to ask."""


def finish_of(conversation: Conversation) -> list[str]:
    actions = [event.action for event in conversation.state.log if isinstance(event, ActionEvent)]
    return [action.message for action in actions if isinstance(action, FinishAction)]


def test_it_does_its_round_for_each_message_and_asks_no_model(project: Path) -> None:
    agent = AgentBase.get_cls("DummyAgent")(llm=NOBODY)
    with Conversation(agent=agent, workspace=project) as conversation:
        for rounds in (1, 2):
            conversation.send_message("Go.")
            conversation.run()
            assert finish_of(conversation) == ["All of it worked: 3 calls were made and answered."] * rounds
        log = str(list(conversation.state.log))
    assert str(project) in log
    assert "written by the dummy agent" in log
    assert sorted(path.name for path in project.iterdir()) == ["boat.py", "notes.txt"]


def test_it_says_what_did_not_work_and_does_without_tools_that_it_is_not_given(project: Path) -> None:
    agent = DummyAgent(llm=NOBODY, tools=[Tool(name="file_editor")])
    with Conversation(agent=agent, workspace=project) as conversation:
        conversation.send_message("Go.")
        conversation.run()
        (said,) = finish_of(conversation)
    assert said.startswith("This did not work:\n")
    assert "drydock-dummy.txt" in said
