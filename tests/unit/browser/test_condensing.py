"""Old looks at pages are left out of what a model is shown, pictures too."""

from __future__ import annotations

from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.events.messages import ImageContent, MessageToolCall
from agent_core.events.serialization import AnyEvent
from agent_core.memory.condensers import BrowserOutputCondenser
from agent_core.memory.view import View
from agent_core.tools.browser import BrowserGetStateAction, BrowserObservation
from agent_core.tools.browser_code import BrowserCodeAction


def looked(event_id: int, tool: str) -> list[AnyEvent]:
    action = BrowserCodeAction(code="noop()") if tool == "browser" else BrowserGetStateAction()
    picture = f"data:image/jpeg;base64,{event_id:04}"
    seen = BrowserObservation.from_text(f"page {event_id}", url=f"http://h/{event_id}", set_of_marks=picture)
    call = MessageToolCall(id=f"t{event_id}", name=tool, arguments="{}")
    fields = {"tool_name": tool, "tool_call_id": call.id}
    return [
        ActionEvent(id=event_id, action=action, tool_call=call, llm_response_id=f"r{event_id}", **fields),
        ObservationEvent(id=event_id + 1, cause=event_id, observation=seen, **fields),
    ]


async def test_only_the_newest_looks_keep_their_text_and_picture() -> None:
    view = View.from_log([*looked(0, "browser"), *looked(2, "browser_get_state"), *looked(4, "browser_get_state")])
    shown = await BrowserOutputCondenser(attention_window=1).acondense(view)
    assert isinstance(shown, View)
    results = [message for message in shown.messages() if message.role == "tool"]
    assert [message.text for message in results[:2]] == [
        f"Visited http://h/{place}. What the page showed is left out here." for place in (0, 2)
    ]
    parts = [part for message in results for part in message.content if isinstance(part, ImageContent)]
    pictures = [url for part in parts for url in part.image_urls]
    assert pictures == ["data:image/jpeg;base64,0004"]
