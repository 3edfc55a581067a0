"""The OpenAPI document says of every route what it takes and what it answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from server.http.gate import API_PREFIXES
from tests.contract.openapi.documents import Operation, document, operations, resolved

OPERATIONS = operations()
every_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=[one.name for one in OPERATIONS])
SAYS_NOTHING: tuple[dict[str, Any], ...] = ({}, {"type": "object", "additionalProperties": True})


def schemas_of(operation: Operation) -> Iterator[tuple[str, Any]]:
    """Where a schema is, and the schema: of all that it takes and answers."""
    for parameter in operation.spec.get("parameters", []):
        yield parameter["name"], parameter["schema"]
    for media_type, content in operation.spec.get("requestBody", {}).get("content", {}).items():
        yield f"body {media_type}", content["schema"]
    for status, response in operation.spec["responses"].items():
        for media_type, content in response.get("content", {}).items():
            yield f"{status} {media_type}", content["schema"]


@every_operation
def test_an_operation_is_described(operation: Operation) -> None:
    assert operation.spec["summary"]
    assert operation.spec["description"]
    assert len(operation.spec["tags"]) == 1
    assert re.fullmatch(r"[a-z][a-z_]+", operation.spec["operationId"])
    assert all(response["description"] for response in operation.spec["responses"].values())


def test_the_names_of_operations_are_different() -> None:
    counted = Counter(one.spec["operationId"] for one in OPERATIONS)
    assert [name for name, times in counted.items() if times > 1] == []


@every_operation
def test_every_schema_says_something(operation: Operation) -> None:
    for place, schema in schemas_of(operation):
        facts = {key: value for key, value in resolved(schema).items() if key not in ("title", "description")}
        assert facts not in SAYS_NOTHING, f"{place}: any value is allowed"


@every_operation
def test_the_common_errors_are_documented(operation: Operation) -> None:
    statuses = set(operation.spec["responses"])
    assert {"403", "500"} <= statuses
    is_guarded = operation.path.startswith(API_PREFIXES)
    assert ({"401", "429"} <= statuses) == is_guarded
    assert ("security" in operation.spec) == is_guarded
    if "requestBody" in operation.spec:
        assert "413" in statuses
    if "{conversation_id}" in operation.path:
        assert "400" in statuses
    form = "OpenAIError" if operation.path.startswith("/v1/") else "ErrorReply"
    for status in statuses & {"403", "413", "429"}:
        schema = operation.spec["responses"][status]["content"]["application/json"]["schema"]
        assert schema["$ref"].rpartition("/")[2] == form


@every_operation
def test_the_text_and_the_numbers_of_a_query_are_bounded(operation: Operation) -> None:
    for parameter in operation.parameters("query"):
        for one in alternatives(parameter["schema"]):
            if one.get("type") == "string" and not {"enum", "const", "format"} & one.keys():
                assert "maxLength" in one or "pattern" in one, parameter["name"]
            if one.get("type") == "integer":
                assert {"minimum", "maximum"} <= one.keys(), parameter["name"]


def alternatives(schema: Any) -> list[Mapping[str, Any]]:
    whole = resolved(schema)
    return [resolved(one) for one in whole.get("anyOf", [whole])]


def test_nothing_is_left_of_the_forms_that_are_not_ours() -> None:
    assert not {"HTTPValidationError", "ValidationError"} & document()["components"]["schemas"].keys()
    assert "HTTPValidationError" not in str(document()["paths"])
