"""Reads shell scripts: lists, pipelines, compound commands, redirections.

Written by hand rather than taken from an editor's grammar: a guard has to refuse what it does not understand (an editor
guesses on), and hostile text must not cost more than a fixed number of steps.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from agent_core.security.shell.commands import SimpleCommandReader
from agent_core.security.shell.syntax import (
    Arithmetic,
    Budget,
    Command,
    Compound,
    Pipeline,
    Redirect,
    Script,
    ShellSyntaxError,
    Simple,
    Text,
    Word,
)

_RESERVED = re.compile(
    r"(?:if|then|else|elif|fi|do|done|case|esac|while|until|for|select|function|time|coproc|in|\{|\}|!|\[\[)"
    r"(?=[ \t\n;&|()<>]|\Z)"
)
_TIME_OPTION = re.compile(r"-p(?=[ \t\n])")
_CASE_ENDS: Final = (";;&", ";;", ";&")
_END_OF_TEXT: Final = ""
_STRAY: Final = frozenset({"then", "else", "elif", "fi", "do", "done", "esac", "}", "in"})


def parse(text: str, budget: Budget) -> tuple[Script, str]:
    """The script, and what was wrong with it ("" for nothing).

    bash runs the lines before a syntax error, so what could be read before it is returned too.

    Raises:
        TooComplexError: never; it is reported as what was wrong.
    """
    parser = Parser(text, budget)
    pipelines: list[Pipeline] = []
    try:
        parser.pipelines_until(frozenset({_END_OF_TEXT}), pipelines)
    except ShellSyntaxError as error:
        return Script(tuple(pipelines)), str(error)
    return Script(tuple(pipelines)), ""


class Parser(SimpleCommandReader):
    """Reads one text; see `parse`."""

    def script_until_parenthesis(self) -> Script:
        script = self._script(frozenset({")"}))
        self.position += 1
        return script

    def script_in(self, text: str) -> Script:
        return Parser(text, self.budget)._script(frozenset({_END_OF_TEXT}))

    def _script(self, ends: frozenset[str]) -> Script:
        pipelines: list[Pipeline] = []
        self.pipelines_until(ends, pipelines)
        return Script(tuple(pipelines))

    def pipelines_until(self, ends: frozenset[str], into: list[Pipeline]) -> None:
        """Append pipelines up to one of `ends`, which is not taken: a reserved word, ``)``, ``;;``, or the end.

        Raises:
            ShellSyntaxError: what comes is no list of commands; `into` has what came before.
        """
        conditional = False
        while True:
            self.line_breaks()
            if not conditional and self._at_end(ends):
                return
            commands = self._pipeline()
            self.blanks()
            joined = self.take("&&") or self.take("||")
            background = not joined and not self.at("&>") and self.take("&")
            into.append(Pipeline(commands, conditional, background))
            conditional = joined
            if joined or background or self._at_end(ends):
                continue
            if self.at(";") and not any(self.at(end) for end in _CASE_ENDS):
                self.position += 1
            elif not self.at("\n"):
                raise ShellSyntaxError("something unexpected follows a command")

    def _at_end(self, ends: frozenset[str]) -> bool:
        if self.position >= len(self.text):
            if _END_OF_TEXT in ends:
                return True
            raise ShellSyntaxError("the script ends too early")
        if self.at(")"):
            if ")" in ends:
                return True
            raise ShellSyntaxError("a closing parenthesis is too many")
        if any(self.at(end) for end in _CASE_ENDS):
            if ";;" in ends:
                return True
            raise ShellSyntaxError(";; is not in a case")
        return self._reserved() in ends - {_END_OF_TEXT}

    def _reserved(self) -> str:
        found = _RESERVED.match(self.text, self.position)
        return found.group() if found else ""

    def _expect(self, token: str) -> None:
        self.line_breaks()
        if self._reserved() != token:
            raise ShellSyntaxError(f"{token} is missing")
        self.position += len(token)

    def _pipeline(self) -> tuple[Command, ...]:
        while (word := self._reserved()) in {"!", "time"}:
            self.budget.spend()
            self.position += len(word)
            self.blanks()
            if option := _TIME_OPTION.match(self.text, self.position):
                self.position = option.end()
                self.blanks()
        commands = [self._command()]
        self.blanks()
        while self.at("|") and not self.at("||"):
            if self.at("|&"):
                self.position += 1
                errors = Redirect(">&", (Text("1"),), "2")
                commands[-1] = replace(commands[-1], redirects=(*commands[-1].redirects, errors))
            self.position += 1
            self.line_breaks()
            commands.append(self._command())
            self.blanks()
        return tuple(commands)

    def _command(self) -> Command:
        with self.budget:
            word = self._reserved()
            if word in _STRAY:
                raise ShellSyntaxError(f"{word} is out of place")
            if not word and not self.at("("):
                return self.simple()
            compound = self._compound(word)
            redirects: list[Redirect] = []
            self.blanks()
            while self.redirect(redirects):
                self.blanks()
            return Compound(compound.kind, compound.scripts, compound.words, compound.name, tuple(redirects))

    def _compound(self, word: str) -> Compound:
        if self.at("((") and (inside := self.arithmetic(self.position + 2)) is not None:
            return Compound("arithmetic", words=((Arithmetic(inside),),))
        self.position += len(word) or 1
        match word:
            case "":
                return Compound("subshell", (self.script_until_parenthesis(),))
            case "{":
                return Compound("group", (self._closed("}"),))
            case "if":
                return self._if()
            case "while" | "until":
                return Compound("loop", (self._closed("do"), self._closed("done")))
            case "for" | "select":
                return self._for()
            case "case":
                return self._case()
            case "function":
                self.blanks()
                name = self.plain(self.word())
                self.blanks()
                if self.take("("):
                    self.blanks()
                    if not self.take(")"):
                        raise ShellSyntaxError("a function's parentheses are not empty")
                return self.function(name)
            case "[[":
                return self._test()
            case "coproc":
                self.blanks()
                return Compound("coproc", (Script((Pipeline((self._command(),)),)),))
            case _:
                raise ShellSyntaxError(f"{word} is out of place")

    def _closed(self, end: str) -> Script:
        script = self._script(frozenset({end}))
        self._expect(end)
        return script

    def _if(self) -> Compound:
        scripts = [self._closed("then")]
        while True:
            scripts.append(self._script(frozenset({"elif", "else", "fi"})))
            word = self._reserved()
            self.position += len(word)
            if word == "fi":
                return Compound("branch", tuple(scripts))
            if word == "else":
                return Compound("branch", (*scripts, self._closed("fi")))
            scripts.append(self._closed("then"))

    def _for(self) -> Compound:
        self.blanks()
        words: list[Word] = []
        name = ""
        if self.at("(("):
            inside = self.arithmetic(self.position + 2)
            if inside is None:
                raise ShellSyntaxError("for (( is not closed")
            words.append((Arithmetic(inside),))
        else:
            name = self.plain(self.word())
            self.line_breaks()
            if self._reserved() == "in":
                self.position += 2
                self.blanks()
                while word := self.word():
                    words.append(word)
                    self.blanks()
        self.blanks()
        self.take(";")
        self.line_breaks()
        if self._reserved() == "{":
            self.position += 1
            return Compound("for", (self._closed("}"),), tuple(words), name)
        self._expect("do")
        return Compound("for", (self._closed("done"),), tuple(words), name)

    def _case(self) -> Compound:
        self.blanks()
        words = [self.word()]
        self._expect("in")
        scripts: list[Script] = []
        while True:
            self.line_breaks()
            if self._reserved() == "esac":
                self.position += 4
                return Compound("case", tuple(scripts), tuple(words))
            self.take("(")
            while not self.take(")"):
                self.blanks()
                word = self.word()
                if not word and not self.at("|"):
                    if self.at(")"):
                        continue
                    raise ShellSyntaxError("a pattern of a case is not closed")
                words.append(word)
                self.blanks()
                self.take("|")
            scripts.append(self._script(frozenset({";;", "esac"})))
            for end in _CASE_ENDS:
                if self.take(end):
                    break

    def _test(self) -> Compound:
        words: list[Word] = []
        while True:
            self.line_breaks()
            if self._reserved() == "" and self.at("]]"):
                self.position += 2
                return Compound("test", words=tuple(words))
            if self.position >= len(self.text):
                raise ShellSyntaxError("[[ is not closed")
            if word := self.word():
                words.append(word)
            else:
                self.budget.spend()
                self.position += 1

    def function(self, name: str) -> Compound:
        self.line_breaks()
        with self.budget:
            body = self._command()
        if isinstance(body, Simple):
            raise ShellSyntaxError("a function has no body")
        return Compound("function", (Script((Pipeline((body,)),)),), name=name)
