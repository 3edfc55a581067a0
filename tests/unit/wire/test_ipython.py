"""Cells on the wire, both ways."""

from __future__ import annotations

import pytest

from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.events.risk import SecurityRisk
from agent_core.tools.ipython import IPythonAction, IPythonObservation
from server.wire.envelope import to_wire
from server.wire.errors import WireError
from server.wire.incoming import from_wire


def test_a_cell_is_a_run_ipython() -> None:
    event = ActionEvent(
        source="agent",
        action=IPythonAction(code="1+1"),
        tool_name="execute_ipython_cell",
        security_risk=SecurityRisk.LOW,
    ).model_copy(update={"id": 8})
    frame = to_wire(event, live=True)
    assert frame is not None
    assert (frame["action"], frame["message"]) == ("run_ipython", "Running Python code interactively: 1+1")
    assert frame["args"] == {
        "code": "1+1",
        "thought": "",
        "include_extra": True,
        "confirmation_state": "confirmed",
        "security_risk": 0,
        "kernel_init_code": "",
    }


@pytest.mark.parametrize("images", [None, ["data:image/png;base64,AAAA"]])
def test_a_result_carries_its_text_and_its_pictures(images: list[str] | None) -> None:
    observation = IPythonObservation.from_text("2", code="1+1", image_urls=images)
    event = ObservationEvent(
        source="agent", cause=8, observation=observation, tool_name="execute_ipython_cell", tool_call_id="t"
    )
    frame = to_wire(event.model_copy(update={"id": 9}), live=True)
    assert frame is not None
    assert (frame["observation"], frame["message"]) == ("run_ipython", "Code executed in IPython cell.")
    assert (frame["content"], frame["cause"], frame["success"]) == ("2", 8, True)
    assert frame["extras"] == {"code": "1+1", "image_urls": images}


def test_a_user_may_run_a_cell() -> None:
    args = {"code": "x", "include_extra": False, "kernel_init_code": "import math", "thought": "why"}
    event = from_wire({"action": "run_ipython", "args": args, "timeout": 5})
    assert isinstance(event, ActionEvent)
    assert event.action == IPythonAction(code="x", include_extra=False, kernel_init_code="import math")
    assert (event.source, event.tool_name, event.hard_timeout) == ("user", "execute_ipython_cell", 5)
    assert event.thought_text == "why"
    with pytest.raises(WireError, match=r"args\.code is missing"):
        from_wire({"action": "run_ipython", "args": {}})
