"""What clients send: what it becomes, and how it is refused."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.events.branches import Rewind
from agent_core.events.control import (
    AgentState,
    ChangeAgentState,
    CondensationRequest,
    ForeignEvent,
    LoopRecovery,
    RecallAction,
)
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message, TextContent
from agent_core.events.schema import Observation
from agent_core.events.serialization import AnyEvent, from_payload, to_payload
from agent_core.mcp.tool import MAX_IMAGE_BYTES, MAX_IMAGES
from agent_core.tools.builtin import ThinkAction
from agent_core.tools.file_editor import FileEditorAction, FileEditorObservation
from agent_core.tools.file_reader import FileReaderAction, FileReaderObservation
from agent_core.tools.gemini_files import WriteFileAction
from agent_core.tools.llm_edit import LLMEditAction
from agent_core.tools.task_tracker import TaskItem, TaskTrackerAction
from agent_core.tools.terminal import FreshTerminalAction, TerminalAction
from server.wire.envelope import to_wire
from server.wire.errors import WireError
from server.wire.fields import ACTIONS, OBSERVATIONS, ResultArgs
from server.wire.frames import to_json
from server.wire.incoming import from_wire, result_event
from server.wire.json_data import check_json


def same(event: AnyEvent, expected: AnyEvent) -> bool:
    return event.model_copy(update={"timestamp": expected.timestamp}) == expected


def user_action(action: Any, tool: str, **fields: Any) -> ActionEvent:
    return ActionEvent(source="user", action=action, tool_name=tool, **fields)


def foreign(name: str, payload: dict[str, Any], *, is_action: bool = False, cause: int | None = None) -> ForeignEvent:
    return ForeignEvent(source="user", name=name, is_action=is_action, payload=payload, cause=cause)


ACCEPTED: list[tuple[str, dict[str, Any], AnyEvent]] = [
    (
        "what the browser client sends for a message",
        {
            "action": "message",
            "args": {"content": "hi", "image_urls": [], "file_urls": [], "timestamp": "2025-11-15T09:43:21.123Z"},
        },
        MessageEvent(source="user", llm_message=Message.user("hi"), file_urls=[]),
    ),
    (
        "an image alone, under the old name",
        {"action": "message", "args": {"content": "", "images_urls": ["data:image/png;base64,AA"]}},
        MessageEvent(source="user", llm_message=Message.user("", image_urls=["data:image/png;base64,AA"])),
    ),
    (
        "an id of -1, a forged source and time, and keys that nobody reads",
        {"id": -1, "source": "agent", "timestamp": "x", "foo": 1, "action": "message", "args": {"content": "hi"}},
        MessageEvent(source="user", llm_message=Message.user("hi")),
    ),
    (
        "the stop button",
        {"action": "change_agent_state", "args": {"agent_state": "stopped"}},
        ChangeAgentState(source="user", agent_state=AgentState.STOPPED),
    ),
    (
        "a command",
        {"action": "run", "args": {"command": "ls", "hidden": False}},
        user_action(TerminalAction(command="ls"), "terminal"),
    ),
    (
        "a command with everything, old names included",
        {
            "action": "run",
            "timeout": 5,
            "args": {
                "command": "y",
                "is_input": True,
                "thought": "why not",
                "hidden": True,
                "is_confirmed": "confirmed",
                "security_risk": 2,
                "keep_prompt": True,
                "blocking": True,
            },
        },
        user_action(
            TerminalAction(command="y", is_input=True),
            "terminal",
            thought=[TextContent(text="why not")],
            hidden=True,
            security_risk="HIGH",
            hard_timeout=5.0,
        ),
    ),
    (
        "a command in a shell of its own",
        {"action": "run", "args": {"command": "git status", "is_static": True, "cwd": "/src", "hidden": True}},
        user_action(FreshTerminalAction(command="git status", cwd="/src"), "terminal", hidden=True),
    ),
    (
        "a risk that is none is dropped",
        {"action": "run", "args": {"command": "ls", "security_risk": "huge"}},
        user_action(TerminalAction(command="ls"), "terminal"),
    ),
    (
        "an edit",
        {"action": "edit", "args": {"command": "insert", "path": "/a", "insert_line": 0, "new_str": "x"}},
        user_action(FileEditorAction(command="insert", path="/a", insert_line=0, new_str="x"), "file_editor"),
    ),
    (
        "an edit by a draft",
        {"action": "edit", "args": {"path": "/a", "content": "x", "start": 2, "impl_source": "llm_based_edit"}},
        user_action(LLMEditAction(path="/a", content="x", start=2), "edit_file"),
    ),
    (
        "a list of tasks",
        {
            "action": "task_tracking",
            "args": {"command": "plan", "task_list": [{"id": "1", "title": "t"}], "thought": "so"},
        },
        user_action(
            TaskTrackerAction(command="plan", task_list=[TaskItem(id="1", title="t")]),
            "task_tracker",
            thought=[TextContent(text="so")],
        ),
    ),
    (
        "reading a file",
        {"action": "read", "args": {"path": "/a"}},
        user_action(FileReaderAction(path="/a"), "file_reader"),
    ),
    (
        "reading some lines of it",
        {"action": "read", "args": {"path": "a", "start": 4, "end": 9, "impl_source": "default"}},
        user_action(FileReaderAction(path="a", start=4, end=9), "file_reader"),
    ),
    (
        "reading some lines of it, counted as a view does",
        {"action": "read", "args": {"path": "a", "view_range": [5, 9]}},
        user_action(FileReaderAction(path="a", start=4, end=9), "file_reader"),
    ),
    (
        "viewing a file",
        {"action": "read", "args": {"path": "/a", "impl_source": "oh_aci"}},
        user_action(FileEditorAction(command="view", path="/a"), "file_editor"),
    ),
    (
        "viewing some lines of it",
        {"action": "read", "args": {"path": "/a", "start": 4, "end": 9, "impl_source": "oh_aci"}},
        user_action(FileEditorAction(command="view", path="/a", view_range=[5, 9]), "file_editor"),
    ),
    (
        "writing a file",
        {"action": "write", "args": {"path": "/a", "content": "x"}},
        user_action(WriteFileAction(file_path="/a", content="x"), "write_file"),
    ),
    ("a thought", {"action": "think", "args": {"thought": "hm"}}, user_action(ThinkAction(thought="hm"), "think")),
    (
        "a question to the memory",
        {"action": "recall", "args": {"recall_type": "knowledge", "query": "x"}},
        RecallAction(recall_type="knowledge", query="x"),
    ),
    ("a wish for a condensation", {"action": "condensation_request"}, CondensationRequest(source="user")),
    (
        "a type without a meaning inside, with its defaults",
        {"action": "null", "timeout": 1.5},
        foreign("null", {"args": {}, "timeout": 1.5}, is_action=True),
    ),
    ("a way out of a loop", {"action": "loop_recovery"}, LoopRecovery(option=1)),
    ("a place to go back to", {"action": "rewind", "args": {"to": 5}}, Rewind(to=5)),
    (
        "going back to the beginning",
        {"action": "rewind", "args": {"to": None}},
        Rewind(to=-1),
    ),
    (
        "an observation",
        {"observation": "error", "content": "bad", "cause": 3},
        foreign("error", {"content": "bad", "extras": {"error_id": ""}}, cause=3),
    ),
]


@pytest.mark.parametrize(("data", "expected"), [case[1:] for case in ACCEPTED], ids=[case[0] for case in ACCEPTED])
def test_it_becomes_an_event_of_the_user(data: dict[str, Any], expected: AnyEvent) -> None:
    assert same(from_wire(data), expected)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def message(**args: Any) -> dict[str, Any]:
    return {"action": "message", "args": {"content": "hi", **args}}


REFUSED: list[tuple[Any, str]] = [
    ({"action": "read", "args": {"path": "a", "view_range": [5]}}, "args.view_range: send two numbers"),
    ([], "the message is a list; send a JSON object with `action` and `args`"),
    (None, "the message is null; send a JSON object with `action` and `args`"),
    ("x", "the message is a text; send a JSON object with `action` and `args`"),
    ({}, "the message has no `action`; send for example `message` with args.content"),
    ({"action": "message", "observation": "run"}, "the message has both `action` and `observation`; send one of them"),
    (message() | {"id": 4}, "id is set, but the server numbers the events; leave it out"),
    (message() | {"id": []}, "id is set, but the server numbers the events; leave it out"),
    ({"action": 3, "args": {}}, "action is a number; send the name of one: "),
    ({"action": "initialize", "args": {}}, "action 'initialize' is unknown; send one of browse, "),
    ({"action": "message", "args": [1]}, "args is a list; send a JSON object"),
    ({"action": "message", "args": None}, "args is null; send a JSON object"),
    ({"action": "message", "args": {}}, "args.content is missing; 'message' needs it"),
    ({"action": "rewind", "args": {"to": -1}}, "args.to: input should be greater than or equal to 0 for 'rewind'"),
    ({"action": "message", "args": {"content": 5}}, "args.content: input should be a valid string for 'message'"),
    (
        {"action": "message", "args": {"content": " \n"}},
        "args.content is empty; write something, or add an image or a file",
    ),
    (message(content="", file_urls=[" "]), "args.content is empty; write something, or add an image or a file"),
    (message(wait_for_response=1), "args.wait_for_response: input should be a valid boolean for 'message'"),
    (message(image_urls=[1]), "args.image_urls.0: input should be a valid string for 'message'"),
    (message(image_urls=["data:image/png;base64,AA==", "x"]), "args.image_urls.1 is no image; send its data URL, "),
    (message(image_urls=["data:text/plain;base64,AA=="]), "args.image_urls.0 is no image; "),
    (message(image_urls=["file:///etc/passwd"]), "args.image_urls.0 is no image; "),
    (message(colour="red"), "args.colour is not known for 'message'; leave it out"),
    (message() | {"timeout": "5"}, "timeout is a text; send seconds as a number, or leave it out"),
    (message() | {"timeout": True}, "timeout is a boolean; send seconds as a number, or leave it out"),
    (message() | {"timeout": 0}, "timeout is 0; send more than 0 and at most 86400 seconds"),
    (message() | {"timeout": 86400.5}, "timeout is 86400.5; send more than 0 and at most 86400 seconds"),
    (message() | {"timeout": float("inf")}, "timeout is not a finite number"),
    (message() | {"idempotency_key": 5}, "idempotency_key is no key; send 1 to 255 visible ASCII characters"),
    (message() | {"idempotency_key": ""}, "idempotency_key is no key; "),
    (message() | {"idempotency_key": "k" * 256}, "idempotency_key is no key; "),
    (message() | {"idempotency_key": "k 1"}, "idempotency_key is no key; "),
    (message() | {"idempotency_key": "clé"}, "idempotency_key is no key; "),
    ({"action": "loop_recovery", "args": {"option": True}}, "args.option: "),
    ({"action": "loop_recovery", "args": {"option": 4}}, "args.option: "),
    ({"action": "change_agent_state", "args": {"agent_state": "asleep"}}, "args.agent_state 'asleep' is unknown; "),
    ({"action": "run", "args": {"command": "ls", "cwd": "/"}}, "args.cwd is for is_static only: "),
    (
        {"action": "run", "args": {"command": "x", "is_static": True, "is_input": True}},
        "args.is_static and args.is_input ",
    ),
    ({"action": "delegate", "args": {"agent": "A", "inputs": {}}}, "action: 'delegate' cannot be executed for a user"),
    (
        {"action": "edit", "args": {"path": "/a", "content": "x"}},
        "args.command '' is not supported for 'edit'; send one",
    ),
    (
        {"action": "edit", "args": {"command": "insert", "path": "/a", "insert_line": -1}},
        "args.insert_line: input should be greater than or equal to 0 for 'insert'",
    ),
    (
        {"action": "write", "args": {"path": "/a", "content": "", "start": 1}},
        "args.start and args.end are not supported",
    ),
    (
        {"action": "condensation", "args": {"summary": "s"}},
        "args: needs either forgotten_event_ids or both forgotten_events_start_id and …_end_id for 'condensation'",
    ),
    (
        {"action": "condensation", "args": {"forgotten_event_ids": [1], "forgotten_events_start_id": 1}},
        "args: needs either forgotten_event_ids or both ",
    ),
    (
        {
            "action": "condensation",
            "args": {"forgotten_event_ids": [1], "forgotten_events_start_id": 1, "forgotten_events_end_id": 2},
        },
        "args: needs either forgotten_event_ids or both ",
    ),
    (
        {"action": "condensation", "args": {"forgotten_event_ids": [1], "summary": "s"}},
        "args: needs both summary and summary_offset, or neither for 'condensation'",
    ),
    (
        {"action": "condensation", "args": {"forgotten_event_ids": [1], "summary_offset": 2}},
        "args: needs both summary and summary_offset, or neither for 'condensation'",
    ),
    (
        {"action": "task_tracking", "args": {"task_list": [{"id": "1", "title": "t", "status": None}]}},
        "args.task_list.0.",
    ),
    ({"observation": "agent_state_changed", "content": ""}, "observation: only the server says the agent's state"),
    ({"observation": "nothing", "content": ""}, "observation 'nothing' is unknown; "),
    ({"observation": "error"}, "content: 'error' needs a text, not null"),
    ({"observation": "error", "content": "", "extras": []}, "extras is a list; send a JSON object"),
    ({"observation": "error", "content": "", "cause": "7"}, "cause: is not the id of an event; "),
    (message(content="a\0b"), "args.content contains a NUL character; leave it out"),
    (message(content="\ud800"), "args.content contains half a character (a lone surrogate); send whole ones"),
    (message(**{"a\0": 1}), "args contains a NUL character; leave it out"),
    (message(content=2**60), "args.content is an integer beyond 2^53; send it as a text"),
    (message(content=float("nan")), "args.content is not a finite number; send a finite one or null"),
    (message(content=b"x"), "args.content is no JSON value but bytes; binary data goes in files"),
    ({"action": "finish", "args": {"outputs": {"x": nested(70)}}}, "args.outputs.x.0.0"),
    (nested(100_000), "0.0.0"),
    (message(content="x" * 5_000_000), "the message is larger than the 4194304 bytes that this server takes; "),
    (message(file_urls=[""] * 200_000), "the message holds more than 20000 values; send fewer at a time"),
    ({1: 2}, "the message has a key that is no text; use JSON objects"),
]


@pytest.mark.parametrize(("data", "problem"), REFUSED, ids=[case[1][:40] for case in REFUSED])
def test_it_is_refused_with_the_field_its_problem_and_what_to_do(data: object, problem: str) -> None:
    with pytest.raises(WireError) as caught:
        from_wire(data)
    assert str(caught.value).startswith(problem)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("key", ["!", "~", "k" * 255])
def test_the_clients_name_for_what_it_sends_is_kept_with_it(key: str) -> None:
    assert from_wire(message() | {"idempotency_key": key}).client_key == key


@pytest.mark.parametrize("option", [1, 2, 3])
def test_the_way_out_of_a_loop_is_the_one_that_was_chosen(option: int) -> None:
    assert same(
        from_wire({"action": "loop_recovery", "args": {"option": option}}),
        LoopRecovery.model_validate({"option": option}),
    )


def test_a_limit_of_time_may_be_a_whole_day() -> None:
    event = from_wire({"action": "run", "args": {"command": "ls"}, "timeout": 86400})
    assert isinstance(event, ActionEvent)
    assert event.hard_timeout == 86400.0


def test_a_plan_of_the_users_needs_all_that_the_agents_needs() -> None:
    task = {"id": "1", "title": "t" * 1001, "status": "todo"}
    with pytest.raises(WireError, match=r"^args\.task_list"):
        from_wire({"action": "task_tracking", "args": {"command": "plan", "task_list": [task]}})


def test_an_edit_that_names_its_command_is_that_one_whatever_is_to_carry_it_out() -> None:
    args = {"impl_source": "llm_based_edit", "command": "create", "path": "/a", "file_text": "x"}
    event = from_wire({"action": "edit", "args": args})
    assert isinstance(event, ActionEvent)
    assert event.action == FileEditorAction(command="create", path="/a", file_text="x")


@pytest.mark.parametrize(
    ("data", "limits"),
    [
        (nested(64), {}),
        ([[0, 0], [0, 0]], {"max_values": 7}),
        ({"abc": "de"}, {"max_chars": 5}),
    ],
    ids=["levels", "values", "characters, also those of the keys"],
)
def test_data_is_taken_up_to_its_bounds_and_no_further(data: Any, limits: dict[str, int]) -> None:
    check_json(data, **limits)
    closer = {name: limit - 1 for name, limit in limits.items()}
    with pytest.raises(WireError):
        check_json(data if limits else [data], **closer)


def image(size: int, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": b64encode(bytes(size)).decode(), "mimeType": kind}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("x" * 1_000_001, "args.content has 1000001 characters of text; at most 1000000 are taken"),
        ([{"type": "text", "text": "x" * 500_001}] * 2, "args.content has 1000002 characters of text; "),
        ([image(1)] * (MAX_IMAGES + 1), f"args.content has more than {MAX_IMAGES} images; leave some out"),
        ([image(1), image(1, "text/html")], "args.content.1.mimeType: is none of "),
        ([image(1) | {"data": "no!"}], "args.content.0.data: is not base64"),
        ([image(MAX_IMAGE_BYTES + 1)], f"args.content.0.data: has {MAX_IMAGE_BYTES + 1} bytes; "),
    ],
    ids=["a long text", "long texts", "many images", "no image", "no base64", "a large image"],
)
def test_what_a_client_answers_to_its_call_has_bounds(content: Any, problem: str) -> None:
    args = ResultArgs.model_validate({"content": content})
    with pytest.raises(WireError) as caught:
        result_event(3, args)
    assert str(caught.value).startswith(problem)


def test_what_a_client_answers_to_its_call_is_taken_up_to_its_bounds() -> None:
    texts = [{"type": "text", "text": "x" * 500_000}] * 2
    args = ResultArgs.model_validate({"content": [*texts, *[image(1)] * (MAX_IMAGES - 1), image(MAX_IMAGE_BYTES)]})
    event = result_event(3, args)
    assert event.cause == 3
    assert len(event.content) == 2 + MAX_IMAGES


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(WireError) as caught:
        from_wire({"action": "run", "args": {"command": ["my-password"]}})
    assert "my-password" not in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=3),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=12), children, max_size=4),
    max_leaves=20,
)
names = st.sampled_from([*ACTIONS, *OBSERVATIONS]) | st.text(max_size=5)


@st.composite
def messages(draw: st.DrawFn) -> Any:
    """Messages that are nearly right: known types, known field names, any values."""
    name = draw(names)
    model = ACTIONS.get(name) or OBSERVATIONS.get(name)
    known = st.sampled_from([*(model.model_fields if model else {}), "timestamp", "security_risk"])
    values = json_values | st.text(max_size=5) | st.sampled_from([0, -1, [], {}, "knowledge", "view", "running", True])
    fields = draw(st.dictionaries(known, values, max_size=6))
    action = {"action": name, "args": fields}
    observation = {"observation": name, "content": "", "extras": fields}
    around = draw(st.dictionaries(st.sampled_from(["id", "timeout", "cause", "source"]), values, max_size=2))
    return {**around, **draw(st.sampled_from([action, observation]))}


@given(data=json_values | messages())
@settings(max_examples=400, deadline=None, derandomize=True)
def test_whatever_is_sent_becomes_an_event_or_a_wire_error(data: Any) -> None:
    try:
        event = from_wire(data)
    except WireError:
        return
    assert (event.source, event.id) == ("user", -1)
    stored = from_payload(to_payload(event), 5)
    assert stored == event.stored_as(5)
    for live in (True, False):
        frame = to_wire(stored, live=live)
        assert frame is None or json.loads(to_json(frame)) == json.loads(json.dumps(frame))


@given(
    content=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(str.strip),
    images=st.lists(st.sampled_from(["data:image/png;base64,AA==", "https://a.test/1.jpg", "http://b/"]), max_size=3),
    files=st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0")), max_size=3),
)
def test_a_message_comes_back_as_it_was_sent(content: str, images: list[str], files: list[str]) -> None:
    event = from_wire({"action": "message", "args": {"content": content, "image_urls": images, "file_urls": files}})
    frame = to_wire(event.stored_as(3), live=True)
    assert frame is not None
    assert frame["message"] == content
    assert frame["args"] == {
        "content": content,
        "file_urls": files,
        "image_urls": images,
        "wait_for_response": False,
        "security_risk": -1,
    }


@pytest.mark.parametrize("name", ["timestamp", "keep_prompt", "task_completed", "translated_ipython_code"])
def test_what_the_protocol_drops_is_not_looked_at(name: str) -> None:
    frame = to_wire(from_wire({"action": "finish", "args": {name: [1]}}).stored_as(3), live=True)
    assert frame is not None
    assert name not in frame["args"]


def test_of_an_old_and_a_new_name_the_new_one_counts() -> None:
    args = {"command": "ls", "confirmation_state": "confirmed", "is_confirmed": "maybe"}
    assert from_wire({"action": "run", "args": args}).source == "user"
    pictures = {"image_urls": ["https://a.test/new.png"], "images_urls": ["https://a.test/old.png"]}
    frame = to_wire(from_wire(message(content="hi", **pictures)).stored_as(3), live=True)
    assert frame is not None
    assert frame["args"]["image_urls"] == ["https://a.test/new.png"]


NEEDED: dict[str, dict[str, Any]] = {
    "message": {"content": "hi"},
    "system": {"content": "x"},
    "run": {"command": "ls"},
    "run_ipython": {"code": "1"},
    "read": {"path": "/a"},
    "write": {"path": "/a", "content": "x"},
    "edit": {"path": "/a", "command": "create", "file_text": "x"},
    "browse": {"url": "http://x/"},
    "browse_interactive": {"browser_actions": "noop()"},
    "recall": {"recall_type": "knowledge"},
    "change_agent_state": {"agent_state": "paused"},
    "condensation": {"forgotten_event_ids": [1]},
}
"""What each type has to be sent with, where that is anything."""


@pytest.mark.parametrize("name", sorted(ACTIONS.keys() - {"null", "call_tool_mcp", "delegate"}))
def test_what_is_left_out_comes_back_as_the_protocol_has_it_by_default(name: str) -> None:
    needed = NEEDED.get(name, {})
    frame = to_wire(from_wire({"action": name, "args": needed}).stored_as(3), live=True)
    assert frame is not None
    # The protocol's clients send lists, also empty ones.
    lists: dict[str, Any] = {"file_urls": [], "image_urls": []} if name == "message" else {}
    assert (frame["action"], frame["source"]) == (name, "user")
    assert frame["args"] == ACTIONS[name].model_validate(needed).model_dump(by_alias=True) | lists


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        (FileReaderObservation.from_text("a", path="/a"), ("read", "a", {"path": "/a", "impl_source": "default"})),
        (FileReaderObservation.from_text("no", is_error=True, path="/a"), ("error", "no", {"error_id": ""})),
        (
            FileEditorObservation.from_text("1 a", command="view", path="/a"),
            ("read", "1 a", {"path": "/a", "impl_source": "oh_aci"}),
        ),
    ],
)
def test_a_read_of_the_users_is_answered_as_one_of_the_protocols_own(
    observation: Observation, expected: tuple[Any, ...]
) -> None:
    event = ObservationEvent(source="user", cause=3, observation=observation, tool_name="x")
    frame = to_wire(event.stored_as(4), live=True)
    assert frame is not None
    assert (frame["observation"], frame["content"], frame["extras"]) == expected


@pytest.mark.parametrize("remember", [True, False])
def test_an_approval_for_the_rest_of_the_conversation_says_so_both_ways(remember: bool) -> None:
    args = {"agent_state": "user_confirmed", "remember": remember}
    event = from_wire({"action": "change_agent_state", "args": args})
    assert isinstance(event, ChangeAgentState)
    assert event.remember is remember
    frame = to_wire(event.model_copy(update={"id": 1}), live=True)
    assert frame is not None
    assert frame["args"].get("remember", False) is remember


@pytest.mark.parametrize("key", ["C-c", "C-d", "C-z", "C-\\"])
def test_a_key_is_a_key_whether_it_says_so_or_not(key: str) -> None:
    event = from_wire({"action": "run", "args": {"command": key}})
    assert isinstance(event, ActionEvent)
    assert isinstance(event.action, TerminalAction)
    assert event.action.is_input
