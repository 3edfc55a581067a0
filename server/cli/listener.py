"""The socket that a server listens on."""

from __future__ import annotations

import errno
import socket
from typing import Final

from server.errors import ConfigurationError
from server.settings.settings import Settings

BACKLOG: Final = 1024
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 120_000}
"""Silence is looked into after a minute, in four attempts; what is sent is acknowledged within two (in ms)."""
_FIXES: Final = {
    errno.EADDRINUSE: "another program has it (`ss -ltnp` says which): end that, or choose another port with --port",
    errno.EACCES: "this user may not have it: choose a port from 1024 on with --port, and a proxy before it",
    errno.EADDRNOTAVAIL: "this machine has no such address: choose 127.0.0.1, or 0.0.0.0 for all, with --host",
}


class PortTakenError(ConfigurationError):
    """Somebody listens there already."""


def bind(settings: Settings) -> socket.socket:
    """The listening socket; `ConfigurationError` where it cannot be had, `PortTakenError` where another has it."""
    host = "" if settings.host == "*" else settings.host
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _give_up_on_the_dead(listener)
            listener.bind(address)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        fix = _FIXES.get(error.errno or 0, "choose others with --host and --port")
        text = f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}; {fix}"
        raise (PortTakenError if error.errno == errno.EADDRINUSE else ConfigurationError)(text) from error
    return listener


def _give_up_on_the_dead(listener: socket.socket) -> None:
    """End connections whose client has gone without a word, within two minutes; accepted ones take this over."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
            listener.setsockopt(socket.IPPROTO_TCP, option, value)
