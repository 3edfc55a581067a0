"""Judges a shell command: its risk, and why; whatever is not literal is UNKNOWN."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell import parser
from agent_core.security.shell.parser import Budget, TooComplexError, parse
from agent_core.security.shell.programs import PROGRAMS, RUN_AS_CODE, changes_programs, program_named
from agent_core.security.shell.rules import ANY_VARIABLE, Rules
from agent_core.security.shell.sinks import MARKS, Finding, Mark, Sinks, derived, is_known, resolve, shown

MAX_COMMAND: Final = 1_000_000
MAX_REMEMBERED: Final = 4_000
_MAX_FIELDS: Final = 64
_QUOTED_BRACES: Final = str.maketrans("{},", "\ue000\ue001\ue002")
_BRACES: Final = str.maketrans("\ue000\ue001\ue002", "{},")
# Characters that a person does not see, or that we use as marks: what they hide nobody can agree to.
_INVISIBLE: Final = re.compile(
    f"[\x0e-\x1a\x1c-\x1f\x7f{MARKS}\ue000-\ue002"
    "\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
_BRACE: Final = re.compile(r"\{([^{},]*+(?:,[^{},]*+)++)\}")
_RANGE: Final = re.compile(r"\{-?\w+\.\.-?\w+(?:\.\.-?\d+)?\}")
_PLAIN_NAME: Final = re.compile(r"(?!-)[\w./+@%~:-]+|\[", re.ASCII)
_FOLDER_OF_PROGRAMS: Final = re.compile(r"(?:(?:/usr(?:/local)?)?/s?bin)?")
_CALM_ARITHMETIC: Final = re.compile(rf"[\w\s+\-*/%<>=!&|^~?:,()\[\]{Mark.PIECE}]*", re.ASCII)
_NUMBER: Final = re.compile(rf"[-+]?(?:0[xX])?[\d{Mark.PIECE}{Mark.NUMBER}]*")
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
    return _judged_before(command) if len(command) <= MAX_REMEMBERED else _judge(command)


def _judge(command: str) -> Judgement:
    walker = Walker()
    if len(command) > MAX_COMMAND:
        walker.sinks.unknown("too-complex", f"is longer than {MAX_COMMAND:,} characters")
    elif _INVISIBLE.search(command):
        walker.sinks.unknown("characters", "holds control or invisible characters")
    else:
        try:
            walker.walk(command)
        except TooComplexError as error:
            walker.sinks.unknown("too-complex", str(error))
        except RecursionError:
            walker.sinks.unknown("too-complex", "the command is nested too deeply to be judged")
    ordered = tuple(sorted(walker.sinks.findings, key=lambda finding: _ORDER.index(finding.risk)))
    return Judgement(ordered[0].risk if ordered else SecurityRisk.LOW, ordered)


_judged_before = lru_cache(maxsize=128)(_judge)  # several analyzers ask about the same command


class Walker:
    """Goes through every branch of a script; variables are unknown but for those of a ``for`` over literal words."""

    def __init__(self) -> None:
        self.sinks = Sinks()
        self._rules = Rules(self)
        self._budget = Budget()
        self._texts: set[str] = set()  # variables that are set to something that is no number
        self._assigned: set[str] = set()  # those that are set otherwise than by a loop over words
        self._bound: dict[str, str] = {}
        self._functions: set[str] = set()
        self._active: list[str] = []
        self._loops = 0
        self._roams = self._moves = False
        self._left: frozenset[str] = frozenset()  # where the shell still is if what changes its folder has failed

    def walk(self, text: str) -> None:
        """Go through a command until no pass learns more: later parts matter to earlier ones in loops and functions."""
        learned: object = None
        for _ in range(5):
            self._budget, self._bound = Budget(), {}
            self.sinks.folders = frozenset({".", Mark.UNKNOWN} if self._roams else {"."})
            # Reading has a budget of its own, so that what comes before the part that is too much is still judged.
            self._run_text(text, "", Budget())
            sizes = [*map(len, (*self.sinks.files.values(), self._texts, self._assigned, self._functions))]
            before, learned = learned, (sizes, self._roams, self._moves)
            if learned == before:
                return
        self.sinks.unknown("too-complex", "the command changes too much of what it runs itself")

    def run_code(self, text: str, stdin: str, *, later: bool = False) -> str:
        """Run a text as a shell script, perhaps at another time than now; returns what it prints."""
        self.sinks.code(text)
        if not text.strip(MARKS + " \t\n;"):
            return derived(text)
        with self._budget:
            return self._elsewhere(lambda: self._run_text(text, stdin, self._budget), later=later)

    def _elsewhere(self, run: Callable[[], str], *, later: bool) -> str:
        folders, left, bound, self._bound = self.sinks.folders, self._left, self._bound, {}
        self.sinks.folders |= {Mark.UNKNOWN} if later and self._moves else set()
        printed = run()
        self._bound = bound
        if later:
            self.sinks.folders, self._left = folders, left
        return printed

    def assign(self, name: str, text: str, *, by_loop: bool = False) -> None:
        """Give a variable a value."""
        self._texts |= set() if _NUMBER.fullmatch(text) else {name}
        self._assigned |= set() if by_loop else {name}
        self.sinks.note(SecurityRisk.LOW, "assignment", "sets a variable")
        if name in RUN_AS_CODE:
            self.run_code(text, "", later=True)
        elif name == "PATH" and is_known(text):
            self.sinks.note(SecurityRisk.MEDIUM, "program", "changes where programs are looked for")
        elif name != ANY_VARIABLE and (name == "PATH" or not name.isidentifier() or changes_programs(name)):
            self.sinks.unknown("preload", f"makes programs do something else through {shown(name)}")
        if any(sign in text.partition("[")[2] for sign in ("$(", "`")):
            self.sinks.unknown("unknown-code", f"sets {shown(name)} to what runs commands where a number is expected")

    def go_to(self, folder: str) -> None:
        """Change the working directory."""
        self._moves, self._roams = True, self._roams or bool(self._loops or self._active)
        self._left |= self.sinks.folders
        is_certain = is_known(folder) and (folder.startswith(("/", "~")) or Mark.UNKNOWN not in self._left)
        self.sinks.folders = frozenset(
            resolve(folder, old) if is_certain else Mark.UNKNOWN for old in self.sinks.folders
        )

    def run(self, words: Sequence[str], stdin: str) -> str:
        """Start a program with its arguments, the name first; returns what it prints."""
        name, arguments = words[0], list(words[1:])
        self._budget.spend(len(words) // 4)
        if Mark.NETWORK in name:
            self.sinks.high("remote-code", "runs a program whose name comes from the network")
        with self._budget:
            if not is_known(name) or not _PLAIN_NAME.fullmatch(name):
                self.sinks.unknown("unknown-program", f"runs a program whose name is not known ({shown(name)})")
                return self._rules.apply("", arguments, stdin)
            folder, base = posixpath.split(name)
            if not _FOLDER_OF_PROGRAMS.fullmatch(folder):
                self.sinks.note(SecurityRisk.MEDIUM, "program", f"runs {shown(name)}")
            for text in self.sinks.written(name):
                self._rules.run_file(name, text)
            return self._rules.apply(base, arguments, stdin)

    # Scripts

    def _run_text(self, text: str, stdin: str, budget: Budget) -> str:
        script, problem = parse(text, budget)
        if problem:
            self.sinks.unknown("syntax", f"could not be read as a shell script: {problem}")
        return self._script(script, stdin)

    def _script(self, script: parser.Script, stdin: str, *, is_certain: bool = True) -> str:
        printed: list[str] = []
        for pipeline in script:
            is_certain = is_certain and not pipeline.joined
            if pipeline.joined != "&&":
                self.sinks.folders |= self._left
            text = self._pipeline(pipeline, stdin)
            printed += [text] if text else []
            if pipeline.negated:
                self.sinks.folders |= self._left
        text = "".join(printed)
        return text if is_certain and len(printed) < 2 else derived(text) + text

    def _pipeline(self, pipeline: parser.Pipeline, stdin: str) -> str:
        in_subshell = len(pipeline.commands) > 1 or pipeline.background
        for command in pipeline.commands:
            folders, left = self.sinks.folders, self._left
            name = self._plain(command.words[0]) if not command.kind and command.words else ""
            if in_subshell and name in self._functions and self._active:
                risk = SecurityRisk.HIGH if name in self._active else SecurityRisk.UNKNOWN
                self.sinks.note(risk, "fork-bomb", "a function starts itself again and again in the background")
            stdin = self._command(command, stdin)
            if in_subshell or command.kind == "(":
                self.sinks.folders, self._left = folders, left
        return stdin

    def _command(self, command: parser.ShellCommand, stdin: str) -> str:
        with self._budget:
            for redirect in command.redirects:
                stdin = self._input(redirect, stdin)
            if command.kind:
                printed = self._compound(command, stdin)
            else:
                printed = self._simple(command, stdin)
                if command.redirects and any(self._plain(word) == "exec" for word in command.words):
                    self.sinks.unknown("unknown-code", "changes what all that follows reads, or where it prints")
            for redirect in command.redirects:
                printed = self._output(redirect, printed)
            return printed

    def _input(self, redirect: parser.Redirect, stdin: str) -> str:
        if redirect.operator not in {"<", "<>", "<&", "<<", "<<-", "<<<"}:
            return stdin
        text = "".join(self._fields(redirect.target, splits=False))
        if redirect.operator in {"<", "<>"}:
            text = Mark.NETWORK if text.startswith(("/dev/tcp/", "/dev/udp/")) else self.sinks.read(text)
        elif redirect.operator == "<&":
            text = "" if text == "-" else Mark.UNKNOWN
        return text + "\n" * (redirect.operator == "<<<") if redirect.descriptor in {"", "0"} else stdin or Mark.UNKNOWN

    def _output(self, redirect: parser.Redirect, printed: str) -> str:
        if redirect.operator in {"<", "<&", "<<", "<<-", "<<<"}:
            return printed
        is_output = redirect.descriptor in {"", "1"} and redirect.operator != "<>"
        path = "".join(self._fields(redirect.target, splits=False))
        if redirect.operator == ">&" and re.fullmatch(r"\d*-?", path):
            return derived(printed) + printed
        self.sinks.write(path, printed if is_output else Mark.UNKNOWN, append=">>" in redirect.operator)
        if path != "/dev/null" and path.startswith(("/dev/", "/proc/")):
            return derived(printed) + printed
        return "" if is_output else printed

    # Commands

    def _compound(self, command: parser.ShellCommand, stdin: str) -> str:
        match command.kind:
            case "for" if command.name:
                return self._for(command, stdin)
            case "[[":
                return self._test(command.words)
            case "((":
                self._arithmetic(command.words[0])
            case "function":
                return self._function(command)
            case _:
                for word in command.words:
                    self._fields(word)
        is_loop, is_certain = command.kind in {"while", "until", "for"}, command.kind in {"{", "("}
        self._loops += is_loop
        printed = [self._script(script, stdin, is_certain=is_certain) for script in command.scripts]
        self._loops -= is_loop
        return "".join(printed)

    def _for(self, command: parser.ShellCommand, stdin: str) -> str:
        name, words = command.name, [field for word in command.words for field in self._fields(word)]
        is_literal = 0 < len(words) <= 20 and not {name, ANY_VARIABLE} & self._assigned and all(map(is_known, words))
        printed = ""
        self._loops += 1
        for word in words if is_literal else [Mark.UNKNOWN]:
            self.assign(name, word, by_loop=True)
            self._bound[name] = word
            printed += self._script(command.scripts[0], stdin, is_certain=False)
        self._loops -= 1
        self._bound[name] = Mark.UNKNOWN
        return printed

    def _function(self, command: parser.ShellCommand) -> str:
        self._functions.add(command.name)
        if program_named(command.name):
            self.sinks.unknown("unknown-program", f"gives {shown(command.name)} another meaning")
        self._active.append(command.name)
        printed = self._elsewhere(lambda: self._script(command.scripts[0], Mark.UNKNOWN), later=True)
        self._active.pop()
        return printed and derived(printed) + printed

    def _test(self, words: Sequence[parser.Word]) -> str:
        texts = ["".join(self._fields(word)) for word in words]
        for position, text in enumerate(texts):
            if text in {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}:
                for word in (*words[max(position - 1, 0) : position], *words[position + 1 : position + 2]):
                    self._arithmetic(word)
        return self._rules.apply("test", texts, "")

    def _simple(self, command: parser.ShellCommand, stdin: str) -> str:
        for assignment in command.assignments:
            self._parameter(assignment, "")
        words = [field for word in command.words for field in self._fields(word)]
        if not words:
            return stdin if command.redirects else ""
        if words[0] in self._functions and not program_named(words[0]) and not self.sinks.written(words[0]):
            return Mark.UNKNOWN
        if program_named(words[0]) == PROGRAMS["declare"] and command.assignments:
            self._rules.apply(words[0], [*words[1:], "_"], stdin)
            return ""
        return self.run(words, stdin)

    # Words

    def _plain(self, word: parser.Word) -> str:
        return "".join(part.text if isinstance(part, parser.Text) else Mark.UNKNOWN for part in word)

    def _fields(self, word: parser.Word, *, splits: bool = True) -> list[str]:
        raw, may_vanish = "", True
        for part in word:
            if isinstance(part, parser.Text):
                raw += part.text.translate(_QUOTED_BRACES) if part.quoted else part.text
                may_vanish = may_vanish and not (part.quoted or part.text)
            else:
                raw += self._value(part, is_first=not raw, splits=splits).translate(_QUOTED_BRACES)
                may_vanish = may_vanish and not getattr(part, "quoted", False)
        if may_vanish and not raw:
            return []
        raws = [raw]
        while splits and len(raws) < _MAX_FIELDS and (found := next(filter(None, map(_BRACE.search, raws)), None)):
            self._budget.spend(1 + len(found.string) // 500)
            before, after = found.string[: found.start()], found.string[found.end() :]
            position = raws.index(found.string)
            raws[position : position + 1] = [before + choice + after for choice in found[1].split(",")]
        if splits and any(_BRACE.search(one) for one in raws):
            raws = [Mark.MANY]
        return [(_RANGE.sub(Mark.PIECE, one) if splits else one).translate(_BRACES) for one in raws]

    def _value(self, part: parser.Part, *, is_first: bool, splits: bool) -> str:
        match part:
            case parser.Parameter(name=""):
                self._arithmetic(part.argument)
                return Mark.NUMBER if is_first else Mark.PIECE
            case parser.Substitution():
                folders, left = self.sinks.folders, self._left
                printed = self._script(part.script, Mark.UNKNOWN if part.way == ">" else "")
                self.sinks.folders, self._left = folders, left
                if printed == Mark.PIECE:
                    return printed
                if not part.way:
                    return derived(printed, Mark.UNKNOWN if part.quoted or not splits else Mark.MANY)
                name = f"printed-{hash(printed)}"
                self.sinks.files[name] = [Mark.UNKNOWN if part.way == ">" else printed]
                return "/dev/fd/" + name
            case parser.Parameter():
                return self._parameter(part, Mark.UNKNOWN if part.quoted or not splits else Mark.MANY)
            case _:
                return ""

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
                self.assign(name, value)
        is_listing = operator in {"!@", "!*"} or (operator == "!" and is_whole)
        if operator == "@P" or (operator.startswith("!") and not is_listing):
            self.sinks.unknown("unknown-code", f"expands {shown(name)} once more")
        if operator == "length" or (not operator and name in "?#$!"):
            return Mark.PIECE
        if operator or part.subscript:
            return unknown
        if name in self._bound:
            value = self._bound[name]
            return unknown if not is_known(value) or (unknown == Mark.MANY and set(value) & set(" \t\n")) else value
        if name == "PWD" and self.sinks.folders == {"."} and not self._left:
            return "."
        return {"HOME": "~", "PATH": "/usr/bin"}.get(name, unknown + Mark.SECRET * bool(_SECRET_NAME.search(name)))

    def _arithmetic(self, expression: parser.Word) -> None:
        text = ""
        for part in expression:
            match part:
                case parser.Parameter(name=""):
                    self._arithmetic(part.argument)
                case parser.Parameter(name=name, operator="", subscript=()) if name.isidentifier():
                    text += name
                case _:
                    text += "".join(self._fields((part,), splits=False))
        names = set(re.findall(r"[A-Za-z_]\w*", text, re.ASCII))
        if not _CALM_ARITHMETIC.fullmatch(text) or ANY_VARIABLE in self._assigned or names & self._texts:
            self.sinks.unknown("unknown-code", "computes with what may run commands")
