"""What happens when a variable gets a value: it may be computed, stand for another one, or be run by a shell later."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Final

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.call import Finding, Machine
from agent_core.security.shell.marks import NETWORK, SEPARATOR, bounded, derived
from agent_core.security.shell.paths import resolve
from agent_core.security.shell.state import Shell
from agent_core.security.shell.syntax import CHARACTERS_A_STEP, Assignment, Budget
from agent_core.security.shell.values import Values
from agent_core.security.shell.variables import element_set, lookup, store

DECLARERS: Final = frozenset({"declare", "typeset", "local", "export", "readonly"})
LOCALS: Final = frozenset({"declare", "typeset", "local"})
_MAX_REFERENCES: Final = 4
_PROMPTS: Final = frozenset({"PS0", "PS1", "PS2", "PS4"})
_RUN_BY_SHELLS: Final = frozenset(
    {"PROMPT_COMMAND", "GIT_SSH_COMMAND", "PAGER", "GIT_PAGER", "EDITOR", "VISUAL", "GIT_EDITOR", "FCEDIT", "MANPAGER"}
)
_FILES_RUN_BY_SHELLS: Final = frozenset({"BASH_ENV", "ENV"})
_LOADED_BY_PROGRAMS: Final = frozenset({"LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "PATH", "PYTHONSTARTUP"})
_MEANINGS: Final = frozenset({"BASH_ALIASES", "BASH_CMDS"})
_ALWAYS_NUMBERS: Final = frozenset({"RANDOM", "SECONDS", "LINENO", "OPTIND", "HISTCMD"})


def declared_letters(name: str, words: Iterable[str]) -> str:
    """The attributes that a call of `declare`, or of one of its kin, gives."""
    letters = {"export": "x", "readonly": "r"}.get(name, "")
    return letters + "".join(word[1:] for word in words if word.startswith("-") and word[1:].isalpha())


class Assignments:
    """Gives values to the variables of shells."""

    def __init__(self, machine: Machine, values: Values, budget: Budget) -> None:
        self._machine = machine
        self._values = values
        self._budget = budget

    def perform(self, assignment: Assignment, shell: Shell, stdin: str, *, only_for_a_command: bool = False) -> None:
        """Do what an assignment of the script says."""
        name = assignment.name
        if assignment.is_array and not assignment.subscript:
            self.assign(shell, name, self._array(assignment, shell, stdin), stdin, is_whole=True)
            return
        values = self._values.texts(assignment.values[0], shell, stdin)
        if assignment.append and not assignment.subscript:
            heads = [value.partition(SEPARATOR)[0] for value in lookup(shell, name)]
            values = tuple(bounded(old + new) for old, new in product(heads, values))
        if assignment.subscript:
            for number in self._values.numbers(assignment.subscript, shell, stdin):
                self._set_element(shell, name, number, tuple(derived(v) if assignment.append else v for v in values))
            self._notice(shell, name, values)
            return
        self.assign(shell, name, values, stdin, only_for_a_command=only_for_a_command)

    def _array(self, assignment: Assignment, shell: Shell, stdin: str) -> tuple[str, ...]:
        fields: list[str] = []
        for word in assignment.values:
            alternatives = self._values.alternatives(word, shell, stdin)
            fields.extend(alternatives[0] if len(alternatives) == 1 else [derived(str(alternatives))])
        value = SEPARATOR.join(fields)
        if not assignment.append:
            return (bounded(value),)
        return tuple(bounded(SEPARATOR.join(filter(None, [old, value]))) for old in lookup(shell, assignment.name))

    def assign(
        self,
        shell: Shell,
        name: str,
        values: tuple[str, ...],
        stdin: str,
        *,
        is_whole: bool = False,
        only_for_a_command: bool = False,
    ) -> None:
        """Give a variable its possible values; its name may have a subscript, and stand for another variable."""
        plain, bracket, subscript = name.partition("[")
        if bracket:
            number = self._values.evaluation.subscript(subscript.removesuffix("]"), shell, stdin)
            self._set_element(shell, plain, number, values)
            self._notice(shell, plain, values)
            return
        for target in self._targets(shell, plain):
            if "[" in target:
                self.assign(shell, target, values, stdin)
                continue
            letters = shell.attributes.get(target, "")
            self._notice(shell, target, values, only_for_a_command=only_for_a_command)
            possible = self._with_attributes(target, letters, values, shell, stdin)
            if not is_whole and any(SEPARATOR in old for old in shell.variables.get(target, ())):
                self._set_element(shell, target, "0", possible)
                continue
            if "r" in letters:
                possible = (*lookup(shell, target), *possible)
            store(shell, target, possible)
            self._budget.spend(sum(map(len, possible)) // CHARACTERS_A_STEP)
        self._machine.note(Finding(SecurityRisk.LOW, "assignment", "sets a variable"))

    def declare(self, shell: Shell, name: str, letters: str, *, is_local: bool) -> None:
        """Give a variable attributes; a local one becomes again what it was when its function ends."""
        if is_local and name not in shell.locals:
            shell.locals[name] = shell.variables.get(name)
        if "n" in letters:
            shell.variables.pop(name, None)  # what is assigned next is the name that it stands for
        if letters:
            before = shell.attributes.get(name, "")
            shell.attributes[name] = "".join(dict.fromkeys(before + letters))

    def _targets(self, shell: Shell, name: str) -> tuple[str, ...]:
        for _ in range(_MAX_REFERENCES):
            if "n" not in shell.attributes.get(name, "") or name not in shell.variables:
                return (name,)
            targets = shell.variables[name]
            if len(targets) != 1 or not targets[0].partition("[")[0].isidentifier():
                return (name,)
            name = targets[0]
        return (name,)

    def _with_attributes(
        self, name: str, letters: str, values: tuple[str, ...], shell: Shell, stdin: str
    ) -> tuple[str, ...]:
        if "i" in letters or name in _ALWAYS_NUMBERS:
            return tuple(self._values.evaluation.arithmetic(value, shell, stdin) for value in values)
        changed = list(values)
        if "l" in letters:
            changed.extend(value.lower() for value in values)
        if "u" in letters:
            changed.extend(value.upper() for value in values)
        if "c" in letters:
            changed.extend(value.capitalize() for value in values)
        return tuple(changed)

    def _set_element(self, shell: Shell, name: str, number: str, values: tuple[str, ...]) -> None:
        before = shell.variables.get(name, ("",))
        store(shell, name, [bounded(element_set(old, number, new)) for old, new in product(before, values)])

    def _notice(self, shell: Shell, name: str, values: tuple[str, ...], *, only_for_a_command: bool = False) -> None:
        if name == "IFS" and not only_for_a_command and any(value.strip() for value in values):
            self._unknown("separators", "changes how words are separated (IFS)")
        if name in _MEANINGS:
            self._unknown("unknown-program", f"gives programs other meanings ({name})")
        for value in values:
            if name in _RUN_BY_SHELLS:
                self._machine.defer(value.replace(SEPARATOR, "\n"), shell)
            elif name in _PROMPTS:
                self._machine.expand(value, shell, "")
            elif name in _FILES_RUN_BY_SHELLS and (text := self._machine.files.get(resolve(value, shell.folder))):
                self._machine.run_code(text, shell.copy(), "")
        if name in _LOADED_BY_PROGRAMS and any(NETWORK in value for value in values):
            finding = f"loads what comes from the network through {name}"
            self._machine.note(Finding(SecurityRisk.HIGH, "remote-code", finding))
        if name in {"LD_PRELOAD", "BASH_ENV"}:
            self._unknown("preload", f"makes programs load something else through {name}")

    def _unknown(self, rule: str, reason: str) -> None:
        self._machine.note(Finding(SecurityRisk.UNKNOWN, rule, reason))
