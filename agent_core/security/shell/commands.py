"""Reads simple commands: words, assignments, redirections, and the blanks and comments between them."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Final

from agent_core.security.shell.syntax import (
    CHARACTERS_A_STEP,
    Assignment,
    Command,
    Redirect,
    ShellSyntaxError,
    Simple,
    Text,
    Word,
)
from agent_core.security.shell.words import WordReader

_BLANK = re.compile(r"[ \t]+")
_COMMENT = re.compile(r"#[^\n]*")
_REDIRECT = re.compile(r"(\d+|\{[A-Za-z_]\w*\})?(&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||<(?!\()|>(?!\())", re.ASCII)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\n=]*?\])?(\+?)=", re.ASCII)
_DECLARERS: Final = frozenset({"declare", "typeset", "local", "export", "readonly"})


class SimpleCommandReader(WordReader):
    """Reads commands without structure of their own."""

    @abstractmethod
    def function(self, name: str) -> Command:
        """The function of which the name and parentheses have been read."""

    def blanks(self) -> None:
        """Go past blanks and a comment."""
        if blank := _BLANK.match(self.text, self.position):
            self.position = blank.end()
        if comment := _COMMENT.match(self.text, self.position):
            before = self.text[self.position - 1 : self.position]
            if not before or before in " \t\n;&|()<>":
                self.position = self._end_of_comment(*comment.span())

    def _end_of_comment(self, start: int, end: int) -> int:
        if not self.lines.is_joined(start + 1, end):
            return end
        # A comment ends with its line, also behind a backslash.
        self.budget.spend(len(self.text) // CHARACTERS_A_STEP)
        self.lines.part_first(start + 1, end)
        return self.text.index("\n", start)

    def line_breaks(self) -> None:
        """Go past blanks, comments and newlines, and the here-documents after these."""
        self.blanks()
        while self.at("\n"):
            self.budget.spend()
            self.position += 1
            self.take_documents()
            self.blanks()

    def plain(self, word: Word) -> str:
        """The word's text.

        Raises:
            ShellSyntaxError: it is empty, or something is expanded in it.
        """
        if not word or not all(isinstance(part, Text) for part in word):
            raise ShellSyntaxError("a name is missing")
        return "".join(part.text for part in word if isinstance(part, Text))

    def simple(self) -> Command:
        """The simple command, or the definition of a function, that starts here."""
        words: list[Word] = []
        assignments: list[Assignment] = []
        redirects: list[Redirect] = []
        while True:
            self.budget.spend()
            self.blanks()
            if self.redirect(redirects) or self._assignment(words, assignments):
                continue
            start = self.position
            word = self.word()
            if self.position == start:
                break
            words.append(word)
            if len(words) == 1 and not assignments and not redirects and self._takes_parentheses():
                return self.function(self.plain(word))
        if self.at("("):
            raise ShellSyntaxError("a parenthesis is out of place")
        if not words and not assignments and not redirects:
            raise ShellSyntaxError("a command is missing")
        return Simple(tuple(words), tuple(assignments), tuple(redirects))

    def _takes_parentheses(self) -> bool:
        start = self.position
        self.blanks()
        if self.take("("):
            self.blanks()
            if self.take(")"):
                return True
        self.position = start
        return False

    def _assignment(self, words: list[Word], into: list[Assignment]) -> bool:
        declares = bool(words and words[0]) and isinstance(words[0][0], Text) and words[0][0].text in _DECLARERS
        if words and not declares:
            return False
        found = _ASSIGNMENT.match(self.text, self.position)
        if found is None:
            return False
        self.position = found.end()
        subscript = self.nested(found[2][1:-1]).expanded_text() if found[2] else ()
        values: list[Word] = []
        if is_array := self.take("("):
            self.line_breaks()
            while not self.take(")"):
                if self.position >= len(self.text):
                    raise ShellSyntaxError("an array is not closed")
                before = self.position
                values.append(self.word())
                self.line_breaks()
                if self.position == before:
                    raise ShellSyntaxError("an array holds something that is no word")
        else:
            values.append(self.word())
        into.append(Assignment(found[1], tuple(values), bool(found[3]), is_array or bool(found[2]), subscript))
        return True

    def redirect(self, into: list[Redirect]) -> bool:
        """Append the redirection that starts here, if one does."""
        found = _REDIRECT.match(self.text, self.position)
        if found is None:
            return False
        self.position = found.end()
        redirect = Redirect(found[2], descriptor=found[1] or "")
        self.blanks()
        target = self.word()
        if not target:
            raise ShellSyntaxError("a redirection has no target")
        if redirect.operator in {"<<", "<<-"}:
            self.documents.announce(redirect, target)
        else:
            redirect.target = target
        into.append(redirect)
        return True
