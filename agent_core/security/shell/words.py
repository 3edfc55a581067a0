"""Reads words of a shell script: quotes, parameters, substitutions, here-documents."""

from __future__ import annotations

import re
from abc import abstractmethod

from agent_core.security.shell.documents import Documents
from agent_core.security.shell.lines import JoinedLines
from agent_core.security.shell.quoting import decode_ansi_c
from agent_core.security.shell.syntax import (
    Arithmetic,
    Budget,
    Parameter,
    Part,
    ProcessSubstitution,
    Script,
    ShellSyntaxError,
    Substitution,
    Text,
    TooComplexError,
    Word,
)

_PLAIN = re.compile(r"[^ \t\n\\'\"`$;&|<>()]+")
_PLAIN_IN_DOUBLE = re.compile(r'[^\\"`$]+')
_PLAIN_IN_BRACES = re.compile(r"[^\\'\"`$}]+")
_PLAIN_IN_DOUBLE_BRACES = re.compile(r"[^\\\"`$}]+")
_BACKQUOTED = re.compile(r"((?:[^`\\]++|\\.)*+)`", re.DOTALL)
_ESCAPED_IN_BACKQUOTES = re.compile(r"\\([`$\\])")
_ESCAPED_IN_DOUBLE_BACKQUOTES = re.compile(r"\\([`$\\\"])")
_ANSI_C = re.compile(r"((?:[^'\\]++|\\.)*+)'", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*|\d|[@*#?$!-]", re.ASCII)
_BRACED_NAME = re.compile(r"[A-Za-z_]\w*|\d+|[@*#?$!-]", re.ASCII)
_DEFAULT_OPERATOR = re.compile(r":?[-=+?]")
_TRANSFORMATION = re.compile(r"@[A-Za-z]\}")
_PLAIN_IN_ARITHMETIC = re.compile(r"[^()$`'\"\\]+")
_PLAIN_IN_BRACKETS = re.compile(r"[^\[\]$`'\"\\]+")
NOT_COMPUTED = "?!"
ALL_ELEMENTS = "[@]"


class WordReader:
    """A position in a text, and how to read words from there; scripts inside words are read by a subclass."""

    def __init__(self, text: str, budget: Budget) -> None:
        self.lines = JoinedLines(text)
        self.position = 0
        self.budget = budget
        self.documents = Documents(budget)

    @property
    def text(self) -> str:
        """All of the text, its lines joined."""
        return self.lines.text

    @abstractmethod
    def script_until_parenthesis(self) -> Script:
        """The script up to the closing parenthesis, which is taken as well."""

    @abstractmethod
    def script_in(self, text: str) -> Script:
        """The script that `text` is, whole.

        Raises:
            ShellSyntaxError: it is none.
        """

    def at(self, token: str) -> bool:
        """Whether `token` is what comes next."""
        return self.text.startswith(token, self.position)

    def take(self, token: str) -> bool:
        """Go past `token` if it comes next."""
        if self.at(token):
            self.position += len(token)
            return True
        return False

    def word(self) -> Word:
        """The word that starts here; empty when none does."""
        parts: list[Part] = []
        while self.position < len(self.text):
            self.budget.spend()
            if plain := _PLAIN.match(self.text, self.position):
                self.position = plain.end()
                parts.append(Text(plain.group()))
            elif self.text[self.position] in "<>" and self.text[self.position + 1 : self.position + 2] == "(":
                takes_input = self.text[self.position] == ">"
                self.position += 2
                with self.budget:
                    parts.append(ProcessSubstitution(self.script_until_parenthesis(), takes_input))
            elif not self._special(parts, in_double_quotes=False):
                break
        return tuple(parts)

    def _special(self, parts: list[Part], *, in_double_quotes: bool) -> bool:
        """Read a quote, escape or expansion; False when there is none here."""
        match self.text[self.position]:
            case "\\":
                self._escape(parts, in_double_quotes=in_double_quotes)
            case "'" if not in_double_quotes:
                end = self.text.find("'", self.position + 1)
                if end < 0:
                    raise ShellSyntaxError("a single quote is not closed")
                parts.append(Text(self.lines.original(self.position + 1, end), quoted=True))
                self.position = end + 1
            case '"':
                self.position += 1
                parts.append(Text("", quoted=True))
                parts.extend(self._double_quoted('"'))
            case "`":
                parts.append(self._backquoted(in_double_quotes))
            case "$":
                parts.extend(self._dollar(in_double_quotes))
            case _:
                return False
        return True

    def _escape(self, parts: list[Part], *, in_double_quotes: bool) -> None:
        following = self.text[self.position + 1 : self.position + 2]
        self.position += 2
        if in_double_quotes and following not in {"$", "`", '"', "\\"}:
            parts.append(Text("\\" + following, quoted=True))
        else:
            parts.append(Text(following or "\\", quoted=True))

    def _double_quoted(self, closing: str) -> list[Part]:
        parts: list[Part] = []
        while self.position < len(self.text):
            self.budget.spend()
            if plain := _PLAIN_IN_DOUBLE.match(self.text, self.position):
                self.position = plain.end()
                parts.append(Text(plain.group(), quoted=True))
            elif self.at('"'):
                self.position += 1
                if closing:
                    return parts
                parts.append(Text('"', quoted=True))
            else:
                self._special(parts, in_double_quotes=True)
        if closing:
            raise ShellSyntaxError("a double quote is not closed")
        return parts

    def expanded_text(self) -> Word:
        """All of the text as a here-document's: only ``$``, backquotes and backslashes are special."""
        return tuple(self._double_quoted(""))

    def _backquoted(self, quoted: bool) -> Substitution:
        found = _BACKQUOTED.match(self.text, self.position + 1)
        if found is None:
            raise ShellSyntaxError("a backquote is not closed")
        self.position = found.end()
        self.budget.spend(len(found.group()) // 100)
        escaped = _ESCAPED_IN_DOUBLE_BACKQUOTES if quoted else _ESCAPED_IN_BACKQUOTES
        with self.budget:
            return Substitution(self.script_in(escaped.sub(r"\1", found.group(1))), quoted)

    def _dollar(self, quoted: bool) -> list[Part]:
        self.position += 1
        following = self.text[self.position : self.position + 1]
        if following == "(":
            return [self._parenthesised(quoted)]
        if following == "{":
            self.position += 1
            with self.budget:
                return [self._braced(quoted)]
        if following == "[":
            self.position += 1
            with self.budget:
                return [Arithmetic(self._subscript())]
        if following == "'" and not quoted:
            found = _ANSI_C.match(self.text, self.position + 1)
            if found is None:
                raise ShellSyntaxError("a single quote is not closed")
            self.position = found.end()
            return [Text(decode_ansi_c(self.lines.original(*found.span(1))), quoted=True)]
        if following == '"' and not quoted:
            self.position += 1
            return [Text("", quoted=True), *self._double_quoted('"')]
        if name := _NAME.match(self.text, self.position):
            self.position = name.end()
            return [Parameter(name.group(), quoted)]
        return [Text("$", quoted)]

    def _parenthesised(self, quoted: bool) -> Part:
        with self.budget:
            if self.at("((") and (inside := self.arithmetic(self.position + 2)) is not None:
                return Arithmetic(inside)
            self.position += 1
            return Substitution(self.script_until_parenthesis(), quoted)

    def arithmetic(self, start: int) -> Word | None:
        """The text of the arithmetic expression that starts there; None when it is not one.

        When it is, the position is behind its closing parentheses; else it is left alone.
        """
        before, self.position = self.position, start
        try:
            if (parts := self._balanced("(", ")", _PLAIN_IN_ARITHMETIC)) is not None and self.take(")"):
                return parts
        except TooComplexError:
            raise
        except ShellSyntaxError:
            pass  # perhaps a subshell in a subshell: read again as that, it fails again if it is neither
        self.position = before
        return None

    def _balanced(self, opening: str, closing: str, plain: re.Pattern[str]) -> Word | None:
        """The text up to the closing character that was not opened in it, which is taken; None when there is none."""
        parts: list[Part] = []
        depth = 0
        while self.position < len(self.text):
            self.budget.spend()
            if found := plain.match(self.text, self.position):
                self.position = found.end()
                parts.append(Text(found.group(), quoted=True))
            elif self.text[self.position] in opening + closing:
                depth += 1 if self.at(opening) else -1
                self.position += 1
                if depth < 0:
                    return tuple(parts)
                parts.append(Text(opening if self.text[self.position - 1] == opening else closing, quoted=True))
            else:
                self._special(parts, in_double_quotes=False)
        return None

    def nested(self, text: str) -> WordReader:
        """A reader of another text, at the same expense."""
        return type(self)(text, self.budget)

    def _subscript(self) -> Word:
        parts = self._balanced("[", "]", _PLAIN_IN_BRACKETS)
        if parts is None:
            raise ShellSyntaxError("a bracket is not closed")
        return parts

    def _braced(self, quoted: bool) -> Parameter:
        prefix = ""
        if (self.at("!") and not self.at("!}")) or (self.at("#") and not self.at("#}")):
            prefix = self.text[self.position]
            self.position += 1
        found = _BRACED_NAME.match(self.text, self.position)
        if found is None:
            raise ShellSyntaxError("this form of ${…} is not read")
        name = found.group()
        self.position = found.end()
        if not prefix and (self.take("[@]}") or self.take("[*]}")):
            return Parameter(name, quoted, ALL_ELEMENTS)
        subscript = self._subscript() if self.take("[") else ()
        if self.take("}"):
            return Parameter(name, quoted, prefix, (), subscript)
        operator = NOT_COMPUTED
        if not prefix and (known := _DEFAULT_OPERATOR.match(self.text, self.position)):
            operator = known.group()
            self.position = known.end()
        elif not prefix and self.take(":"):
            operator = ":"
        elif not prefix and (known := _TRANSFORMATION.match(self.text, self.position)):
            operator = known.group()[:-1]
            self.position += len(operator)
        return Parameter(name, quoted, operator, self._until_brace(quoted), subscript)

    def _until_brace(self, quoted: bool) -> Word:
        plain = _PLAIN_IN_DOUBLE_BRACES if quoted else _PLAIN_IN_BRACES
        parts: list[Part] = []
        while self.position < len(self.text):
            self.budget.spend()
            if self.take("}"):
                return tuple(parts)
            if found := plain.match(self.text, self.position):
                self.position = found.end()
                parts.append(Text(found.group(), quoted))
            else:
                self._special(parts, in_double_quotes=quoted and not self.at('"'))
        raise ShellSyntaxError("${ is not closed")

    def take_documents(self) -> None:
        """Right after a newline: read the here-documents that were announced before it."""
        for document in self.documents.awaited():
            body, self.position = self.documents.read(document, self.lines, self.position)
            if document.is_literal:
                document.redirect.target = (Text(body, quoted=True),)
            else:
                with self.budget:
                    document.redirect.target = self.nested(body).expanded_text()
