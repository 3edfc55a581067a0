"""What one connection may cost and how long each step of it may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MEBIBYTE: Final = 1024 * 1024
TRANSPORT_FACTOR: Final = 4
"""How much longer than allowed a message may be and still be answered in words; beyond, the connection is closed."""


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """Limits of each connection. Sizes in bytes, times in seconds."""

    max_message_bytes: int = 4 * MEBIBYTE
    max_joining_bytes: int = 64 * 1024
    """The largest message of a client that is in no conversation yet."""
    max_buffer_bytes: int = MEBIBYTE // 4
    """What may wait for a client before its feed pauses. A ping waits behind it: a client that takes less than this
    within `ping_timeout_seconds` is taken for dead, and has to come back."""
    stall_seconds: float = 60.0
    """A client that takes nothing for so long while something waits for it is disconnected."""
    handshake_seconds: float = 20.0
    """A connection that has not joined a conversation by then is closed."""
    read_retry_seconds: tuple[float, ...] = (0.2, 1.0, 5.0)
    """Waits between attempts to read a log, before its feed gives up."""
    join_seconds: float = 15.0
    send_seconds: float = 30.0
    ping_interval_seconds: float = 25.0
    ping_timeout_seconds: float = 20.0

    @property
    def max_transport_bytes(self) -> int:
        """The largest WebSocket message that is read at all."""
        return self.max_message_bytes * TRANSPORT_FACTOR
