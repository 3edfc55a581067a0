"""What a machine that runs commands (in thought) keeps: findings, files, variables, and whether it is sure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.assignments import Assignments
from agent_core.security.shell.call import Finding, Programs
from agent_core.security.shell.launching import Launcher
from agent_core.security.shell.state import Shell
from agent_core.security.shell.syntax import CHARACTERS_A_STEP, Budget, Script
from agent_core.security.shell.values import Values


class ShellMachine(ABC):
    """The part of a `Machine` that does not run anything itself; `findings` and `files` grow on the way."""

    def __init__(self, programs: Programs, budget: Budget) -> None:
        self.findings: list[Finding] = []
        self.files: dict[str, str] = {}
        self._doubts = 0
        self._budget = budget
        self._values = Values(self, budget)
        self._launcher = Launcher(self, programs, budget)
        self._assignments = Assignments(self, self._values, budget)

    @abstractmethod
    def run_script(self, script: Script, shell: Shell, stdin: str) -> str:
        """Run a script; returns what it prints."""

    @abstractmethod
    def run_code(self, text: str, shell: Shell, stdin: str) -> str:
        """Run a text as a shell script in this shell; returns what it prints."""

    @abstractmethod
    def run_program(self, words: Sequence[str], shell: Shell, stdin: str) -> str:
        """Start a program by its name."""

    @abstractmethod
    def defer(self, text: str, shell: Shell, *, at_once: bool = True) -> None:
        """Run a text when this shell ends, in the state that it is in then; and `at_once` also now."""

    @abstractmethod
    def end(self, shell: Shell) -> None:
        """Run what was deferred, as a shell in this state does that ends."""

    def note(self, finding: Finding) -> None:
        """Keep a finding; a thousand are enough for any decision."""
        if len(self.findings) < 1000 and finding not in self.findings[-20:]:
            self.findings.append(finding)

    def spend(self, characters: int) -> None:
        """Count text that is looked at once more.

        Raises:
            TooComplexError: it is too much by now.
        """
        self._budget.spend(characters // CHARACTERS_A_STEP)

    @property
    def is_certain(self) -> bool:
        """Whether what runs now is run in any case."""
        return not self._doubts

    @contextmanager
    def _perhaps(self, is_doubtful: bool = True) -> Iterator[None]:
        self._doubts += is_doubtful
        try:
            yield
        finally:
            self._doubts -= is_doubtful

    def assign(self, shell: Shell, name: str, values: tuple[str, ...], stdin: str = "") -> None:
        """Give a variable its possible values, as an assignment does; the name may have a subscript."""
        self._assignments.assign(shell, name, values, stdin)

    def declare(self, shell: Shell, name: str, letters: str, *, is_local: bool) -> None:
        """Give a variable attributes, as `declare` does."""
        self._assignments.declare(shell, name, letters, is_local=is_local and bool(self._launcher.active))

    def evaluate(self, text: str, shell: Shell, stdin: str) -> str:
        """The value of an arithmetic expression; what stands in its subscripts is run."""
        return self._values.evaluation.arithmetic(text, shell, stdin)

    def expand(self, text: str, shell: Shell, stdin: str) -> str:
        """What a text becomes when it is expanded like one in double quotes."""
        return "\n".join(self._values.evaluation.text(text, shell, stdin))

    def _high(self, rule: str, reason: str) -> None:
        self.note(Finding(SecurityRisk.HIGH, rule, reason))

    def _unknown(self, rule: str, reason: str) -> None:
        self.note(Finding(SecurityRisk.UNKNOWN, rule, reason))
