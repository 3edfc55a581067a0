"""One program that a command would start, and what the rules may ask and say about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.marks import ALL, NUMBER, SECRET, UNKNOWN, bounded, one_of
from agent_core.security.shell.paths import STDIN_FILE, Scope, is_secret, is_start_file, resolve, scope_of
from agent_core.security.shell.state import Shell


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was noticed: its risk, the rule (a short name) and the reason for a person to read."""

    risk: SecurityRisk
    rule: str
    reason: str


class Machine(Protocol):
    """What runs commands (in thought), for the rules that know programs which run others."""

    files: dict[str, str]

    @property
    def is_certain(self) -> bool:
        """Whether what runs now is run in any case."""
        ...

    def note(self, finding: Finding) -> None:
        """Keep a finding."""
        ...

    def spend(self, characters: int) -> None:
        """Count text that is looked at once more.

        Raises:
            TooComplexError: it is too much by now.
        """
        ...

    def assign(self, shell: Shell, name: str, values: tuple[str, ...], stdin: str = "") -> None:
        """Give a variable its possible values, as an assignment does; the name may have a subscript."""
        ...

    def declare(self, shell: Shell, name: str, letters: str, *, is_local: bool) -> None:
        """Give a variable attributes, as `declare` does."""
        ...

    def evaluate(self, text: str, shell: Shell, stdin: str) -> str:
        """The value of an arithmetic expression; what stands in its subscripts is run."""
        ...

    def expand(self, text: str, shell: Shell, stdin: str) -> str:
        """What a text becomes when it is expanded like one in double quotes."""
        ...

    def defer(self, text: str, shell: Shell, *, at_once: bool = True) -> None:
        """Run a text when this shell ends, in the state that it is in then; and `at_once` also now."""
        ...

    def end(self, shell: Shell) -> None:
        """Run what was deferred, as a shell in this state does that ends."""
        ...

    def run_program(self, words: Sequence[str], shell: Shell, stdin: str) -> str:
        """Start a program (no function, no alias) with its arguments, the name first; returns what it prints."""
        ...

    def run_code(self, text: str, shell: Shell, stdin: str) -> str:
        """Run a text as a shell script in this shell; returns what it prints."""
        ...


@dataclass(slots=True)
class Call:
    """A program by its plain name, its arguments, its input ("" when it gets none), and the shell that starts it."""

    name: str
    arguments: list[str]
    stdin: str
    shell: Shell
    machine: Machine

    def note(self, risk: SecurityRisk, rule: str, reason: str) -> None:
        """Report something about this call."""
        self.machine.note(Finding(risk, rule, reason))

    def high(self, rule: str, reason: str) -> None:
        """Report a high risk."""
        self.note(SecurityRisk.HIGH, rule, reason)

    def unknown(self, rule: str, reason: str) -> None:
        """Report that nobody can tell."""
        self.note(SecurityRisk.UNKNOWN, rule, reason)

    def scope(self, path: str) -> Scope:
        """Where a path leads from the working directory."""
        return scope_of(path, self.shell.folder)

    def assign(self, name: str, *values: str) -> None:
        """Set a variable of the shell to what may be its value."""
        self.machine.assign(self.shell, name, values, self.stdin)

    def run(self, words: Sequence[str], stdin: str | None = None) -> str:
        """Start another program in its place."""
        return self.machine.run_program(words, self.shell, self.stdin if stdin is None else stdin)

    def run_code(self, text: str, stdin: str | None = None) -> str:
        """Run a text as a shell script, in a shell of its own."""
        return self.machine.run_code(text, self.shell.copy(), self.stdin if stdin is None else stdin)

    def read(self, path: str) -> str:
        """What a file holds: what the command has written to it, or unknown (a secret, if it is one)."""
        if is_secret(path, self.shell.folder):
            self.note(SecurityRisk.MEDIUM, "secret", f"reads {shown(path)}, which usually holds a secret")
            return SECRET
        text = self.held(path)
        if text is None:
            return UNKNOWN
        self.machine.spend(len(text))
        return text

    def held(self, path: str) -> str | None:
        """What the command itself has put where this path leads; None for what was there before."""
        resolved = resolve(path, self.shell.folder)
        return self.stdin if resolved == STDIN_FILE else self.machine.files.get(resolved)

    def write(self, path: str, text: str, *, append: bool = False, is_certain: bool = True) -> None:
        """Write to a file, which may be one that nobody should write to; it holds that, or what it held before."""
        match self.scope(path):
            case Scope.DEVICE:
                self.high("device", f"writes to the device {shown(path)}")
            case Scope.SYSTEM:
                self.high("system-file", f"writes to {shown(path)}, which belongs to the system")
            case Scope.HOME if is_secret(path, self.shell.folder) or is_start_file(path, self.shell.folder):
                self.high("login", f"changes {shown(path)}, which decides who gets in or what runs at login")
            case Scope.UNKNOWN if path[:1] in ALL:
                self.unknown("unknown-file", "writes to a file whose name is not known")
            case _ if path not in QUIET_FILES:
                self.note(SecurityRisk.MEDIUM, "write", f"writes to {shown(path)}")
        if path in QUIET_FILES:
            return
        resolved = resolve(path, self.shell.folder)
        before = self.machine.files.get(resolved)
        after = before + text if append and before else text
        if before is not None and not (is_certain and self.machine.is_certain):
            after = one_of((before, after))
        self.machine.spend(len(after))
        self.machine.files[resolved] = bounded(after)

    def option_values(self, *names: str) -> list[str]:
        """The values of options, given as the next argument or after ``=`` (or, for short ones, at once)."""
        values: list[str] = []
        for position, argument in enumerate(self.arguments):
            for name in names:
                if argument == name:
                    values.extend(self.arguments[position + 1 : position + 2])
                elif name.startswith("--") and argument.startswith(name + "="):
                    values.append(argument[len(name) + 1 :])
                elif not name.startswith("--") and len(name) == 2 and argument.startswith(name):
                    values.append(argument[2:])
        return values

    def parsed(self, taking_value: str) -> tuple[dict[str, str], list[str]]:
        """The options by their letters, as the shell's own commands read them, and the operands behind them."""
        options: dict[str, str] = {}
        waiting = list(self.arguments)
        while waiting and waiting[0][:1] == "-" and waiting[0] != "-":
            word = waiting.pop(0)
            if word == "--":
                break
            for position, letter in enumerate(word[1:], 2):
                options[letter] = ""
                if letter in taking_value:
                    options[letter] = word[position:] or (waiting.pop(0) if waiting else "")
                    break
        return options, waiting

    def has(self, *names: str) -> bool:
        """Whether an option is given: a long one (also cut short), or a letter, also among others after one dash."""
        for argument in self.arguments:
            if argument == "--":
                return False
            for name in names:
                if argument == name:
                    return True
                if name.startswith("--"):
                    if len(argument) > 3 and argument.startswith("--") and name.startswith(argument):
                        return True
                elif len(name) == 2 and argument[:1] == "-" and argument[1:2] != "-" and name[1] in argument:
                    return True
        return False

    def operands(self, *taking_value: str) -> list[str]:
        """The arguments that are no options; `taking_value` are options whose value is the next argument."""
        found: list[str] = []
        skip = only_operands = False
        for argument in self.arguments:
            if skip:
                skip = False
            elif only_operands or argument in {"-", ""} or not argument.startswith("-"):
                found.append(argument)
            elif argument == "--":
                only_operands = True
            else:
                skip = argument in taking_value
        return found


QUIET_FILES: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/1", "/dev/fd/2"})


def shown(text: str, limit: int = 80) -> str:
    """A text for a reason: what is not known as an ellipsis, and not too long."""
    for mark in ALL + NUMBER:
        text = text.replace(mark, "…")
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


Rule = Callable[[Call], str]
"""Judges one call and returns what it prints."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is known of a program: its risk when nothing else is found, and its rule."""

    risk: SecurityRisk
    rule: Rule | None = None


class Programs(dict[str, Program]):
    """Programs by name, with a decorator to add them."""

    def rule(self, *names: str, risk: SecurityRisk = SecurityRisk.MEDIUM) -> Callable[[Rule], Rule]:
        """The decorated function judges the programs of these names."""

        def add(rule: Rule) -> Rule:
            for name in names:
                self[name] = Program(risk, rule)
            return rule

        return add
