"""What counts as breaking a client, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.snapshots.compatibility import Schema, Way, breaks


def thing(*required: str, **properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
MAYBE = {"anyOf": [{"type": "string"}, {"type": "null"}]}
CLOSED = {"additionalProperties": False}
REFERRING = {**thing(a={"$ref": "#/$defs/A"}), "$defs": {"A": thing("b", b=STRING)}}
REFERRING_TO_OTHER = {**thing(a={"$ref": "#/$defs/B"}), "$defs": {"B": thing("b", b=INTEGER)}}
ENDLESS = {"$ref": "#/$defs/N", "$defs": {"N": thing(next={"$ref": "#/$defs/N"}, name=STRING)}}
ENDLESS_WITHOUT_NAME = {"$ref": "#/$defs/N", "$defs": {"N": thing(next={"$ref": "#/$defs/N"})}}

SENT: list[tuple[str, Schema, Schema, list[str]]] = [
    ("a new field", thing(a=STRING), thing(a=STRING, b=STRING), []),
    ("a field that is gone", thing(a=STRING, b=STRING), thing(a=STRING), ["b is gone"]),
    ("a field that got another name", thing(a=STRING), thing(b=STRING), ["a is gone"]),
    ("another type", thing(a=STRING), thing(a=INTEGER), ["a may now be integer"]),
    ("null where there was none", thing(a=STRING), thing(a=MAYBE), ["a may now be null"]),
    ("no null any more", thing(a=MAYBE), thing(a=STRING), []),
    ("the same, with a list of types", thing(a=MAYBE), thing(a={"type": ["string", "null"]}), []),
    ("left out at times", thing("a", a=STRING), thing(a=STRING), ["a may now be left out"]),
    ("always there now", thing(a=STRING), thing("a", a=STRING), []),
    ("an integer where numbers were known", thing(a={"type": "number"}), thing(a=INTEGER), []),
    ("a number where integers were known", thing(a=INTEGER), thing(a={"type": "number"}), ["a may now be number"]),
    ("a value that is new", thing(a={"enum": ["x"]}), thing(a={"enum": ["x", "y"]}), ["a may now be 'y'"]),
    ("a value less", thing(a={"enum": ["x", "y"]}), thing(a={"const": "x"}), []),
    ("any text", thing(a={"enum": ["x"]}), thing(a=STRING), ["a was one of a list of values"]),
    ("deep in a list", thing(a={"items": thing(b=STRING)}), thing(a={"items": thing()}), ["a[].b is gone"]),
    ("anything", thing(a=STRING), thing(a={}), ["a may now be anything"]),
    ("something definite", thing(a={}), thing(a=STRING), []),
    ("through references", REFERRING, REFERRING_TO_OTHER, ["a.b may now be integer"]),
    ("in a map", {"additionalProperties": INTEGER}, {"additionalProperties": STRING}, [".* may now be string"]),
    ("parts put together", {"allOf": [thing(a=STRING), thing(b=STRING)]}, thing(a=STRING), ["b is gone"]),
    ("a bound", thing(a=INTEGER), thing(a={"type": "integer", "maximum": 5}), []),
    ("a text about it", thing(a=STRING), thing(a={"type": "string", "title": "A", "description": "x"}), []),
]

TAKEN: list[tuple[str, Schema, Schema, list[str]]] = [
    ("a new optional field", thing(a=STRING), thing(a=STRING, b=STRING), []),
    ("a new field that is required", thing(a=STRING), thing("b", a=STRING, b=STRING), ["b is new and has to be sent"]),
    ("required from now on", thing(a=STRING), thing("a", a=STRING), ["a may no longer be left out"]),
    ("no longer required", thing("a", a=STRING), thing(a=STRING), []),
    ("a field that is gone", thing(a=STRING), thing(), ["a is gone"]),
    ("null was taken", thing(a=MAYBE), thing(a=STRING), ["a may no longer be null"]),
    ("null is taken", thing(a=STRING), thing(a=MAYBE), []),
    ("another type", thing(a=STRING), thing(a=INTEGER), ["a may no longer be string"]),
    ("more values", thing(a={"enum": ["x"]}), thing(a={"enum": ["x", "y"]}), []),
    ("fewer values", thing(a={"enum": ["x", "y"]}), thing(a={"enum": ["x"]}), ["a may no longer be 'y'"]),
    ("a list of values", thing(a=STRING), thing(a={"enum": ["x"]}), ["a is now one of a list of values"]),
    ("a bound", thing(a=INTEGER), thing(a={"type": "integer", "maximum": 5}), ["a has a tighter bound: maximum 5"]),
    (
        "a tighter bound",
        {"type": "string", "minLength": 1},
        {"type": "string", "minLength": 2},
        ["it has a tighter bound: minLength 2"],
    ),
    ("a wider bound", {"type": "integer", "maximum": 5}, {"type": "integer", "maximum": 6}, []),
    ("a pattern", STRING, {"type": "string", "pattern": "x"}, ["it has to be of the pattern x"]),
    ("unknown fields", thing(), {**thing(), **CLOSED}, ["it takes no other fields any more"]),
    ("another default", thing(a={"default": 1}), thing(a={"default": 2}), ["a has another default"]),
    ("endless", ENDLESS, ENDLESS, []),
]


@pytest.mark.parametrize(("old", "new", "found"), [row[1:] for row in SENT], ids=[row[0] for row in SENT])
def test_what_is_sent_may_grow_but_keeps_what_was_relied_on(old: Schema, new: Schema, found: list[str]) -> None:
    assert breaks(old, new, "sent") == found


@pytest.mark.parametrize(("old", "new", "found"), [row[1:] for row in TAKEN], ids=[row[0] for row in TAKEN])
def test_what_is_taken_may_grow_but_whatever_was_taken_still_is(old: Schema, new: Schema, found: list[str]) -> None:
    assert breaks(old, new, "taken") == found


@pytest.mark.parametrize("way", ["sent", "taken"])
@pytest.mark.parametrize("schema", [row[1] for row in [*SENT, *TAKEN]], ids=range(len(SENT) + len(TAKEN)))
def test_nothing_breaks_where_nothing_has_changed(schema: Schema, way: Way) -> None:
    assert breaks(schema, schema, way) == []


def test_a_schema_that_refers_to_itself_is_compared_to_a_depth() -> None:
    assert breaks(ENDLESS, ENDLESS_WITHOUT_NAME, "sent")[0] == "name is gone"


def test_a_part_of_a_document_is_compared_within_that_document() -> None:
    part = {"$ref": "#/$defs/A"}
    after = {"$defs": {"A": thing(b=STRING)}}
    assert breaks(part, part, "sent", roots=(REFERRING, after)) == ["b may now be left out"]
