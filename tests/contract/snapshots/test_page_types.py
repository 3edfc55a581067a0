"""The page's types of the protocol are those that are promised."""

from __future__ import annotations

import pytest

from scripts.page_types import event_types, rest_types, stale


def test_the_page_has_the_types_of_the_snapshots() -> None:
    assert stale() == [], "type: make page-types"


def test_schemas_become_types_that_say_what_is_optional_null_and_one_of_several() -> None:
    thing = {
        "type": "object",
        "description": "A thing.\n\nMore.",
        "required": ["id", "kind", "parts"],
        "properties": {
            "id": {"type": "integer"},
            "kind": {"enum": ["a", "b"]},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "parts": {
                "type": "array",
                "items": {"anyOf": [{"$ref": "#/components/schemas/Part-Output"}, {"const": 1}]},
            },
            "facts": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "anything": {},
        },
    }
    reply = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}}
    api = {
        "components": {"schemas": {"Thing": thing}},
        "paths": {"/t": {"get": {"responses": {"200": reply, "404": {}}}}},
    }
    assert rest_types(api).partition("\n\n")[2] == (
        "/** A thing. */\n"
        "export interface Thing {\n"
        "  readonly id: number;\n"
        '  readonly kind: "a" | "b";\n'
        "  readonly note?: string | null;\n"
        "  readonly parts: readonly (PartOutput | 1)[];\n"
        "  readonly facts?: Readonly<Record<string, boolean>>;\n"
        "  readonly anything?: unknown;\n"
        "}\n\n"
        "export interface Routes {\n"
        '  readonly "GET /t": { readonly body: undefined; readonly reply: Thing };\n'
        "}\n"
    )


@pytest.mark.parametrize("fields", [1, 3])
def test_what_several_events_have_in_common_gets_a_name_when_it_is_worth_one(fields: int) -> None:
    costs = {"type": "object", "properties": {f"f{n}": {"type": "number"} for n in range(fields)}}
    event = {"type": "object", "properties": {"costs": costs}}
    written = event_types({"sent": {"oh_event action run": event, "oh_event observation run": event}, "taken": {}})
    assert written.count("readonly costs?: Costs;") == (2 if fields == 3 else 0)
    assert "export interface RunAction {" in written
    assert "export type AnyObservation =\n  | RunObservation;\n" in written
