"""A command that its shell was lost before it had read: nothing of it was done, and the next shell can run it."""

from __future__ import annotations

import signal
from typing import Callable, Dict, Optional, Tuple

from .pty import how_ended
from .shell_events import Ended, ShellEvents

Sent = Tuple[str, Dict[str, str]]
"""A command, and the variables that it is lent."""


class Undone:
    """Keeps the command that was sent last until it is known that it was read, and has it run again once."""

    def __init__(self, events: ShellEvents) -> None:
        self._events = events
        self._sent: Optional[Sent] = None
        self._again: Optional[Sent] = None

    def sent(self, command: str, variables: Dict[str, str]) -> None:
        """A command was sent to a shell."""
        self._sent, self._again = (command, variables), None

    def unread(self, status: int) -> bool:
        """The shell has ended without having read it; True when the next shell is to run it."""
        self._again, self._sent = self._sent, None
        if self._again is None:
            self._events.ended(Ended(-1, -1, f"{how_ended(status)} and has not run the command", True))
            return False
        self._events.lost(how_ended(status))
        return True

    def take(self, send: Callable[[str, Dict[str, str]], None]) -> bool:
        """Send what a shell that is ready is to run now; False: nothing. After that it is not run again."""
        taken, self._again = self._again, None
        if taken is not None:
            send(*taken)
        return taken is not None

    def fail(self, message: str) -> None:
        """There is no next shell."""
        if self._again is None:
            self._events.failed(message)
        else:
            self._again = None
            self._events.ended(Ended(-1, -1, f"was lost and has not run the command: {message}", True))

    def stop(self) -> None:
        """Whoever sent it does not want it any more."""
        self._sent = None
        if self.take(lambda _command, _variables: None):
            self._events.ended(Ended(128 + signal.SIGINT, -1))

    def clear(self) -> None:
        """Forget it."""
        self._sent = self._again = None
