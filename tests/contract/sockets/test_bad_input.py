"""Bad input in each field of each type of message: answered with the field and the fix, and the connection stays.

The fields and their types come from the schemas of what is taken, so a new type or field is tried as well.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection

from server.sockets.connections import SocketLimits
from server.wire.errors import WireError
from server.wire.incoming import from_wire
from server.wire.json_data import read_json
from tests.contract.snapshots.event_schemas import REFUSED, taken_schemas
from tests.contract.sockets.loopback import LIMIT, serving, until

TAKEN = taken_schemas()
FIXES = re.compile(r"; |should be|should have|should match|should contain|needs |is none of|is not base64|valid ")
"""A refusal says what to do, or how it should be."""
OF_EACH_TYPE: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "integer": 7,
    "number": 1.5,
    "string": "text",
    "array": [1],
    "object": {"a": 1},
}
RAW = {"HALF": '"a\\ud800b"', "NAN": "NaN", "INFINITE": "-Infinity", "HUGE": "1e999", "LONG": "9" * 300}
"""What Python's own `json` would not write."""
EXAMPLES: dict[str, dict[str, Any]] = {
    "action message": {"content": "hi"},
    "action system": {"content": "x"},
    "action run": {"command": "ls"},
    "action run_ipython": {"code": "1"},
    "action read": {"path": "/a"},
    "action write": {"path": "/a", "content": "x"},
    "action edit": {"path": "/a", "command": "view"},
    "action browse": {"url": "http://localhost/"},
    "action browse_interactive": {"browser_actions": "noop()"},
    "action recall": {"recall_type": "knowledge"},
    "action change_agent_state": {"agent_state": "paused"},
    "action condensation": {"forgotten_event_ids": [1]},
    "action rewind": {"to": 3},
    "action client_tool_result": {"call_id": 3, "content": "x"},
    "observation run": {"command": "ls"},
    "observation run_ipython": {"code": "1"},
    "observation browse": {"url": "http://localhost/", "trigger_by_action": "browse"},
    "observation read": {"path": "/a"},
    "observation write": {"path": "/a"},
    "observation recall": {"recall_type": "knowledge"},
    "observation download": {"file_path": "/a"},
}


def good(name: str) -> dict[str, Any]:
    """A message of this type that is taken."""
    family, _, kind = name.partition(" ")
    fields = deepcopy(EXAMPLES.get(name, {}))
    if family == "action":
        return {"action": kind, "args": fields}
    return {"observation": kind, "content": "x", "extras": fields}


def types_of(schema: Any) -> set[str]:
    if "anyOf" in schema or "oneOf" in schema:
        return {kind for one in schema.get("anyOf", schema.get("oneOf")) for kind in types_of(one)}
    if "type" in schema:
        return {schema["type"], *(["integer"] if schema["type"] == "number" else [])}
    return {"integer" if isinstance(value, int) else "string" for value in schema.get("enum", [schema.get("const")])}


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def bad_messages(name: str) -> Iterator[tuple[str, Any]]:
    """Messages of the type that are refused, each with the place that the refusal has to name."""
    where = "args" if name.startswith("action") else "extras"
    for kind in ("null", "boolean", "integer", "string", "array"):
        yield where, {**good(name), where: OF_EACH_TYPE[kind]}
    yield f"{where}.colour", _with(name, where, "colour", "red")
    yield where, _with(name, where, "a\0b", 1)
    yield f"{where}.colour", _with(name, where, "colour", deep(70))
    properties = TAKEN[name]["properties"][where].get("properties", {})
    for field, schema in properties.items():
        place = f"{where}.{field}"
        if field in TAKEN[name]["properties"][where].get("required", []):
            yield place, {**good(name), where: {k: v for k, v in good(name)[where].items() if k != field}}
        for value in ("a\0b", 2**60, deep(70), "HALF", "NAN", "INFINITE", "HUGE"):
            yield place, _with(name, where, field, value)
        if field == "security_risk":  # the protocol drops one that is none
            continue
        yield place, _with(name, where, field, "LONG")
        known = types_of(schema)
        for kind, value in OF_EACH_TYPE.items():
            if kind not in known:
                yield place, _with(name, where, field, value)
        if "enum" in schema:
            yield place, _with(name, where, field, "sideways" if known == {"string"} else 99)
    if name.startswith("action"):
        for value in ("5", True, 0, -1, 10**6, [5], "NAN"):
            yield "timeout", {**good(name), "timeout": value}
    elif not name.endswith(" null"):
        yield "content", {key: value for key, value in good(name).items() if key != "content"}
        for value in (None, 5, ["x"], "a\0b", "HALF"):
            yield "content", {**good(name), "content": value}
        for value in (-1, "5", 1.5, True, [1]):
            yield "cause", {**good(name), "cause": value}
    for value in (0, 5, "x", [], True):
        yield "id", {**good(name), "id": value}
    for value in ("", "a b", 5, ["k"], "x" * 256):
        yield "idempotency_key", {**good(name), "idempotency_key": value}


def _with(name: str, where: str, field: str, value: Any) -> dict[str, Any]:
    message = good(name)
    message[where][field] = value
    return message


def written(message: Any) -> str:
    text = json.dumps(message)
    for word, raw in RAW.items():
        text = text.replace(f'"{word}"', raw)
    return text


async def answers(socket: ClientConnection, texts: list[str]) -> list[dict[str, Any]]:
    """What comes back as acknowledgement for each message, in the order in which they were sent."""
    found: list[dict[str, Any]] = []
    errors: list[str] = []
    async with asyncio.timeout(30):
        for number, text in enumerate(texts):
            await socket.send(f'42{number}["oh_user_action",{text}]')
            while len(found) <= number:
                packet = str(await socket.recv())
                if packet.startswith("43"):
                    acknowledged, _, body = packet[2:].partition("[")
                    assert acknowledged == str(number)
                    found.append(json.loads(f"[{body}")[0])
                elif packet.startswith("42") and (frame := json.loads(packet[2:])[1]).get("error"):
                    errors.append(frame["message"])
    assert errors == [answer["error"] for answer in found if not answer["success"]]
    return found


@pytest.mark.parametrize("name", TAKEN)
async def test_bad_input_is_answered_with_its_place_and_the_fix_and_the_connection_stays(name: str) -> None:
    cases = list(bad_messages(name))
    async with serving() as loopback, loopback.raw("conversation_id=c1") as socket:
        await socket.send("40")
        await socket.recv()
        found = await answers(socket, [written(message) for _, message in cases] + [written(good(name))])
        for (place, message), answer in zip(cases, found, strict=False):
            assert answer["success"] is False, message
            assert re.match(rf"{re.escape(place)}\b", answer["error"]), (answer["error"], message)
            assert FIXES.search(answer["error"]), answer["error"]
            assert len(answer["error"]) < 600
        assert found[-1] == {"success": True, "id": 0}
        assert len(loopback.conversations.sent) == 1


@pytest.mark.parametrize("name", sorted(REFUSED))
async def test_what_nobody_would_answer_is_refused_whatever_is_in_it(name: str) -> None:
    args = {"call_tool_mcp": {"name": "t"}, "delegate": {"agent": "a", "inputs": {}}}[name]
    async with serving() as loopback, loopback.raw("conversation_id=c1") as socket:
        await socket.send("40")
        await socket.recv()
        (answer,) = await answers(socket, [written({"action": name, "args": args})])
        assert answer["error"].startswith(f"action: '{name}' cannot be executed for a user by this server; use ")
        assert not loopback.conversations.sent


async def test_a_message_of_any_type_over_the_limit_is_refused_in_words() -> None:
    limits = SocketLimits(max_message_bytes=10_000)
    async with serving(limits) as loopback, loopback.raw("conversation_id=c1") as socket:
        await socket.send("40")
        await socket.recv()
        for name in TAKEN:
            family = "args" if name.startswith("action") else "extras"
            wide = json.dumps(_with(name, family, "colour", "é" * 5_000), ensure_ascii=False)
            for oversized in (written({**good(name), "padding": "x" * 10_000}), wide):
                await socket.send(f'42["oh_user_action",{oversized}]')
                frame = json.loads(str(await socket.recv())[2:])[1]
                assert frame["message"].startswith(
                    "the message is larger than the 10000 bytes that this server takes; "
                )
                await socket.recv()
        (answer,) = await answers(socket, [written(good("action message"))])
        assert answer == {"success": True, "id": 0}


@given(
    text=st.text(st.characters(codec="utf-8"), max_size=60) | st.binary(max_size=30).map(lambda b: b.decode("latin-1"))
)
@settings(max_examples=300, derandomize=True)
def test_any_text_is_read_or_refused_as_no_json(text: str) -> None:
    try:
        value = read_json(text)
        from_wire(value)
    except (json.JSONDecodeError, WireError):
        return


@pytest.mark.parametrize(
    ("packet", "problem"),
    [
        ('427["oh_user_action",{"padding":"' + "x" * 10_000 + '"}]', "the message is larger than the 10000 bytes"),
        ('427["oh_user_action",{', "the message cannot be read: "),
        ('427["oh_user_action",' + "[" * 5_000, "the message cannot be read: "),
        ('427["connect",{}]', "event 'connect' is reserved; send oh_user_action"),
        ("427[]", "the message is no event; "),
        ('451-7["oh_user_action",{"_placeholder":true,"num":0}]', "the message is binary; send JSON, "),
    ],
)
async def test_an_acknowledgement_that_is_asked_for_comes_also_for_what_cannot_be_read(
    packet: str, problem: str
) -> None:
    limits = SocketLimits(max_message_bytes=10_000)
    async with serving(limits) as loopback, loopback.raw("conversation_id=c1") as socket:
        await socket.send("40")
        await socket.send(packet)
        async with asyncio.timeout(LIMIT):
            while not (answer := str(await socket.recv())).startswith("437["):
                pass
        (acknowledged,) = json.loads(answer[3:])
        assert acknowledged["success"] is False
        assert acknowledged["error"].startswith(problem)


@pytest.mark.parametrize("garbage", ["", "xyz", "b!", "\u00b2", "7", "9{}"])
async def test_a_client_that_sends_what_is_no_packet_is_let_go_at_once(
    garbage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as loopback, loopback.raw("conversation_id=c1") as socket:
        await socket.send("40")
        await until(lambda: loopback.gateway.connection_count == 1)
        await socket.send(garbage)
        async with asyncio.timeout(LIMIT):
            async for _ in socket:
                pass  # until it is closed
        await until(lambda: loopback.gateway.connection_count == 0)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_what_comes_before_and_after_the_conversation_is_dropped_without_a_word_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    message = '42["oh_user_action",{"action":"message","args":{"content":"%s"}}]'
    async with serving() as loopback, loopback.raw("conversation_id=c1") as socket, loopback.client() as neighbour:
        for packet in (message % "early", '42["nope"]', "43999[]", '42/admin,["nope"]', '42/admin,["connect"]', "41"):
            await socket.send(packet)
        await socket.send("40")
        await socket.send(message % "in time")
        await until(lambda: [frame["message"] for frame in neighbour.frames if "id" in frame] == ["in time"])
        await socket.send("41")
        await socket.send(message % "late")
        await neighbour.send({"action": "message", "args": {"content": "of the neighbour"}})
        await until(lambda: "of the neighbour" in [frame["message"] for frame in neighbour.frames if "id" in frame])
        assert "late" not in [frame["message"] for frame in neighbour.frames if "id" in frame]
    assert not caplog.records
