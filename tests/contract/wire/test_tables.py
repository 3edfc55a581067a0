"""Each row of the protocol's tables of event types holds here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agent_core.events.control import ForeignEvent
from server.wire.envelope import to_wire
from server.wire.errors import WireError
from server.wire.fields import ACTIONS, ADDITIONS, OBSERVATIONS, Fields, RunMetadata
from server.wire.incoming import from_wire
from tests.contract.wire.tables import (
    ACTION_ROWS,
    ACTION_TEXTS,
    ACTION_TYPES,
    METADATA_ROWS,
    NEVER_ACTIONS,
    NEVER_OBSERVATIONS,
    OBSERVATION_ROWS,
    OBSERVATION_TEXTS,
    OBSERVATION_TYPES,
    REQUIRED,
    Row,
)

OUR_OBSERVATION_FIELDS = {("read", "image_urls"), ("agent_state_changed", "detail"), ("error", "sign_in")}
"""Additions of ours; they are left out where there is nothing to say."""
TIME = datetime(2025, 11, 15, 9, 43, 21, 123456, tzinfo=UTC)


def row_id(row: Row) -> str:
    return f"{row.type}.{row.field}"


def written(schema: dict[str, Any], root: dict[str, Any]) -> str | list[Any]:
    """A JSON schema's type as the tables write it."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        kinds = [str(written(one, root)) for one in schema["anyOf"]]
        return "|".join(kinds)
    if "enum" in schema:
        return list(schema["enum"])
    if schema.get("type") == "array":
        return f"{written(schema['items'], root)}[]"
    names = {"string": "str", "integer": "int", "boolean": "bool"}
    return names.get(schema["type"], str(schema["type"]))


def check(row: Row, model: type[Fields]) -> None:
    schema = model.model_json_schema(by_alias=True)
    found = schema["properties"][row.field]
    assert written(found, schema) == row.kind
    required = row.field in schema.get("required", [])
    (field,) = [field for name, field in model.model_fields.items() if row.field in (name, field.alias)]
    if row.default is REQUIRED and row.field != "metadata":
        assert required
    else:
        assert not required
        if row.default is not REQUIRED:
            assert field.get_default(call_default_factory=True) == row.default


def test_there_are_these_types_and_no_others() -> None:
    assert sorted(ACTIONS) == sorted(ACTION_TYPES)
    assert len(ACTION_TYPES) == 21
    assert sorted(OBSERVATIONS) == sorted(OBSERVATION_TYPES)
    assert len(OBSERVATION_TYPES) == 19
    assert not set(ADDITIONS) & {*ACTION_TYPES, *NEVER_ACTIONS}


@pytest.mark.parametrize("row", ACTION_ROWS, ids=row_id)
def test_an_actions_field_has_its_type_and_default(row: Row) -> None:
    check(row, ACTIONS[row.type])


@pytest.mark.parametrize("row", OBSERVATION_ROWS, ids=row_id)
def test_an_observations_field_has_its_type_and_default(row: Row) -> None:
    check(row, OBSERVATIONS[row.type])


@pytest.mark.parametrize("row", METADATA_ROWS, ids=row_id)
def test_a_commands_metadata_have_their_types_and_defaults(row: Row) -> None:
    check(row, RunMetadata)


@pytest.mark.parametrize("name", ACTION_TYPES)
def test_an_action_has_the_fields_of_its_row_in_their_order(name: str) -> None:
    shown = [key for key, field in ACTIONS[name].model_fields.items() if not field.exclude]
    assert shown == [row.field for row in ACTION_ROWS if row.type == name]


@pytest.mark.parametrize("name", OBSERVATION_TYPES)
def test_an_observation_has_the_fields_of_its_row_in_their_order(name: str) -> None:
    fields = [field.alias or key for key, field in OBSERVATIONS[name].model_fields.items()]
    known = [key for key in fields if (name, key) not in OUR_OBSERVATION_FIELDS]
    assert known == [row.field for row in OBSERVATION_ROWS if row.type == name]


def filled(model: type[Fields], given: dict[str, Any]) -> dict[str, Any]:
    return model.model_validate(given).model_dump(by_alias=True)


@pytest.mark.parametrize(
    ("name", "args", "text"), ACTION_TEXTS, ids=[f"{row[0]}-{row[2][:20]}" for row in ACTION_TEXTS]
)
def test_an_action_says_its_line(name: str, args: dict[str, Any], text: str) -> None:
    payload = {"args": filled(ACTIONS[name], args)}
    frame = to_wire(
        ForeignEvent(id=3, timestamp=TIME, source="agent", name=name, is_action=True, payload=payload), live=True
    )
    assert frame == {
        "id": 3,
        "timestamp": "2025-11-15T09:43:21.123456Z",
        "source": "agent",
        "message": text,
        "action": name,
        **payload,
    }


@pytest.mark.parametrize(
    ("name", "extras", "text"), OBSERVATION_TEXTS, ids=[f"{row[0]}-{row[2][:20]}" for row in OBSERVATION_TEXTS]
)
def test_an_observation_says_its_line(name: str, extras: dict[str, Any], text: str) -> None:
    payload = {"content": "CONTENT", "extras": filled(OBSERVATIONS[name], extras)}
    event = ForeignEvent(id=4, timestamp=TIME, source="agent", cause=2, name=name, is_action=False, payload=payload)
    frame = to_wire(event, live=True)
    success = {"run": {"success": False}, "run_ipython": {"success": True}}.get(name, {})
    assert frame == {
        "id": 4,
        "timestamp": "2025-11-15T09:43:21.123456Z",
        "source": "agent",
        "message": text,
        "cause": 2,
        "observation": name,
        **payload,
        **success,
    }


def test_every_type_that_is_sent_has_its_line_in_these_tables() -> None:
    assert {row[0] for row in ACTION_TEXTS} == set(ACTION_TYPES) - {"null"}
    assert {row[0] for row in OBSERVATION_TEXTS} == set(OBSERVATION_TYPES) - {"null"}


@pytest.mark.parametrize("name", NEVER_ACTIONS)
def test_names_without_a_meaning_are_no_actions(name: str) -> None:
    with pytest.raises(WireError, match=f"^action '{name}' is unknown; send one of "):
        from_wire({"action": name, "args": {}})


@pytest.mark.parametrize("name", NEVER_OBSERVATIONS)
def test_names_without_a_meaning_are_no_observations(name: str) -> None:
    with pytest.raises(WireError, match=f"^observation '{name}' is unknown; send one of "):
        from_wire({"observation": name, "content": ""})
