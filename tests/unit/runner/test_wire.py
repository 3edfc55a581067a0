from __future__ import annotations

import json
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_images.runner.wire import MAX_BLOB, MAX_JSON, Decoder, Frame, ProtocolError, encode

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
messages = st.dictionaries(st.text().filter(lambda key: key != "blob"), json_values, max_size=4)
frames = st.lists(st.tuples(messages, st.none() | st.binary(max_size=300)), max_size=5)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(frames, st.lists(st.integers(0, 10_000), max_size=12))
def test_frames_come_back_however_the_stream_is_divided(
    sent: list[tuple[dict[str, object], bytes | None]], cuts: list[int]
) -> None:
    data = b"".join(encode(message, blob) for message, blob in sent)
    decoder = Decoder()
    received = [frame for piece in pieces(data, cuts) for frame in decoder.feed(piece)]
    expected = [Frame(message if blob is None else {**message, "blob": len(blob)}, blob) for message, blob in sent]
    assert received == expected


@given(messages, st.none() | st.binary(max_size=100), st.data())
def test_a_truncated_stream_gives_no_frame(message: dict[str, object], blob: bytes | None, data: st.DataObject) -> None:
    encoded = encode(message, blob)
    end = data.draw(st.integers(1, len(encoded) - 1))
    decoder = Decoder()
    assert decoder.feed(encoded[:end]) == []
    assert len(decoder.feed(encoded[end:])) == 1


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=4))
def test_garbage_is_a_protocol_error_or_frames_and_nothing_else(garbage: bytes, cuts: list[int]) -> None:
    decoder = Decoder()
    try:
        for piece in pieces(garbage, cuts):
            for frame in decoder.feed(piece):
                assert isinstance(frame.message, dict)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            decoder.feed(b"")


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", MAX_JSON + 1),
        struct.pack(">I", 0),
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 4) + b"null",
        struct.pack(">I", 2) + b"\xff\xff",
        struct.pack(">I", 1_000_000) + b"[" * 1_000_000,
        *(
            struct.pack(">I", len(body)) + body
            for body in (json.dumps({"blob": bad}).encode() for bad in (-1, True, "3", 1.5, None, MAX_BLOB + 1))
        ),
    ],
)
def test_malformed_frames_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Decoder().feed(data)


def test_limits_are_named() -> None:
    with pytest.raises(ProtocolError, match=f"limit of {MAX_JSON}"):
        Decoder().feed(struct.pack(">I", MAX_JSON + 1))
    body = json.dumps({"blob": MAX_BLOB + 1}).encode()
    with pytest.raises(ProtocolError, match=f"limit of {MAX_BLOB}"):
        Decoder().feed(struct.pack(">I", len(body)) + body)


def test_what_cannot_be_written_is_refused() -> None:
    for message in ({"x": float("nan")}, {"x": object()}, {"x": b"bytes"}):
        with pytest.raises(ProtocolError, match="cannot be written"):
            encode(message)
    with pytest.raises(ProtocolError, match="over the limit"):
        encode({"x": "y" * (MAX_JSON + 1)})


def test_lone_surrogates_survive() -> None:
    assert Decoder().feed(encode({"x": "\ud800é"}))[0].message == {"x": "\ud800é"}


def test_an_empty_attachment_is_an_attachment() -> None:
    assert Decoder().feed(encode({}, b"")) == [Frame({"blob": 0}, b"")]


def test_a_large_attachment_in_small_pieces_is_taken_in_linear_time() -> None:
    data = encode({"id": 1}, bytes(16 * 1024 * 1024))
    decoder = Decoder()
    found = [frame for start in range(0, len(data), 4096) for frame in decoder.feed(data[start : start + 4096])]
    assert len(found[0].blob or b"") == 16 * 1024 * 1024
