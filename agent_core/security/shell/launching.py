"""Starts what a command names: an alias, a function, a program, a file."""

from __future__ import annotations

import fnmatch
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Protocol

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.call import Call, Finding, Machine, Programs, shown
from agent_core.security.shell.marks import NETWORK, bounded, derived, is_known
from agent_core.security.shell.paths import WORKSPACE, resolve
from agent_core.security.shell.state import Shell
from agent_core.security.shell.syntax import Budget, Script
from agent_core.security.shell.variables import merged_ways

MAX_CALLS_IN_CALLS = 3
MAX_PATTERN = 60
_PROGRAM_FOLDER = re.compile(r".+/\.?s?bin\Z|/s?bin\Z", re.DOTALL)
"""Where programs are installed, also those of a project; its own folder ``bin`` rather holds its scripts."""
_LEAVE_FUNCTIONS = frozenset({"break", "continue", "return"})


class ScriptMachine(Machine, Protocol):
    """A machine that runs scripts which have been read."""

    def run_script(self, script: Script, shell: Shell, stdin: str) -> str:
        """Run a script; returns what it prints."""
        ...


class Launcher:
    """Starts commands on a machine; `active` are those that are running, each inside the one before."""

    def __init__(self, machine: ScriptMachine, programs: Programs, budget: Budget) -> None:
        self.active: list[str] = []
        self._machine = machine
        self._programs = programs
        self._budget = budget
        self._called: set[int] = set()

    def has_called(self, body: Script) -> bool:
        """Whether a function with this very body has been called."""
        return id(body) in self._called

    def command(self, words: Sequence[str], shell: Shell, stdin: str, *, takes_alias: bool) -> str:
        """Start what a command names: an alias, unless its name is quoted, a function, or a program."""
        name = words[0]
        if takes_alias and name in shell.aliases and f"alias {name}" not in self.active:
            return self.guarded(f"alias {name}", _without_aliases(words, shell.aliases), shell, stdin)
        if name in shell.functions:
            self._budget.spend()
            return self.function(name, shell.functions[name], list(words[1:]), shell, stdin)
        return self.program(words, shell, stdin)

    def program(self, words: Sequence[str], shell: Shell, stdin: str) -> str:
        """Start a program, or a command of the shell itself, by its name."""
        self._budget.spend()
        name, arguments = words[0], list(words[1:])
        if NETWORK in name:
            self._high("remote-code", "runs a program whose name comes from the network")
        if not is_known(name):
            self._unknown("unknown-program", "runs a program whose name is not known")
            return derived(name + stdin)
        if "*" in name or "?" in name or 0 <= name.find("[") < name.rfind("]"):
            self._unknown("unknown-program", f"runs whatever program matches {shown(name)}")
            return self._matching(name, arguments, shell, stdin)
        if "/" not in name:
            if "PATH" in shell.variables:
                for path in [path for path in self._machine.files if posixpath.basename(path) == name]:
                    self._start_file(posixpath.join(WORKSPACE, path), arguments, shell, stdin)
            return self._start(name, arguments, shell, stdin)
        path = resolve(name, shell.folder)
        if _PROGRAM_FOLDER.match(posixpath.dirname(path)):
            if path in self._machine.files:
                self._start_file(path, arguments, shell, stdin)
            return self._start(posixpath.basename(path), arguments, shell, stdin)
        return self._start_file(name, arguments, shell, stdin)

    def _matching(self, pattern: str, arguments: list[str], shell: Shell, stdin: str) -> str:
        base = posixpath.basename(pattern)
        with self._budget:
            for name in self._programs if len(base) <= MAX_PATTERN else ():
                if fnmatch.fnmatchcase(name, base):
                    self._start(name, arguments, shell, stdin)
        return derived(stdin)

    def _start(self, name: str, arguments: list[str], shell: Shell, stdin: str) -> str:
        program = self._programs.get(name) or self._programs.get(name.partition(".")[0] + ".*")
        if program is None:
            self._machine.note(Finding(SecurityRisk.MEDIUM, "program", f"runs {shown(name)}"))
            return derived(stdin + "".join(arguments))
        self._machine.note(Finding(program.risk, "program", f"runs {shown(name)}"))
        if program.rule is None:
            return derived(stdin + "".join(arguments))
        with self._budget:
            return bounded(program.rule(Call(name, arguments, stdin, shell, self._machine)))

    def _start_file(self, path: str, arguments: list[str], shell: Shell, stdin: str) -> str:
        self._machine.note(Finding(SecurityRisk.MEDIUM, "program", f"runs {shown(path)}"))
        text = self._machine.files.get(resolve(path, shell.folder))
        if text is None:
            return derived(stdin)
        inner = shell.copy()
        inner.arguments = tuple(arguments)
        return self.guarded(f"file {path}", text, inner, stdin)

    def guarded(self, key: str, text: str, shell: Shell, stdin: str) -> str:
        if self.active.count(key) >= MAX_CALLS_IN_CALLS:
            return derived(stdin)
        self.active.append(key)
        try:
            return self._machine.run_code(text, shell, stdin)
        finally:
            self.active.pop()

    def function(self, name: str, body: Script, arguments: list[str] | None, shell: Shell, stdin: str) -> str:
        self._called.add(id(body))
        if self.active.count(name) >= MAX_CALLS_IN_CALLS:
            return derived(stdin)
        before, shell.arguments = shell.arguments, None if arguments is None else tuple(arguments)
        outer, shell.locals = shell.locals, {}
        left_before, shell.left = shell.left, []
        self.active.append(name)
        try:
            return self._machine.run_script(body, shell, stdin)
        finally:
            self.active.pop()
            shell.arguments = before
            shell.variables = merged_ways(shell, shell, shell.left, self._budget)
            shell.left = left_before + [way for way in shell.left if way[0] not in _LEAVE_FUNCTIONS]
            shell.restore(shell.locals)
            shell.locals = outer

    def _high(self, rule: str, reason: str) -> None:
        self._machine.note(Finding(SecurityRisk.HIGH, rule, reason))

    def _unknown(self, rule: str, reason: str) -> None:
        self._machine.note(Finding(SecurityRisk.UNKNOWN, rule, reason))


def _without_aliases(words: Sequence[str], aliases: Mapping[str, str]) -> str:
    """The command with the alias that it starts with, and those behind an alias that ends in a blank."""
    pieces: list[str] = []
    takes_alias = True
    for word in words:
        if takes_alias and word in aliases:
            pieces.append(aliases[word])
            takes_alias = aliases[word].endswith((" ", "\t"))
        else:
            pieces.append(shlex.quote(word))
            takes_alias = False
    return " ".join(pieces)
