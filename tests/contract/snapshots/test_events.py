"""What goes over sockets stays what clients were promised: a change that breaks one fails here (docs/protocol.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agent_core.events.branches import FilesRestored, Rewind
from agent_core.events.serialization import AnyEvent
from agent_core.events.transient import ClientCall, OutputDelta, StatusNotice, TextDelta, TextDiscarded
from server.wire.envelope import to_wire
from server.wire.errors import WireError
from server.wire.frames import (
    client_call_frame,
    closed_frame,
    delta_frame,
    error_frames,
    notice_frames,
    resync_frame,
    title_frame,
)
from server.wire.incoming import from_wire
from tests.contract.snapshots.compatibility import breaks
from tests.contract.snapshots.event_schemas import sent_schemas, taken_schemas
from tests.contract.snapshots.stored import check_snapshot
from tests.unit.wire.test_outgoing import CASES

PATH = Path(__file__).with_name("events.json")
EXAMPLES = Path(__file__).parents[1] / "wire"
LINES = [
    line for name in ("actions.jsonl", "observations.jsonl") for line in (EXAMPLES / name).read_text().splitlines()
]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SENT = sent_schemas()
TAKEN = taken_schemas()


def broken(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> Iterator[str]:
    for way in ("sent", "taken"):
        for name, schema in before[way].items():
            if name not in after[way]:
                yield f"{way} {name} is gone"
                continue
            for problem in breaks(schema, after[way][name], "sent" if way == "sent" else "taken"):
                yield f"{way} {name}: {problem}"


def test_no_change_of_an_event_breaks_a_client() -> None:
    check_snapshot(PATH, {"sent": SENT, "taken": TAKEN}, broken)


@pytest.mark.parametrize(
    ("way", "name", "field"),
    [
        ("sent", "oh_event action run", "args.properties.command"),
        ("sent", "oh_event observation run", "success"),
        ("sent", "oh_delta output", "cause"),
        ("taken", "action message", "args.properties.image_urls"),
    ],
)
def test_a_field_that_is_gone_would_be_noticed(way: str, name: str, field: str) -> None:
    stored, changed = {"sent": SENT, "taken": TAKEN}, deepcopy({"sent": SENT, "taken": TAKEN})
    *path, last = ["properties", *field.split(".")]
    place: Any = changed[way][name]
    for part in path:
        place = place[part]
    del place[last]
    shown = field.replace("properties.", "")
    assert list(broken(stored, changed)) == [f"{way} {name}: {shown} is gone"]


def test_a_type_that_is_gone_would_be_noticed_and_a_new_one_is_welcome() -> None:
    fewer = {"sent": {name: SENT[name] for name in list(SENT)[1:]}, "taken": TAKEN}
    assert list(broken({"sent": SENT, "taken": TAKEN}, fewer)) == [f"sent {next(iter(SENT))} is gone"]
    assert list(broken(fewer, {"sent": SENT, "taken": TAKEN})) == []


def frames() -> list[tuple[str, dict[str, Any]]]:
    going_back: list[AnyEvent] = [
        Rewind(id=9, to=3, note="n"),
        Rewind(id=9, to=-1, forked_from="c0"),
        FilesRestored(id=9, cause=3, source="agent"),
        FilesRestored(id=9, cause=3, source="agent", files_of=3),
    ]
    made = [to_wire(event, live=True) for event in [*(event for _, event, _ in CASES), *going_back]]
    found = [*(frame for frame in made if frame is not None), *(json.loads(line) for line in LINES)]
    named = [
        (f"oh_event {family} {frame[family]}", frame)
        for frame in found
        for family in ("action", "observation")
        if family in frame
    ]
    call = ClientCall(7, "ask", {"x": 1}, NOW)
    failure = StatusNotice("STATUS$ERROR", "No water.", "error", start_failed=True)
    return [
        *named,
        ("oh_event status", notice_frames(StatusNotice("STATUS$READY", ""), NOW)[0]),
        ("oh_event error", notice_frames(failure, NOW)[0]),
        ("oh_event status", notice_frames(failure, NOW)[1]),
        ("oh_event error", error_frames("no", NOW)[0]),
        ("oh_event status", error_frames("no", NOW)[1]),
        ("oh_event title", title_frame("c1", "A title")),
        ("oh_event closed", closed_frame()),
        ("oh_resync", resync_frame("unknown_position", latest_event_id=7, start_id=0, end_id=3)),
        ("oh_delta text", delta_frame(TextDelta("r", "x"))),
        ("oh_delta text", delta_frame(TextDelta("r", "x", "reasoning"))),
        ("oh_delta discard", delta_frame(TextDiscarded("r"))),
        ("oh_delta output", delta_frame(OutputDelta(4, "x"))),
        ("oh_tool_call due", client_call_frame(call, 7)),
        ("oh_tool_call due", client_call_frame(ClientCall(7, "ask"), 7)),
        ("oh_tool_call over", client_call_frame(ClientCall(7, "ask", is_over=True), 7)),
    ]


FRAMES = frames()


@pytest.mark.parametrize(("name", "frame"), FRAMES, ids=[f"{name}-{place}" for place, (name, _) in enumerate(FRAMES)])
def test_what_is_sent_is_what_the_snapshot_says(name: str, frame: dict[str, Any]) -> None:
    Draft202012Validator(SENT[name]).validate(frame)


def test_every_type_that_is_sent_is_among_those_looked_at() -> None:
    assert {name for name, _ in FRAMES} == set(SENT)


@pytest.mark.parametrize(
    "line", LINES, ids=lambda line: str(json.loads(line).get("action") or json.loads(line)["observation"])
)
def test_what_the_snapshot_says_is_taken(line: str) -> None:
    shown = json.loads(line)
    sent = {
        key: shown[key] for key in ("action", "args", "observation", "content", "extras", "timeout") if key in shown
    }
    family = "action" if "action" in sent else "observation"
    schema = TAKEN.get(f"{family} {sent[family]}")
    if schema is None:
        with pytest.raises(WireError):
            from_wire(sent)
    else:
        from_wire(sent)
        Draft202012Validator(schema).validate(sent)
