"""Rules: what programs do with their arguments and their input, a method for each kind of program in the table."""

from __future__ import annotations

import getopt
import posixpath
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Final, Protocol

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell import programs
from agent_core.security.shell.programs import Program, program_named
from agent_core.security.shell.sinks import GRAVE, Mark, Scope, Sinks, derived, is_known, may_be_option, resolve, shown

_MAX_CODE: Final = 50_000
_RUNS_TEXT: Final = re.compile(
    r"(?<!\w)(?:system|exec\w*+|popen|run|call|check_\w++|Popen|getoutput|spawn)\s*+[({]?\s*+([\"'`])((?:(?!\1)[^\\]|\\.)*+)\1"
)
_RUNS_WORDS: Final = re.compile(
    r"(?<!\w)(?:run|call|check_\w++|Popen|spawn\w*+|exec\w*+)\s*+\(\s*+[\[(]([^\])]{0,1000})[\])]"
)
_DELETES: Final = re.compile(r"\b(rmtree|remove|unlink|rmdir|removedirs|rm(?:dir)?Sync)\s*\(\s*[\"']([^\"']*)[\"']")
_WRITES: Final = re.compile(r"\b(?:open\(\s*|Path\(\s*)([\"'])([^\"']*)\1(?:\s*\)\.write_(?:text|bytes)\b|\s*,)")
_TEXT_IN_CODE: Final = re.compile(r"[\"']([^\"']*)[\"']")
RISKY_PYTHON: Final = re.compile(
    r"\b(?:system|popen|exec\w*|spawn\w*|_?posix\w*|fork\w*|eval|breakpoint|[gs]etattr\w*|delattr|vars|globals|locals"
    r"|attrgetter|methodcaller|subprocess\w*|pty|ctypes|cffi|importlib|import_module|runpy|builtins|multiprocessing|pickle"
    r"|marshal|shelve|dill|cloudpickle|rmtree|remove|unlink|rmdir|removedirs|renames?|move|l?chmod|l?chown|kill\w*|truncate"
    r"|modules|socket|create_subprocess\w*|startfile|get\w*output|Popen|check_\w+|run_path|run_module|write_text|write_bytes"
    r"|symlink\w*|hardlink\w*|urlopen|urlretrieve|FunctionType|CodeType|zipimport|webbrowser|pexpect|plumbum|settrace"
    r"|setprofile|addaudithook|timeit|c?[pP]rofile|pdb|bdb|doctest|InteractiveInterpreter|InteractiveConsole|Formatter"
    r"|get_field|pipes|unsafe_load|UnsafeLoader|copyfile\w*|copytree|os\.replace|shutil\.copy\w*|code\.interact|import\s+code|from\s+code"
    r"|__(?!(?:name|file|version|doc|init|main|all|path|future)__)\w+__)\b|\bopen\s*\([^()]*,|\bopen\s*\([^()]*\("
)


ANY_VARIABLE: Final = "_"  # where nobody can tell which variable is set
_STRONG: Final = frozenset({"delete", "shell", "dd", "permissions"})  # looked at as arguments of other programs, too
_OPEN_TO_ALL: Final = re.compile(r"[0-7]?[0-7][0-7][2367]\Z|(?:[ugo]*[oa][ugoa]*)?\+[rxXst]*w|a[+=]rwx|o[+=]\w*w")
_SET_ID: Final = re.compile(r"0?[2467][0-7]{3}\Z|[ugoa]*[+=][rwxX]*s")
_FILTER_OF_FIND: Final = re.compile(
    r"-(?:i?(?:name|path|wholename|regex|lname)|newer.*|[ac]newer|[acm](?:time|min)|size|empty|user|group|perm|inum)\Z"
)
_ADDRESS: Final = r"(?:\d+|\$|/(?:[^/\\\n\[]|\\.|\[(?!\^?\])[^\]/\\]*\])*+/I?)"
_SED: Final = re.compile(
    rf"(?:[\s;{{}}]*(?:{_ADDRESS}(?:[,~+]*{_ADDRESS})?)?\s*!?\s*"
    r"(?:s([^\w\s\\\[])(?:(?!\1)[^\\\[]|\\.|\[(?!\^?\])(?:(?!\1)[^\]\\])*\])*+"
    r"\1(?:(?!\1)[^\\]|\\.)*+\1[gpiIM\d]*(?=[\s;}]|\Z)|y/[^/\\]*+/[^/\\]*+/"
    r"|[aic](?:\\\n?|[ \t])[^\n]*+|[pdqQ=lnNhHgGxDP](?:\s*\d+)?(?=[\s;}]|\Z)"
    r"|[bt:]\s*\w*(?=[\s;}]|\Z)|(?=[{}])|\Z))*+",
    re.DOTALL,
)
_AWK_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*+"')
_RISKY_TEXT: Final = re.compile(
    r"system|exec|spawn|popen|fork|unlink|remove|rmdir|Command|[pP]rocess|shell|asm|eval|dlopen|`|\brm\b|/etc|~/|/dev/"
)
_DROPS: Final = re.compile(
    r"(?i)\bdrop\s+(?:database|schema|table|user|role)\b|\btruncate\s+(?:table\s+)?\w|\bdelete\s+from\s+[\w.\"`]+\s*(?:;|\Z)"
    r"|\b(?:dropDatabase|flushall|flushdb)\b"
)
_RUN_BY_DATABASE: Final = re.compile(r"(?i)\\|\.(?:shell|once|output|load|read|import|excel)|\bsystem\b|program\s+'")
_CALM_SSH: Final = re.compile(r"(?i)(?:stricthostkeychecking|batchmode|connecttimeout|userknownhostsfile|loglevel)[= ]")
_COUNTS: Final = re.compile(r"wc -[lwcm]|nproc|date \+%[smdHMSNjY]+|grep -c [\w.-]+(?: [\w./]+)?")
_REMOTE_PATH: Final = re.compile(r"(?:[\w.-]+@)?[\w.\[\]-]+:(?!//)|(?:rsync|s3|gs|az|sftp|scp|ftp|https?)://")


@dataclass(slots=True)
class ProgramCall:
    """A program, its arguments, and its input ("" when it gets none)."""

    name: str
    arguments: list[str]
    stdin: str
    options: list[tuple[str, str]] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)

    @property
    def plain(self) -> list[str]:
        """The arguments that do not look like options."""
        return [word for word in self.arguments if word[:1] != "-" or word == "-"]

    def has(self, *names: str) -> bool:
        """Whether one of these options is given."""
        return any(name in names for name, _ in self.options)

    def values(self, *names: str) -> list[str]:
        """What was given with these options."""
        return [value for name, value in self.options if name in names]


class JudgedShell(Protocol):
    """The shell whose programs are judged: what they may have it do. Texts are what is printed or read."""

    sinks: Sinks

    def run(self, words: Sequence[str], stdin: str) -> str: ...

    def run_code(self, text: str, stdin: str, *, later: bool = False) -> str: ...

    def assign(self, name: str, text: str, *, by_loop: bool = False) -> None: ...

    def go_to(self, folder: str) -> None: ...


class Rules:
    """The rules, each a method with the name of its kind that returns what the program prints."""

    def __init__(self, shell: JudgedShell) -> None:
        self._shell = shell
        self._sinks = shell.sinks

    def apply(self, name: str, arguments: list[str], stdin: str) -> str:
        """Judge a program by its plain name; one that is not known is judged by what it is given."""
        program = program_named(name) or Program("opaque", SecurityRisk.MEDIUM)
        call = ProgramCall(name, arguments, stdin)
        if program.risk is SecurityRisk.HIGH:
            self._sinks.high(program.stops, f"{name} {programs.REASONS[program.stops]}")
        elif program.risk is not SecurityRisk.UNKNOWN:
            self._sinks.note(program.risk, "program", f"runs {shown(name)}")
        for word in arguments:
            if any(word == one or (re.match("--?[A-Za-z]", one) and _is_option(one, word)) for one in program.stop):
                self._sinks.high(program.stops, f"{name} {word} {programs.REASONS[program.stops]}")
            if any(_is_option(option, word) for option in program.ask):
                self._ask(call, "options with which it runs or writes something else")
        if program.ask or program.stop:
            self._ask_if_open(call, arguments)
        rule: Callable[[ProgramCall], str] = getattr(self, program.kind)
        return rule(call)

    def _ask(self, call: ProgramCall, what: str) -> None:
        self._sinks.unknown("unknown-option", f"gives {call.name} {what}")

    def _ask_if_open(self, call: ProgramCall, words: Sequence[str]) -> None:
        if any(map(may_be_option, words)):
            self._ask(call, "words that are not known, and may be options")

    def _parsed(self, call: ProgramCall, spec: str = "", *, stops: bool = False) -> ProgramCall:
        """The call with its options and operands; with `stops` the first operand ends the options."""
        short, *long = programs.OPTIONS.get(spec or call.name, "-").replace("--", "").split(" ")
        parse = getopt.getopt if stops else getopt.gnu_getopt
        try:
            call.options, call.operands = parse(call.arguments, short, [name.replace(":", "=") for name in long])
        except getopt.GetoptError:
            self._ask(call, "an option that is not known here")
            call.operands = call.plain
        return call

    # Programs that look, print, or work on what nobody can see

    def looks(self, call: ProgramCall) -> str:
        text = self._sinks.read_all(call.plain)
        if call.name == "cat" and len(call.plain) == len(call.arguments):
            return text or call.stdin
        if call.name in {"grep", "rg"} and any(re.match(r"-\w*[lL]|--files-with", word) for word in call.arguments):
            return "\n".join(f"{root}/{Mark.PIECE}" for root in call.plain[1:] or ["."])
        most = programs.READS_AT_MOST.get(call.name)
        if most is not None and (len(call.plain) > most or any(map(may_be_option, call.arguments))):
            self._ask(call, "files, the last of which it may write to")
        if call.name == "xxd" and any("r" in word for word in call.arguments):
            return Mark.DECODED
        line = " ".join([call.name, *call.arguments])
        return Mark.PIECE if _COUNTS.fullmatch(line) else derived(call.stdin + text)

    def echo(self, call: ProgramCall) -> str:
        text = " ".join(call.arguments)
        return derived(text) if "\\" in text or text.startswith("-") else text + "\n"

    def printf(self, call: ProgramCall) -> str:
        if any(word[:2] == "-v" or may_be_option(word) for word in call.arguments[:1]):
            self.names(ProgramCall("printf", [word.removeprefix("-v") for word in call.arguments[:2]], ""))
        text = " ".join(call.arguments).removesuffix("\\n")
        return derived(text) if re.search(r"[%\\]", text) else text + "\n"

    def secrets(self, call: ProgramCall) -> str:
        return Mark.SECRET

    def decode(self, call: ProgramCall) -> str:
        return Mark.DECODED + derived(call.stdin + self._sinks.read_all(call.plain))

    def opaque(self, call: ProgramCall) -> str:
        """A program that may run any of its arguments, and the files that they name."""
        for position, word in enumerate(call.arguments):
            known = program_named(posixpath.basename(word))
            if known and (known.kind in _STRONG or known.stops == "disk"):
                self._shell.run(call.arguments[position:], call.stdin)
            for text in self._sinks.written(word):
                self.run_file(word, text)
        self._judge_modules(call)
        if not self._sinks.files.keys().isdisjoint(programs.NAMES["recipes"]):
            self._ask(call, "to run what this command has just written")
        return derived(call.stdin + "".join(call.arguments))

    def container(self, call: ProgramCall) -> str:
        for word in call.arguments:
            given = re.match(r"(?=.*[:=])(?:-v=?|--volume=|.*\b(?:source|src)=)?([/~][^:,]*)", word, re.DOTALL)
            if "docker.sock" in word or (given and self._sinks.scopes(given[1]) & GRAVE):
                self._sinks.high("container", f"gives a container {shown(word)} of the host")
        return self.opaque(call)

    def ask(self, call: ProgramCall) -> str:
        self._ask(call, "something to do that cannot be told")
        for word in call.arguments:
            self._shell.run_code(re.split("[=!]", word)[-1], call.stdin)
        return self.opaque(call)

    def run_file(self, path: str, text: str) -> str:
        """Run what the command itself has put into a file."""
        first = text.partition("\n")[0]
        if path.endswith(".py") or (first.startswith("#!") and "python" in first):
            self._code("python", text)
        elif first.startswith("#!") and not re.search(r"[/ ](?:ba|da|z|k)?sh\b", first):
            self._sinks.unknown("unknown-code", f"runs {shown(path)} as a program of another language")
        elif "." not in posixpath.basename(path) or path.endswith((".sh", ".bash")) or not is_known(text):
            return self._shell.run_code(text, Mark.UNKNOWN)
        elif _RISKY_TEXT.search(text):
            self._sinks.unknown("nested-program", f"works on {shown(path)}, which starts programs or deletes")
        return derived(text)

    def _code(self, interpreter: str, code: str) -> None:
        """Judge a program by its text: Python's is read for what it may do unseen, any other counts as UNKNOWN."""
        self._sinks.code(code)
        text = unicodedata.normalize("NFKC", code[:_MAX_CODE])
        for found in _RUNS_TEXT.finditer(text):
            self._shell.run_code(found[2].replace('\\"', '"'), "")
        for found in _RUNS_WORDS.finditer(text):
            self._shell.run(_TEXT_IN_CODE.findall(found[1]) or [Mark.UNKNOWN], "")
        for found in _DELETES.finditer(text):
            self._sinks.delete(found[2], is_recursive=found[1] in {"rmtree", "rmSync"})
        is_calm = not code
        if program_named(interpreter) == program_named("python"):
            for found in _WRITES.finditer(text):
                self._sinks.write(found[2], Mark.UNKNOWN)
            is_calm = len(code) <= _MAX_CODE and not RISKY_PYTHON.search(_WRITES.sub("(", text))
        if not is_calm:
            self._sinks.unknown("nested-program", f"runs a program in another language ({interpreter})")

    # Commands of the shell itself

    def cd(self, call: ProgramCall) -> str:
        operands = [word for word in call.arguments if word not in {"--", "-P", "-L"}]
        target = operands[0] if len(operands) == 1 else Mark.UNKNOWN if operands or call.name != "cd" else "~"
        self._shell.go_to(Mark.UNKNOWN if target[:1] in {"-", "+"} else target)
        return "" if call.name == "cd" and operands != ["-"] else derived("")

    def declare(self, call: ProgramCall) -> str:
        for word in call.arguments:
            name, equals, value = word.partition("=")
            if equals:
                self._shell.assign(name.removesuffix("+"), value)
            elif may_be_option(word) or (re.match(r"[-+]\w*[ina]", word) and call.name != "export"):
                self._sinks.unknown("unknown-variable", f"gives variables another meaning ({call.name})")
        return derived("") if call.arguments else Mark.SECRET

    def names(self, call: ProgramCall) -> str:
        for word in call.arguments:
            if may_be_option(word) or "[" in word or word[:2] == "-C":
                self._sinks.unknown("unknown-variable", f"sets a variable whose name is not known ({call.name})")
            elif word.isidentifier():
                self._shell.assign(word, Mark.UNKNOWN)
        return ""

    def test(self, call: ProgramCall) -> str:
        for before, word in pairwise(["", *call.arguments]):
            if (before in {"-v", "-R", "-p"} or word[:2] == "-p" or may_be_option(before)) and (
                not is_known(word) or "[" in word
            ):
                self._sinks.unknown("unknown-code", "asks for a variable whose name is not known")
        return ""

    def trap(self, call: ProgramCall) -> str:
        words = [word for word in call.arguments if word not in {"--", "-", "-l", "-p"}]
        return derived(self._shell.run_code(words[0], Mark.UNKNOWN, later=True)) if words else ""

    def eval(self, call: ProgramCall) -> str:
        return self._shell.run_code(" ".join(call.arguments), call.stdin)

    def source(self, call: ProgramCall) -> str:
        self._shell.assign(ANY_VARIABLE, Mark.UNKNOWN)
        return "".join(self._script(word, call) for word in call.arguments[:2] if word != "--")

    # Programs that run a text

    def shell(self, call: ProgramCall) -> str:
        self._parsed(call, "shell", stops=True)
        rest = [word for word in call.operands if not word.startswith("+")]
        if call.has("-c"):
            return self._shell.run_code("".join(rest[:1]), call.stdin)
        if rest and not call.has("-s"):
            return self._script(rest[0], call)
        self._sinks.note(SecurityRisk.MEDIUM if not call.stdin else SecurityRisk.LOW, "program", "opens another shell")
        return self._shell.run_code(call.stdin, call.stdin) if call.stdin else derived("")

    def _script(self, path: str, call: ProgramCall) -> str:
        if resolve(path, "/") in {"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"} or path == "-":
            return self._shell.run_code(call.stdin, call.stdin)
        self._sinks.note(SecurityRisk.MEDIUM, "program", f"runs the script {shown(path)}")
        self._sinks.code(path)
        if path.startswith(("/dev/", "/proc/")) or re.search(r"[*?\[]", path):
            self._sinks.unknown("unknown-code", f"runs {shown(path)} as a program, whatever that is")
        return "".join([self._shell.run_code(text, Mark.UNKNOWN) for text in self._sinks.written(path)]) or derived("")

    def python(self, call: ProgramCall) -> str:
        self._parsed(call, "python", stops=True)
        self._judge_modules(call)
        file = "".join(call.operands[:1]) if not call.has("-c", "-m") else ""
        codes = call.values("-c") or ([call.stdin] if (not call.operands and not call.has("-m")) or file == "-" else [])
        for code in [*codes, *(self._sinks.written(file) if file[-3:] != ".py" else [])]:
            self._code(call.name, code)
        if re.search(r"[*?\[]", file) or not is_known(file):
            self._ask(call, "a script that is not known")
        if any(map(RISKY_PYTHON.fullmatch, call.values("-m"))) or "code" in call.values("-m"):
            self._ask(call, "a module that runs a text")
        return self.opaque(
            ProgramCall(call.name, [*call.values("-m"), *call.operands[call.has("-m") ^ 1 :]], call.stdin)
        )

    def _judge_modules(self, call: ProgramCall) -> None:
        for name, texts in [*self._sinks.files.items()]:
            for text in texts if name.endswith(".py") else []:
                self._code("python", text)  # it may be run, or taken for a module

    def language(self, call: ProgramCall) -> str:
        codes = [text for word in call.plain[:1] for text in self._sinks.written(word)] or [call.stdin]
        codes += [word for before, word in pairwise(call.arguments) if re.fullmatch(r"-\w*[eErp]|--eval", before)]
        for code in codes:
            self._code(call.name, code)
        options = [*takewhile(lambda word: word[:1] == "-" or may_be_option(word), call.arguments)]
        if not all(re.fullmatch(r"-[wnlpesv]+|--version", word) for word in options):
            self._ask(call, "options with which it may run something else")
        return derived(call.stdin)

    def awk(self, call: ProgramCall) -> str:
        self._parsed(call, "awk", stops=True)
        scripts = [text for path in call.values("-f", "--file") for text in self._sinks.written(path) or [Mark.UNKNOWN]]
        for text in scripts or call.operands[:1]:
            rest = re.sub(r"\A\s*!?/(?:[^/\\\"]|\\.)*+/|\|\|", "", text)
            rest = rest if "/" in _AWK_STRING.sub("", rest) else _AWK_STRING.sub('""', rest)
            if len(text) > 2000 or re.search(r"system|getline|\||@|print[^;}\n]*>", rest) or not is_known(text):
                self._code("awk", text)
        return derived(call.stdin + self._sinks.read_all(call.operands[1:]))

    def sed(self, call: ProgramCall) -> str:
        in_place = [word for word in call.arguments if re.match(r"-[nErsuz]*i|--in-place", word)]
        rest = [re.sub(r"\A-([nErsuz]*)i.*|\A--in-place.*", r"-\1n", word, flags=re.DOTALL) for word in call.arguments]
        call = self._parsed(ProgramCall("sed", rest, call.stdin))
        scripts, files = call.values("-e", "--expression"), call.operands
        scripts += [text for path in call.values("-f", "--file") for text in self._sinks.written(path)]
        if call.has("-f", "--file"):
            self._sinks.note(SecurityRisk.MEDIUM, "program", "runs a script of sed")
        elif not scripts:
            scripts, files = files[:1], files[1:]
        if any(_SED.fullmatch(script) is None for script in scripts):
            self._sinks.unknown("sed-runs", "has sed do something that may run commands or write to files")
        self._ask_if_open(call, files)
        if any(set("/*") & set(word) for word in in_place):
            self._ask(call, "a place of its own for copies")
        text = "\n".join(scripts)
        for path in files if in_place else []:
            self._sinks.write(path, text if path.endswith(".py") else Mark.UNKNOWN)
        return derived(self._sinks.read_all(files) or call.stdin)

    # Programs that start others

    def launch(self, call: ProgramCall) -> str:
        self._parsed(call, stops=True)
        if call.name == "command" and call.has("-v", "-V"):
            return derived("")
        before = int(call.name == "timeout")
        self._ask_if_open(call, call.operands[:before])
        rest = call.operands[before:]
        while rest and "=" in rest[0] and call.name in {"env", "sudo", "doas"}:
            self._shell.assign(*rest.pop(0).partition("=")[::2])
        if call.name in {"sudo", "doas"}:
            self._sinks.note(SecurityRisk.MEDIUM, "program", f"runs something as another user ({call.name})")
            known = program_named(posixpath.basename(rest[0])) if rest else None
            if known and known.kind == "delete":
                self._sinks.high("root-delete", "deletes files as root")
            elif not rest and call.has("-i", "-s", "--login", "--shell"):
                self._sinks.high("root", "opens a shell as root")
        if call.has("-C", "-D", "--chdir") or (call.name == "sudo" and call.has("-i", "--login")):
            self._shell.go_to(Mark.UNKNOWN)
        codes = call.values("-S", "--split-string") if call.name == "env" else []
        codes += [" ".join(rest)] if call.name == "watch" else []
        if not codes and rest:
            return self._shell.run(rest, call.stdin)
        return "".join([self._shell.run_code(code, call.stdin) for code in codes]) or Mark.SECRET

    def xargs(self, call: ProgramCall) -> str:
        self._parsed(call, stops=True)
        rest, stdin = call.operands, call.stdin
        if paths := call.values("-a", "--arg-file"):
            stdin = self._sinks.read_all(paths)
        is_plain = (
            not re.search("[\"'\\\\]", stdin) if is_known(stdin) else re.fullmatch(rf"[\w./~{Mark.PIECE}\s-]*", stdin)
        )
        is_plain = is_plain and 0 < len(stdin.split()) < 64
        given, lines = (stdin.split(), stdin.splitlines()) if is_plain else [[derived(stdin, Mark.MANY)]] * 2
        for mark in [value or "{}" for value in call.values("-I")]:
            runs = [[word.replace(mark, line) for word in rest] for line in lines]
            return "".join([self._shell.run(words, "") for words in runs if words])
        return self._shell.run([*(rest or ["echo"]), *given], "")

    def find(self, call: ProgramCall) -> str:
        words = call.arguments
        first = next((n for n, word in enumerate(words) if re.match(r"-(?![HLP]\Z)|[(!]", word)), len(words))
        roots = [word for word in words[:first] if word[:1] != "-"] or ["."]
        self._ask_if_open(call, words)
        names = re.findall(r"\x07-i?(?:name|path|wholename)\x07([^\x07]*\w)", "\a".join(words))
        is_certain = names and {"-o", "-or", ",", "!", "-not"}.isdisjoint(words)
        piece = Mark.PIECE if is_certain or {"-delete", "rm"}.isdisjoint(words) else Mark.UNKNOWN
        is_filtered = any(map(_FILTER_OF_FIND.match, words))
        found = [f"{root.rstrip('/')}/{piece}" if is_filtered and root != "/" else root for root in roots]
        for position, word in enumerate(words):
            rest = words[position + 1 :]
            if word == "-delete":
                self._sinks.note(SecurityRisk.MEDIUM, "delete", "deletes what it finds")
                for root, path in zip(roots, found, strict=True):
                    self._sinks.delete(root if self._sinks.scopes(root) & GRAVE else path, is_recursive=True)
            elif word in {"-fprint", "-fprintf", "-fls", "-fprint0"}:
                self._sinks.write("".join(rest[:1]), Mark.UNKNOWN)
            elif word in {"-exec", "-execdir", "-ok", "-okdir"}:
                if word.endswith("dir"):
                    self._ask(call, "a program to run in folders that are not known")
                command = rest[: min([rest.index(end) for end in (";", "+") if end in rest], default=len(rest))]
                for path in found if any("{}" in one for one in command) else [""]:
                    self._shell.run([one.replace("{}", path) for one in command] or [Mark.UNKNOWN], "")
        is_plain = not any(re.match("-(?:exec|ok|printf|ls)", word) for word in words)
        return "\n".join([*found, Mark.PIECE]) if is_plain else derived("")

    # Programs that write, delete, or open up

    def write(self, call: ProgramCall) -> str:
        is_appended = any(re.match(r"-\w*a|--append", word) for word in call.arguments)
        for path in call.plain if call.name != "mkdir" else []:
            text = {"tee": call.stdin, "touch": ""}.get(call.name, Mark.UNKNOWN)
            self._sinks.write(path, text, append=is_appended)
        return call.stdin if call.name == "tee" else derived("")

    def copy(self, call: ProgramCall) -> str:
        self._ask_if_open(call, self._parsed(call, "copy").arguments)
        named = call.values("-t", "--target-directory")
        plain, sources = call.operands, call.operands if named else call.operands[:-1] or call.operands
        is_ours = all(path.endswith(".py") and not self._sinks.written(path) for path in plain)
        texts = ["" if is_ours else self._sinks.read(path) or Mark.UNKNOWN for path in sources]
        more = Mark.UNKNOWN if not is_ours and (len(sources) > 1 or call.name == "ln") else ""
        together = "".join(texts) + more if len(texts) < 2 else derived("".join(map(derived, texts)))
        for target in named or plain[-1:]:
            self._sinks.write(target, together)
            for path, text in zip(sources, texts, strict=True) if target != "/dev/null" else []:
                self._sinks.write(posixpath.join(target, posixpath.basename(path.rstrip("/"))), text + more)
        for path in sources if call.name == "mv" else []:
            if self._sinks.scopes(path) & {Scope.SYSTEM, Scope.DEVICE} or resolve(path, ".") in {"~", "/root", "/home"}:
                self._sinks.high("system-file", f"moves {shown(path)} away, which is no part of the work")
        return derived("")

    def dd(self, call: ProgramCall) -> str:
        parts = [word.partition("=") for word in call.arguments]
        printed = "".join([self._sinks.read(value) for key, _, value in parts if key == "if"]) or derived(call.stdin)
        self._ask_if_open(call, call.arguments)
        for path in [value for key, _, value in parts if key == "of"]:
            self._sinks.write(path, printed)
        return printed

    def delete(self, call: ProgramCall) -> str:
        self._ask_if_open(call, self._parsed(call, "delete").arguments)
        is_recursive = call.has("-r", "-R", "--recursive") or call.name in {"rimraf", "trash"}
        is_recursive = is_recursive or any(map(may_be_option, call.arguments))
        if call.has("--no-preserve-root"):
            self._sinks.high("catastrophic-delete", "deletes without protection of the root directory")
        if is_recursive and (call.has("-f", "--force") or call.name == "rimraf"):
            self._sinks.note(SecurityRisk.MEDIUM, "recursive-forced-delete", "deletes folders without asking")
        for path in call.operands:
            self._sinks.delete(path, is_recursive=is_recursive)
        return derived("")

    def permissions(self, call: ProgramCall) -> str:
        call.arguments = [re.sub(r"\A-(?=[rwxXst]+\Z)", "=", word) for word in call.arguments]  # a mode, no option
        self._ask_if_open(call, self._parsed(call, "permissions").operands)
        mode = "".join(call.operands[:1])
        if call.name == "chmod" and _SET_ID.match(mode):
            self._sinks.high("privileges", "gives a program the rights of another user")
        is_opened = call.has("-R", "--recursive") and call.name == "chmod" and bool(_OPEN_TO_ALL.match(mode))
        for path in call.operands[1:]:
            scopes = self._sinks.scopes(path)
            if scopes & GRAVE or (is_opened and scopes & {Scope.WHOLE, Scope.OUTSIDE}):
                self._sinks.high("permissions", f"changes the permissions of {shown(path)}")
            elif Scope.UNKNOWN in scopes:
                self._sinks.unknown("permissions", f"changes the permissions of what is not known ({shown(path)})")
        return derived("")

    # Programs that know versions, other machines and databases

    def git(self, call: ProgramCall) -> str:
        words, lists = list(call.arguments), programs.GIT
        while words and words[0].startswith("-"):
            option = words.pop(0)
            if option == "-c" and words:
                self._setting(words.pop(0))
            elif option == "-C" and words:
                self._ask_if_open(call, [words.pop(0)])
            elif option not in lists["calm options"]:
                self._ask(call, "an option with which it may run something")
        verb, rest = (words[0], words[1:]) if words else ("version", [])
        rest = [word for before, word in pairwise(["", *rest]) if before not in {"-m", "-F", "-am", "--message"}]
        operands = [word for word in rest if word[:1] != "-"]
        if verb == "mv":
            self._sinks.write("".join(operands[-1:]) or ".", Mark.UNKNOWN)
        elif verb == "config" and len(operands) > 1:
            self._setting("=".join(operands[:2]))
        elif verb in {"filter-branch", "filter-repo"}:
            self._sinks.high("history", f"git {verb} rewrites the whole history")
        elif verb not in {*lists["looks"], *lists["changes"]}:
            self._sinks.unknown("unknown-program", f"has git do something that is not known ({shown(verb)})")
        if verb not in lists["looks"] and (verb not in lists["either"] or operands):
            self._sinks.note(SecurityRisk.MEDIUM, "program", f"runs git {verb}")
        if rest[:1] in [["run"], ["foreach"]] and verb in {"bisect", "submodule"}:
            return self._shell.run_code(" ".join(rest[1:]), "")
        asking = set(lists["asks"]) - set(lists.get(f"calm {verb}", ())) | set(lists.get(f"asks {verb}", ()))
        for position, word in enumerate(rest):
            if verb == "push" and any(_is_option(option, word) for option in lists["forces"]):
                self._sinks.high("force-push", "overwrites or deletes what others have in the repository")
            is_open = may_be_option(word) and "--" not in rest[:position]
            if is_open or "ext::" in word or any(_is_option(option, word) for option in asking):
                self._ask(call, "an option that may run something, or is not known")
        return f"./{Mark.PIECE}\n" if verb == "ls-files" else Mark.NETWORK if verb == "ls-remote" else derived("")

    def _setting(self, text: str) -> None:
        name, _, value = text.partition("=")
        if value[:1] == "!" or name.lower() in {"core.pager", "core.editor", "core.sshcommand", "sequence.editor"}:
            self._shell.run_code(value.removeprefix("!"), "")
        is_calm = name.lower().startswith(programs.GIT["settings"]) or value in {"cat", "true", "false", "less"}
        if not is_calm or may_be_option(text):
            self._sinks.unknown("hooks", f"changes a setting with which git may run programs ({shown(name)})")

    def fetch(self, call: ProgramCall) -> str:
        form = "curl" if call.name == "curl" else "wget"
        self._parsed(call, form)
        roles = ("sends", "uploads", "saves", "logs", "folder")
        given = {role: call.values(*programs.FETCHING[f"{form} {role}"]) for role in roles}
        urls = [*call.operands, *call.values("--url")]
        for text in [*given["sends"], *("@" + path for path in given["uploads"])]:
            found = re.match(r"(?:[^=@<]*=)?[@<]([^;]*)", text)
            content = (call.stdin if found[1] == "-" else self._sinks.read(found[1])) if found else text
            self._sinks.send(content or Mark.UNKNOWN * bool(found), urls, is_file=bool(found))
        self._sinks.send("".join(re.findall(Mark.SECRET, "".join(urls))), urls, is_file=False)
        outputs = given["saves"]
        is_named = call.has("-O", "-J", "--remote-name", "--remote-name-all") if form == "curl" else not outputs
        if is_named and call.name in {"curl", "wget", "aria2c", "axel"}:
            outputs += [posixpath.basename(re.split(r"[?#]", url)[0].rstrip("/")) or "index.html" for url in urls]
        saved = [posixpath.join("".join(given["folder"]), path) for path in outputs if path != "-"]
        for path in [*given["logs"], *saved]:
            self._sinks.write(path, Mark.NETWORK)
        return Mark.NETWORK

    def connect(self, call: ProgramCall) -> str:
        if any(re.match(r"(?i)(?:exec|system|shell)\b", word) for word in call.arguments):
            self._sinks.high("reverse-shell", "hands a program over to whoever is at the other end")
        self._sinks.send("".join(call.arguments), [], is_file=False)
        self._sinks.send(call.stdin, [word for word in call.plain if not word.isdigit()], is_file=True)
        return Mark.NETWORK

    def send(self, call: ProgramCall) -> str:
        self._ask(call, "something that it may send or run")
        return self.connect(call)

    def ssh(self, call: ProgramCall) -> str:
        self._parsed(call, "ssh", stops=True)
        settings = call.values("-o")
        if not all(map(_CALM_SSH.match, settings)) or call.has("-F", "-E"):
            self._ask(call, "options with which it may run something")
        self._ask_if_open(call, call.arguments[: len(call.arguments) - len(call.operands) + 1])
        self._sinks.send(call.stdin, call.operands[:1], is_file=True)
        for code in [*(value.partition("=")[2] for value in settings), " ".join(call.operands[1:])]:
            self._shell.run_code(code, "")
        return Mark.NETWORK

    def remote(self, call: ProgramCall) -> str:
        operands = call.plain
        self._ask_if_open(call, call.arguments)
        if any(word.startswith(("--delete", "--remove-source")) for word in call.arguments):
            for path in operands:
                self._sinks.delete(path, is_recursive=True)
        if len(operands) > 1 and _REMOTE_PATH.match(operands[-1]):
            self._sinks.send(Mark.UNKNOWN, operands[-1:], is_file=True)
        for path in ["", *operands[:-1]] if len(operands) > 1 and call.name in {"scp", "rsync"} else []:
            self._sinks.write(posixpath.join(operands[-1], posixpath.basename(path)).rstrip("/"), Mark.NETWORK)
        return Mark.NETWORK

    def database(self, call: ProgramCall) -> str:
        text = " ".join(call.arguments) + "\n" + call.stdin
        if _DROPS.search(text):
            self._sinks.high("database", f"{call.name} {programs.REASONS['database']}")
        if not is_known(text) or _RUN_BY_DATABASE.search(text):
            self._ask(call, "something that is not known, or may run programs")
        for found in re.finditer(r"(?m)(?:\\!|\.shell|\.system|system)\s+(.*)$", text):
            self._shell.run_code(found[1], "")
        return derived("")

    def pack(self, call: ProgramCall) -> str:
        for before, word in pairwise(["", *call.arguments]):
            self._shell.run_code(word.partition("exec=")[2], "")
            scopes = self._sinks.scopes(word) if before in {"-C", "-d", "--directory"} else set()
            if scopes & {Scope.SYSTEM, Scope.DEVICE}:
                self._sinks.high("system-file", f"works on files in {shown(word)}")
            elif scopes & {Scope.HOME, Scope.UNKNOWN} or re.match("--(?:abs|files-from)", word):
                self._ask(call, "files that are not known")
        if re.match(r"-?\w*[PTIF]", "".join(call.arguments[:1])):
            self._ask(call, "files that are not known")
        return derived(call.stdin + self._sinks.read_all(call.plain))


def _is_option(option: str, word: str) -> bool:
    """Whether a word may give an option: a long one also cut short, a letter also among others."""
    if option.startswith("--"):
        return len(word) > 2 and word.startswith("--") and option.startswith(word.partition("=")[0])
    if len(option) == 2 and option[0] == "-":
        return word[:1] == "-" and word[1:2] != "-" and option[1] in word[1:]
    return word.startswith(option)
