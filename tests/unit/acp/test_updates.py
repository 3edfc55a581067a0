"""What an editor is shown of a conversation's events and text on its way."""

from __future__ import annotations

from typing import Any

from drydock_client import Connected
from drydock_client.events import Live, read_event, read_frame
from server.doors.acp.updates import Updates


def event(ident: int, name: str, kind: str = "action", source: str = "agent", **fields: Any) -> Live:
    own = fields.pop("args", {})
    data = {"id": ident, "timestamp": "2026-01-01T00:00:00.000000Z", "source": source, "message": "", kind: name}
    return read_event({**data, "args" if kind == "action" else "extras": own, **fields})


def delta(**fields: Any) -> Live:
    return read_frame("oh_delta", fields)


def texts(updates: Updates, *items: Live) -> list[tuple[str, str]]:
    """Kind and text of what is shown."""
    shown: list[Any] = [update for item in items for update in updates.take(item)]
    return [(one.session_update, getattr(getattr(one, "content", None), "text", "")) for one in shown]


def call(response: str = "r1", tool_call_id: str = "t1") -> dict[str, Any]:
    return {"function_name": "terminal", "tool_call_id": tool_call_id, "model_response": {"id": response}}


def message(text: str, ident: int = 1, source: str = "agent") -> Live:
    return event(ident, "message", source=source, args={"content": text})


SAID, THOUGHT = "agent_message_chunk", "agent_thought_chunk"


def test_what_was_streamed_is_not_said_again_and_the_rest_is() -> None:
    pieces = [delta(kind="message", response_id="r1", text=text) for text in ("one", " two")]
    assert texts(Updates(), *pieces, message("one two three")) == [(SAID, "one"), (SAID, " two"), (SAID, " three")]
    assert texts(Updates(), message("whole")) == [(SAID, "whole")]


def test_reasoning_is_a_thought() -> None:
    assert texts(Updates(), delta(kind="reasoning", response_id="r1", text="Hm.")) == [(THOUGHT, "Hm.")]


def test_an_answer_that_broke_off_is_followed_by_the_other_one_whole() -> None:
    pieces = [
        delta(kind="message", response_id="r1", text="A false"),
        delta(kind="discard", response_id="r1"),
        delta(kind="message", response_id="r2", text="A new"),
    ]
    assert texts(Updates(), *pieces, message("A new start.")) == [
        (SAID, "A false"),
        (SAID, "\n\nA new"),
        (SAID, " start."),
    ]


def test_a_thought_before_a_call_is_said_once() -> None:
    run = event(5, "run", args={"command": "ls", "thought": "I look."}, tool_call_metadata=call())
    streamed = delta(kind="message", response_id="r1", text="I look.")
    assert texts(Updates(), streamed, run) == [(SAID, "I look."), ("tool_call", "")]
    assert texts(Updates(), run) == [(SAID, "I look."), ("tool_call", "")]


def test_what_the_editor_has_said_does_not_come_back_but_what_others_say_does() -> None:
    updates = Updates()
    updates.expect("mine")
    assert texts(updates, message("mine", source="user"), message("mine", source="user")) == [
        ("user_message_chunk", "mine")
    ]


def test_a_decided_call_is_the_same_call() -> None:
    updates = Updates()
    args = {"command": "rm", "confirmation_state": "awaiting_confirmation"}
    (asked,) = updates.take(event(5, "run", args=args, tool_call_metadata=call()))
    assert list(updates.waiting) == ["call-5"]
    allowed = event(7, "run", args={**args, "confirmation_state": "confirmed"}, tool_call_metadata=call())
    (decided,) = updates.take(allowed)
    assert (getattr(decided, "session_update", ""), getattr(decided, "tool_call_id", ""), updates.waiting) == (
        "tool_call_update",
        "call-5",
        {},
    )
    done = event(9, "run", "observation", cause=7, content="ok", args={"metadata": {"exit_code": 0}})
    (ended,) = updates.take(done)
    assert getattr(ended, "tool_call_id", "") == getattr(asked, "tool_call_id", None) == "call-5"


def test_output_of_a_call_is_joined_and_of_an_unknown_one_left_out() -> None:
    updates = Updates()
    updates.take(event(5, "run", args={"command": "make"}, tool_call_metadata=call()))
    (first,) = updates.take(delta(kind="output", cause=5, text="a\n"))
    (second,) = updates.take(delta(kind="output", cause=5, text="b\n"))
    shown: Any = second
    assert shown.content[0].content.text == "```\na\nb\n```"
    assert first != second
    assert not updates.take(delta(kind="output", cause=99, text="x"))


def test_output_that_is_told_again_after_a_break_takes_the_place_of_what_was_shown() -> None:
    updates = Updates()
    updates.take(event(5, "run", args={"command": "make"}, tool_call_metadata=call()))
    updates.take(delta(kind="output", cause=5, text="a"))
    updates.take(Connected(again=True))
    (shown,) = updates.take(delta(kind="output", cause=5, text="ab"))
    content: Any = getattr(shown, "content", None)
    assert content[0].content.text == "```\nab\n```"


def test_a_plan_is_shown_when_it_changes() -> None:
    updates = Updates()
    tasks = [{"title": "Look", "status": "todo"}, {"title": "Mend", "status": "done"}, "odd"]
    view = event(5, "task_tracking", "observation", args={"command": "view", "task_list": []})
    plan = event(6, "task_tracking", "observation", args={"command": "plan", "task_list": tasks})
    assert not updates.take(view)
    (shown,) = updates.take(plan)
    assert [(one.content, one.status) for one in getattr(shown, "entries", [])] == [
        ("Look", "pending"),
        ("Mend", "completed"),
    ]
    assert not updates.take(plan)
    assert len(updates.take(view)) == 1


def test_an_error_that_answers_no_action_is_said() -> None:
    error = event(5, "error", "observation", content="The server of tools is away.")
    assert texts(Updates(), error) == [(SAID, "The server of tools is away.")]


def test_the_rest_is_not_shown() -> None:
    silent = [
        event(1, "system", args={"content": "prompt"}),
        event(2, "recall", args={"query": "x"}, source="user"),
        event(3, "change_agent_state", args={"agent_state": "running"}, source="environment"),
        event(4, "recall", "observation", content="x"),
        event(5, "null", "observation"),
        event(6, "agent_state_changed", "observation", args={"agent_state": "running"}),
        event(7, "condensation", args={"summary": "s"}),
        read_frame("oh_event", {"status_update": True, "type": "info", "id": "STATUS$READY", "message": ""}),
        read_frame("oh_event", {"odd": True}),
        read_frame("oh_new", {}),
    ]
    assert texts(Updates(), *silent) == []


def test_text_that_is_told_again_after_a_break_is_not_shown_again() -> None:
    updates = Updates()
    again = read_frame("oh_delta", {"kind": "message", "response_id": "r1", "text": "one two"})
    assert texts(updates, delta(kind="message", response_id="r1", text="one")) == [(SAID, "one")]
    assert texts(updates, Connected(again=True), again) == [(SAID, " two")]
    assert texts(updates, Connected(again=True), delta(kind="message", response_id="r1", text="one")) == []
    assert texts(updates, delta(kind="message", response_id="r1", text=" two three")) == [(SAID, " three")]
    assert texts(updates, message("one two three four")) == [(SAID, " four")]


def test_text_whose_beginning_is_cut_off_after_a_break_is_shown_from_there() -> None:
    updates = Updates()
    texts(updates, delta(kind="reasoning", response_id="r1", text="long ago"))
    cut = delta(kind="reasoning", response_id="r1", text="ago and now")
    assert texts(updates, Connected(again=True), cut) == [(THOUGHT, "ago and now")]


def test_a_message_in_which_a_secret_was_hidden_is_known_all_the_same() -> None:
    updates = Updates()
    updates.expect("the key is 12345678")
    assert texts(updates, message("the key is <secret_hidden>", source="user")) == []
