"""What a shell knows while its commands run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from agent_core.security.shell.marks import UNKNOWN
from agent_core.security.shell.syntax import Script, TooComplexError

MAX_WAYS_OUT: Final = 100


@dataclass(slots=True)
class Shell:
    """What a shell knows while its commands run. `variables` holds every value that a name may have."""

    variables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    """The letters that `declare` has given to names: ``i`` for numbers, ``n`` for names of others, ``x``, ``r`` …"""
    locals: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    """What the local names of the function that runs were before; None for nothing."""
    functions: dict[str, Script] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] | None = None
    folder: str = "."
    left: list[tuple[str, Shell | None]] = field(default_factory=list)
    """Which commands may have left what runs early, and in which state, if anything goes on from there.

    All branches of a shell have the same list.
    """
    prints_errors: bool = False
    """Whether its errors go where its output goes."""
    input: str | None = None
    """What `exec` has made the input of all that comes after it; None when it has not."""

    def restore(self, before: dict[str, tuple[str, ...] | None]) -> None:
        """Make variables what they were before; None for nothing."""
        for name, values in before.items():
            if values is None:
                self.variables.pop(name, None)
            else:
                self.variables[name] = values

    def become_one_of(self, outcomes: Sequence[Shell], variables: dict[str, tuple[str, ...]]) -> None:
        """Go on in one of several states, nobody knows which; `variables` are all that theirs may be."""
        self.variables = variables
        for outcome in outcomes:
            self.functions.update(outcome.functions)
            self.aliases.update(outcome.aliases)
            self.attributes.update(outcome.attributes)
            self.input = outcome.input
        folders = {outcome.folder for outcome in outcomes}
        self.folder = folders.pop() if len(folders) == 1 else UNKNOWN
        arguments = {outcome.arguments for outcome in outcomes}
        self.arguments = arguments.pop() if len(arguments) == 1 else None

    def input_since(self, before: str | None, stdin: str) -> str:
        """What a command reads now: `stdin`, unless `input` has changed from what it was before."""
        return stdin if self.input is None or self.input is before else self.input

    def leave(self, command: str) -> None:
        """Note that what comes next may not be run, because of this command.

        Raises:
            TooComplexError: this may happen in too many places.
        """
        if len(self.left) >= MAX_WAYS_OUT:
            raise TooComplexError("the command is left in too many places to be judged")
        self.left.append((command, None if command == "exit" else self.branch()))

    def copy(self) -> Shell:
        """A subshell: what it changes stays its own."""
        subshell = self.branch()
        subshell.left = []
        return subshell

    def branch(self) -> Shell:
        """One of several ways in which this shell may go on."""
        return replace(
            self,
            variables=dict(self.variables),
            attributes=dict(self.attributes),
            locals=dict(self.locals),
            functions=dict(self.functions),
            aliases=dict(self.aliases),
        )
