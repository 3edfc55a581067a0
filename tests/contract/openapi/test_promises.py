"""The REST protocol stays what clients were promised: a change that breaks one fails here (docs/protocol.md)."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.contract.openapi.documents import document
from tests.contract.openapi.promises import document_breaks
from tests.contract.snapshots.stored import check_snapshot

PATH = Path(__file__).parents[1] / "snapshots" / "openapi.json"
NEW = "/api/conversations"
ONE = "/api/conversations/{conversation_id}"
PATHS = (NEW, ONE, "/api/settings", "/alive")
"""Those that are changed here: comparing all others, too, each time would take long."""
NULLABLE = {"anyOf": [{"type": "string"}, {"type": "null"}]}
TEAPOT = {"418": {"description": "x"}}
Change = Callable[[dict[str, Any]], object]


def test_no_change_of_the_document_breaks_a_client() -> None:
    now = json.loads(json.dumps(document()))
    now["info"].pop("version")  # it changes with every release, and promises nothing
    check_snapshot(PATH, now, document_breaks)


def changed(change: Change) -> list[str]:
    """What a client of the document as it is stumbles over when it is changed like this."""
    old = {**document(), "paths": {path: document()["paths"][path] for path in PATHS}}
    new = deepcopy(old)
    change(new)
    return list(document_breaks(old, new))


def schema(whole: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = whole["components"]["schemas"][name]
    return found


BREAKS: dict[str, tuple[Change, str]] = {
    "a path is gone": (lambda d: d["paths"].pop(ONE), f"GET {ONE} is gone"),
    "a method is gone": (lambda d: d["paths"][ONE].pop("patch"), f"PATCH {ONE} is gone"),
    "a field of an answer is gone": (
        lambda d: schema(d, "ConversationInfo")["properties"].pop("title"),
        f"GET {ONE}: answer 200: title is gone",
    ),
    "a field of an answer may be left out": (
        lambda d: schema(d, "ConversationInfo")["required"].remove("title"),
        f"GET {ONE}: answer 200: title may now be left out",
    ),
    "a field of an answer has another type": (
        lambda d: schema(d, "ConversationInfo")["properties"].update(title={"type": "integer"}),
        f"GET {ONE}: answer 200: title may now be integer",
    ),
    "a field of an answer may be null": (
        lambda d: schema(d, "SettingsStored")["properties"].update(
            message={"anyOf": [{"type": "string"}, {"type": "null"}]}
        ),
        "POST /api/settings: answer 200: message may now be null",
    ),
    "an answer has another status": (
        lambda d: d["paths"][NEW]["post"]["responses"].update({"201": d["paths"][NEW]["post"]["responses"].pop("200")}),
        f"POST {NEW}: the answer 200 is gone",
    ),
    "an answer has another media type": (
        lambda d: d["paths"][NEW]["get"]["responses"]["200"].update(content={}),
        f"GET {NEW}: the answer 200 is no longer application/json",
    ),
    "a field of a body is no longer taken": (
        lambda d: schema(d, "NewConversation")["properties"].pop("repository"),
        f"POST {NEW}: body: repository is gone",
    ),
    "a field of a body has to be sent": (
        lambda d: schema(d, "NewConversation").update(required=["repository"]),
        f"POST {NEW}: body: repository may no longer be left out",
    ),
    "a new field of a body has to be sent": (
        lambda d: schema(d, "TitleChange").update(required=["title", "why"]),
        f"PATCH {ONE}: body: why is new and has to be sent",
    ),
    "a value of a body is no longer taken": (
        lambda d: schema(d, "SuggestedTask-Input")["properties"]["task_type"]["enum"].remove("OPEN_PR"),
        f"POST {NEW}: body: suggested_task.task_type may no longer be 'OPEN_PR'",
    ),
    "a body has a tighter bound": (
        lambda d: schema(d, "TitleChange")["properties"]["title"].update(maxLength=10),
        f"PATCH {ONE}: body: title has a tighter bound: maxLength 10",
    ),
    "a parameter is gone": (
        lambda d: d["paths"][NEW]["get"].update(parameters=[]),
        f"GET {NEW}: parameter limit is gone",
    ),
    "a parameter has to be sent": (
        lambda d: d["paths"][NEW]["get"]["parameters"][0].update(required=True),
        "may no longer be left out",
    ),
    "a token has to be shown": (
        lambda d: d["paths"]["/alive"]["get"].update(security=[{"Bearer": []}]),
        "GET /alive: it may no longer be asked without a token",
    ),
}


@pytest.mark.parametrize(("change", "problem"), BREAKS.values(), ids=list(BREAKS))
def test_a_break_is_found_and_named(change: Change, problem: str) -> None:
    assert any(problem in found for found in changed(change))


ADDITIONS: dict[str, Change] = {
    "a path": lambda d: d["paths"].update({"/api/new": d["paths"][NEW]}),
    "a field of an answer": lambda d: schema(d, "ConversationInfo")["properties"].update(mood={"type": "string"}),
    "an optional field of a body": lambda d: schema(d, "NewConversation")["properties"].update(mood={"type": "string"}),
    "an optional parameter": lambda d: d["paths"][NEW]["get"]["parameters"].append(
        {"in": "query", "name": "mood", "required": False, "schema": {"type": "string"}}
    ),
    "a wider bound": lambda d: schema(d, "TitleChange")["properties"]["title"].update(maxLength=10_000),
    "an error that was not documented": lambda d: d["paths"][NEW]["get"]["responses"].update(
        {"418": {"description": "x"}}
    ),
    "another description": lambda d: d["paths"][NEW]["get"].update(description="Other words."),
}


@pytest.mark.parametrize("change", ADDITIONS.values(), ids=list(ADDITIONS))
def test_an_addition_is_none(change: Change) -> None:
    assert changed(change) == []
