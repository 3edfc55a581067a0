"""Every request of the protocol against a runner that lies: what is used of an answer has been checked, or it is an
error with a name. Nothing is kept that was not asked for, and nothing that was not asked for is borne."""

from __future__ import annotations

import ast
import asyncio
import copy
import json
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.errors import SandboxError, SandboxLostError, ToolError
from agent_core.runtime.channel import frame_reader
from agent_core.runtime.channel.answer_forms import FORMS, MAX_PATH, SMALL, UnexpectedError, form_of
from agent_core.runtime.channel.channel import ChannelLimits
from agent_core.runtime.channel.connection import ConnectionLimits
from tests.contract.hostile.answers import EXCHANGES
from tests.contract.hostile.conftest import eventually, lied_to
from tests.contract.hostile.lying_runner import frame, honest
from tests.contract.runner.client import Runner

REPOSITORY = Path(__file__).parents[3]
OPERATIONS = sorted(FORMS)
SECONDS = 60.0
TREE: list[Any] = [[[[]]]]
LIES: list[Any] = [
    None,
    True,
    -1,
    2**70,
    1.5,
    1e308,
    "",
    ".",
    "..",
    "../../../etc/passwd",
    "/etc/passwd",
    "C:\\Windows\\win.ini",
    "a/../../b",
    "a\0b",
    "\ud800\udfff",
    "\r\nSet-Cookie: a=b",
    "http://169.254.169.254/latest",
    "data:text/html;base64,AAAA",
    'data:image/png;base64,"onerror=alert(1)',
    "x" * 5_000,
    "é" * 5_000,
    [],
    ["../x"],
    [None],
    [[]] * 3_000,
    {},
    {"error": {"code": "protocol_version"}},
    TREE,
]


def test_each_operation_of_the_runner_has_a_form_and_an_exchange_here() -> None:
    with tempfile.TemporaryDirectory(prefix="runner-") as folder:
        runner = Runner(Path(folder))
        try:
            said = runner.connect().call("no.such.operation").error["message"]
        finally:
            runner.close()
    known = set(said.split(": ", 1)[1].split(", "))
    assert len(known) > 30
    assert set(FORMS) == known
    assert set(EXCHANGES) == known


def test_what_the_code_asks_for_has_a_form() -> None:
    asked = {
        node.args[0].value
        for folder in ("agent_core", "server")
        for path in (REPOSITORY / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") in ("request", "post")
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
        and "." in node.args[0].value
        and "/" not in node.args[0].value
    }
    assert len(asked) > 15
    assert asked - {"no.such.thing"} <= set(FORMS)


@pytest.mark.parametrize("op", OPERATIONS)
async def test_an_honest_answer_is_taken_as_it_is(op: str) -> None:
    args, result, blob = EXCHANGES[op]
    async with asyncio.timeout(SECONDS), lied_to(lambda asked: [honest(asked, result, blob)]) as (connection, _):
        if op in ("cancel", "journal.ack", "transfer.drop"):
            return  # nobody waits for these here
        reply = await connection.request(op, args)
    assert reply.blob == blob
    for name in reply.result.keys() & result.keys():
        assert reply.result[name] == result[name]


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values in a result."""
    yield path
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from places_in(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from places_in(value[0], (*path, 0))


def changed(result: Any, path: tuple[Any, ...], lie: Any) -> Any:
    """The result with a lie at that place."""
    if not path:
        return lie
    made = copy.deepcopy(result)
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = lie
    return made


def harmless(value: Any, like: Any, place: str = "") -> None:
    """What is used has the form of an honest answer, and nothing in it is too long, or no text, or no number."""
    if isinstance(value, Mapping):
        assert isinstance(like, Mapping), place
        for name, inner in value.items():
            if name in like:
                harmless(inner, like[name], f"{place}.{name}")
    elif isinstance(value, list):
        assert isinstance(like, list), place
        for inner in value[:10]:
            harmless(inner, like[0], f"{place}[]")
    elif isinstance(value, str):
        assert isinstance(like, str) or like is None, place
        assert len(value) <= MAX_PATH, place
        assert not any(one == "\0" or "\ud800" <= one <= "\udfff" for one in value), place
        if place.endswith(("images[]", "screenshot", "marks", "image")):
            assert value == "" or value.startswith("data:image/"), place
        if place == ".entries[].name":
            assert "/" not in value, place
            assert value not in ("", ".", ".."), place
    elif isinstance(value, bool) or isinstance(like, bool):
        assert type(value) is type(like), place
    elif isinstance(value, int | float):
        assert like is None or isinstance(like, int | float), place
        assert abs(value) < 2**63, place  # nor is it infinite, or no number


@pytest.mark.parametrize("op", OPERATIONS)
def test_a_lie_at_any_place_of_an_answer_is_refused_or_made_harmless(op: str) -> None:
    args, result, _ = EXCHANGES[op]
    form = form_of(op)
    refused = 0
    for path in places_in(result):
        for lie in LIES:
            lied = json.loads(json.dumps(changed(result, path, lie)))
            try:
                found = form.result(lied, args)
            except UnexpectedError:
                refused += 1
                continue
            harmless(found, {**form.result(result, args), **result})
            json.dumps(found, ensure_ascii=False).encode()
        if path:
            lied = copy.deepcopy(result)
            holder = lied
            for key in path[:-1]:
                holder = holder[key]
            del holder[path[-1]]
            try:
                found = form.result(lied, args)
            except UnexpectedError:
                continue
            assert set(found) == set(form.result(result, args))  # what may be missing is there all the same
    assert refused


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(op=st.sampled_from(OPERATIONS), junk=json_values, data=st.data())
def test_no_json_of_any_kind_is_an_error_without_a_name(op: str, junk: Any, data: st.DataObject) -> None:
    args, result, _ = EXCHANGES[op]
    lied = changed(result, data.draw(st.sampled_from(list(places_in(result)))), junk)
    with suppress(UnexpectedError):
        json.dumps(form_of(op).result(lied, args), ensure_ascii=False, allow_nan=False).encode()


ASKABLE = [op for op in OPERATIONS if op not in ("cancel", "journal.ack", "transfer.drop")]


def with_an_answer(op: str, asked: Mapping[str, Any]) -> bytes:
    return honest(asked, EXCHANGES[op].result, EXCHANGES[op].blob)


STREAM_LIES: dict[str, Any] = {
    "another's id": lambda op, asked: [frame({"id": asked["id"] + 1000, "ok": True, "result": {}})],
    "an id that is true": lambda op, asked: [frame({"id": True, "ok": True, "result": {}})],
    "an id that is a text": lambda op, asked: [frame({"id": str(asked["id"]), "ok": True, "result": {}})],
    "an id that is a list": lambda op, asked: [frame({"id": [asked["id"]], "ok": True, "result": {}})],
    "no id": lambda op, asked: [frame({"ok": True, "result": {}})],
    "no result": lambda op, asked: [frame({"id": asked["id"], "ok": True})],
    "a result that is a list": lambda op, asked: [honest(asked, [1])],
    "ok that is a word": lambda op, asked: [frame({"id": asked["id"], "ok": "yes", "result": {}})],
    "an error that is a text": lambda op, asked: [frame({"id": asked["id"], "ok": False, "error": "no"})],
    "nothing but an id": lambda op, asked: [frame({"id": asked["id"]})],
    "output of a wrong type": lambda op, asked: [frame({"id": asked["id"], "output": ["x"]})],
    "a frame that is a list": lambda op, asked: [frame([1, 2])],
    "no JSON": lambda op, asked: [frame(b"{'id': 1}")],
    "no UTF-8": lambda op, asked: [frame(b'{"id": "\xff"}')],
    "numbers that are none": lambda op, asked: [frame(b'{"id": %d, "ok": true, "result": {"a": NaN}}' % asked["id"])],
    "endless nesting": lambda op, asked: [frame(b"[" * 60_000)],
    "endless nesting of objects": lambda op, asked: [frame(b'{"a":' * 20_000)],
    "a number of a million digits": lambda op, asked: [frame(b'{"id": ' + b"1" * 100_000 + b"}")],
    "a connection that nobody opened": lambda op, asked: [frame({"stream": 7, "opened": True})],
    "data of a connection that nobody opened": lambda op, asked: [frame({"stream": 7, "blob": 3}, b"abc")],
    "a connection without a number": lambda op, asked: [frame({"stream": None, "end": True})],
    "an attachment of a negative length": lambda op, asked: [frame({"id": asked["id"], "ok": True, "blob": -1})],
    "an attachment of a length that is true": lambda op, asked: [frame({"id": asked["id"], "ok": True, "blob": True})],
    "an attachment of 4 GB": lambda op, asked: [
        frame({"id": asked["id"], "ok": True, "result": EXCHANGES[op].result, "blob": 2**32})
    ],
    "an attachment over what was asked": lambda op, asked: [
        honest(asked, EXCHANGES[op].result, bytes(form_of(op).most_blob(EXCHANGES[op].args) + 1))
    ],
    "a second greeting": lambda op, asked: [frame({"hello": {"boot": "x"}})],
    "a frame that says 4 GB": lambda op, asked: [struct.pack(">I", 2**32 - 1)],
    "a frame over what was asked": lambda op, asked: [struct.pack(">I", form_of(op).most_json(EXCHANGES[op].args) + 1)],
}


@pytest.mark.parametrize("lie", STREAM_LIES)
@pytest.mark.parametrize("op", ["shell.run", "transfer.next", "ping"])
async def test_what_is_no_answer_ends_the_stream_and_is_told_by_name(op: str, lie: str) -> None:
    """Three operations stand for all: what is looked at here comes before the form of a result."""
    make = STREAM_LIES[lie]
    limits = ConnectionLimits(attempts=2, ping_seconds=1.0, channel=ChannelLimits(hello_seconds=5.0))
    async with (
        asyncio.timeout(SECONDS),
        lied_to(lambda asked: make(op, asked), limits) as (connection, runner),
    ):
        with pytest.raises(SandboxError) as caught:
            await connection.request(op, EXCHANGES[op].args, limit_seconds=5.0)
        assert "no answer (" in str(caught.value)
        await eventually(lambda: runner.ended == runner.streams)


@pytest.mark.parametrize("op", ASKABLE)
async def test_answered_twice_the_stream_ends_and_the_next_one_works(op: str) -> None:
    lies = iter([2])
    async with (
        asyncio.timeout(SECONDS),
        lied_to(lambda asked: [with_an_answer(op, asked)] * next(lies, 1)) as (connection, runner),
    ):
        await connection.request(op, EXCHANGES[op].args)
        await eventually(lambda: runner.ended > 0)
        await connection.request(op, EXCHANGES[op].args)
        assert runner.streams == 2


@pytest.mark.parametrize("op", ASKABLE)
async def test_an_answer_that_breaks_off_or_never_comes_is_an_error_in_time(op: str) -> None:
    limits = ConnectionLimits(attempts=2, reattach_seconds=0.2, ping_seconds=0.1)
    async with asyncio.timeout(SECONDS):
        async with lied_to(lambda asked: [], limits) as (connection, _):
            with pytest.raises(SandboxLostError):
                await connection.request(op, EXCHANGES[op].args, limit_seconds=0.1)
        async with lied_to(lambda asked: [with_an_answer(op, asked)[:-2]], limits) as (connection, _):
            with pytest.raises(SandboxLostError):
                await connection.request(op, EXCHANGES[op].args, limit_seconds=0.1)


@pytest.mark.parametrize("op", ASKABLE)
async def test_live_output_is_borne_only_where_it_is_awaited_and_only_so_much(op: str) -> None:
    heard: list[str] = []

    async def lie(asked: Mapping[str, Any]) -> AsyncIterator[bytes]:
        yield frame({"id": asked["id"], "output": "\ud800" + "x" * 20_000})
        while True:
            yield frame({"id": asked["id"], "output": "x"}) * 100

    limits = ConnectionLimits(attempts=1, ping_seconds=1.0)
    async with asyncio.timeout(120), lied_to(lie, limits) as (connection, _):
        with pytest.raises(SandboxError, match="live output"):
            await connection.request(op, EXCHANGES[op].args, on_output=heard.append, limit_seconds=100.0)
    assert bool(heard) == form_of(op).is_live
    assert all(len(text) < 2 or text == "\ufffd" + "x" * (16 * 1024 - 1) for text in heard)


@pytest.mark.parametrize("op", ASKABLE)
@pytest.mark.parametrize(
    "error", [{"code": ["a"], "message": {"b": 1}}, {"code": "A" * 99, "message": "\ud800" * 9}, {}]
)
async def test_an_error_of_any_form_is_an_error_with_a_name(op: str, error: dict[str, Any]) -> None:
    def lie(asked: Mapping[str, Any]) -> list[bytes]:
        return [frame({"id": asked["id"], "ok": False, "error": error})]

    async with asyncio.timeout(SECONDS), lied_to(lie) as (connection, _):
        with pytest.raises((SandboxError, ToolError)) as caught:
            await connection.request(op, EXCHANGES[op].args)
        str(caught.value).encode()
        assert getattr(caught.value, "code", "") == "internal"


async def test_frames_that_nobody_asked_for_are_not_read() -> None:
    """30 MB that nobody asked for: the stream ends at the first header, whatever is behind it."""
    flood = bytes(30 * 2**20)

    async def lie(asked: Mapping[str, Any]) -> AsyncIterator[bytes]:
        for _ in range(100):
            yield struct.pack(">I", len(flood)) + flood

    limits = ConnectionLimits(attempts=1, ping_seconds=1.0)
    async with asyncio.timeout(SECONDS), lied_to(lie, limits) as (connection, runner):
        with pytest.raises(SandboxError, match="31457280 bytes"):
            await connection.request("ping", {})
        await eventually(lambda: runner.ended > 0)
        assert runner.sent == 0


async def test_a_large_answer_is_parsed_while_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document of many values is the slowest to parse: the loop turns all the while, and it is given up in time."""
    many = b'{"id": %d, "ok": true, "result": {"content": "", "a": [' + b"[]," * 3_000_000 + b"0]}}"
    turns = 0

    async def turning() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    limits = ConnectionLimits(attempts=1, ping_seconds=1.0)
    async with asyncio.timeout(120), lied_to(lambda asked: [frame(many % asked["id"])], limits) as (connection, _):
        asked = asyncio.create_task(connection.request("file.range", {"command": "read", "path": "/a"}))
        turner = asyncio.create_task(turning())
        with pytest.raises(SandboxError, match=f"more than {frame_reader.MAX_VALUES} values"):
            await asked
        turner.cancel()
    assert turns > 100


async def test_what_comes_late_for_one_that_has_given_up_is_left_alone() -> None:
    """A cancelled request's answer may be under way; it is neither used nor held against the runner, once."""
    held = asyncio.Event()

    async def lie(asked: Mapping[str, Any]) -> AsyncIterator[bytes]:
        if asked["op"] == "shell.run":
            await held.wait()
        yield with_an_answer(asked["op"], asked)

    async with asyncio.timeout(SECONDS), lied_to(lie) as (connection, runner):
        asking = asyncio.create_task(connection.request("shell.run", EXCHANGES["shell.run"].args))
        await eventually(lambda: bool(runner.asked))
        asking.cancel()
        await asyncio.wait([asking])
        held.set()
        for _ in range(3):
            await connection.request("ports.list", {})
        assert runner.streams == 1


def test_small_frames_need_no_permission() -> None:
    assert all(form.most_json(EXCHANGES[op].args) >= SMALL for op, form in FORMS.items())


async def test_what_was_under_way_when_a_connection_was_let_go_of_is_left_alone_and_no_more() -> None:
    """Both sides may have said their end, or one has broken it off: credit and data cross that on their way."""

    async def lie(asked: Mapping[str, Any]) -> AsyncIterator[bytes]:
        number = asked.get("stream", 0)
        if "open" in asked:
            yield frame({"stream": number, "opened": True})
            yield frame({"stream": number, "end": True})
        elif "end" in asked or "reset" in asked:
            for _ in range(30):
                yield frame({"stream": number, "credit": 1})
            yield frame({"stream": number, "blob": 3}, b"abc") if "reset" in asked else b""
        elif asked["op"] == "ports.list":
            yield with_an_answer("ports.list", asked)
        else:
            yield frame({"stream": 1, "credit": 1}) * 100

    limits = ConnectionLimits(attempts=1, ping_seconds=1.0)
    async with asyncio.timeout(SECONDS), lied_to(lie, limits) as (connection, runner):
        await connection.start()
        for is_ended in (True, False):
            port = await connection.connect_port(80)
            if is_ended:
                assert await port.read() == b""
                port.end()
            port.close()
        for _ in range(3):
            await connection.request("ports.list", {})
        assert runner.streams == 1
        with pytest.raises(SandboxError, match="can have been under way"):
            await connection.request("shell.run", {})
