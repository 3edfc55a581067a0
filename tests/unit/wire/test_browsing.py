"""The browser tools' calls and results in their public form, and a user's own browsing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.events.messages import TextContent
from agent_core.tools.browser import (
    BrowserAction,
    BrowserClickAction,
    BrowserGetStateAction,
    BrowserNavigateAction,
    BrowserObservation,
    BrowserTypeAction,
)
from agent_core.tools.browser_code import BrowserCodeAction
from server.wire.envelope import to_record
from server.wire.errors import WireError
from server.wire.incoming import from_wire

TIME = datetime(2025, 11, 15, 9, 43, 21, tzinfo=UTC)


def record(event: Any) -> dict[str, Any]:
    found = to_record(event)
    assert found is not None
    return dict(found)


def call(action: BrowserAction, tool: str, **fields: Any) -> dict[str, Any]:
    return record(ActionEvent(id=7, timestamp=TIME, action=action, tool_name=tool, **fields))


def test_an_address_is_browsed_and_everything_else_is_interaction() -> None:
    opened = call(BrowserNavigateAction(url="http://x"), "browser_navigate", thought=[TextContent(text="Look.")])
    assert (opened["action"], opened["message"]) == ("browse", "I am browsing the URL: http://x")
    assert opened["args"] == {"url": "http://x", "thought": "Look.", "security_risk": -1, "return_axtree": False}
    for action, tool, code in (
        (BrowserCodeAction(code="click('1')\nnoop()"), "browser", "click('1')\nnoop()"),
        (BrowserClickAction(index=3), "browser_click", "click(id=3, new_tab=false)"),
        (BrowserTypeAction(index=3, text='a "b"'), "browser_type", 'type(id=3, text="a \\"b\\"")'),
        (BrowserGetStateAction(), "browser_get_state", "look()"),
    ):
        shown = call(action, tool, security_risk="HIGH")
        assert shown["action"] == "browse_interactive"
        assert shown["message"] == f"I am interacting with the browser:\n```\n{code}\n```"
        assert shown["args"] == {
            "browser_actions": code,
            "thought": "",
            "browsergym_send_msg_to_user": "",
            "security_risk": 2,
            "return_axtree": False,
        }


def test_an_action_that_waits_for_approval_says_so() -> None:
    shown = call(BrowserClickAction(index=3), "browser_click", awaits_confirmation=True)
    assert shown["args"]["confirmation_state"] == "awaiting_confirmation"


def test_a_result_shows_the_picture_the_tabs_and_the_error() -> None:
    pages = [{"id": "ab12", "url": "http://x/", "title": "X"}, {"id": "cd34", "url": "http://y/", "title": "Y"}]
    seen = BrowserObservation.from_text(
        "text",
        is_error=True,
        status="failed",
        url="http://y/",
        open_pages=pages,
        active_page_index=1,
        focused_element="12",
        screenshot="data:image/jpeg;base64,AA",
        set_of_marks="data:image/jpeg;base64,BB",
        screenshot_path="/workspace/.browser_screenshots/0001.jpg",
        last_action="click('1')",
        last_action_error="No such element.",
        visible_only=True,
    )
    event = ObservationEvent(id=8, timestamp=TIME, source="agent", cause=7, observation=seen, tool_name="browser")
    shown = record(event)
    assert (shown["observation"], shown["content"], shown["message"]) == ("browse", "text", "Visited http://y/")
    assert shown["extras"] == {
        "url": "http://y/",
        "trigger_by_action": "browse_interactive",
        "screenshot": "data:image/png;base64,AA",  # what a client of the protocol takes for a picture
        "screenshot_path": "/workspace/.browser_screenshots/0001.jpg",
        "set_of_marks": "data:image/jpeg;base64,BB",
        "error": True,
        "goal_image_urls": [],
        "open_pages_urls": ["http://x/", "http://y/"],
        "active_page_index": 1,
        "dom_object": {},
        "axtree_object": {},
        "extra_element_properties": {},
        "last_browser_action": "click('1')",
        "last_browser_action_error": "No such element.",
        "focused_element_bid": "12",
        "filter_visible_only": True,
    }
    opened = record(event.model_copy(update={"tool_name": "browser_navigate"}))
    assert opened["extras"]["trigger_by_action"] == "browse"


def test_a_users_own_browsing_is_done_with_the_agents_browser() -> None:
    opened = from_wire({"action": "browse", "args": {"url": "http://x", "thought": "See"}, "timeout": 9})
    assert isinstance(opened, ActionEvent)
    assert (opened.source, opened.tool_name, opened.hard_timeout) == ("user", "browser", 9)
    assert opened.action == BrowserNavigateAction(url="http://x")
    done = from_wire({"action": "browse_interactive", "args": {"browser_actions": "click('1')"}})
    assert isinstance(done, ActionEvent)
    assert done.action == BrowserCodeAction(code="click('1')")


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("browse", {"url": ""}, r"args\.url: String should have at least 1 character"),
        ("browse_interactive", {"browser_actions": "exec('x')"}, r"args\.browser_actions: line 1 of code calls 'exec'"),
        ("browse_interactive", {}, r"args\.browser_actions is missing"),
    ],
)
def test_browsing_that_cannot_be_done_is_refused_with_the_reason(name: str, args: dict[str, Any], said: str) -> None:
    with pytest.raises(WireError, match=said):
        from_wire({"action": name, "args": args})
