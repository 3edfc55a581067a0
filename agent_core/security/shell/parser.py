"""A parser of bash that refuses whatever it does not understand, in a fixed number of steps at most."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_PLAIN: Final = re.compile(r"[^ \t\n\\'\"`$;&|<>()]+")
_SINGLE_QUOTED: Final = re.compile(r"'([^']*+)'")
_BACKQUOTED: Final = re.compile(r"`((?:[^`\\]++|\\.)*+)`", re.DOTALL)
_ANSI_C: Final = re.compile(r"((?:[^'\\]|\\(?:[abfnrtv\\'\"]|x[0-9A-Fa-f]{2}|[0-3]?[0-7]{1,2}(?![0-7])))*+)'")
_NAME: Final = re.compile(r"[A-Za-z_]\w*|\d|[@*#?$!-]", re.ASCII)
_BRACED: Final = re.compile(r"([!#]?(?=[^}]))([A-Za-z_]\w*|\d+|[@*#?$!-])", re.ASCII)
_OPERATOR: Final = re.compile(r":?[-=+?]|@[A-Za-z](?=\})|[:#%/^,@*]|(?=\})")
_BLANK: Final = re.compile(r"(?:[ \t]|\\\n)+")
_COMMENT: Final = re.compile(r"#[^\n]*")
_REDIRECT: Final = re.compile(r"(\d+|\{[A-Za-z_]\w*\})?(&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||<(?!\()|>(?!\())", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)(\[[^\n=]*?\])?\+?=", re.ASCII)
_RESERVED: Final = re.compile(
    r"(?:if|then|else|elif|fi|do|done|case|esac|while|until|for|select|function|time|in|\{|\}|!|\[\[)"
    r"(?=[ \t\n;&|()<>]|\Z)"
)
_STRAY: Final = frozenset({"then", "else", "elif", "fi", "do", "done", "esac", "}", "in"})
_FOLLOWING: Final = {
    **{"{": {"}"}, "while": {"do"}, "until": {"do"}, "do": {"done"}},
    **{"if": {"then"}, "elif": {"then"}, "then": {"elif", "else", "fi"}, "else": {"fi"}},
}
_END: Final = re.compile(r"\)|;;&?|;&|\Z")
_PREFIXES: Final = re.compile(r"(?:(?:!|time)(?=[ \t\n;&|()<>]|\Z)(?:[ \t]|\\\n)*+)*+")
_LINE: Final = re.compile(r"([^\n]*+)\n?")
_JOINED_LINE: Final = re.compile(r"((?:[^\\\n]++|\\.)*+\\?)\n?", re.DOTALL)


class ShellSyntaxError(ValueError):
    """This is no complete shell script, or has a form that is not read here, or would take too much time or depth."""


class Budget:
    """What a command may cost, its nested scripts included: steps in all, and depth at any time."""

    def __init__(self, steps: int = 12_000, depth: int = 30) -> None:
        self.steps = steps
        self.depth = depth

    def spend(self, steps: int = 1) -> None:
        """Use up some steps. Raises ShellSyntaxError: there are none left."""
        self.steps -= steps
        if self.steps < 0:
            raise ShellSyntaxError("the command is too long to be judged")

    def __enter__(self) -> None:
        self.spend()
        if self.depth <= 0:
            raise ShellSyntaxError("the command is nested too deeply to be judged")
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

    script: ShellScript
    quoted: bool = False
    way: str = ""


WordPart = Text | Parameter | Substitution
Word = tuple[WordPart, ...]
_SEPARATOR: Final = Text("\n", quoted=True)
_DECLARERS: Final = [(Text(name),) for name in ("declare", "typeset", "local", "export", "readonly")]


@dataclass(slots=True)
class Redirect:
    """A redirection. For here-documents and here-strings `target` is the text itself."""

    operator: str
    target: Word = ()
    descriptor: str = ""


@dataclass(slots=True)
class ShellCommand:
    """A command: its arguments; or (`kind` is its first word) a compound one with what it looks at and runs."""

    kind: str = ""
    words: list[Word] = field(default_factory=list)
    assignments: list[Parameter] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    scripts: list[ShellScript] = field(default_factory=list)
    name: str = ""


class Pipeline(NamedTuple):
    """Commands joined by pipes. `joined` is the ``&&`` or ``||`` that it follows."""

    commands: list[ShellCommand]
    joined: str = ""
    background: bool = False
    negated: bool = False


ShellScript = list[Pipeline]


def parse(text: str, budget: Budget) -> tuple[ShellScript, str]:
    """The script as far as it could be read, and what was wrong with what follows ("" for nothing)."""
    script: ShellScript = []
    try:
        Parser(text, budget).script({""}, script)
    except ShellSyntaxError as error:
        return script, str(error)
    return script, ""


def plain(word: Word) -> str:
    """The text of a word without expansions. Raises ShellSyntaxError: it is empty, or has some."""
    if not word or not all(isinstance(part, Text) for part in word):
        raise ShellSyntaxError("a name is missing")
    return "".join(part.text for part in word if isinstance(part, Text))


class Parser:
    """A position in a text, and how to read a script from there; see `parse`."""

    def __init__(self, text: str, budget: Budget) -> None:
        self._text = text
        self._position = 0
        self._budget = budget
        self._documents: list[tuple[Redirect, str, bool]] = []

    def _at(self, *tokens: str) -> bool:
        return self._text.startswith(tokens, self._position)

    def _take(self, *tokens: str, is_needed: bool = False) -> str:
        found = next(filter(self._at, tokens), "")
        if is_needed and not found:
            raise ShellSyntaxError(f"{tokens[0]} is missing")
        self._position += len(found)
        return found

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        if found := pattern.match(self._text, self._position):
            self._position = found.end()
        return found

    def _expect(self, pattern: re.Pattern[str], problem: str) -> re.Match[str]:
        if (found := self._match(pattern)) is None:
            raise ShellSyntaxError(problem)
        return found

    # Words

    def _word(self, problem: str = "") -> Word:
        """Read a word and the blanks behind it; that there is none may be a `problem`, which is raised."""
        parts: list[WordPart] = []
        while self._position < len(self._text):
            self._budget.spend()
            if found := self._match(_PLAIN):
                parts.append(Text(found.group()))
            elif way := self._take("<(", ">("):
                with self._budget:
                    parts.append(Substitution(self.script({")"}), way=way[0]))
            elif not self._special(parts, in_quotes=False):
                break
        if problem and not parts:
            raise ShellSyntaxError(problem)
        self._blanks()
        return tuple(parts)

    def _parts(self, ends: str = "", *, quoted: bool = True, literal: bool = True) -> Word:
        """Text up to the closing character (the last of `ends`); `literal`: quotes are those between double quotes."""
        opening, closing = ends[:-1], ends[-1:]
        special = "\\\\`$" + re.escape(ends) + '"' * bool(ends) + "'" * (not literal)
        ordinary = re.compile(f"[^{special}]+")
        parts: list[WordPart] = []
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

    def _special(self, parts: list[WordPart], *, in_quotes: bool, escaped: str = "") -> bool:
        """Read a quote, escape or expansion; False when there is none here."""
        match self._text[self._position]:
            case "\\":
                following = self._text[self._position + 1 : self._position + 2]
                self._position += 2
                if following != "\n":
                    backslash = "\\" if not following or (in_quotes and following not in escaped) else ""
                    parts.append(Text(backslash + following, quoted=True))
            case "'" if not in_quotes:
                found = self._expect(_SINGLE_QUOTED, "a single quote is not closed")
                parts.append(Text(found[1], quoted=True))
            case '"':
                self._position += 1
                parts += (Text("", quoted=True), *self._parts('"'))
            case "`":
                found = self._expect(_BACKQUOTED, "a backquote is not closed")
                self._budget.spend(len(found[0]) // 100)
                inside = re.sub(r"\\([`$\\\"])" if in_quotes else r"\\([`$\\])", r"\1", found[1])
                with self._budget:
                    parts.append(Substitution(Parser(inside, self._budget).script({""}), in_quotes))
            case "$":
                parts += self._dollar(in_quotes)
            case _:
                return False
        return True

    def _dollar(self, quoted: bool) -> Word:
        self._position += 1
        with self._budget:
            if self._at("("):
                if expression := self._arithmetic():
                    return expression
                self._position += 1
                script = self.script({")"})
                if self._documents:
                    raise ShellSyntaxError("a here-document is not closed where its substitution is")
                return (Substitution(script, quoted),)
            if self._take("{"):
                found = self._expect(_BRACED, "this form of ${…} is not read")
                subscript = self._parts("[]", literal=False) if self._take("[") else ()
                operator = self._expect(_OPERATOR, "this form of ${…} is not read")[0]
                argument = self._parts("}", quoted=quoted, literal=quoted)
                operator = ("length" if found[1] == "#" else found[1]) + operator
                return (Parameter(found[2], quoted, operator, argument, subscript),)
            if self._take("["):
                return (Parameter("", argument=self._parts("[]", literal=False)),)
        if not quoted and self._take("'"):
            found = self._expect(_ANSI_C, "a single quote is not closed, or has an escape that is not read")
            decoded = found[1].encode("latin-1", "backslashreplace").decode("unicode_escape")
            return (Text(decoded.split("\0", 1)[0], quoted=True),)
        name = self._match(_NAME)
        if self._at("\\\n"):
            raise ShellSyntaxError("a line ends in the name of a variable")
        return (Parameter(name.group(), quoted) if name else Text("$", quoted),)

    def _arithmetic(self) -> Word:
        before = self._position
        if self._take("(("):
            try:
                inside = self._parts("()", literal=False)
                self._take(")", is_needed=True)
            except ShellSyntaxError:
                self._position = before  # perhaps a subshell in a subshell: it fails again if it is neither
            else:
                return (Parameter("", argument=inside),)
        return ()

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
        body = ""
        while self._position < len(self._text):
            found = self._expect(_LINE if is_literal else _JOINED_LINE, "")
            line = found[1] if is_literal else re.sub(r"\\\n|(\\.)", r"\1", found[1])
            line = line.lstrip("\t" if redirect.operator == "<<-" else "\0")
            if line == delimiter:
                break
            body += line + "\n"
        with self._budget:
            redirect.target = (Text(body, quoted=True),) if is_literal else Parser(body, self._budget)._parts()

    # Commands

    def script(self, ends: set[str], into: ShellScript | None = None) -> ShellScript:
        """Pipelines up to one of `ends`: ``)``, which is taken, or a reserved word, an end of a case, or the end."""
        pipelines: ShellScript = [] if into is None else into
        joined = ""
        while True:
            self._line_breaks()
            if not joined and self._at_end(ends):
                self._take(")")
                return pipelines
            prefixes = self._expect(_PREFIXES, "")[0]
            commands = self._pipeline()
            follows = self._take("&&", "||")
            background = not follows and bool(self._take("&"))
            pipelines.append(Pipeline(commands, joined, background, "!" in prefixes))
            joined = follows
            if not (joined or background or self._at_end(ends) or self._take(";") or self._at("\n")):
                raise ShellSyntaxError("something unexpected follows a command")

    def _at_end(self, ends: set[str]) -> bool:
        if (found := _END.match(self._text, self._position)) is None:
            return self._reserved() in ends - {""}
        if found[0] not in ends:
            raise ShellSyntaxError(f"{found[0]} is out of place" if found[0] else "the script ends too early")
        return True

    def _reserved(self) -> str:
        return (_RESERVED.match(self._text, self._position) or [""])[0]

    def _pipeline(self) -> list[ShellCommand]:
        commands = [self._command()]
        while self._at("|") and not self._at("||"):
            self._position += 1
            if self._take("&"):
                commands[-1].redirects.append(Redirect(">&", (Text("1"),), "2"))
            self._line_breaks()
            commands.append(self._command())
        return commands

    def _command(self) -> ShellCommand:
        with self._budget:
            word = self._reserved()
            if word in _STRAY:
                raise ShellSyntaxError(f"{word} is out of place")
            if not word and not self._at("("):
                return self._simple()
            command = self._compound(word)
            self._blanks()
            while self._redirect(command):
                pass
            return command

    def _simple(self) -> ShellCommand:
        command = ShellCommand()
        while True:
            self._budget.spend()
            self._blanks()
            if self._redirect(command) or self._assignment(command):
                continue
            if not (word := self._word()):
                break
            command.words.append(word)
            if len(command.words) == 1 and not command.assignments and not command.redirects:
                bare = [part.text for part in word if isinstance(part, Text) and not part.quoted]
                if _RESERVED.fullmatch("".join(bare)):
                    raise ShellSyntaxError("a line ends in a reserved word")
                if self._at("("):
                    return self._function(plain(word))
        if self._at("(") or not (command.words or command.assignments or command.redirects):
            raise ShellSyntaxError("a command is missing, or a parenthesis out of place")
        return command

    def _assignment(self, command: ShellCommand) -> bool:
        is_elsewhere = command.words and command.words[0] not in _DECLARERS
        if is_elsewhere or (found := self._match(_ASSIGNMENT)) is None:
            return False
        subscript = Parser(found[2][1:-1], self._budget)._parts() if found[2] else ()
        value: Word = ()
        if self._take("("):
            self._line_breaks()
            while not self._take(")"):
                value += (*self._word("an array is not closed, or holds something that is no word"), _SEPARATOR)
                self._line_breaks()
            value += (Parameter("@", quoted=True),)
        else:
            value = self._word()
        command.assignments.append(Parameter(found[1], operator="=", argument=value, subscript=subscript))
        return True

    def _redirect(self, command: ShellCommand) -> bool:
        if (found := self._match(_REDIRECT)) is None:
            return False
        redirect = Redirect(found[2], descriptor=found[1] or "")
        self._blanks()
        redirect.target = self._word("a redirection has no target")
        if redirect.operator in {"<<", "<<-"}:
            is_literal = any(isinstance(part, Text) and part.quoted for part in redirect.target)
            self._documents.append((redirect, plain(redirect.target), is_literal))
        command.redirects.append(redirect)
        return True

    def _compound(self, word: str) -> ShellCommand:
        if expression := self._arithmetic():
            return ShellCommand("((", [expression])
        self._position += len(word or "(")
        self._blanks()
        match word:
            case "":
                return ShellCommand("(", scripts=[self.script({")"})])
            case "for" | "select":
                return self._for()
            case "case":
                return self._case()
            case "function":
                return self._function(plain(self._word()))
            case "[[":
                return self._test()
            case _:
                return ShellCommand(word, scripts=self._block(word))

    def _block(self, word: str) -> list[ShellScript]:
        scripts: list[ShellScript] = []
        while ends := _FOLLOWING.get(word):
            scripts.append(self.script(ends))
            word = self._reserved()
            self._position += len(word)
        return scripts

    def _for(self) -> ShellCommand:
        command = ShellCommand("for")
        if self._at("(("):
            command.words.append(self._arithmetic())
        else:
            command.name = plain(self._word())
        self._line_breaks()
        if command.name and self._reserved() == "in":
            self._position += 2
            self._blanks()
            while word := self._word():
                command.words.append(word)
        self._blanks()
        self._take(";")
        self._line_breaks()
        self._take("do", is_needed=True)
        command.scripts = self._block("do")
        return command

    def _case(self) -> ShellCommand:
        command = ShellCommand("case", [self._word()])
        self._line_breaks()
        self._take("in", is_needed=True)
        while True:
            self._line_breaks()
            if self._reserved() == "esac":
                self._position += 4
                return command
            self._take("(")
            self._blanks()
            while not self._take(")"):
                command.words.append(self._word("a pattern of a case is not closed"))
                self._take("|")
                self._blanks()
            command.scripts.append(self.script({";;", "esac"}))
            self._take(";;")

    def _test(self) -> ShellCommand:
        command = ShellCommand("[[")
        self._line_breaks()
        while not self._take("]]"):
            self._budget.spend()
            if word := self._word():
                command.words.append(word)
            elif self._position >= len(self._text):
                raise ShellSyntaxError("[[ is not closed")
            else:
                self._position += 1
            self._line_breaks()
        return command

    def _function(self, name: str) -> ShellCommand:
        if self._take("("):
            self._blanks()
            self._take(")", is_needed=True)
        self._line_breaks()
        body = self._command()
        if not body.kind:
            raise ShellSyntaxError("a function has no body")
        return ShellCommand("function", scripts=[[Pipeline([body])]], name=name)
