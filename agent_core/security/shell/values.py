"""What words and variables stand for: every value they may have, as far as that is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Final, Protocol

from agent_core.security.shell.call import Finding
from agent_core.security.shell.evaluation import Evaluation
from agent_core.security.shell.expansion import fields_of, quoted, split, unquoted
from agent_core.security.shell.marks import NUMBER, SEPARATOR, UNKNOWN, bounded, derived, is_known
from agent_core.security.shell.quoting import decode_ansi_c
from agent_core.security.shell.state import Shell
from agent_core.security.shell.syntax import (
    CHARACTERS_A_STEP,
    Arithmetic,
    Budget,
    Parameter,
    Part,
    ProcessSubstitution,
    Script,
    Substitution,
    Text,
    Word,
)
from agent_core.security.shell.variables import MAX_VALUES, lookup
from agent_core.security.shell.words import ALL_ELEMENTS

_TRANSFORMATIONS: Final[dict[str, Callable[[str], str]]] = {
    "@U": str.upper,
    "@L": str.lower,
    "@u": lambda text: text[:1].upper() + text[1:],
    "@E": decode_ansi_c,
}


class Scripts(Protocol):
    """What runs the scripts inside words."""

    files: dict[str, str]

    def run_script(self, script: Script, shell: Shell, stdin: str) -> str:
        """Run a script; returns what it prints."""
        ...

    def assign(self, shell: Shell, name: str, values: tuple[str, ...], stdin: str = "") -> None:
        """Give a variable its possible values, as an assignment does."""
        ...

    def note(self, finding: Finding) -> None:
        """Keep a finding."""
        ...


class Values:
    """Expands words in a shell."""

    def __init__(self, scripts: Scripts, budget: Budget) -> None:
        self._scripts = scripts
        self._budget = budget
        self.evaluation = Evaluation(self, budget)

    def note(self, finding: Finding) -> None:
        """Keep a finding."""
        self._scripts.note(finding)

    def alternatives(self, word: Word, shell: Shell, stdin: str) -> list[list[str]]:
        """The fields that a word may expand to: one list for each combination of values."""
        return [fields_of(raw) for raw in self._raw(word, shell, stdin)]

    def texts(self, word: Word, shell: Shell, stdin: str) -> tuple[str, ...]:
        """What a word may expand to where it is not split: in an assignment or a here-document."""
        whole = tuple(_whole(part) for part in word)
        return tuple(dict.fromkeys("".join(fields_of(raw)) for raw in self._raw(whole, shell, stdin)))

    def plain(self, word: Word) -> str:
        """The text of a word in which nothing is expanded; else ""."""
        return "".join(part.text if isinstance(part, Text) else UNKNOWN for part in word)

    def _raw(self, word: Word, shell: Shell, stdin: str) -> list[str]:
        raws = [""]
        for part in word:
            choices = self._part(part, shell, stdin)
            raws = [bounded(before + choice) for before, choice in product(raws, choices)]
            self._budget.spend(sum(map(len, raws)) // CHARACTERS_A_STEP)
            if len(raws) > MAX_VALUES:
                raws = [derived("".join(raws))]
        return raws

    def _part(self, part: Part, shell: Shell, stdin: str) -> Sequence[str]:
        match part:
            case Text():
                return [quoted(part.text) if part.quoted else unquoted(part.text)]
            case Parameter():
                values = self._parameter(part, shell, stdin)
                if part.operator == ALL_ELEMENTS or (part.quoted and part.name == "@"):
                    return [value.replace(SEPARATOR, SEPARATOR + quoted("")) for value in values]
                return [quoted(value) if part.quoted else split(value) for value in values]
            case Substitution():
                printed = self._scripts.run_script(part.script, shell.copy(), stdin).rstrip("\n")
                return [quoted(printed) if part.quoted else split(printed)]
            case ProcessSubstitution():
                path = f"/dev/fd/{1000 + len(self._scripts.files)}"
                self._scripts.files[path] = UNKNOWN
                given = stdin if part.takes_input else ""
                printed = self._scripts.run_script(part.script, shell.copy(), given)
                self._scripts.files[path] = UNKNOWN if part.takes_input else printed
                return [path]
            case Arithmetic():
                return self.numbers(part.parts, shell, stdin)

    def numbers(self, word: Word, shell: Shell, stdin: str) -> tuple[str, ...]:
        """The numbers that a word may stand for where one is expected."""
        texts = self.texts(word, shell, stdin)
        return tuple(dict.fromkeys(self.evaluation.arithmetic(text, shell, stdin) for text in texts))

    def _parameter(self, part: Parameter, shell: Shell, stdin: str) -> tuple[str, ...]:
        values = lookup(shell, part.name)
        if part.subscript:
            values = self._elements(values, self.numbers(part.subscript, shell, stdin))
        match part.operator:
            case "":
                if part.subscript or part.name == "@":
                    return values
                return tuple(value.partition(SEPARATOR)[0] for value in values)
            case operator if operator == ALL_ELEMENTS:
                return values
            case ":-" | "-" | ":=" | "=":
                others = self.texts(part.argument, shell, stdin)
                if any(value in {"", UNKNOWN} for value in values):
                    # Without the colon a value that is empty is a value; but nobody knows whether it is set.
                    kept = (value for value in values if value or ":" not in part.operator)
                    values = tuple(dict.fromkeys([*kept, *others]))
                    if part.operator in {":=", "="}:
                        self._scripts.assign(shell, part.name, values, stdin)
                return values
            case ":+" | "+":
                return ("", *self.texts(part.argument, shell, stdin))
            case "!":
                return tuple(found for value in values for found in self._named(value, shell, stdin))
            case "#":
                return (NUMBER,)
            case ":":
                self.numbers(part.argument, shell, stdin)
                return (derived("".join(values)),)
            case "@P":
                return tuple(found for value in values for found in self.evaluation.text(value, shell, stdin))
            case "@U" | "@L" | "@u" | "@E":
                return tuple(_TRANSFORMATIONS[part.operator](value) for value in values)
            case _:
                self._raw(part.argument, shell, stdin)
                return values if part.operator in {":?", "?"} else (derived("".join(values)),)

    def _elements(self, values: tuple[str, ...], numbers: tuple[str, ...]) -> tuple[str, ...]:
        """What stands at these places of an array; any of it when a place is not known."""
        found: list[str] = []
        for value in values:
            fields = value.split(SEPARATOR)
            for number in numbers:
                if re.fullmatch(r"-?\d{1,6}", number) and is_known(value):
                    position = int(number) + (len(fields) if number.startswith("-") else 0)
                    found.append(fields[position] if 0 <= position < len(fields) else "")
                else:
                    found.append(derived(value))
        return tuple(dict.fromkeys(found))

    def _named(self, name: str, shell: Shell, stdin: str) -> tuple[str, ...]:
        """The values of the variable whose name is a value."""
        if not is_known(name):
            return (derived(name),)
        plain = self.evaluation.name(name, shell, stdin)
        values = lookup(shell, plain)
        return values if plain == name else tuple(derived(value) for value in values)


def _whole(part: Part) -> Part:
    """The part as if it were in quotes, but for text."""
    match part:
        case Parameter():
            return replace(part, quoted=True)
        case Substitution():
            return Substitution(part.script, True)
        case Text() if not part.quoted:
            return Text(part.text, True)
        case _:
            return part
