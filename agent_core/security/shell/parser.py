"""A parser of bash: text to simple commands, pipelines, redirections and substitutions.

Written by hand rather than taken from an editor's grammar: a guard has to refuse what it does not understand (an editor
guesses on), and hostile text must not cost more than a fixed number of steps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from agent_core.security.shell import syntax
from agent_core.security.shell.syntax import Budget, ShellSyntaxError, TooComplexError

_PLAIN: Final = re.compile(r"[^ \t\n\\'\"`$;&|<>()]+")
_PLAIN_QUOTED: Final = re.compile(r'[^\\"`$]+')
_PLAIN_IN_BRACES: Final = re.compile(r"[^\\'\"`$}]+")
_PLAIN_IN_QUOTED_BRACES: Final = re.compile(r"[^\\\"`$}]+")
_PLAIN_IN_ARITHMETIC: Final = re.compile(r"[^()\[\]$`'\"\\]+")
_BACKQUOTED: Final = re.compile(r"((?:[^`\\]++|\\.)*+)`", re.DOTALL)
_ANSI_C: Final = re.compile(r"((?:[^'\\]++|\\.)*+)'", re.DOTALL)
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
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
    r"(?:if|then|else|elif|fi|do|done|case|esac|while|until|for|select|function|time|coproc|in|\{|\}|!|\[\[)"
    r"(?=[ \t\n;&|()<>]|\Z)"
)
_TIME_OPTION: Final = re.compile(r"-p(?=[ \t\n])")
_STRAY: Final = frozenset({"then", "else", "elif", "fi", "do", "done", "esac", "}", "in"})
_CASE_ENDS: Final = (";;&", ";;", ";&")
_CONTINUED: Final = re.compile(r"(?<!\\)(?:\\\\)*+\\\Z")
_END_OF_TEXT: Final = ""


def parse(text: str, budget: Budget) -> tuple[syntax.Script, str]:
    """The script, and what was wrong with it ("" for nothing).

    bash runs the lines before a syntax error, so what could be read before it is returned too; a text that is too
    much for the budget is wrong in this sense.
    """
    parser = Parser(text, budget)
    pipelines: list[syntax.Pipeline] = []
    try:
        parser.pipelines_until(frozenset({_END_OF_TEXT}), pipelines)
    except ShellSyntaxError as error:
        return tuple(pipelines), str(error)
    return tuple(pipelines), ""


def decode_ansi_c(text: str) -> str:
    """What ``$'text'`` stands for; as in bash, a NUL ends it."""

    def decoded(found: re.Match[str]) -> str:
        hexadecimal = found[1] or found[2] or found[3]
        if hexadecimal or found[4]:
            number = int(hexadecimal, 16) if hexadecimal else int(found[4], 8) & 0xFF
            return chr(number) if number <= 0x10FFFF and not 0xD800 <= number < 0xE000 else "\ufffd"
        return chr(ord(found[5]) & 0x1F) if found[5] else _LETTERS.get(found[6], "\\" + found[6])

    return _ESCAPE.sub(decoded, text).split("\0", 1)[0]


@dataclass(frozen=True, slots=True)
class _Document:
    """A here-document whose text is still to come; nothing is expanded in a literal one."""

    redirect: syntax.Redirect
    delimiter: str
    is_literal: bool


class Parser:
    """A position in a text, and how to read a script from there; see `parse`."""

    def __init__(self, text: str, budget: Budget) -> None:
        self._text = text
        self._position = 0
        self._budget = budget
        self._documents: list[_Document] = []

    def _at(self, token: str) -> bool:
        return self._text.startswith(token, self._position)

    def _take(self, token: str) -> bool:
        if self._at(token):
            self._position += len(token)
            return True
        return False

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What of `pattern` comes next; it is taken."""
        if found := pattern.match(self._text, self._position):
            self._position = found.end()
        return found

    # Words

    def _word(self) -> syntax.Word:
        """The word that starts here; empty when none does."""
        parts: list[syntax.Part] = []
        while self._position < len(self._text):
            self._budget.spend()
            if plain := self._match(_PLAIN):
                parts.append(syntax.Text(plain.group()))
            elif self._at("<(") or self._at(">("):
                self._position += 2
                way = self._text[self._position - 2]
                with self._budget:
                    parts.append(syntax.Substitution(self._until_parenthesis(), way=way))
            elif not self._special(parts, in_quotes=False):
                break
        return tuple(parts)

    def _special(self, parts: list[syntax.Part], *, in_quotes: bool, escaped: str = '$`"\\') -> bool:
        """Read a quote, escape or expansion; False when there is none here."""
        match self._text[self._position]:
            case "\\":
                following = self._text[self._position + 1 : self._position + 2]
                self._position += 2
                if following != "\n":
                    kept = "\\" if not following or (in_quotes and following not in escaped) else ""
                    parts.append(syntax.Text(kept + following, quoted=True))
            case "'" if not in_quotes:
                end = self._text.find("'", self._position + 1)
                if end < 0:
                    raise ShellSyntaxError("a single quote is not closed")
                parts.append(syntax.Text(self._text[self._position + 1 : end], quoted=True))
                self._position = end + 1
            case '"':
                self._position += 1
                parts.extend(self._quoted())
            case "`":
                parts.append(self._backquoted(in_quotes))
            case "$":
                parts.extend(self._dollar(in_quotes))
            case _:
                return False
        return True

    def _quoted(self) -> list[syntax.Part]:
        parts: list[syntax.Part] = [syntax.Text("", quoted=True)]
        while not self._take('"'):
            self._budget.spend()
            if self._position >= len(self._text):
                raise ShellSyntaxError("a double quote is not closed")
            if plain := self._match(_PLAIN_QUOTED):
                parts.append(syntax.Text(plain.group(), quoted=True))
            else:
                self._special(parts, in_quotes=True)
        return parts

    def expanded_text(self) -> syntax.Word:
        """All of the text as a here-document's: only ``$``, backquotes and backslashes are special."""
        parts: list[syntax.Part] = []
        while self._position < len(self._text):
            self._budget.spend()
            if plain := self._match(_PLAIN_QUOTED):
                parts.append(syntax.Text(plain.group(), quoted=True))
            elif self._take('"'):
                parts.append(syntax.Text('"', quoted=True))
            else:
                self._special(parts, in_quotes=True, escaped="$`\\")
        return tuple(parts)

    def _backquoted(self, quoted: bool) -> syntax.Substitution:
        self._position += 1
        found = self._match(_BACKQUOTED)
        if found is None:
            raise ShellSyntaxError("a backquote is not closed")
        self._budget.spend(len(found.group()) // 100)
        inside = re.sub(r"\\([`$\\\"])" if quoted else r"\\([`$\\])", r"\1", found[1])
        with self._budget:
            return syntax.Substitution(Parser(inside, self._budget)._script(frozenset({_END_OF_TEXT})), quoted)

    def _dollar(self, quoted: bool) -> list[syntax.Part]:
        self._position += 1
        if self._at("\\\n"):
            raise ShellSyntaxError("a line ends right behind a $")
        if self._at("("):
            with self._budget:
                if (inside := self._arithmetic()) is not None:
                    return [syntax.Arithmetic(inside)]
                self._position += 1
                script = self._until_parenthesis()
                if self._documents:
                    raise ShellSyntaxError("a here-document is not closed where its substitution is")
                return [syntax.Substitution(script, quoted)]
        if self._take("{"):
            with self._budget:
                return [self._braced(quoted)]
        if self._take("["):
            with self._budget:
                return [syntax.Arithmetic(self._balanced("[", "]"))]
        if not quoted and self._take("'"):
            found = self._match(_ANSI_C)
            if found is None:
                raise ShellSyntaxError("a single quote is not closed")
            return [syntax.Text(decode_ansi_c(found[1]), quoted=True)]
        if not quoted and self._take('"'):
            return self._quoted()
        name = self._match(_NAME)
        if name and self._at("\\\n"):
            raise ShellSyntaxError("a line ends in the name of a variable")
        return [syntax.Parameter(name.group(), quoted)] if name else [syntax.Text("$", quoted)]

    def _arithmetic(self) -> syntax.Word | None:
        """The expression in the double parentheses that start here; None, and nothing taken, when there are none."""
        before = self._position
        if self._take("(("):
            try:
                inside = self._balanced("(", ")")
                if self._take(")"):
                    return inside
            except TooComplexError:
                raise
            except ShellSyntaxError:
                pass  # perhaps a subshell in a subshell: read again as that, it fails again if it is neither
        self._position = before
        return None

    def _balanced(self, opening: str, closing: str) -> syntax.Word:
        """The text up to the closing character that was not opened in it, which is taken."""
        parts: list[syntax.Part] = []
        depth = 0
        while self._position < len(self._text):
            self._budget.spend()
            if found := self._match(_PLAIN_IN_ARITHMETIC):
                parts.append(syntax.Text(found.group(), quoted=True))
            elif (character := self._text[self._position]) in "()[]":
                depth += (character == opening) - (character == closing)
                self._position += 1
                if depth < 0:
                    return tuple(parts)
                parts.append(syntax.Text(character, quoted=True))
            else:
                self._special(parts, in_quotes=False)
        raise ShellSyntaxError(f"{opening} is not closed")

    def _braced(self, quoted: bool) -> syntax.Parameter:
        found = self._match(_BRACED)
        if found is None:
            raise ShellSyntaxError("this form of ${…} is not read")
        subscript = self._balanced("[", "]") if self._take("[") else ()
        operator = self._match(_OPERATOR)
        if operator is None:
            raise ShellSyntaxError("this form of ${…} is not read")
        plain = _PLAIN_IN_QUOTED_BRACES if quoted else _PLAIN_IN_BRACES
        argument: list[syntax.Part] = []
        while not self._take("}"):
            self._budget.spend()
            if self._position >= len(self._text):
                raise ShellSyntaxError("${ is not closed")
            if text := self._match(plain):
                argument.append(syntax.Text(text.group(), quoted))
            else:
                self._special(argument, in_quotes=quoted and not self._at('"'))
        prefix = "length" if found[1] == "#" else found[1]
        return syntax.Parameter(found[2], quoted, prefix + operator.group(), tuple(argument), subscript)

    def _plain(self, word: syntax.Word) -> str:
        if not word or not all(isinstance(part, syntax.Text) for part in word):
            raise ShellSyntaxError("a name is missing")
        return "".join(part.text for part in word if isinstance(part, syntax.Text))

    def _is_plain(self, word: syntax.Word) -> bool:
        return all(isinstance(part, syntax.Text) and not part.quoted for part in word)

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
                self._read(document)
            self._documents.clear()
            self._blanks()

    def _read(self, document: _Document) -> None:
        lines: list[str] = []
        strips_tabs = document.redirect.operator == "<<-"
        while self._position < len(self._text):
            pieces = [self._line()]
            while not document.is_literal and _CONTINUED.search(pieces[-1]) and self._position < len(self._text):
                pieces[-1] = pieces[-1][:-1]
                pieces.append(self._line())
            line = "".join(pieces).lstrip("\t") if strips_tabs else "".join(pieces)
            if line == document.delimiter:
                break
            lines.append(line + "\n")
        body = "".join(lines)
        with self._budget:
            literal: syntax.Word = (syntax.Text(body, quoted=True),)
            document.redirect.target = literal if document.is_literal else Parser(body, self._budget).expanded_text()

    def _line(self) -> str:
        end = self._text.find("\n", self._position)
        end = len(self._text) if end < 0 else end
        line = self._text[self._position : end]
        self._position = min(end + 1, len(self._text))
        return line

    # Commands

    def pipelines_until(self, ends: frozenset[str], into: list[syntax.Pipeline]) -> None:
        """Append pipelines up to one of `ends`, which is not taken: a reserved word, ``)``, ``;;``, or the end.

        Raises:
            ShellSyntaxError: what comes is no list of commands; `into` has what came before.
        """
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
            into.append(syntax.Pipeline(commands, joined, background, negated))
            joined = follows
            if joined or background or self._at_end(ends):
                continue
            if self._at(";") and not any(self._at(end) for end in _CASE_ENDS):
                self._position += 1
            elif not self._at("\n"):
                raise ShellSyntaxError("something unexpected follows a command")

    def _script(self, ends: frozenset[str]) -> syntax.Script:
        pipelines: list[syntax.Pipeline] = []
        self.pipelines_until(ends, pipelines)
        return tuple(pipelines)

    def _until_parenthesis(self) -> syntax.Script:
        script = self._script(frozenset({")"}))
        self._position += 1
        return script

    def _closed(self, end: str) -> syntax.Script:
        script = self._script(frozenset({end}))
        self._expect(end)
        return script

    def _at_end(self, ends: frozenset[str]) -> bool:
        if self._position >= len(self._text):
            if _END_OF_TEXT in ends:
                return True
            raise ShellSyntaxError("the script ends too early")
        if self._at(")"):
            if ")" in ends:
                return True
            raise ShellSyntaxError("a closing parenthesis is too many")
        if any(self._at(end) for end in _CASE_ENDS):
            if ";;" in ends:
                return True
            raise ShellSyntaxError(";; is not in a case")
        return self._reserved() in ends - {_END_OF_TEXT}

    def _reserved(self) -> str:
        found = _RESERVED.match(self._text, self._position)
        return found.group() if found else ""

    def _expect(self, token: str) -> None:
        self._line_breaks()
        if self._reserved() != token:
            raise ShellSyntaxError(f"{token} is missing")
        self._position += len(token)

    def _prefixes(self) -> bool:
        negated = False
        while (word := self._reserved()) in {"!", "time"}:
            self._budget.spend()
            negated = negated or word == "!"
            self._position += len(word)
            self._blanks()
            if word == "time" and self._match(_TIME_OPTION):
                self._blanks()
        return negated

    def _pipeline(self) -> tuple[syntax.Command, ...]:
        commands = [self._command()]
        self._blanks()
        while self._at("|") and not self._at("||"):
            self._position += 1
            if self._take("&"):
                errors = syntax.Redirect(">&", (syntax.Text("1"),), "2")
                commands[-1] = replace(commands[-1], redirects=(*commands[-1].redirects, errors))
            self._line_breaks()
            commands.append(self._command())
            self._blanks()
        return tuple(commands)

    def _command(self) -> syntax.Command:
        with self._budget:
            word = self._reserved()
            if word in _STRAY:
                raise ShellSyntaxError(f"{word} is out of place")
            if not word and not self._at("("):
                return self._simple()
            compound = self._compound(word)
            redirects: list[syntax.Redirect] = []
            self._blanks()
            while self._redirect(redirects):
                self._blanks()
            return replace(compound, redirects=tuple(redirects))

    def _simple(self) -> syntax.Command:
        words: list[syntax.Word] = []
        assignments: list[syntax.Assignment] = []
        redirects: list[syntax.Redirect] = []
        while True:
            self._budget.spend()
            self._blanks()
            if self._redirect(redirects) or self._assignment(words, assignments):
                continue
            word = self._word()
            if not word:
                break
            words.append(word)
            if len(words) == 1 and not assignments and not redirects:
                if self._is_plain(word) and _RESERVED.fullmatch(self._plain(word)):
                    raise ShellSyntaxError("a line ends in a reserved word")
                self._blanks()
                if self._take("("):
                    self._blanks()
                    if not self._take(")"):
                        raise ShellSyntaxError("a parenthesis is out of place")
                    return self._function(self._plain(word))
        if self._at("("):
            raise ShellSyntaxError("a parenthesis is out of place")
        if not words and not assignments and not redirects:
            raise ShellSyntaxError("a command is missing")
        return syntax.Simple(tuple(words), tuple(assignments), tuple(redirects))

    def _assignment(self, words: list[syntax.Word], into: list[syntax.Assignment]) -> bool:
        if words and not (self._is_plain(words[0]) and self._plain(words[0]) in _DECLARERS):
            return False
        found = self._match(_ASSIGNMENT)
        if found is None:
            return False
        subscript = Parser(found[2][1:-1], self._budget).expanded_text() if found[2] else ()
        if not self._take("("):
            into.append(syntax.Assignment(found[1], (self._word(),), subscript))
            return True
        values: list[syntax.Word] = []
        self._line_breaks()
        while not self._take(")"):
            if not (word := self._word()):
                raise ShellSyntaxError("an array is not closed, or holds something that is no word")
            values.append(word)
            self._line_breaks()
        into.append(syntax.Assignment(found[1], (*values, ()), subscript))
        return True

    def _redirect(self, into: list[syntax.Redirect]) -> bool:
        found = self._match(_REDIRECT)
        if found is None:
            return False
        redirect = syntax.Redirect(found[2], descriptor=found[1] or "")
        self._blanks()
        target = self._word()
        if not target:
            raise ShellSyntaxError("a redirection has no target")
        if redirect.operator in {"<<", "<<-"}:
            is_literal = any(isinstance(part, syntax.Text) and part.quoted for part in target)
            self._documents.append(_Document(redirect, self._plain(target), is_literal))
        else:
            redirect.target = target
        into.append(redirect)
        return True

    def _compound(self, word: str) -> syntax.Compound:
        if (inside := self._arithmetic()) is not None:
            return syntax.Compound("arithmetic", words=(inside,))
        self._position += len(word) or 1
        match word:
            case "":
                return syntax.Compound("subshell", (self._until_parenthesis(),))
            case "{":
                return syntax.Compound("group", (self._closed("}"),))
            case "if":
                return self._if()
            case "while" | "until":
                return syntax.Compound("loop", (self._closed("do"), self._closed("done")))
            case "for" | "select":
                return self._for()
            case "case":
                return self._case()
            case "function":
                self._blanks()
                name = self._plain(self._word())
                self._blanks()
                if self._take("("):
                    self._blanks()
                    if not self._take(")"):
                        raise ShellSyntaxError("a function's parentheses are not empty")
                return self._function(name)
            case "[[":
                return self._test()
            case _:
                self._blanks()
                return syntax.Compound("coproc", ((syntax.Pipeline((self._command(),)),),))

    def _if(self) -> syntax.Compound:
        scripts = [self._closed("then")]
        while True:
            scripts.append(self._script(frozenset({"elif", "else", "fi"})))
            word = self._reserved()
            self._position += len(word)
            if word == "fi":
                return syntax.Compound("branch", tuple(scripts))
            scripts.append(self._closed("fi" if word == "else" else "then"))
            if word == "else":
                return syntax.Compound("branch", tuple(scripts))

    def _for(self) -> syntax.Compound:
        self._blanks()
        words: list[syntax.Word] = []
        name = ""
        if self._at("(("):
            inside = self._arithmetic()
            if inside is None:
                raise ShellSyntaxError("for (( is not closed")
            words.append((syntax.Arithmetic(inside),))
        else:
            name = self._plain(self._word())
            self._line_breaks()
            if self._reserved() == "in":
                self._position += 2
                self._blanks()
                while word := self._word():
                    words.append(word)
                    self._blanks()
        self._blanks()
        self._take(";")
        self._line_breaks()
        end = "}" if self._reserved() == "{" else "done"
        self._expect("{" if end == "}" else "do")
        return syntax.Compound("for", (self._closed(end),), tuple(words), name)

    def _case(self) -> syntax.Compound:
        self._blanks()
        words = [self._word()]
        self._expect("in")
        scripts: list[syntax.Script] = []
        while True:
            self._line_breaks()
            if self._reserved() == "esac":
                self._position += 4
                return syntax.Compound("case", tuple(scripts), tuple(words))
            self._take("(")
            self._blanks()
            while not self._take(")"):
                if not (word := self._word()) and not self._at("|"):
                    raise ShellSyntaxError("a pattern of a case is not closed")
                words.append(word)
                self._blanks()
                self._take("|")
                self._blanks()
            scripts.append(self._script(frozenset({";;", "esac"})))
            any(self._take(end) for end in _CASE_ENDS)

    def _test(self) -> syntax.Compound:
        words: list[syntax.Word] = []
        while True:
            self._line_breaks()
            if self._take("]]"):
                return syntax.Compound("test", words=tuple(words))
            if self._position >= len(self._text):
                raise ShellSyntaxError("[[ is not closed")
            self._budget.spend()
            if word := self._word():
                words.append(word)
            else:
                self._position += 1

    def _function(self, name: str) -> syntax.Compound:
        self._line_breaks()
        body = self._command()
        if isinstance(body, syntax.Simple):
            raise ShellSyntaxError("a function has no body")
        return syntax.Compound("function", ((syntax.Pipeline((body,)),),), name=name)
