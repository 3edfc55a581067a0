"""Texts that a shell expands once more: arithmetic, subscripts, prompts, names of names."""

from __future__ import annotations

import re
from typing import Final, Protocol

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.call import Finding
from agent_core.security.shell.marks import NUMBER, is_known
from agent_core.security.shell.numbers import computed
from agent_core.security.shell.parser import Parser
from agent_core.security.shell.state import Shell
from agent_core.security.shell.syntax import Budget, ShellSyntaxError, TooComplexError, Word
from agent_core.security.shell.variables import lookup, store

_NAME: Final = re.compile(r"(?<![\w#])[A-Za-z_]\w*", re.ASCII)
_CHANGED: Final = re.compile(
    r"(?:\+\+|--)\s*([A-Za-z_]\w*)|([A-Za-z_]\w*)\s*(?:\[[^\]]*\])?\s*(?:\+\+|--|(?:<<|>>|[-+*/%&^|])?=(?!=))", re.ASCII
)
_MAX_DEPTH: Final = 6


class Expander(Protocol):
    """What expands words."""

    def texts(self, word: Word, shell: Shell, stdin: str) -> tuple[str, ...]:
        """What a word may expand to where it is not split."""
        ...

    def note(self, finding: Finding) -> None:
        """Keep a finding."""
        ...


class Evaluation:
    """Expands texts once more in a shell."""

    def __init__(self, expander: Expander, budget: Budget) -> None:
        self._expander = expander
        self._budget = budget
        self._depth = 0

    def text(self, text: str, shell: Shell, stdin: str) -> tuple[str, ...]:
        """What a text may become when it is expanded as if it stood in double quotes."""
        if "$" not in text and "`" not in text:
            return (text,)
        try:
            with self._budget:
                return self._expander.texts(Parser(text, self._budget).expanded_text(), shell, stdin)
        except TooComplexError:
            raise
        except ShellSyntaxError as error:
            reason = f"has the shell expand a text that could not be read: {error}"
            self._expander.note(Finding(SecurityRisk.UNKNOWN, "syntax", reason))
            return (text,)

    def arithmetic(self, text: str, shell: Shell, stdin: str) -> str:
        """The number that an expression stands for, as text; subscripts and the values of variables are run on the way.

        A variable's value is an expression again, and what stands in a subscript is expanded: so data can be code.
        """
        if not text.strip():
            return "0"
        if self._depth >= _MAX_DEPTH:
            return NUMBER
        self._budget.spend()
        self._depth += 1
        try:
            self._subscripts(text, shell, stdin)
            number = computed(_NAME.sub(lambda found: self._number(found.group(), shell, stdin), text))
        finally:
            self._depth -= 1
        for changed in _CHANGED.finditer(text):
            store(shell, changed[1] or changed[2], (NUMBER,))
        return NUMBER if number is None or _CHANGED.search(text) else str(number)

    def subscript(self, text: str, shell: Shell, stdin: str) -> str:
        """The number of the element that a subscript, as it stands in a text, means."""
        numbers = {self.arithmetic(expanded, shell, stdin) for expanded in self.text(text, shell, stdin)}
        return numbers.pop() if len(numbers) == 1 else NUMBER

    def name(self, name: str, shell: Shell, stdin: str) -> str:
        """The variable that is meant where the name of one is taken from a text; its subscript is expanded."""
        plain, bracket, subscript = name.partition("[")
        if bracket:
            self.subscript(subscript.removesuffix("]"), shell, stdin)
        return plain

    def _subscripts(self, text: str, shell: Shell, stdin: str) -> None:
        start = text.find("[")
        if start < 0:
            return
        inside = text[start + 1 :]
        for expanded in self.text(inside, shell, stdin):
            if expanded != inside:
                self.arithmetic(expanded, shell, stdin)

    def _number(self, name: str, shell: Shell, stdin: str) -> str:
        values = lookup(shell, name)
        numbers = {self.arithmetic(value, shell, stdin) if is_known(value) else NUMBER for value in values}
        return f"({numbers.pop()})" if len(numbers) == 1 else NUMBER
