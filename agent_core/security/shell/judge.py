"""Judges a shell command: its risk, and why; whatever is not literal is UNKNOWN."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell import parser
from agent_core.security.shell.parser import Budget, ShellSyntaxError, parse
from agent_core.security.shell.programs import program_named
from agent_core.security.shell.rules import ANY_VARIABLE, Rules
from agent_core.security.shell.sinks import MARKS, Finding, Mark, Sinks, derived, is_known, shown

MAX_COMMAND: Final = 1_000_000
MAX_REMEMBERED: Final = 4_000
_QUOTED_BRACES: Final = str.maketrans("{},", "\ue000\ue001\ue002")
_BRACES: Final = str.maketrans("\ue000\ue001\ue002", "{},")
# Characters that a person does not see, or that we use as marks: what they hide nobody can agree to.
_INVISIBLE: Final = re.compile(
    f"[\x0e-\x1a\x1c-\x1f\x7f{MARKS}\ue000-\ue002"
    "\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
_BRACE: Final = re.compile(r"\{([^{},]*+(?:,[^{},]*+)++)\}")
_RANGE: Final = re.compile(r"\{-?\w+\.\.-?\w+(?:\.\.-?\d+)?\}")
_CALM_ARITHMETIC: Final = re.compile(rf"[\w\s+\-*/%<>=!&|^~?:,.()\[\]{Mark.PIECE}{Mark.NUMBER}]*", re.ASCII)
_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")
_ORDER: Final = (SecurityRisk.HIGH, SecurityRisk.UNKNOWN, SecurityRisk.MEDIUM, SecurityRisk.LOW)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The risk of a command and the findings behind it, those that matter most first."""

    risk: SecurityRisk
    findings: tuple[Finding, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why, in words for a person."""
        return tuple(dict.fromkeys(finding.reason for finding in self.findings if finding.risk is self.risk))


def judge(command: str) -> Judgement:
    """Judge a command, in bounded time: HIGH wins, then UNKNOWN (could not be told, or was too much), MEDIUM, LOW."""
    return _judge(command) if len(command) <= MAX_REMEMBERED else _judge.__wrapped__(command)


@lru_cache(maxsize=128)  # several analyzers ask about the same command
def _judge(command: str) -> Judgement:
    walker = Walker()
    if len(command) > MAX_COMMAND:
        walker.sinks.unknown("too-complex", f"is longer than {MAX_COMMAND:,} characters")
    elif _INVISIBLE.search(command):
        walker.sinks.unknown("characters", "holds control or invisible characters")
    else:
        try:
            walker.walk(command)
        except (ShellSyntaxError, RecursionError):
            walker.sinks.unknown("too-complex", "the command is too long, or nested too deeply, to be judged")
    ordered = tuple(sorted(walker.sinks.findings, key=lambda finding: _ORDER.index(finding.risk)))
    return Judgement(ordered[0].risk if ordered else SecurityRisk.LOW, ordered)


class Walker:
    """Goes through every branch of a script; variables are unknown but for those of a ``for`` over literal words."""

    def __init__(self) -> None:
        self.sinks = Sinks()
        self._rules = Rules(self.sinks, self._run_code)
        self._bound: dict[str, str] = {}
        self._functions: set[str] = set()
        self._active: list[str] = []

    def walk(self, text: str) -> None:
        """Go through a command until no pass learns more: later parts matter to earlier ones in loops and functions."""
        learned: object = None
        rules, sinks = self._rules, self.sinks
        for _ in range(5):
            sinks.budget, self._bound = Budget(), {}
            sinks.folders = frozenset({".", Mark.UNKNOWN} if sinks.roams else {"."})
            # Reading has a budget of its own, so that what comes before the part that is too much is still judged.
            self._script(self._read(text, Budget()), "")
            collected = (*sinks.files.values(), rules.texts, rules.assigned, self._functions)
            before, learned = learned, (sinks.moves, sinks.roams, *map(len, collected))
            if learned == before:
                return
        sinks.unknown("too-complex", "the command changes too much of what it runs itself")

    # Scripts

    def _run_code(self, text: str, stdin: str, *, later: bool = False) -> str:
        self.sinks.code(text)
        if not text.strip(MARKS + " \t\n;"):
            return derived(text)
        with self.sinks.budget:
            return self._elsewhere(self._read(text, self.sinks.budget), stdin, later=later)

    def _read(self, text: str, budget: Budget) -> parser.ShellScript:
        script, problem = parse(text, budget)
        if problem:
            self.sinks.unknown("syntax", f"could not be read as a shell script: {problem}")
        return script

    def _elsewhere(self, script: parser.ShellScript, stdin: str, *, later: bool) -> str:
        """Run a script to which the variables of loops are not known, perhaps at another time than now."""
        place, bound, self._bound = (self.sinks.folders, self.sinks.left), self._bound, {}
        self.sinks.folders |= {Mark.UNKNOWN} if later and self.sinks.moves else set()
        printed = self._script(script, stdin, is_loop=later)
        self._bound = bound
        if later:
            self.sinks.folders, self.sinks.left = place
        return printed

    def _script(self, script: parser.ShellScript, stdin: str, *, is_certain: bool = True, is_loop: bool = False) -> str:
        printed: list[str] = []
        self.sinks.loops += is_loop
        for pipeline in script:
            is_certain = is_certain and not pipeline.joined
            if pipeline.joined != "&&":
                self.sinks.folders |= self.sinks.left
            printed += filter(None, [self._pipeline(pipeline, stdin)])
            if pipeline.negated:
                self.sinks.folders |= self.sinks.left
        self.sinks.loops -= is_loop
        text = "".join(printed)
        return text if is_certain and len(printed) < 2 else derived(text) + text

    def _pipeline(self, pipeline: parser.Pipeline, stdin: str) -> str:
        in_subshell = len(pipeline.commands) > 1 or pipeline.background
        for command in pipeline.commands:
            place = self.sinks.folders, self.sinks.left
            name = self._plain(command.words[0]) if not command.kind and command.words else ""
            if in_subshell and name in self._functions and self._active:
                risk = SecurityRisk.HIGH if name in self._active else SecurityRisk.UNKNOWN
                self.sinks.note(risk, "fork-bomb", "a function starts itself again and again in the background")
            stdin = self._command(command, stdin)
            if in_subshell or command.kind == "(":
                self.sinks.folders, self.sinks.left = place
        return stdin

    def _command(self, command: parser.ShellCommand, stdin: str) -> str:
        with self.sinks.budget:
            for redirect in command.redirects:
                stdin = self._input(redirect, stdin)
            printed = self._compound(command, stdin) if command.kind else self._simple(command, stdin)
            if command.redirects and any(self._plain(word) == "exec" for word in command.words):
                self.sinks.unknown("unknown-code", "changes what all that follows reads, or where it prints")
            for redirect in command.redirects:
                printed = self._output(redirect, printed)
            return printed

    def _input(self, redirect: parser.Redirect, stdin: str) -> str:
        if redirect.operator[0] != "<":
            return stdin
        text = "".join(self._fields(redirect.target, splits=False))
        if redirect.operator in {"<", "<>"}:
            text = Mark.NETWORK if text.startswith(("/dev/tcp/", "/dev/udp/")) else self.sinks.read(text)
        elif redirect.operator == "<&":
            text = "" if text == "-" else Mark.UNKNOWN
        return text + "\n" * (redirect.operator == "<<<") if redirect.descriptor in {"", "0"} else stdin or Mark.UNKNOWN

    def _output(self, redirect: parser.Redirect, printed: str) -> str:
        if redirect.operator[0] == "<" and redirect.operator != "<>":
            return printed
        is_output = redirect.descriptor in {"", "1"} and redirect.operator != "<>"
        path = "".join(self._fields(redirect.target, splits=False))
        is_descriptor = redirect.operator == ">&" and re.fullmatch(r"\d*-?", path)
        if not is_descriptor:
            self.sinks.write(path, printed if is_output else Mark.UNKNOWN, append=">>" in redirect.operator)
        if is_descriptor or (path != "/dev/null" and path.startswith(("/dev/", "/proc/"))):
            return derived(printed) + printed
        return "" if is_output else printed

    # Commands

    def _compound(self, command: parser.ShellCommand, stdin: str) -> str:
        match command.kind:
            case "for" if command.name:
                return self._for(command, stdin)
            case "function":
                return self._function(command)
            case "[[":
                texts = ["".join(self._fields(word)) for word in command.words]
                if not {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}.isdisjoint(texts):
                    self._arithmetic(tuple(chain.from_iterable(command.words)))
                return self._rules.run(["test", *texts], "")
            case "((":
                self._arithmetic(command.words[0])
            case _:
                for word in command.words:
                    self._fields(word)
        is_loop, is_certain = command.kind in {"while", "until", "for"}, command.kind in {"{", "("}
        scripts = [self._script(one, stdin, is_certain=is_certain, is_loop=is_loop) for one in command.scripts]
        return "".join(scripts)

    def _for(self, command: parser.ShellCommand, stdin: str) -> str:
        name, words = command.name, [field for word in command.words for field in self._fields(word)]
        is_free = {name, ANY_VARIABLE}.isdisjoint(self._rules.assigned)
        printed = ""
        for word in words if 0 < len(words) <= 20 and is_free and all(map(is_known, words)) else [Mark.UNKNOWN]:
            self._rules.assign(name, word, by_loop=True)
            self._bound[name] = word
            printed += self._script(command.scripts[0], stdin, is_certain=False, is_loop=True)
        self._bound[name] = Mark.UNKNOWN
        return printed

    def _function(self, command: parser.ShellCommand) -> str:
        self._functions.add(command.name)
        if program_named(command.name):
            self.sinks.unknown("unknown-program", f"gives {shown(command.name)} another meaning")
        self._active.append(command.name)
        printed = self._elsewhere(command.scripts[0], Mark.UNKNOWN, later=True)
        self._active.pop()
        return printed and derived(printed) + printed

    def _simple(self, command: parser.ShellCommand, stdin: str) -> str:
        for assignment in command.assignments:
            self._parameter(assignment, "")
        words = [field for word in command.words for field in self._fields(word)]
        if not words:
            return stdin if command.redirects else ""
        if words[0] in self._functions and not program_named(words[0]) and not self.sinks.written(words[0]):
            return Mark.UNKNOWN
        return self._rules.run(words, stdin)

    # Words

    def _plain(self, word: parser.Word) -> str:
        return "".join(part.text if isinstance(part, parser.Text) else Mark.UNKNOWN for part in word)

    def _fields(self, word: parser.Word, *, splits: bool = True) -> list[str]:
        raw = ""
        for part in word:
            unknown = Mark.UNKNOWN if part.quoted or not splits else Mark.MANY
            match part:
                case parser.Text():
                    raw += part.text.translate(_QUOTED_BRACES) if part.quoted else part.text
                case parser.Substitution():
                    raw += self._substitution(part, unknown).translate(_QUOTED_BRACES)
                case parser.Parameter(name=""):
                    self._arithmetic(part.argument)
                    raw += Mark.PIECE if raw else Mark.NUMBER
                case _:
                    raw += self._parameter(part, unknown).translate(_QUOTED_BRACES)
        if not raw and not any(part.quoted for part in word):
            return []
        return [one.translate(_BRACES) for one in (self._expanded(raw) if splits else [raw])]

    def _expanded(self, text: str) -> list[str]:
        if (found := _BRACE.search(text)) is None:
            return [_RANGE.sub(Mark.PIECE, text)]
        self.sinks.budget.spend(1 + len(text) // 500)
        texts = [text[: found.start()] + choice + text[found.end() :] for choice in found[1].split(",")]
        return [one for choice in texts for one in self._expanded(choice)]

    def _substitution(self, part: parser.Substitution, unknown: str) -> str:
        place = self.sinks.folders, self.sinks.left
        printed = self._script(part.script, Mark.UNKNOWN if part.way == ">" else "")
        self.sinks.folders, self.sinks.left = place
        if printed == Mark.PIECE:
            return printed
        if not part.way:
            return derived(printed, unknown)
        name = f"printed-{hash(printed)}"
        self.sinks.files[name] = [Mark.UNKNOWN if part.way == ">" else printed]
        return "/dev/fd/" + name

    def _parameter(self, part: parser.Parameter, unknown: str) -> str:
        operator, name = part.operator, part.name
        is_whole = self._plain(part.subscript) in {"@", "*"}
        if not is_whole:
            self._arithmetic(part.subscript)
        if operator == ":":
            self._arithmetic(part.argument)
        else:
            value = "".join(self._fields(part.argument, splits=False))
            if operator in {"=", ":="}:
                self._rules.assign(name, value)
        if operator == "@P" or (operator.startswith("!") and not is_whole):
            self.sinks.unknown("unknown-code", f"expands {shown(name)} once more")
        if operator == "length" or (not operator and name in "?#$!"):
            return Mark.PIECE
        if operator or part.subscript:
            return unknown
        if name in self._bound:
            value = self._bound[name]
            return unknown if not is_known(value) or (unknown == Mark.MANY and set(value) & set(" \t\n")) else value
        if name == "PWD" and self.sinks.folders == {"."} and not self.sinks.left:
            return "."
        return {"HOME": "~", "PATH": "/usr/bin"}.get(name, unknown + Mark.SECRET * bool(_SECRET_NAME.search(name)))

    def _arithmetic(self, expression: parser.Word) -> None:
        text = ""
        for part in expression:
            match part:
                case parser.Parameter(name=name, operator="", subscript=()) if name.isidentifier():
                    text += name
                case _:
                    text += "".join(self._fields((part,), splits=False))
        names = set(re.findall(r"[A-Za-z_]\w*", text, re.ASCII))
        if not _CALM_ARITHMETIC.fullmatch(text) or ANY_VARIABLE in self._rules.assigned or names & self._rules.texts:
            self.sinks.unknown("unknown-code", "computes with what may run commands")
