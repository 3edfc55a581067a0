"""Recorded events: kept as they were, and told to a model as a conversation that it could have had here."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.events.llm_events import MessageEvent, SystemPromptEvent
from agent_core.events.messages import ImageContent, Message, TextContent
from agent_core.events.serialization import encoded, from_payload
from agent_core.memory.view import View
from server.wire.envelope import to_record, to_wire
from server.wire.errors import WireError
from server.wire.imported_events import recorded_events
from server.wire.trajectory import END_OF_RECORD, not_rewound, with_transcript
from tests.unit.wire.test_outgoing import CASES, ORDER

WIRE = Path(__file__).parents[2] / "contract" / "wire"
EXAMPLES: list[dict[str, Any]] = [
    json.loads(line)
    for name in ("actions.jsonl", "observations.jsonl")
    for line in (WIRE / name).read_text("utf-8").splitlines()
]
OF_THE_PLACE = ("id", "timestamp", "source", "cause")
PROMPT = SystemPromptEvent(system_prompt=TextContent(text="be good"))

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(st.text(max_size=5), values, max_size=3)
names = st.from_regex(r"\Anew_[a-z]{1,8}\Z")
unknown = st.fixed_dictionaries({"message": st.text(), "action": names, "args": objects}) | st.fixed_dictionaries(
    {"message": st.text(), "observation": names, "content": st.text(), "extras": objects}
)
known = st.sampled_from(EXAMPLES).map(
    lambda example: {key: value for key, value in example.items() if key not in OF_THE_PLACE}
)


@st.composite
def trajectories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """As a server exports them: ids that grow, with gaps where hidden events were, and causes that came before."""
    events: list[dict[str, Any]] = []
    last = -1
    for _ in range(draw(st.integers(1, 8))):
        last += draw(st.integers(1, 3))
        moment = draw(st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)))
        event = {"id": last, "timestamp": moment.isoformat(timespec="microseconds") + "Z"}
        event["source"] = draw(st.sampled_from(["agent", "user", "environment"]))
        if last and draw(st.booleans()):
            event["cause"] = draw(st.integers(0, last - 1))
        event |= draw(known | unknown) | {
            f"x_{key}": value for key, value in draw(objects).items() if value is not None
        }
        events.append(event)
    return events


def exported(trajectory: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is exported again of an import that went through the store."""
    events = list(with_transcript(list(recorded_events(trajectory))))
    stored = [from_payload(encoded(event)[1], place) for place, event in enumerate(events)]
    return [record for record in map(to_record, stored) if record.get("args", {}).get("hidden") is not True]


@settings(max_examples=50, deadline=None)
@given(trajectories())
def test_what_was_imported_is_exported_again_exactly(trajectory: list[dict[str, Any]]) -> None:
    hidden = [event for event in trajectory if event.get("args", {}).get("hidden") is True]
    assert exported(trajectory) == [event for event in trajectory if event not in hidden]


def test_every_event_of_ours_is_the_same_after_an_import() -> None:
    records = [
        to_record(event.model_copy(update={"id": place, "cause": None if event.cause is None else 0}))
        for place, (_, event, _) in enumerate(CASES, 1)
    ]
    for record in records:
        if "cause" in record:
            record["cause"] = 0
    again = [to_record(event.stored_as(place)) for place, event in enumerate(recorded_events(records))][1:]
    assert again == records
    for record in again:
        assert [key for key in record if key in ORDER] == [key for key in ORDER if key in record]


def test_every_example_of_the_protocol_can_be_imported_and_is_sent_by_the_rules_of_its_type() -> None:
    for example in EXAMPLES:
        place = example["id"]
        (event,) = list(recorded_events([{**example, "id": None, "cause": None}]))
        frame = to_wire(event.stored_as(place).model_copy(update={"cause": example.get("cause")}), live=False)
        assert frame == (None if example.get("action") == "recall" else example)


def test_times_without_a_zone_are_utc_and_others_are_converted() -> None:
    given_times = ["2025-11-15T09:43:21.5", "2025-11-15T10:43:21.5+01:00", "2025-11-15T09:43:21.500000Z"]
    events = [{"source": "user", "action": "null", "timestamp": one} for one in given_times]
    moment = datetime(2025, 11, 15, 9, 43, 21, 500000, tzinfo=UTC)
    assert [event.timestamp for event in recorded_events(events)] == [moment] * 3


def act(name: str, event_id: int, **args: Any) -> dict[str, Any]:
    return {"id": event_id, "source": "agent", "action": name, "args": args}


def gave(name: str, cause: int, content: str, **extras: Any) -> dict[str, Any]:
    return {"source": "agent", "observation": name, "content": content, "extras": extras, "cause": cause}


def said(content: str, source: str = "user") -> dict[str, Any]:
    return {"source": source, "action": "message", "args": {"content": content}}


def told(trajectory: list[dict[str, Any]]) -> list[Message]:
    events = list(with_transcript(list(recorded_events(trajectory))))
    log = [event.stored_as(place) for place, event in enumerate(events)]
    asked = MessageEvent(id=len(log) + 1, source="user", llm_message=Message.user("and now?"))
    return View.from_log([*log, PROMPT.stored_as(len(log)), asked]).messages()


def test_a_model_is_told_who_said_what_and_what_tools_gave_behind_its_own_prompt() -> None:
    messages = told(
        [
            said("count them"),
            act("run", 1, command="wc -l a", thought="I count."),
            gave("run", 1, "3 a", command="wc -l a"),
            act("dance", 3, steps=2),
            gave("dance", 3, "danced"),
            said("There are 3.", "agent"),
        ]
    )
    roles = "system user assistant tool assistant tool assistant user"
    assert [message.role for message in messages] == roles.split()
    calls = [call for message in messages for call in message.tool_calls or ()]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [
        ("terminal", {"command": "wc -l a", "is_input": False, "timeout": None, "reset": False}),
        ("dance", {"steps": 2}),
    ]
    assert [message.text for message in messages[1:4]] == ["count them", "I count.", "3 a"]
    assert messages[3].tool_call_id == calls[0].id
    assert messages[-1].text == f"{END_OF_RECORD}\nand now?"


def test_a_call_without_a_result_and_what_a_rewind_has_undone_are_not_told() -> None:
    messages = told(
        [
            said("first"),
            act("run", 1, command="never answered"),
            said("undone"),
            {"source": "user", "action": "rewind", "args": {"to": 0}},
            said("second"),
        ]
    )
    assert [message.role for message in messages] == ["system", "user"]
    assert messages[1].text == f"first\nsecond\n{END_OF_RECORD}\nand now?"


@pytest.mark.parametrize(
    ("to", "counts"),
    [
        (0, [True, False, True, True]),
        (1, [True, True, True, True]),
        (None, [False, False, True, True]),
        ("0", [False, False, True, True]),
        (2, [False, False, True, True]),
        (-1, [False, False, True, True]),
    ],
)
def test_a_rewind_undoes_what_came_after_its_event_and_without_one_that_came_before_it_all(
    to: Any, counts: list[bool]
) -> None:
    rewind = {"source": "user", "action": "rewind", "args": {"to": to}}
    assert not_rewound([said("a"), said("b"), rewind, said("c")]) == counts
    assert not_rewound([said("a"), said("b")]) == [True, True]


def test_the_answer_of_a_finished_recording_is_told() -> None:
    messages = told([said("do it"), act("finish", 1, final_thought="It is done.")])
    assert [message.text for message in messages[1:3]] == ["do it", "It is done."]


def calls(trajectory: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    made = [call for message in told(trajectory) for call in message.tool_calls or ()]
    return [(call.name, json.loads(call.arguments)) for call in made]


def answered(call_id: object, *made: object) -> dict[str, Any]:
    """What an action says of the answer that it came from."""
    choices = [None, {"message": {"tool_calls": ["x", *made]}}]
    return {"tool_call_metadata": {"tool_call_id": call_id, "model_response": {"choices": choices}}}


@pytest.mark.parametrize(
    ("arguments", "told_as"), [('{"steps": 3}', {"steps": 3}), ({"steps": 3}, {"steps": 3}), (None, {})]
)
def test_a_call_of_an_unknown_tool_is_told_as_the_model_made_it(arguments: Any, told_as: dict[str, Any]) -> None:
    others = {"id": "c0", "function": {"name": "sing", "arguments": "{}"}}
    nameless = {"id": "c1", "function": {"arguments": "{}"}}
    made = {"id": "c1", "function": {"name": "tango", "arguments": arguments}}
    action = act("dance", 1, steps=2) | answered("c1", others, nameless, made)
    assert calls([said("go"), action, gave("dance", 1, "danced")]) == [("tango", told_as)]
    unknown = act("dance", 1, steps=2) | answered("c2", others, made)
    assert calls([said("go"), unknown, gave("dance", 1, "danced")]) == [("dance", {"steps": 2})]


def test_a_call_is_told_by_its_own_arguments_and_its_thought_once() -> None:
    action = act("dance", 1, steps=2, thought="I dance.", security_risk=1)
    messages = told([said("go"), action, gave("dance", 1, "danced")])
    assert [(call.name, call.arguments) for call in messages[2].tool_calls or ()] == [("dance", '{"steps": 2}')]
    assert messages[2].text == "I dance."
    thinking = told([said("go"), act("think", 1, thought="Hm."), gave("think", 1, "noted")])
    assert thinking[2].text == ""
    assert [json.loads(call.arguments) for call in thinking[2].tool_calls or ()] == [{"thought": "Hm."}]


def test_what_no_tool_of_the_agent_did_is_not_told_as_one() -> None:
    memory = [act("recall", 1, query="x", recall_type="knowledge"), gave("recall", 1, "known", recall_type="knowledge")]
    assert calls([said("go"), *memory]) == []


@pytest.mark.parametrize(
    ("args", "last_word"),
    [
        ({"final_thought": "It is done.", "thought": "Done?"}, "It is done."),
        ({"thought": "Done?"}, "Done?"),
        ({}, "All done."),
    ],
)
def test_the_end_of_a_recording_is_told_by_what_there_is_of_it(args: dict[str, Any], last_word: str) -> None:
    assert told([said("do it"), act("finish", 1, **args) | {"message": "All done."}])[2].text == last_word


def test_a_users_pictures_are_told_and_where_they_are_none_the_text_alone() -> None:
    picture = "data:image/png;base64,iVBORw0KGgo="
    for urls, shown in [([picture], [picture]), (["file:///x.png"], [])]:
        event = said("look")
        event["args"]["image_urls"] = urls
        first = told([event])[1]
        assert first.text.startswith("look")
        assert [url for part in first.content if isinstance(part, ImageContent) for url in part.image_urls] == shown


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"cause": -1}, "cause: -1 is not the id of an event before this one"),
        ({"cause": True}, "cause is a boolean"),
        ({"action": "a" * 201}, f"action: is '{'a' * 40}'; it is the name of a type, 200 characters at most"),
    ],
)
def test_what_no_recording_can_say_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(WireError) as caught:
        list(recorded_events([said("hi"), act("run", 1, command="ls") | change]))
    assert str(caught.value).startswith(f"event 1: {problem}")


def test_a_record_has_what_its_type_always_has_and_keys_of_its_own_stand_behind_the_protocols() -> None:
    run = {"mine": 1, **gave("run", 0, "a", command="ls", exit_code=0), "a_key": 2}
    nothing = {"source": "environment", "observation": "null"}
    _, ran, null = recorded_events([act("run", 0, command="ls"), run, nothing])
    assert list(ran.record)[-2:] == ["mine", "a_key"]
    assert ran.record["success"] is True
    assert null.record["content"] == ""
