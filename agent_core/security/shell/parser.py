"""A parser of bash that refuses whatever it does not understand, in a fixed number of steps at most."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

_PLAIN: Final = re.compile(r"[^ \t\n\\'\"`$;&|<>()]+")
_PLAIN_QUOTED: Final = re.compile(r'[^\\"`$]+')
_PLAIN_IN_DOCUMENT: Final = re.compile(r"[^\\`$]+")
_PLAIN_IN_BRACES: Final = re.compile(r"[^\\'\"`$}]+")
_PLAIN_IN_QUOTED_BRACES: Final = re.compile(r"[^\\\"`$}]+")
_PLAIN_IN_ARITHMETIC: Final = re.compile(r"[^()\[\]$`'\"\\]+")
_SINGLE_QUOTED: Final = re.compile(r"'([^']*+)'")
_BACKQUOTED: Final = re.compile(r"`((?:[^`\\]++|\\.)*+)`", re.DOTALL)
_ANSI_C: Final = re.compile(r"((?:[^'\\]++|\\.)*+)'", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_LETTERS: Final = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_NAME: Final = re.compile(r"[A-Za-z_]\w*|\d|[@*#?$!-]", re.ASCII)
_BRACED: Final = re.compile(r"([!#]?(?=[^}]))([A-Za-z_]\w*|\d+|[@*#?$!-])", re.ASCII)
_OPERATOR: Final = re.compile(r":?[-=+?]|@[A-Za-z](?=\})|[:#%/^,@*]|(?=\})")
_BLANK: Final = re.compile(r"(?:[ \t]|\\\n)+")
_COMMENT: Final = re.compile(r"#[^\n]*")
_REDIRECT: Final = re.compile(r"(\d+|\{[A-Za-z_]\w*\})?(&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||<(?!\()|>(?!\())", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\[[^\n=]*?\])?\+?=", re.ASCII)
_DECLARERS: Final = frozenset({"declare", "typeset", "local", "export", "readonly"})
_RESERVED: Final = re.compile(
    r"(?:if|then|else|elif|fi|do|done|case|esac|while|until|for|select|function|time|in|\{|\}|!|\[\[)"
    r"(?=[ \t\n;&|()<>]|\Z)"
)
_STRAY: Final = frozenset({"then", "else", "elif", "fi", "do", "done", "esac", "}", "in"})
_FOLLOWING: Final = {
    **{"{": {"}"}, "while": {"do"}, "until": {"do"}, "do": {"done"}},
    **{"if": {"then"}, "elif": {"then"}, "then": {"elif", "else", "fi"}, "else": {"fi"}},
}
_CASE_ENDS: Final = (";;&", ";;", ";&")
_CONTINUED: Final = re.compile(r"(?<!\\)(?:\\\\)*+\\\Z")
_END_OF_TEXT: Final = ""


class ShellSyntaxError(ValueError):
    """This is no complete shell script, or one with a form that is not read here."""


class TooComplexError(ShellSyntaxError):
    """Reading on would take more time or depth than a command may have."""


class Budget:
    """What a command may cost, its nested scripts included: steps in all, and depth at any time."""

    def __init__(self, steps: int = 12_000, depth: int = 30) -> None:
        self.steps = steps
        self.depth = depth

    def spend(self, steps: int = 1) -> None:
        """Use up some steps. Raises TooComplexError: there are none left."""
        self.steps -= steps
        if self.steps < 0:
            raise TooComplexError("the command is too long to be judged")

    def __enter__(self) -> None:
        self.spend()
        if self.depth <= 0:
            raise TooComplexError("the command is nested too deeply to be judged")
        self.depth -= 1

    def __exit__(self, *_: object) -> None:
        self.depth += 1


class Text(NamedTuple):
    """Characters that stand for themselves; unquoted ones may still be patterns, braces or a tilde."""

    text: str
    quoted: bool = False


class Parameter(NamedTuple):
    """``${name[subscript]<operator><argument>}``, ``name=argument``, or without a name ``$((argument))``."""

    name: str
    quoted: bool = False
    operator: str = ""
    argument: Word = ()
    subscript: Word = ()


class Substitution(NamedTuple):
    """``$(script)``, or the same in backquotes; with a `way` it is ``<(script)`` or ``>(script)``."""

    script: Script
    quoted: bool = False
    way: str = ""


Part = Text | Parameter | Substitution
Word = tuple[Part, ...]
_SEPARATOR: Final = Text("\n", quoted=True)


@dataclass(slots=True)
class Redirect:
    """A redirection. For here-documents and here-strings `target` is the text itself."""

    operator: str
    target: Word = ()
    descriptor: str = ""


class ShellCommand(NamedTuple):
    """A command: its arguments; or (`kind` is its first word) a compound one with what it looks at and runs."""

    kind: str = ""
    words: tuple[Word, ...] = ()
    assignments: tuple[Parameter, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    scripts: tuple[Script, ...] = ()
    name: str = ""


class Pipeline(NamedTuple):
    """Commands joined by pipes. `joined` is the ``&&`` or ``||`` that it follows."""

    commands: tuple[ShellCommand, ...]
    joined: str = ""
    background: bool = False
    negated: bool = False


Script = tuple[Pipeline, ...]


def parse(text: str, budget: Budget) -> tuple[Script, str]:
    """The script as far as it could be read, and what was wrong with what follows ("" for nothing)."""
    pipelines: list[Pipeline] = []
    try:
        Parser(text, budget).pipelines_until({_END_OF_TEXT}, pipelines)
    except ShellSyntaxError as error:
        return tuple(pipelines), str(error)
    return tuple(pipelines), ""


def _decoded(found: re.Match[str]) -> str:
    if found[1] or found[2]:
        return chr(int(found[1], 16) if found[1] else int(found[2], 8) & 0xFF)
    if found[3] in "uUc":
        raise ShellSyntaxError("this escape is not read")
    return _LETTERS.get(found[3], "\\" + found[3])


def plain(word: Word) -> str:
    """The text of a word without expansions. Raises ShellSyntaxError: it is empty, or has some."""
    if not word or not all(isinstance(part, Text) for part in word):
        raise ShellSyntaxError("a name is missing")
    return "".join(part.text for part in word if isinstance(part, Text))


def is_unquoted(word: Word) -> bool:
    """Whether a word is text without any quotes."""
    return all(isinstance(part, Text) and not part.quoted for part in word)


class Parser:
    """A position in a text, and how to read a script from there; see `parse`."""

    def __init__(self, text: str, budget: Budget) -> None:
        self._text = text
        self._position = 0
        self._budget = budget
        self._documents: list[tuple[Redirect, str, bool]] = []

    def _at(self, token: str) -> bool:
        return self._text.startswith(token, self._position)

    def _take(self, token: str) -> bool:
        found = self._at(token)
        self._position += len(token) * found
        return found

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        if found := pattern.match(self._text, self._position):
            self._position = found.end()
        return found

    def _expect(self, pattern: re.Pattern[str], problem: str) -> re.Match[str]:
        if (found := self._match(pattern)) is None:
            raise ShellSyntaxError(problem)
        return found

    def _take_or_refuse(self, token: str) -> None:
        if not self._take(token):
            raise ShellSyntaxError(f"{token} is missing")

    # Words

    def _word(self) -> Word:
        parts: list[Part] = []
        while self._position < len(self._text):
            self._budget.spend()
            if found := self._match(_PLAIN):
                parts.append(Text(found.group()))
            elif self._at("<(") or self._at(">("):
                self._position += 2
                way = self._text[self._position - 2]
                with self._budget:
                    parts.append(Substitution(self._until_parenthesis(), way=way))
            elif not self._special(parts, in_quotes=False):
                break
        return tuple(parts)

    def _needed_word(self, problem: str) -> Word:
        if not (word := self._word()):
            raise ShellSyntaxError(problem)
        return word

    def _parts(self, ordinary: re.Pattern[str], ends: str = "", *, quoted: bool = True, literal: bool = True) -> Word:
        """Text up to the closing character (the last of `ends`); `literal`: quotes are those between double quotes."""
        opening, closing = ends[:-1], ends[-1:]
        parts: list[Part] = []
        depth = 0
        while self._position < len(self._text):
            self._budget.spend()
            if found := self._match(ordinary):
                parts.append(Text(found.group(), quoted))
                continue
            character = self._text[self._position]
            if character == closing and depth == 0:
                self._position += 1
                return tuple(parts)
            depth += (character == opening) - (character == closing)
            if not self._special(parts, in_quotes=literal, escaped='$`"\\' if closing else "$`\\"):
                parts.append(Text(character, quoted))
                self._position += 1
        if closing:
            raise ShellSyntaxError(f"{closing} is missing")
        return tuple(parts)

    def _special(self, parts: list[Part], *, in_quotes: bool, escaped: str = "") -> bool:
        """Read a quote, escape or expansion; False when there is none here."""
        match self._text[self._position]:
            case "\\":
                following = self._text[self._position + 1 : self._position + 2]
                self._position += 2
                if following != "\n":
                    kept = "\\" if not following or (in_quotes and following not in escaped) else ""
                    parts.append(Text(kept + following, quoted=True))
            case "'" if not in_quotes:
                found = self._expect(_SINGLE_QUOTED, "a single quote is not closed")
                parts.append(Text(found[1], quoted=True))
            case '"':
                self._position += 1
                parts += (Text("", quoted=True), *self._parts(_PLAIN_QUOTED, '"'))
            case "`":
                parts.append(self._backquoted(in_quotes))
            case "$":
                parts += self._dollar(in_quotes)
            case _:
                return False
        return True

    def _backquoted(self, quoted: bool) -> Substitution:
        found = self._expect(_BACKQUOTED, "a backquote is not closed")
        self._budget.spend(len(found[0]) // 100)
        inside = re.sub(r"\\([`$\\\"])" if quoted else r"\\([`$\\])", r"\1", found[1])
        with self._budget:
            return Substitution(Parser(inside, self._budget)._script({_END_OF_TEXT}), quoted)

    def _dollar(self, quoted: bool) -> Word:
        self._position += 1
        with self._budget:
            if self._at("("):
                if expression := self._arithmetic():
                    return expression
                self._position += 1
                script = self._until_parenthesis()
                if self._documents:
                    raise ShellSyntaxError("a here-document is not closed where its substitution is")
                return (Substitution(script, quoted),)
            if self._take("{"):
                return (self._braced(quoted),)
            if self._take("["):
                return (Parameter("", argument=self._parts(_PLAIN_IN_ARITHMETIC, "[]", literal=False)),)
        if not quoted and self._take("'"):
            found = self._expect(_ANSI_C, "a single quote is not closed")
            return (Text(_ESCAPE.sub(_decoded, found[1]).split("\0", 1)[0], quoted=True),)
        if not quoted and self._at('"'):
            return ()
        name = self._match(_NAME)
        if self._at("\\\n"):
            raise ShellSyntaxError("a line ends in the name of a variable")
        return (Parameter(name.group(), quoted) if name else Text("$", quoted),)

    def _arithmetic(self) -> Word:
        before = self._position
        if self._take("(("):
            try:
                inside = self._parts(_PLAIN_IN_ARITHMETIC, "()", literal=False)
                self._take_or_refuse(")")
            except TooComplexError:
                raise
            except ShellSyntaxError:
                self._position = before  # perhaps a subshell in a subshell: it fails again if it is neither
            else:
                return (Parameter("", argument=inside),)
        return ()

    def _braced(self, quoted: bool) -> Parameter:
        found = self._expect(_BRACED, "this form of ${…} is not read")
        subscript = self._parts(_PLAIN_IN_ARITHMETIC, "[]", literal=False) if self._take("[") else ()
        operator = self._expect(_OPERATOR, "this form of ${…} is not read")
        argument = self._parts(
            _PLAIN_IN_QUOTED_BRACES if quoted else _PLAIN_IN_BRACES, "}", quoted=quoted, literal=quoted
        )
        prefix = "length" if found[1] == "#" else found[1]
        return Parameter(found[2], quoted, prefix + operator.group(), argument, subscript)

    # Blanks, comments, here-documents

    def _blanks(self) -> None:
        self._match(_BLANK)
        if self._at("#") and self._text[max(self._position - 1, 0)] in "# \t\n;&|()<>":
            self._match(_COMMENT)

    def _line_breaks(self) -> None:
        self._blanks()
        while self._take("\n"):
            self._budget.spend()
            for document in self._documents:
                self._read(*document)
            self._documents.clear()
            self._blanks()

    def _read(self, redirect: Redirect, delimiter: str, is_literal: bool) -> None:
        lines: list[str] = []
        while self._position < len(self._text):
            pieces = [self._line()]
            while not is_literal and _CONTINUED.search(pieces[-1]) and self._position < len(self._text):
                pieces[-1] = pieces[-1][:-1]
                pieces.append(self._line())
            line = "".join(pieces).lstrip("\t" if redirect.operator == "<<-" else "\0")
            if line == delimiter:
                break
            lines.append(line + "\n")
        body = "".join(lines)
        with self._budget:
            redirect.target = (
                (Text(body, quoted=True),) if is_literal else Parser(body, self._budget)._parts(_PLAIN_IN_DOCUMENT)
            )

    def _line(self) -> str:
        start, end = self._position, self._text.find("\n", self._position)
        end = len(self._text) if end < 0 else end
        self._position = min(end + 1, len(self._text))
        return self._text[start:end]

    # Commands

    def pipelines_until(self, ends: set[str], into: list[Pipeline]) -> None:
        """Append pipelines up to one of `ends`, which is not taken: a reserved word, ``)``, ``;;``, or the end."""
        joined = ""
        while True:
            self._line_breaks()
            if not joined and self._at_end(ends):
                return
            negated = self._prefixes()
            commands = self._pipeline()
            self._blanks()
            follows = "&&" if self._take("&&") else "||" if self._take("||") else ""
            background = not follows and self._take("&")
            into.append(Pipeline(commands, joined, background, negated))
            joined = follows
            if joined or background or self._at_end(ends):
                continue
            if self._at(";") and not any(self._at(end) for end in _CASE_ENDS):
                self._position += 1
            elif not self._at("\n"):
                raise ShellSyntaxError("something unexpected follows a command")

    def _script(self, ends: set[str]) -> Script:
        pipelines: list[Pipeline] = []
        self.pipelines_until(ends, pipelines)
        return tuple(pipelines)

    def _until_parenthesis(self) -> Script:
        script = self._script({")"})
        self._position += 1
        return script

    def _at_end(self, ends: set[str]) -> bool:
        if self._position >= len(self._text):
            found = _END_OF_TEXT
        elif self._at(")"):
            found = ")"
        elif any(self._at(end) for end in _CASE_ENDS):
            found = ";;"
        else:
            return self._reserved() in ends - {_END_OF_TEXT}
        if found not in ends:
            raise ShellSyntaxError(f"{found} is out of place" if found else "the script ends too early")
        return True

    def _reserved(self) -> str:
        return (_RESERVED.match(self._text, self._position) or [""])[0]

    def _prefixes(self) -> bool:
        negated = False
        while (word := self._reserved()) in {"!", "time"}:
            self._budget.spend()
            negated = negated or word == "!"
            self._position += len(word)
            self._blanks()
        return negated

    def _pipeline(self) -> tuple[ShellCommand, ...]:
        commands = [self._command()]
        self._blanks()
        while self._at("|") and not self._at("||"):
            self._position += 1
            if self._take("&"):
                errors = (*commands[-1].redirects, Redirect(">&", (Text("1"),), "2"))
                commands[-1] = commands[-1]._replace(redirects=errors)
            self._line_breaks()
            commands.append(self._command())
            self._blanks()
        return tuple(commands)

    def _command(self) -> ShellCommand:
        with self._budget:
            word = self._reserved()
            if word in _STRAY:
                raise ShellSyntaxError(f"{word} is out of place")
            if not word and not self._at("("):
                return self._simple()
            compound = self._compound(word)
            redirects: list[Redirect] = []
            self._blanks()
            while self._redirect(redirects):
                self._blanks()
            return compound._replace(redirects=tuple(redirects))

    def _simple(self) -> ShellCommand:
        words: list[Word] = []
        assignments: list[Parameter] = []
        redirects: list[Redirect] = []
        while True:
            self._budget.spend()
            self._blanks()
            if self._redirect(redirects) or self._assignment(words, assignments):
                continue
            if not (word := self._word()):
                break
            words.append(word)
            if len(words) == 1 and not assignments and not redirects:
                if is_unquoted(word) and _RESERVED.fullmatch(plain(word)):
                    raise ShellSyntaxError("a line ends in a reserved word")
                self._blanks()
                if self._at("("):
                    return self._function(plain(word))
        if self._at("(") or not (words or assignments or redirects):
            raise ShellSyntaxError("a command is missing, or a parenthesis out of place")
        return ShellCommand("", tuple(words), tuple(assignments), tuple(redirects))

    def _assignment(self, words: list[Word], into: list[Parameter]) -> bool:
        if words and not (is_unquoted(words[0]) and plain(words[0]) in _DECLARERS):
            return False
        found = self._match(_ASSIGNMENT)
        if found is None:
            return False
        subscript = Parser(found[2][1:-1], self._budget)._parts(_PLAIN_IN_DOCUMENT) if found[2] else ()
        value = () if self._at("(") else self._word()
        if not value and self._take("("):
            self._line_breaks()
            while not self._take(")"):
                value += (*self._needed_word("an array is not closed, or holds something that is no word"), _SEPARATOR)
                self._line_breaks()
            value += (Parameter("@", quoted=True),)
        into.append(Parameter(found[1], operator="=", argument=value, subscript=subscript))
        return True

    def _redirect(self, into: list[Redirect]) -> bool:
        found = self._match(_REDIRECT)
        if found is None:
            return False
        redirect = Redirect(found[2], descriptor=found[1] or "")
        self._blanks()
        target = self._needed_word("a redirection has no target")
        if redirect.operator in {"<<", "<<-"}:
            is_literal = any(isinstance(part, Text) and part.quoted for part in target)
            self._documents.append((redirect, plain(target), is_literal))
        else:
            redirect.target = target
        into.append(redirect)
        return True

    def _compound(self, word: str) -> ShellCommand:
        if expression := self._arithmetic():
            return ShellCommand("((", (expression,))
        self._position += len(word or "(")
        match word:
            case "":
                return ShellCommand("(", scripts=(self._until_parenthesis(),))
            case "for" | "select":
                return self._for()
            case "case":
                return self._case()
            case "function":
                self._blanks()
                return self._function(plain(self._word()))
            case "[[":
                return self._test()
            case _:
                return ShellCommand(word, scripts=self._block(word))

    def _block(self, word: str) -> tuple[Script, ...]:
        scripts: list[Script] = []
        while ends := _FOLLOWING.get(word):
            scripts.append(self._script(ends))
            word = self._reserved()
            self._position += len(word)
        return tuple(scripts)

    def _for(self) -> ShellCommand:
        self._blanks()
        words = [self._arithmetic()] if self._at("((") else []
        name = "" if words else plain(self._word())
        self._line_breaks()
        if name and self._reserved() == "in":
            self._position += 2
            self._blanks()
            while word := self._word():
                words.append(word)
                self._blanks()
        self._blanks()
        self._take(";")
        self._line_breaks()
        start = "{" if self._reserved() == "{" else "do"
        self._take_or_refuse(start)
        return ShellCommand("for", tuple(words), name=name, scripts=self._block(start))

    def _case(self) -> ShellCommand:
        self._blanks()
        words = [self._word()]
        self._line_breaks()
        self._take_or_refuse("in")
        scripts: list[Script] = []
        while True:
            self._line_breaks()
            if self._reserved() == "esac":
                self._position += 4
                return ShellCommand("case", tuple(words), scripts=tuple(scripts))
            self._take("(")
            self._blanks()
            while not self._take(")"):
                words.append(self._needed_word("a pattern of a case is not closed"))
                self._blanks()
                self._take("|")
                self._blanks()
            scripts.append(self._script({";;", "esac"}))
            any(self._take(end) for end in _CASE_ENDS)

    def _test(self) -> ShellCommand:
        words: list[Word] = []
        while True:
            self._line_breaks()
            if self._take("]]"):
                return ShellCommand("[[", tuple(words))
            if self._position >= len(self._text):
                raise ShellSyntaxError("[[ is not closed")
            self._budget.spend()
            if word := self._word():
                words.append(word)
            else:
                self._position += 1

    def _function(self, name: str) -> ShellCommand:
        self._blanks()
        if self._take("("):
            self._blanks()
            self._take_or_refuse(")")
        self._line_breaks()
        body = self._command()
        if not body.kind:
            raise ShellSyntaxError("a function has no body")
        return ShellCommand("function", scripts=((Pipeline((body,)),),), name=name)
