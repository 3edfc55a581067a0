"""What words and variables stand for: every value they may have, as far as that is known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import Final, Protocol

from agent_core.security.shell.call import Shell
from agent_core.security.shell.expansion import fields_of, quoted, split, unquoted
from agent_core.security.shell.marks import SECRET, SEPARATOR, UNKNOWN, bounded, derived
from agent_core.security.shell.syntax import (
    CHARACTERS_A_STEP,
    Arithmetic,
    Assignment,
    Budget,
    Parameter,
    Part,
    ProcessSubstitution,
    Script,
    Substitution,
    Text,
    Word,
)
from agent_core.security.shell.words import ALL_ELEMENTS

MAX_VALUES: Final = 8
_SECRET_VARIABLE = re.compile(
    r"(?i)(?:.*_)?(?:token|secret|passwd|password|api_?key|access_key|private_key|credentials)(?:_.*)?\Z"
)
_KNOWN_VARIABLES: Final = {
    "HOME": "~",
    "TMPDIR": "/tmp",  # noqa: S108 - its usual value; nothing is created
    "IFS": " \t\n",
    "SHELL": "/bin/bash",
    "BASH": "/bin/bash",
    "0": "bash",
    "-": "",
}
_NUMBERS: Final = frozenset(
    {"?", "#", "$", "!", "RANDOM", "UID", "EUID", "PPID", "SECONDS", "LINENO", "SHLVL", "OPTIND"}
)


class Scripts(Protocol):
    """What runs the scripts inside words."""

    files: dict[str, str]

    def run_script(self, script: Script, shell: Shell, stdin: str) -> str:
        """Run a script; returns what it prints."""
        ...


class Values:
    """Expands words in a shell."""

    def __init__(self, scripts: Scripts, budget: Budget) -> None:
        self._scripts = scripts
        self._budget = budget

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
                self._raw(part.parts, shell, stdin)
                return ["1"]

    def _parameter(self, part: Parameter, shell: Shell, stdin: str) -> tuple[str, ...]:
        values = lookup(shell, part.name)
        match part.operator:
            case "":
                return values if part.name == "@" else tuple(value.partition(SEPARATOR)[0] for value in values)
            case operator if operator == ALL_ELEMENTS:
                return values
            case ":-" | "-" | ":=" | "=":
                others = self.texts(part.argument, shell, stdin)
                if any(value in {"", UNKNOWN} for value in values):
                    values = tuple(dict.fromkeys([*(value for value in values if value), *others]))
                    if part.operator in {":=", "="}:
                        self.assign(shell, part.name, values)
                return values
            case ":+" | "+":
                return ("", *self.texts(part.argument, shell, stdin))
            case _:
                self._raw(part.argument, shell, stdin)
                return values if part.operator in {":?", "?"} else (derived("".join(values)),)

    def of_assignment(self, assignment: Assignment, shell: Shell, stdin: str) -> tuple[str, ...]:
        """The values that a variable may have after an assignment."""
        self._raw(assignment.subscript, shell, stdin)
        if assignment.is_array:
            fields: list[str] = []
            for word in assignment.values:
                alternatives = self.alternatives(word, shell, stdin)
                fields.extend(alternatives[0] if len(alternatives) == 1 else [derived(str(alternatives))])
            values: tuple[str, ...] = (SEPARATOR.join(fields),)
        else:
            values = self.texts(assignment.values[0], shell, stdin)
        if assignment.append:
            joint = SEPARATOR if assignment.is_array else ""
            values = tuple(old + joint + new for old, new in product(lookup(shell, assignment.name), values))
        return tuple(bounded(value) for value in values)

    def assign(self, shell: Shell, name: str, values: tuple[str, ...]) -> None:
        """Give a variable its possible values; too many of them count as unknown."""
        unique = tuple(dict.fromkeys(values))
        shell.variables[name] = unique if len(unique) <= MAX_VALUES + 1 else (derived("".join(unique)),)
        self._budget.spend(sum(map(len, unique)) // CHARACTERS_A_STEP)


def _whole(part: Part) -> Part:
    """The part as if it were in quotes, but for text."""
    match part:
        case Parameter():
            return Parameter(part.name, True, part.operator, part.argument)
        case Substitution():
            return Substitution(part.script, True)
        case Text() if not part.quoted:
            return Text(part.text, True)
        case _:
            return part


def lookup(shell: Shell, name: str) -> tuple[str, ...]:
    """The values that a variable may have; a name of which nothing is known has an unknown one."""
    if name in shell.variables:
        return shell.variables[name]
    if name.isdigit() and name != "0":
        if shell.arguments is None:
            return (UNKNOWN,)
        return shell.arguments[int(name) - 1 : int(name)] or ("",) if len(name) < 6 else ("",)
    if name in {"@", "*"}:
        arguments = (UNKNOWN,) if shell.arguments is None else shell.arguments
        return ((SEPARATOR if name == "@" else " ").join(arguments),)
    if name == "PWD":
        return (shell.folder,)
    if name in _NUMBERS:
        return ("4321",)
    if _SECRET_VARIABLE.match(name):
        return (SECRET,)
    return (_KNOWN_VARIABLES.get(name, UNKNOWN),)


def merge(outcomes: Sequence[Shell], values: Values) -> dict[str, tuple[str, ...]]:
    """The variables after one of several ways was taken, nobody knows which."""
    merged = Shell()
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.variables)
    for name in names:
        possible = [value for outcome in outcomes for value in lookup(outcome, name)]
        values.assign(merged, name, tuple(possible))
    return merged.variables
