"""Editing with real parts: drafts that a model writes out, and images that a model sees."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from pydantic import SecretStr

from agent_core import Agent, Conversation, Tool
from agent_core.agent.codeact import CodeActAgent
from agent_core.events.llm_events import ObservationEvent
from agent_core.llm.llm import LLM
from agent_core.testing.model_turns import call, finish, say
from agent_core.tools import LLMEditObservation
from tests.integration.library.conftest import StartModel, model
from tests.unit.runner.test_pictures import png

pytestmark = pytest.mark.bubblewrap


def test_a_draft_is_written_out_checked_corrected_and_paid_for_by_the_conversation(
    start_model: StartModel, project: Path
) -> None:
    path = str(project / "boat.py")
    draft = {"path": path, "content": "class Boat:\n    # a method that returns 1", "security_risk": "LOW"}
    server = start_model(
        [
            call("edit_file", draft),
            say("<updated_code>\n#EDIT: boat\nclass Boat:\n    def sail(self:\n        return 1\n</updated_code>"),
            say("<updated_code>\nclass Boat:\n    def sail(self):\n        return 1\n</updated_code>"),
            finish("Done."),
        ]
    )
    llm = model(server)
    drafts = LLM(usage_id="other", model="openai/drafts", base_url=server.url, api_key=SecretStr("key-777777"))
    agent = CodeActAgent(llm=llm, enable_llm_editor=True, enable_browsing=False, draft_editor_llm=drafts)
    with Conversation(agent=agent, workspace=project) as conversation:
        conversation.send_message("Let it sail.")
        conversation.run()
        events = conversation.state.log
        seen = next(event.observation for event in events if isinstance(event, ObservationEvent))
        assert isinstance(seen, LLMEditObservation)
        assert (seen.is_error, seen.old_content) == (False, "class Boat:\n    pass\n")
        assert "-    pass\n+    def sail(self):\n+        return 1\n" in (seen.diff or "")
        assert (project / "boat.py").read_text() == seen.new_content
        asked = [request.json for request in server.requests]
        assert [one["model"] for one in asked] == ["scripted", "drafts", "drafts", "scripted"]
        assert "SyntaxError" in str(asked[2]["messages"])
        usage = conversation.conversation_stats.usage_to_metrics
        paid = {name: usage[name].accumulated_token_usage.prompt_tokens for name in ("draft_editor_llm", "agent")}
        assert paid == {"draft_editor_llm": 200, "agent": 200}


@pytest.mark.parametrize("sees", [True, False])
def test_an_image_is_shown_to_a_model_that_sees_and_named_to_one_that_does_not(
    start_model: StartModel, project: Path, sees: bool
) -> None:
    data = png()
    (project / "boat.png").write_bytes(data)
    view = {"command": "view", "path": str(project / "boat.png"), "security_risk": "LOW"}
    server = start_model([call("file_editor", view), finish("Seen.")])
    llm = model(server).model_copy(update={"disable_vision": not sees, "model": "openai/gpt-4o"})
    with Conversation(agent=Agent(llm=llm, tools=[Tool(name="file_editor")]), workspace=project) as conversation:
        conversation.send_message("Look at the boat.")
        conversation.run()
    last = str(server.last_request.json["messages"])
    assert "boat.png (image/png, 3 x 2 pixels" in last
    assert (base64.b64encode(data).decode() in last) is sees
