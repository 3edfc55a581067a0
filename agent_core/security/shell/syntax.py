"""The syntax tree of a shell script, as far as it matters for what the script would run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MAX_DEPTH = 30
MAX_STEPS = 12_000


class ShellSyntaxError(ValueError):
    """This is no complete shell script, or one with a form that we do not read."""


class TooComplexError(ShellSyntaxError):
    """Reading on would take more time or depth than a command may have."""


class Budget:
    """What a command may cost, its nested scripts included: steps in all, and depth at any time."""

    def __init__(self, steps: int = MAX_STEPS, depth: int = MAX_DEPTH) -> None:
        self.steps = steps
        self.depth = depth

    def spend(self, steps: int = 1) -> None:
        """Use up some steps.

        Raises:
            TooComplexError: there are none left.
        """
        self.steps -= steps
        if self.steps < 0:
            raise TooComplexError("the command is too long to be judged")

    def __enter__(self) -> None:
        self.spend()
        if self.depth <= 0:
            raise TooComplexError("the command is nested too deeply to be judged")
        self.depth -= 1

    def __exit__(self, *_: object) -> None:
        self.depth += 1


@dataclass(frozen=True, slots=True)
class Text:
    """Characters that stand for themselves; unquoted ones may still be patterns, braces or a tilde."""

    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """``$name`` or ``${name[subscript]<operator><argument>}``; ``!`` and ``#`` in front count as operators."""

    name: str
    quoted: bool = False
    operator: str = ""
    argument: Word = ()
    subscript: Word = ()


@dataclass(frozen=True, slots=True)
class Substitution:
    """``$(script)``, or the same in backquotes; with a `way` it is ``<(script)`` or ``>(script)``."""

    script: Script
    quoted: bool = False
    way: str = ""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``$((…))``."""

    expression: Word


Part = Text | Parameter | Substitution | Arithmetic
Word = tuple[Part, ...]


@dataclass(slots=True)
class Redirect:
    """A redirection. For here-documents and here-strings `target` is the text itself."""

    operator: str
    target: Word = ()
    descriptor: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """``name=value``; with several values, or none, an array."""

    name: str
    values: tuple[Word, ...]
    subscript: Word = ()


@dataclass(frozen=True, slots=True)
class Simple:
    """A command with its arguments."""

    words: tuple[Word, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    redirects: tuple[Redirect, ...] = ()


Kind = Literal["group", "subshell", "branch", "loop", "for", "case", "test", "arithmetic", "function", "coproc"]


@dataclass(frozen=True, slots=True)
class Compound:
    """Every other command. `words` are what it looks at, `scripts` what it runs, `name` a function's or variable's."""

    kind: Kind
    scripts: tuple[Script, ...] = ()
    words: tuple[Word, ...] = ()
    name: str = ""
    redirects: tuple[Redirect, ...] = ()


Command = Simple | Compound


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands joined by pipes. `joined` is the ``&&`` or ``||`` that it follows."""

    commands: tuple[Command, ...]
    joined: str = ""
    background: bool = False
    negated: bool = False


Script = tuple[Pipeline, ...]
