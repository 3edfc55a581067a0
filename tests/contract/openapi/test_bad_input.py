"""Bad input on every route of the document: each is refused with a 4xx that names what is wrong, and nothing hangs.

A new route is tested as soon as it is in the document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from server.http.gate import API_PREFIXES
from tests.contract.openapi.documents import Operation, operations, resolved
from tests.contract.openapi.served import CONVERSATION, TOKEN, Served, serving

OPERATIONS = operations()
SECONDS = 60.0
DEEP = 10_000
JSON = {"Content-Type": "application/json"}
ALMOST = {"integer": "7", "number": "7", "boolean": "true"}
"""Texts that a lenient reader would convert."""

BASES: dict[str, dict[str, Any]] = {"/v1/chat/completions": {"model": "drydock", "messages": [{"role": "user"}]}}
"""What is right in a body, where an answer has room for one problem only."""


def each(found: list[Operation]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("operation", found, ids=[one.name for one in found])


class Answer(NamedTuple):
    status: int
    text: str

    @property
    def places(self) -> list[list[Any]]:
        """Where the problems are, where the answer lists them."""
        detail = json.loads(self.text).get("detail")
        return [one["loc"] for one in detail] if isinstance(detail, list) else []


class Client:
    """Sends what clients would not send: addresses and bodies as they are given."""

    def __init__(self, served: Served) -> None:
        self._address = urlsplit(served.url).netloc
        self._there = served.there

    def target(self, operation: Operation, **values: str) -> str:
        """The operation's address, with things that are there."""
        target = operation.path
        for parameter in operation.parameters("path"):
            name = parameter["name"]
            target = target.replace(f"{{{name}}}", values.get(name) or self._there.get(name, "x"))
        return target

    def send(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None, token: str = TOKEN
    ) -> Answer:
        connection = HTTPConnection(self._address, timeout=SECONDS)
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
            sent = {"X-Session-API-Key": token, "Content-Length": str(len(body))} | dict(headers or {})
            for name, value in sent.items():
                if value:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            response: HTTPResponse = connection.getresponse()
            return Answer(response.status, response.read().decode("utf-8"))
        finally:
            connection.close()

    def send_json(self, operation: Operation, body: bytes, headers: Mapping[str, str] = JSON) -> Answer:
        return self.send(operation.method, self.target(operation), body, headers)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(tmp_path_factory.mktemp("served")) as served:
        served.prepare()
        yield Client(served)


def is_refused(answer: Answer) -> bool:
    return 400 <= answer.status < 500 and bool(json.loads(answer.text))


def alternatives(schema: Any) -> list[Mapping[str, Any]]:
    whole = resolved(schema)
    return [resolved(one) for one in whole.get("anyOf", [whole])]


def object_of(operation: Operation) -> Mapping[str, Any]:
    """The schema of a body, where it is an object."""
    schema = operation.spec["requestBody"]["content"]["application/json"]["schema"]
    return next((one for one in alternatives(schema) if one.get("type") == "object"), {})


def wrong_value(schema: Any) -> Any:
    """A value that the schema does not allow, by its type; None where any type is allowed."""
    types = {one.get("type") for one in alternatives(schema)}
    if None in types or not types:
        return None
    if "string" not in types and (converted := [ALMOST[kind] for kind in ALMOST if kind in types]):
        return converted[0]
    for kind, value in (("integer", 5), ("array", [[5]]), ("object", {"a": [1]}), ("boolean", True)):
        if kind not in types and not (kind == "integer" and "number" in types):
            return value
    return None


TAKES_JSON = [one for one in OPERATIONS if one.takes_json]
IS_TYPED = [one for one in TAKES_JSON if "oneOf" not in object_of(one)]
"""Those whose body has one form; that of an event depends on its type (tests of `server.wire.incoming`)."""

NO_JSON: dict[str, tuple[bytes, str]] = {
    "cut off": (b'{"a": ', "JSON"),
    "no JSON": (b"a=1&b=2", "JSON"),
    "no UTF-8": (b'{"a": "\xff\xfe"}', "JSON"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "JSON"),
    "NaN": (b'{"a": NaN}', "a"),
    "an infinite number": (b'{"a": 1e999}', "a"),
    "a huge integer": (b'{"a": 1' + b"0" * 300 + b"}", "a"),
    "an integer that loses digits": (b'{"a": 9007199254740993}', "a"),
    "NUL": (b'{"a": "b\\u0000c"}', "a"),
    "NUL in a name": (b'{"a\\u0000": 1}', "NUL"),
    "half a character": (b'{"a": "\\ud800"}', "a"),
    "a name twice": (b'{"a": 1, "a": 2}', "a is given twice"),
    "deep lists": (b"[" * DEEP + b"]" * DEEP, ""),
    "deep objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, ""),
    "deep in a field": (b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}", ""),
    "deep and open": (b"[" * DEEP, ""),
}


@each(TAKES_JSON)
def test_a_body_that_is_no_sane_json_is_refused_in_words(client: Client, operation: Operation) -> None:
    for name, (body, word) in NO_JSON.items():
        answer = client.send_json(operation, body)
        assert is_refused(answer), (name, answer)
        assert word in answer.text, (name, answer)


@each(TAKES_JSON)
def test_a_body_of_another_form_is_refused(client: Client, operation: Operation) -> None:
    taken = {
        one.get("type") for one in alternatives(operation.spec["requestBody"]["content"]["application/json"]["schema"])
    }
    for kind, value in {"array": [5], "string": "a", "integer": 5, "boolean": True}.items():
        if kind not in taken or kind == "array":
            answer = client.send_json(operation, json.dumps(value).encode())
            assert is_refused(answer), (kind, answer)
    if operation.spec["requestBody"].get("required"):
        assert is_refused(client.send_json(operation, b""))
        assert is_refused(client.send_json(operation, b"null"))


@each(TAKES_JSON)
def test_a_body_under_another_content_type_is_told_the_right_one(client: Client, operation: Operation) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "/", ""):
        answer = client.send_json(operation, b'{"a": 1}', {"Content-Type": content_type})
        assert is_refused(answer), (content_type, answer)
        assert "application/json" in answer.text


@each(IS_TYPED)
def test_each_field_of_a_wrong_type_is_named(client: Client, operation: Operation) -> None:
    for name, schema in object_of(operation).get("properties", {}).items():
        value = wrong_value(schema)
        if value is None:
            continue
        answer = client.send_json(operation, json.dumps(BASES.get(operation.path, {}) | {name: value}).encode())
        assert is_refused(answer), (name, value, answer)
        assert name in answer.text, (name, value, answer)


@each(IS_TYPED)
def test_each_field_that_is_missing_or_unknown_is_named(client: Client, operation: Operation) -> None:
    schema = object_of(operation)
    if not schema.get("required") and schema.get("additionalProperties") is not False:
        return
    answer = client.send_json(operation, b'{"no_such_field": 1}')
    assert is_refused(answer), answer
    if operation.path in BASES:
        assert schema["required"][0] in answer.text
        return
    named = {place[-1] for place in answer.places} or {name for name in schema["properties"] if name in answer.text}
    assert set(schema.get("required", ())) <= named
    if schema.get("additionalProperties") is False:
        assert "no_such_field" in answer.text


@each([one for one in OPERATIONS if one.method != "GET"])
def test_a_body_over_the_limit_is_too_large(client: Client, operation: Operation) -> None:
    answer = client.send(operation.method, client.target(operation), b"", {"Content-Length": str(2**40), **JSON})
    assert answer.status == 413
    assert "max_request_bytes" in answer.text or "max_upload_bytes" in answer.text


QUERIES = [(one, parameter) for one in OPERATIONS for parameter in one.parameters("query")]


@pytest.mark.parametrize(("operation", "parameter"), QUERIES, ids=[f"{one.name} {p['name']}" for one, p in QUERIES])
def test_a_bad_value_in_a_query_is_refused_and_named(
    client: Client, operation: Operation, parameter: Mapping[str, Any]
) -> None:
    name = parameter["name"]
    for raw in bad_values(parameter["schema"]):
        others = [
            f"{other['name']}=x"
            for other in operation.parameters("query")
            if other.get("required") and other != parameter
        ]
        answer = client.send(operation.method, f"{client.target(operation)}?{'&'.join([f'{name}={raw}', *others])}")
        assert is_refused(answer), (raw, answer)
        assert name in answer.text.lower(), (raw, answer)
    if parameter.get("required"):
        answer = client.send(operation.method, client.target(operation))
        assert (answer.status, name in answer.text) == (422, True)


def bad_values(schema: Any) -> Iterator[str]:
    """As they stand in an address: of another type, out of bounds, and no text at all."""
    yield from ("%00", "a%00b", "%FF", "%ED%A0%80", "%C0%AE")
    for one in alternatives(schema):
        if "enum" in one or "const" in one:
            yield from ("nonesuch", "")
        elif one.get("type") in ("integer", "number"):
            yield from ("", "one", "1.5", "NaN", "1e999", "9" * 5000, "0x10", "%F0%9F%98%80")
            yield from (str(one[bound] + step) for bound, step in (("minimum", -1), ("maximum", 1)) if bound in one)
        elif one.get("type") == "boolean":
            yield from ("", "maybe", "2")
        elif one.get("type") == "string" and "maxLength" in one:
            yield "a" * (one["maxLength"] + 1)


IDS = [one for one in OPERATIONS if one.parameters("path")]
NO_TEXT = ("%00", "a%00b", "%FF", "%ED%A0%80")
BAD_IDS = ("a" * 5000, "a%0Ab", "%01", "..%2f..%2fetc", "%2e%2e%5c", "%5c")


@each(IDS)
def test_a_bad_id_in_a_path_is_refused(client: Client, operation: Operation) -> None:
    for parameter in operation.parameters("path"):
        for raw in NO_TEXT if parameter["name"] == "path" else (*NO_TEXT, *BAD_IDS):
            answer = client.send(operation.method, client.target(operation, **{parameter["name"]: raw}), b"{}", JSON)
            assert is_refused(answer), (raw, answer)


@each([one for one in IDS if "{conversation_id}" in one.path])
def test_a_conversation_id_that_can_be_none_is_told_why(client: Client, operation: Operation) -> None:
    reasons = {"%00": "invalid characters", "a" * 101: "too long", "a%5cb": "path characters", "a%0Ab": "control"}
    for raw, reason in reasons.items():
        answer = client.send(operation.method, client.target(operation, conversation_id=raw), b"{}", JSON)
        assert answer.status == 400, (raw, answer)
        assert reason in json.loads(answer.text)["detail"]


@each([one for one in OPERATIONS if one.path.startswith(API_PREFIXES)])
def test_without_the_token_every_route_answers_401(client: Client, operation: Operation) -> None:
    for token in ("", "wrong", TOKEN[:-1], f"{TOKEN}x"):
        answer = client.send(operation.method, client.target(operation), b"{}", JSON, token=token)
        assert answer.status == 401
        assert "Unauthorized" in answer.text


def test_the_server_still_works(client: Client) -> None:
    assert client.send("GET", f"/api/conversations/{CONVERSATION}/files").status == 200
