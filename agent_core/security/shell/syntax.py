"""The syntax tree of a shell script, as far as it matters for what the script would run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

MAX_DEPTH = 30
MAX_STEPS = 12_000
CHARACTERS_A_STEP = 512
"""How much text may be copied for one step."""


class ShellSyntaxError(ValueError):
    """This is no complete shell script, or one with a form that we do not read."""


class TooComplexError(ShellSyntaxError):
    """Reading on would take more time or depth than a command may have."""


class Budget:
    """What reading one command may cost, its nested scripts included: steps in all, and depth at any time."""

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
        self.depth -= 1
        if self.depth < 0:
            self.depth += 1
            raise TooComplexError("the command is nested too deeply to be judged")

    def __exit__(self, *_: object) -> None:
        self.depth += 1


@dataclass(frozen=True, slots=True)
class Text:
    """Characters that stand for themselves; unquoted ones may still be patterns, braces or a tilde."""

    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """``$name`` or ``${name[subscript]<operator><argument>}``.

    Operators that stand in front of the name are given as they are (``!``, ``#``); ``?!`` stands for any form that we
    do not compute. The argument of ``:`` is arithmetic.
    """

    name: str
    quoted: bool = False
    operator: str = ""
    argument: Word = ()
    subscript: Word = ()


@dataclass(frozen=True, slots=True)
class Substitution:
    """``$(script)`` or the same in backquotes."""

    script: Script
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class ProcessSubstitution:
    """``<(script)``, or ``>(script)`` when it takes input."""

    script: Script
    takes_input: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``$((…))``: an expression whose text is expanded first, and whose value is a number."""

    parts: Word = ()


Part = Text | Parameter | Substitution | ProcessSubstitution | Arithmetic
Word = tuple[Part, ...]


@dataclass(slots=True)
class Redirect:
    """A redirection. For here-documents and here-strings `target` is the text itself."""

    operator: str
    target: Word = ()
    descriptor: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """``name=value``, ``name+=value`` or, with more than one value or none, an array."""

    name: str
    values: tuple[Word, ...]
    append: bool = False
    is_array: bool = False
    subscript: Word = ()


@dataclass(frozen=True, slots=True)
class Simple:
    """A command with its arguments."""

    words: tuple[Word, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    redirects: tuple[Redirect, ...] = ()


CompoundKind = Literal["group", "subshell", "branch", "loop", "for", "case", "test", "arithmetic", "function", "coproc"]


@dataclass(frozen=True, slots=True)
class Compound:
    """Every other command. `words` are what it looks at, `scripts` what it runs, `name` a function's or variable's."""

    kind: CompoundKind
    scripts: tuple[Script, ...] = ()
    words: tuple[Word, ...] = ()
    name: str = ""
    redirects: tuple[Redirect, ...] = ()


Command = Simple | Compound


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands joined by pipes. `conditional`: it follows ``&&`` or ``||``."""

    commands: tuple[Command, ...]
    conditional: bool = False
    background: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """Pipelines one after another."""

    pipelines: tuple[Pipeline, ...] = field(default=())
