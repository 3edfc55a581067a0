"""The public types, by the protocol's own examples: one line of JSON each, compared whole and in order of keys."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent_core.events.control import ForeignEvent
from server.wire.envelope import to_wire
from server.wire.fields import ACTIONS, OBSERVATIONS

HERE = Path(__file__).parent
TIME = datetime(2025, 11, 15, 9, 43, 21, 123456, tzinfo=UTC)


def examples(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


ACTION_EXAMPLES = examples("actions.jsonl")
OBSERVATION_EXAMPLES = examples("observations.jsonl")


def test_every_public_type_has_an_example() -> None:
    assert {example["action"] for example in ACTION_EXAMPLES} == set(ACTIONS) - {"null"}
    assert {example["observation"] for example in OBSERVATION_EXAMPLES} == set(OBSERVATIONS) - {"null"}


@pytest.mark.parametrize("example", ACTION_EXAMPLES, ids=lambda e: f"{e['action']}-{e['id']}")
def test_an_action_keeps_its_public_form(example: dict[str, Any]) -> None:
    public = {key: value for key, value in example.items() if key not in ("tool_call_metadata", "llm_metrics")}
    payload = {"args": public["args"]} | ({"timeout": public["timeout"]} if "timeout" in public else {})
    event = ForeignEvent(
        id=public["id"], timestamp=TIME, source=public["source"], name=public["action"], is_action=True, payload=payload
    )
    if public["action"] == "recall":
        assert to_wire(event, live=False) is None
    assert json.dumps(to_wire(event, live=True)) == json.dumps(public)


@pytest.mark.parametrize("example", OBSERVATION_EXAMPLES, ids=lambda e: e["observation"])
def test_an_observation_keeps_its_public_form(example: dict[str, Any]) -> None:
    event = ForeignEvent(
        id=example["id"],
        timestamp=TIME,
        source=example["source"],
        cause=example.get("cause"),
        name=example["observation"],
        is_action=False,
        payload={"content": example["content"], "extras": example["extras"]},
    )
    assert json.dumps(to_wire(event, live=False)) == json.dumps(example)


@pytest.mark.parametrize("example", ACTION_EXAMPLES, ids=lambda e: f"{e['action']}-{e['id']}")
def test_args_have_the_order_of_the_examples(example: dict[str, Any]) -> None:
    model = ACTIONS[example["action"]]
    assert list(model.model_validate(example["args"]).model_dump()) == list(example["args"])


@pytest.mark.parametrize("example", OBSERVATION_EXAMPLES, ids=lambda e: e["observation"])
def test_extras_have_the_order_of_the_examples(example: dict[str, Any]) -> None:
    model = OBSERVATIONS[example["observation"]]
    extras = model.model_validate(example["extras"]).model_dump(by_alias=True)
    assert json.dumps(extras) == json.dumps(example["extras"])


@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        ("finish", {"final_thought": "", "outputs": {}, "thought": "Bye"}, "Bye"),
        ("reject", {"outputs": {}, "thought": ""}, "Task is rejected by the agent."),
        (
            "recall",
            {"recall_type": "knowledge", "query": "x" * 60, "thought": ""},
            f"Retrieving content for: {'x' * 50}",
        ),
        (
            "condensation",
            {"forgotten_event_ids": [1, 2], "summary": None, "summary_offset": None},
            "Condenser is dropping the events: [1, 2].",
        ),
        (
            "condensation",
            {
                "forgotten_event_ids": None,
                "forgotten_events_start_id": 3,
                "forgotten_events_end_id": 9,
                "summary": None,
            },
            "Condenser is dropping the events: [3..9].",
        ),
        ("task_tracking", {"command": "plan", "task_list": [], "thought": ""}, "Clearing the task list."),
        ("task_tracking", {"command": "plan", "task_list": [{}, {}], "thought": ""}, "Managing 2 task items."),
        ("something_new", {"a": 1}, ""),
        ("run", {"no": "command"}, ""),
    ],
)
def test_action_texts_beyond_the_examples(name: str, args: dict[str, Any], text: str) -> None:
    event = ForeignEvent(timestamp=TIME, source="agent", name=name, is_action=True, payload={"args": args})
    frame = to_wire(event, live=True)
    assert frame is not None
    assert frame["message"] == text


def test_null_events_are_never_sent() -> None:
    action = ForeignEvent(source="user", name="null", is_action=True, payload={"args": {}})
    observation = ForeignEvent(source="agent", name="null", is_action=False, payload={"content": "", "extras": {}})
    assert [to_wire(event, live=live) for event in (action, observation) for live in (True, False)] == [None] * 4
