"""A pair of devices and a relay to slirp4netns, where nobody gives us /dev/net/tun. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import socket
import struct
import time

DEVICE = "tap0"
ADDRESS, MASK, GATEWAY = "10.0.2.100", "255.255.255.0", "10.0.2.2"
MTU = 65520

_LOOK_SECONDS = 0.001
_OUTER = "tap0-out"
_FRAME = MTU + 14
_ALL_PROTOCOLS = 0x0003
_IGNORE_OUTGOING = 23
_SOL_PACKET = 263
_NEW_LINK = 16
_REQUEST, _ACK, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_INTERFACE_NAME, _LINK_INFO, _INFO_KIND, _INFO_DATA, _VETH_PEER = 3, 18, 1, 2, 1
_ADD_ROUTE, _SET_FLAGS, _SET_ADDRESS, _SET_MASK, _SET_MTU, _ETHTOOL = 0x890B, 0x8914, 0x8916, 0x891C, 0x8922, 0x8946
_UP_AND_RUNNING = 0x41
_ROUTE_UP_BY_GATEWAY = 0x3
_CHECKSUMS, _TCP_SEGMENTS, _SEGMENTS = 0x17, 0x1F, 0x24


def make_link() -> socket.socket:
    """Give this network its device, with address and route; returns the other end, which carries whole frames."""
    _make_pair()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for setting in (_CHECKSUMS, _TCP_SEGMENTS, _SEGMENTS):  # slirp4netns wants them done, and no piece too large
            _switch_off(control, setting)
        for device in (_OUTER, DEVICE):
            fcntl.ioctl(control, _SET_MTU, struct.pack("16si20x", device.encode(), MTU))
            fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH22x", device.encode(), _UP_AND_RUNNING))
        for kind, value in ((_SET_ADDRESS, ADDRESS), (_SET_MASK, MASK)):
            fcntl.ioctl(control, kind, struct.pack("16s16s8x", DEVICE.encode(), _address(value)))
        anywhere = _address("0.0.0.0")  # noqa: S104 - a route to everywhere
        route = struct.pack("=Q16s16s16sH", 0, anywhere, _address(GATEWAY), anywhere, _ROUTE_UP_BY_GATEWAY)
        fcntl.ioctl(control, _ADD_ROUTE, route + bytes(120 - len(route)))
    frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    frames.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    frames.bind((_OUTER, _ALL_PROTOCOLS))
    return frames


def connect(path: str, seconds: float) -> socket.socket:
    """The connection to slirp4netns, once it listens, within so many `seconds`."""
    deadline = time.monotonic() + seconds
    program = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while True:
        try:
            program.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_SECONDS)
        else:
            return program


def relay(frames: socket.socket, program: socket.socket) -> None:
    """Carry frames between the device and slirp4netns until that ends; what does not fit is dropped, as on a wire."""
    for end in (frames, program):
        end.setblocking(False)
    waiting = select.poll()
    ways = {frames.fileno(): (frames, program), program.fileno(): (program, frames)}
    for descriptor in ways:
        waiting.register(descriptor, select.POLLIN)
    while True:
        for descriptor, _ in waiting.poll():
            source, target = ways[descriptor]
            with contextlib.suppress(BlockingIOError):
                frame = source.recv(_FRAME)
                if not frame and source is program:
                    return
                with contextlib.suppress(OSError):
                    target.send(frame)


def _make_pair() -> None:
    peer = bytes(16) + _attribute(_INTERFACE_NAME, _OUTER.encode() + b"\0")
    info = _attribute(_INFO_KIND, b"veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, peer))
    body = bytes(16) + _attribute(_INTERFACE_NAME, DEVICE.encode() + b"\0") + _attribute(_LINK_INFO, info)
    flags = _REQUEST | _ACK | _CREATE | _EXCLUSIVE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.bind((0, 0))
        netlink.send(struct.pack("=IHHII", 16 + len(body), _NEW_LINK, flags, 1, 0) + body)
        (error,) = struct.unpack_from("=i", netlink.recv(1 << 16), 16)
    if error:
        raise OSError(-error, f"no pair of network devices: {os.strerror(-error)}")


def _switch_off(control: socket.socket, setting: int) -> None:
    value = ctypes.create_string_buffer(struct.pack("=II", setting, 0))
    request = struct.pack("16sP16x", DEVICE.encode(), ctypes.addressof(value))
    with contextlib.suppress(OSError):  # it has no such thing to switch off
        fcntl.ioctl(control, _ETHTOOL, request)


def _address(text: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))


def _attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)
