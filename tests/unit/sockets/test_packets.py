"""Packets of clients: bounded, and never an exception."""

from __future__ import annotations

import socketio.packet
from hypothesis import example, given
from hypothesis import strategies as st

from server.sockets.outlet import Malformed, OutgoingPacket, client_packet_class
from server.wire.json_data import too_large

PACKET = client_packet_class(1000)
PLAIN = (socketio.packet.CONNECT, socketio.packet.DISCONNECT)


nearly_packets = st.from_regex(r"[0-9][0-9]{0,3}-?(/x,)?[0-9]{0,2}[\[{].*", fullmatch=True)


def problem_of(packet: socketio.packet.Packet) -> str | None:
    if packet.packet_type != socketio.packet.EVENT:
        return None
    return packet.data[1].problem if len(packet.data) == 2 and isinstance(packet.data[1], Malformed) else None


@given(
    text=st.text() | st.binary(max_size=5) | st.from_regex(r"[0-9][0-9]{0,3}-?(/x,)?[0-9]{0,2}[\[{].*", fullmatch=True)
)
@example(text="")
@example(text="2" * 200)
@example(text='2["connect"]')
@example(text="3[]")
@example(text="4{}")
@example(text="9")
def test_any_text_is_a_packet_or_a_malformed_event(text: str | bytes) -> None:
    packet = PACKET(encoded_packet=text)
    if packet.packet_type in PLAIN:
        return
    assert packet.packet_type == socketio.packet.EVENT
    assert isinstance(packet.data[0], str)
    assert packet.data[0] not in ("connect", "disconnect", "*")


def test_the_size_is_counted_in_bytes() -> None:
    fits = '2["e","' + "ä" * 495 + '"]'
    assert problem_of(PACKET(encoded_packet=fits)) is None
    assert problem_of(PACKET(encoded_packet=fits[:-2] + 'ä"]')) == too_large(1000)


def test_an_outgoing_packet_says_once_that_it_was_taken() -> None:
    taken: list[int] = []
    packet = OutgoingPacket("oh_event", b'{"a":"\xc3\xa4"}', taken.append)
    assert packet.encode() == packet.encode(b64=True) == '42["oh_event",{"a":"ä"}]'
    assert taken == [packet.size]


def test_packets_of_the_library_itself_are_written_as_ever() -> None:
    refusal = PACKET(socketio.packet.CONNECT_ERROR, data={"message": "no"}, namespace="/")
    assert refusal.encode() == '4{"message":"no"}'
    assert PACKET(socketio.packet.CONNECT, data={"sid": "x"}).encode() == '0{"sid":"x"}'
