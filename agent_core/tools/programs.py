"""Programs in a conversation's sandbox, as tools speak to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


class SpokenProgram(Protocol):
    """A program that runs: what is written is its input, what is read its output. It ends when it is closed.

    Attributes:
        last_words: the end of what it wrote to its standard error; known when reading has come to the end.
    """

    last_words: str

    async def read(self) -> bytes:
        """The next bytes, as they came; empty at the end.

        Raises:
            SandboxError: the program or the sandbox is gone.
        """
        ...

    async def write(self, data: bytes) -> None:
        """Send; one task at a time.

        Raises:
            SandboxError: the program or the sandbox is gone.
        """
        ...

    def close(self) -> None:
        """End it, with all that it has started. May be called at any time, more than once."""
        ...


@runtime_checkable
class ProgramStarter(Protocol):
    """What a sandbox has, beside `SandboxAccess`, in which programs can be started and spoken to."""

    async def start_program(self, order: Mapping[str, Any]) -> SpokenProgram:
        """Start a program: ``command`` (a list), and optionally ``env`` (variables) and ``cwd``.

        Raises:
            SandboxError: it cannot be started; ``code`` is ``not_found`` where there is no such program.
        """
        ...
