"""Here-documents: announced in one line, read from the lines after it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agent_core.security.shell.lines import JoinedLines
from agent_core.security.shell.syntax import CHARACTERS_A_STEP, Budget, Redirect, ShellSyntaxError, Text, Word

_LEADING_TABS = re.compile(r"^\t+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Document:
    """A here-document whose text is still to come; nothing is expanded in a literal one."""

    redirect: Redirect
    delimiter: str
    is_literal: bool


class Documents:
    """The here-documents that were announced and not read yet."""

    def __init__(self, budget: Budget) -> None:
        self._awaited: list[Document] = []
        self._budget = budget

    def announce(self, redirect: Redirect, delimiter: Word) -> None:
        """A here-document's text begins after the next newline.

        Raises:
            ShellSyntaxError: its delimiter is no plain word.
        """
        texts = [part for part in delimiter if isinstance(part, Text)]
        if len(texts) < len(delimiter):
            raise ShellSyntaxError("a here-document's delimiter is no plain word")
        is_literal = any(part.quoted for part in texts)
        self._awaited.append(Document(redirect, "".join(part.text for part in texts), is_literal))

    def awaited(self) -> Iterator[Document]:
        """Each that was announced, once."""
        while self._awaited:
            yield self._awaited.pop(0)

    def read(self, document: Document, lines: JoinedLines, start: int) -> tuple[str, int]:
        """The document's text, that starts there, and the position behind its delimiter.

        Raises:
            TooComplexError: it takes too long.
        """
        text, first = lines.text, start
        if document.is_literal and lines.is_joined(start, len(text)):
            text, first = lines.original(start, len(text)), 0
            self._budget.spend(len(text) // CHARACTERS_A_STEP)
        strips_tabs = document.redirect.operator == "<<-"
        tabs = r"\t*" if strips_tabs else ""
        end = re.compile(rf"^{tabs}{re.escape(document.delimiter)}$", re.MULTILINE).search(text, first)
        body = text[first : end.start() if end else len(text)]
        length = (min(end.end() + 1, len(text)) if end else len(text)) - first
        behind = lines.after(start, length) if document.is_literal else start + length
        return _LEADING_TABS.sub("", body) if strips_tabs else body, behind
