"""What a shell tells its owner."""

from __future__ import annotations

from typing import NamedTuple


class Ended(NamedTuple):
    """How a command ended: its exit status, the process id of its last background job (-1: none).

    ``reason`` says how its shell ended with it, if it did; ``killed``: not by the command's own will.
    """

    status: int
    background: int
    reason: str = ""
    killed: bool = False


class ShellEvents:
    """The owner's side; every method is called from the loop."""

    def ready(self) -> None:
        """The shell takes a command now."""

    def failed(self, message: str) -> None:
        """No shell can be started."""

    def output(self, data: bytes) -> None:
        """The running command has printed this."""

    def idle_output(self, data: bytes) -> None:
        """Something has printed this while no command was running."""

    def ended(self, how: Ended) -> None:
        """The running command has ended, and all its output has been delivered."""

    def lost(self, reason: str) -> None:
        """The shell has ended while no command was running."""
