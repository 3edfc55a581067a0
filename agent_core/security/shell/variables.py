"""What the variables of a shell may hold, as far as that is known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from agent_core.security.shell.marks import NUMBER, SECRET, SEPARATOR, UNKNOWN, derived, is_known
from agent_core.security.shell.state import Shell
from agent_core.security.shell.syntax import Budget

MAX_VALUES: Final = 8
_MAX_REFERENCES: Final = 8
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
    {"?", "#", "$", "!", "RANDOM", "UID", "EUID", "PPID", "SECONDS", "LINENO", "SHLVL", "OPTIND", "SRANDOM"}
    | {"EPOCHSECONDS", "BASHPID"}
)
_OF_THE_SHELL: Final = frozenset(
    {"_", "BASH_COMMAND", "FUNCNAME", "BASH_SOURCE", "BASH_ARGV", "PIPESTATUS", "DIRSTACK"}
)
"""Names to which a script assigns in vain: the shell sets them itself."""


def lookup(shell: Shell, name: str) -> tuple[str, ...]:
    """The values that a variable may have; a name of which nothing is known has an unknown one."""
    for _ in range(_MAX_REFERENCES):
        targets = shell.variables.get(name, ())
        if "n" not in shell.attributes.get(name, "") or not targets:
            break
        if len(targets) > 1 or not targets[0].isidentifier():
            return (UNKNOWN,)
        name = targets[0]
    if name in _NUMBERS:
        return (NUMBER,)
    if name in _OF_THE_SHELL:
        return (UNKNOWN,)
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
    if _SECRET_VARIABLE.match(name):
        return (SECRET,)
    return (_KNOWN_VARIABLES.get(name, UNKNOWN),)


def store(shell: Shell, name: str, values: Sequence[str]) -> None:
    """Give a variable its possible values; too many of them count as unknown."""
    unique = tuple(dict.fromkeys(values))
    shell.variables[name] = unique if len(unique) <= MAX_VALUES + 1 else (derived("".join(unique)),)


def element_set(array: str, number: str, value: str) -> str:
    """An array after one of its elements was set; unknown when nobody can tell which."""
    fields = array.split(SEPARATOR) if array else []
    if not is_known(array) or not number.isdigit() or int(number) > len(fields):
        return derived(array + value)
    position = int(number)
    return SEPARATOR.join([*fields[:position], value, *fields[position + 1 :]])


def merge(outcomes: Sequence[Shell]) -> dict[str, tuple[str, ...]]:
    """The variables after one of several ways was taken, nobody knows which."""
    merged = Shell()
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.variables)
    for name in names:
        possible = [
            value
            for outcome in outcomes
            for value in (outcome.variables[name] if name in outcome.variables else lookup(outcome, name))
        ]
        store(merged, name, possible)
    return merged.variables


def merged_ways(
    before: Shell, shell: Shell, left: Sequence[tuple[str, Shell | None]], budget: Budget
) -> dict[str, tuple[str, ...]]:
    """The variables after something that may have been left early in some states (see `Shell.left`)."""
    states = [state for _, state in left if state is not None]
    budget.spend(len(states) * len(shell.variables) // 100)
    return merge([before, *states, shell])
