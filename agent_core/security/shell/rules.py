"""Rules: what programs do with their arguments and their input, a method for each kind of program in the table."""

from __future__ import annotations

import getopt
import posixpath
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, takewhile
from typing import Final

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell import programs
from agent_core.security.shell.programs import LISTS, Program, program_named
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
    r"|attrgetter|methodcaller|\w*subprocess\w*|pty|ctypes|cffi|importlib|runpy|builtins|multiprocessing|pickle|marshal"
    r"|shelve|dill|cloudpickle|shutil|rmtree|remove|unlink|rmdir|removedirs|renames?|move|l?chmod|l?chown|kill\w*|truncate"
    r"|modules|socket|startfile|Popen|write_text|write_bytes|symlink\w*|hardlink\w*|urlopen|urlretrieve|FunctionType|CodeType"
    r"|zipimport|webbrowser|pexpect|plumbum|settrace|setprofile|addaudithook|timeit|c?[pP]rofile|pdb|bdb|doctest|Formatter"
    r"|pipes|unsafe_load|UnsafeLoader|os\.replace|(?:import|from)\s+code"
    r"|__(?!(?:name|file|version|doc|init|main|all|path|future)__)\w+__)\b|\bopen\s*\([^()]*[,(]"
)
ANY_VARIABLE: Final = "_"  # where nobody can tell which variable is set
_STRONG: Final = frozenset({"delete", "shell", "permissions"})  # looked at as arguments of other programs, too
_OPEN_TO_ALL: Final = re.compile(r"[0-7]?[0-7][0-7][2367]\Z|(?:[ugo]*[oa][ugoa]*)?\+[rxXst]*w|a[+=]rwx|o[+=]\w*w")
_PLAIN_NAME: Final = re.compile(r"(?!-)[\w./+@%~:-]+|\[", re.ASCII)
_FOLDER_OF_PROGRAMS: Final = re.compile(r"(?:(?:/usr(?:/local)?)?/s?bin)?")
_NUMBER: Final = re.compile(rf"[-+]?(?:0[xX])?[\d{Mark.PIECE}{Mark.NUMBER}]*")
_SET_ID: Final = re.compile(r"0?[2467][0-7]{3}\Z|[ugoa]*[+=][rwxX]*s")
_FILTER_OF_FIND: Final = re.compile(
    r"-(?:i?(?:name|path|wholename|regex|lname)|newer.*|[ac]newer|[acm](?:time|min)|size|empty|user|group|perm|inum)\Z"
)
_IN_PLACE: Final = re.compile(r"-([nErsuz]*)i.*|--in-place.*")
_ADDRESS: Final = r"(?:\d+|\$|/(?:[^/\\\n\[]|\\.|\[(?!\^?\])[^\]/\\]*\])*+/I?)"
_SED: Final = re.compile(
    rf"(?:[\s;{{}}]*(?:{_ADDRESS}(?:[,~+]*{_ADDRESS})?)?\s*!?\s*"
    r"(?:s([^\w\s\\\[])(?:(?!\1)[^\\\[]|\\.|\[(?!\^?\])(?:(?!\1)[^\]\\])*\])*+"
    r"\1(?:(?!\1)[^\\]|\\.)*+\1[gpiIM\d]*(?=[\s;}]|\Z)"
    r"|[aic](?:\\\n?|[ \t])[^\n]*+|[pdqQ=lnNhHgGxDP](?:\s*\d+)?(?=[\s;}]|\Z)"
    r"|(?=[{}])|\Z))*+",
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
_COUNTS: Final = re.compile(r"wc -[lwcm]|nproc|date \+%[smdHMSNjY]+|grep -c [\w.-]+(?: [\w./]+)?")
_REMOTE_PATH: Final = re.compile(r"(?:[\w.-]+@)?[\w.\[\]-]+:(?!//)|(?:rsync|s3|gs|az|sftp|scp|ftp|https?)://")


@dataclass(slots=True)
class ProgramCall:
    """A program, its arguments, its input ("" when it gets none), and its options if they are in the table."""

    name: str
    arguments: list[str]
    stdin: str
    options: list[tuple[str, str]]
    operands: list[str]

    def values(self, *names: str) -> list[str]:
        """What was given with these options; "" with one that has no value."""
        return [value for name, value in self.options if name in names]


class Rules:
    """The rules, each a method with the name of its kind that returns what the program prints."""

    def __init__(self, sinks: Sinks, run_code: Callable[..., str]) -> None:
        """`run_code` runs a text with an input as a shell script, perhaps `later` than now; returns what it prints."""
        self.texts: set[str] = set()  # variables that are set to something that is no number
        self.assigned: set[str] = set()  # those that are set otherwise than by a loop over words
        self._sinks = sinks
        self._run_code = run_code

    def assign(self, name: str, text: str, *, by_loop: bool = False) -> None:
        """Give a variable a value."""
        self.texts |= set() if _NUMBER.fullmatch(text) else {name}
        self.assigned |= set() if by_loop else {name}
        changes = name.startswith(LISTS["changes programs"]) and not name.startswith(LISTS["calm variables"])
        if name in LISTS["run as code"]:
            self._run_code(text, "", later=True)
        elif name == "PATH" and is_known(text):
            self._sinks.note(SecurityRisk.MEDIUM, "program", "changes where programs are looked for")
        elif name != ANY_VARIABLE and (name == "PATH" or not name.isidentifier() or changes):
            self._sinks.unknown("preload", f"makes programs do something else through {shown(name)}")
        if any(sign in text.partition("[")[2] for sign in ("$(", "`")):
            self._sinks.unknown("unknown-code", f"sets {shown(name)} to what runs commands where a number is expected")

    def run(self, words: Sequence[str], stdin: str) -> str:
        """Start a program with its arguments, the name first; one that is not known is judged by what it is given."""
        name, arguments = words[0], list(words[1:])
        folder, base = posixpath.split(name)
        self._sinks.code(name)
        if not is_known(name) or not _PLAIN_NAME.fullmatch(name):
            self._sinks.unknown("unknown-program", f"runs a program whose name is not known ({shown(name)})")
            base = ""
        elif not _FOLDER_OF_PROGRAMS.fullmatch(folder):
            self._sinks.note(SecurityRisk.MEDIUM, "program", f"runs {shown(name)}")
        program = program_named(base) or Program("opaque", SecurityRisk.MEDIUM)
        call = ProgramCall(base, arguments, stdin, [], [word for word in arguments if word[:1] != "-" or word == "-"])
        self._sinks.budget.spend(len(words) // 4)
        with self._sinks.budget:
            for text in self._sinks.written(name) if base else []:
                self.run_file(name, text)
            if program.risk is SecurityRisk.HIGH:
                self._sinks.high(program.stops, f"{base} {programs.REASONS[program.stops]}")
            elif program.risk is SecurityRisk.UNKNOWN:
                self._ask(call, "something to do that cannot be told")
                files = {path: [*texts] for path, texts in self._sinks.files.items()}
                for code in (part for word in arguments for part in [word, *re.split("[=!]", word)[1:]]):
                    self._run_code(code, stdin)
                self._sinks.files = files if program.kind == "connect" else self._sinks.files  # theirs are elsewhere
            else:
                self._sinks.note(program.risk, "program", f"runs {shown(base)}")
            for word in arguments:
                if any(word == one or (re.match("--?[A-Za-z]", one) and _is_option(one, word)) for one in program.stop):
                    self._sinks.high(program.stops, f"{base} {word} {programs.REASONS[program.stops]}")
                if any(_is_option(option, word) for option in program.ask):
                    self._ask(call, "options with which it runs or writes something else")
            if program.ask or program.stop:
                self._ask_if_open(call, arguments)
            if program.options:
                self._read_options(call, program)
            rule: Callable[[ProgramCall], str] = getattr(self, program.kind)
            return rule(call)

    def _ask(self, call: ProgramCall, what: str) -> None:
        self._sinks.unknown("unknown-option", f"gives {call.name} {what}")

    def _ask_if_open(self, call: ProgramCall, words: Sequence[str]) -> None:
        if any(map(may_be_option, words)):
            self._ask(call, "words that are not known, and may be options")

    def _read_options(self, call: ProgramCall, program: Program) -> None:
        short, *long = program.options.replace("--", "").split(" ")
        words = [_IN_PLACE.sub(r"-\1n", word) if call.name == "sed" else word for word in call.arguments]
        try:
            call.options, call.operands = getopt.gnu_getopt(words, short, [name.replace(":", "=") for name in long])
        except getopt.GetoptError:
            self._ask(call, "an option that is not known here")

    # Programs that look, print, or work on what nobody can see

    def looks(self, call: ProgramCall) -> str:
        text = self._sinks.read_all(call.operands)
        if call.name == "cat" and len(call.operands) == len(call.arguments):
            return text or call.stdin
        if call.name in {"grep", "rg"} and any(re.match(r"-\w*[lL]|--files-with", word) for word in call.arguments):
            return "\n".join(f"{root}/{Mark.PIECE}" for root in call.operands[1:] or ["."])
        most = programs.READS_AT_MOST.get(call.name)
        if most is not None and (len(call.operands) > most or any(map(may_be_option, call.arguments))):
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
            self._ask(call, "a variable to set that is not known")
        text = " ".join(call.arguments).removesuffix("\\n")
        return derived(text) if re.search(r"[%\\]", text) else text + "\n"

    def decode(self, call: ProgramCall) -> str:
        return Mark.DECODED + derived(call.stdin + self._sinks.read_all(call.operands))

    def opaque(self, call: ProgramCall) -> str:
        """A program that may run any of its arguments, and the files that they name."""
        for position, word in enumerate(call.arguments):
            known = program_named(name := posixpath.basename(word))
            if known and (known.kind in _STRONG or known.stops == "disk" or name == "dd"):
                self.run(call.arguments[position:], call.stdin)
            for text in self._sinks.written(word):
                self.run_file(word, text)
        for name, texts in [*self._sinks.files.items()]:
            for text in texts if name.endswith(".py") else []:
                self._code("python", text)  # it may be run, or taken for a module
        if not self._sinks.files.keys().isdisjoint(LISTS["recipes"]):
            self._ask(call, "to run what this command has just written")
        return derived(call.stdin + "".join(call.arguments))

    def container(self, call: ProgramCall) -> str:
        for word in call.arguments:
            mount = re.match(r"(?=.*[:=])(?:-v=?|--volume=|.*\b(?:source|src)=)?([/~][^:,]*)", word, re.DOTALL)
            if "docker.sock" in word or (mount and self._sinks.scopes(mount[1]) & GRAVE):
                self._sinks.high("container", f"gives a container {shown(word)} of the host")
        return self.opaque(call)

    def run_file(self, path: str, text: str) -> str:
        """Run what the command itself has put into a file."""
        first = text.partition("\n")[0]
        if path.endswith(".py") or (first.startswith("#!") and "python" in first):
            self._code("python", text)
        elif first.startswith("#!") and not re.search(r"[/ ](?:ba|da|z|k)?sh\b", first):
            self._sinks.unknown("unknown-code", f"runs {shown(path)} as a program of another language")
        elif "." not in posixpath.basename(path) or path.endswith((".sh", ".bash")) or not is_known(text):
            return self._run_code(text, Mark.UNKNOWN)
        elif _RISKY_TEXT.search(text):
            self._sinks.unknown("nested-program", f"works on {shown(path)}, which starts programs or deletes")
        return derived(text)

    def _code(self, interpreter: str, code: str, _stdin: str = "") -> str:
        """Judge a program by its text: Python's is read for what it may do unseen, any other counts as UNKNOWN."""
        self._sinks.code(code)
        text = unicodedata.normalize("NFKC", code[:_MAX_CODE])
        for found in _RUNS_TEXT.finditer(text):
            self._run_code(found[2].replace('\\"', '"'), "")
        for found in _RUNS_WORDS.finditer(text):
            self.run(_TEXT_IN_CODE.findall(found[1]) or [Mark.UNKNOWN], "")
        for found in _DELETES.finditer(text):
            self._sinks.delete(found[2], is_recursive=found[1] in {"rmtree", "rmSync"})
        is_calm = not code
        if program_named(interpreter) == program_named("python"):
            for found in _WRITES.finditer(text):
                self._sinks.write(found[2], Mark.UNKNOWN)
            is_calm = len(code) <= _MAX_CODE and not RISKY_PYTHON.search(_WRITES.sub("(", text))
        if not is_calm:
            self._sinks.unknown("nested-program", f"runs a program in another language ({interpreter})")
        return derived(code)

    # Commands of the shell itself

    def cd(self, call: ProgramCall) -> str:
        operands = [word for word in call.arguments if word not in {"--", "-P", "-L"}]
        target = operands[0] if len(operands) == 1 else Mark.UNKNOWN if operands or call.name != "cd" else "~"
        self._sinks.go_to(Mark.UNKNOWN if target[:1] in {"-", "+"} else target)
        return "" if call.name == "cd" and operands != ["-"] else derived("")

    def declare(self, call: ProgramCall) -> str:
        for word in call.arguments:
            name, equals, value = word.partition("=")
            if equals:
                self.assign(name.removesuffix("+"), value)
        return derived("") if call.arguments and call.name != "printenv" else Mark.SECRET

    def names(self, call: ProgramCall) -> str:
        for word in call.arguments:
            if "[" in word:
                self._sinks.unknown("unknown-variable", f"sets a variable whose name is not known ({call.name})")
            elif word.isidentifier():
                self.assign(word, Mark.UNKNOWN)
        return ""

    def test(self, call: ProgramCall) -> str:
        for before, word in pairwise(["", *call.arguments]):
            is_name = before in {"-v", "-R", "-p"} or word[:2] == "-p" or may_be_option(before)
            if is_name and (not is_known(word) or "[" in word):
                self._sinks.unknown("unknown-code", "asks for a variable whose name is not known")
        return ""

    def trap(self, call: ProgramCall) -> str:
        words = [word for word in call.arguments if word not in {"--", "-", "-l", "-p"}]
        return derived(self._run_code(words[0], Mark.UNKNOWN, later=True)) if words else ""

    def eval(self, call: ProgramCall) -> str:
        return self._run_code(" ".join(call.arguments), call.stdin)

    def source(self, call: ProgramCall) -> str:
        self.assign(ANY_VARIABLE, Mark.UNKNOWN)
        return "".join(self._script(word, call, self._run_code) for word in call.arguments[:2] if word != "--")

    # Programs that run a text

    def shell(self, call: ProgramCall) -> str:
        rest = [word for word in call.operands if not word.startswith("+")]
        if call.values("-c"):
            return self._run_code("".join(rest[:1]), call.stdin)
        if not call.stdin and not rest:
            self._sinks.note(SecurityRisk.MEDIUM, "program", "opens another shell")
        return self._script("-" if call.values("-s") else "".join(rest[:1]), call, self._run_code)

    def _script(self, path: str, call: ProgramCall, run: Callable[[str, str], str]) -> str:
        """Run a file, or the input, with what runs a text that has an input."""
        if path in {"", "-"} or resolve(path, "/") in {"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}:
            return run(call.stdin, call.stdin)
        self._sinks.note(SecurityRisk.MEDIUM, "program", f"runs the script {shown(path)}")
        self._sinks.code(path)
        if path.startswith(("/dev/", "/proc/")) or re.search(r"[*?\[]", path):
            self._sinks.unknown("unknown-code", f"runs {shown(path)} as a program, whatever that is")
        return "".join([run(text, Mark.UNKNOWN) for text in self._sinks.written(path)]) or derived("")

    def python(self, call: ProgramCall) -> str:
        modules = call.values("-m")
        for code in call.values("-c"):
            self._code(call.name, code)
        if not modules and not call.values("-c"):
            self._script("".join(call.operands[:1]), call, partial(self._code, call.name))
        if any(map(RISKY_PYTHON.fullmatch, modules)) or "code" in modules:
            self._ask(call, "a module that runs a text")
        return self.opaque(replace(call, arguments=modules + call.operands[not modules :]))

    def language(self, call: ProgramCall) -> str:
        for before, word in pairwise(call.arguments):
            if re.fullmatch(r"-\w*[eErp]|--eval", before):
                self._code(call.name, word)
        file = "".join(call.operands[:1])
        self._script(file, call, partial(self._code, call.name))
        if file == "-":
            self._ask(call, "its input to run")
        if not self._sinks.written(file):
            self._code(call.name, call.stdin)  # a script may run what it reads
        return derived(call.stdin)

    def awk(self, call: ProgramCall) -> str:
        scripts = [text for path in call.values("-f", "--file") for text in self._sinks.written(path) or [Mark.UNKNOWN]]
        for text in scripts or call.operands[:1]:
            rest = re.sub(r"\A\s*!?/(?:[^/\\\"]|\\.)*+/|\|\|", "", text)
            rest = rest if "/" in _AWK_STRING.sub("", rest) else _AWK_STRING.sub('""', rest)
            if len(text) > 2000 or re.search(r"system|getline|\||@|print[^;}\n]*>", rest) or not is_known(text):
                self._code("awk", text)
        return derived(call.stdin + self._sinks.read_all(call.operands[1:]))

    def sed(self, call: ProgramCall) -> str:
        in_place = [*filter(_IN_PLACE.match, call.arguments)]
        scripts, files = call.values("-e", "--expression"), call.operands
        if not scripts:
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
        if call.name == "command" and call.values("-v", "-V"):
            return derived("")
        rest = call.operands[call.name == "timeout" :]
        self._ask_if_open(call, call.operands[: len(call.operands) - len(rest)])
        while rest and "=" in rest[0] and call.name in {"env", "sudo", "doas"}:
            self.assign(*rest.pop(0).partition("=")[::2])
        if call.name in {"sudo", "doas"}:
            self._sinks.note(SecurityRisk.MEDIUM, "program", f"runs something as another user ({call.name})")
            known = program_named(posixpath.basename(rest[0])) if rest else None
            if known and known.kind == "delete":
                self._sinks.high("root-delete", "deletes files as root")
            elif not rest and call.values("-i", "-s", "--login", "--shell"):
                self._sinks.high("root", "opens a shell as root")
        if call.values("-C", "-D", "--chdir") or (call.name == "sudo" and call.values("-i", "--login")):
            self._sinks.go_to(Mark.UNKNOWN)
        if call.name == "env" and (codes := call.values("-S", "--split-string")):
            return "".join([self._run_code(code, call.stdin) for code in codes])
        return self.run(rest, call.stdin) if rest else Mark.SECRET

    def xargs(self, call: ProgramCall) -> str:
        rest, stdin = call.operands or ["echo"], call.stdin
        allowed = "[^\"'\\\\]*" if is_known(stdin) else rf"[\w./~{Mark.PIECE}\s-]*"
        is_plain = re.fullmatch(allowed, stdin) and 0 < len(stdin.split()) < 64
        words, lines = (stdin.split(), stdin.splitlines()) if is_plain else [[derived(stdin, Mark.MANY)]] * 2
        if marks := call.values("-I"):
            return "".join([self.run([word.replace(marks[0], line) for word in rest], "") for line in lines])
        return self.run([*rest, *words], "")

    def find(self, call: ProgramCall) -> str:
        words = call.arguments
        first = takewhile(lambda word: not re.match(r"-(?![HLP]\Z)|[(!]", word), words)
        roots = [word for word in first if word[:1] != "-"] or ["."]
        names = re.findall(r"\x07-i?(?:name|path|wholename)\x07([^\x07]*\w)", "\a".join(words))
        is_certain = names and {"-o", "-or", ",", "!", "-not"}.isdisjoint(words)
        piece = Mark.PIECE if is_certain or {"-delete", "rm"}.isdisjoint(words) else Mark.UNKNOWN
        is_filtered = any(map(_FILTER_OF_FIND.match, words))
        found = [root if not is_filtered or self._sinks.scopes(root) & GRAVE else f"{root}/{piece}" for root in roots]
        for position, word in enumerate(words):
            if word == "-delete":
                self.run(["rm", "-r", *found], "")
            elif word in {"-fprint", "-fprintf", "-fls", "-fprint0"}:
                self._sinks.write("".join(words[position + 1 : position + 2]), Mark.UNKNOWN)
            elif word in {"-exec", "-execdir", "-ok", "-okdir"}:
                command = [*takewhile(lambda one: one not in {";", "+"}, words[position + 1 :])]
                for path in found if any("{}" in one for one in command) else [""]:
                    self.run([one.replace("{}", path) for one in command] or [Mark.UNKNOWN], "")
        is_plain = not any(re.match("-(?:exec|ok|printf|ls)", word) for word in words)
        return "\n".join([*found, Mark.PIECE]) if is_plain else derived("")

    # Programs that write, delete, or open up

    def write(self, call: ProgramCall) -> str:
        is_appended = any(re.match(r"-\w*a|--append", word) for word in call.arguments)
        copied = self._sinks.read_all(word[3:] for word in call.arguments if word.startswith("if="))
        text = {"tee": call.stdin, "touch": ""}.get(call.name, derived(call.stdin + copied))
        for path in call.operands if call.name != "mkdir" else []:
            if call.name != "dd" or path.startswith("of=") or may_be_option(path):
                self._sinks.write(path.removeprefix("of=") if call.name == "dd" else path, text, append=is_appended)
        return text or derived("")

    def copy(self, call: ProgramCall) -> str:
        folders = call.values("-t", "--target-directory")
        sources = call.operands if folders else call.operands[:-1] or call.operands
        is_ours = all(path.endswith(".py") and not self._sinks.written(path) for path in call.operands)
        text = "" if is_ours else self._sinks.read_all(sources) or Mark.UNKNOWN
        text = text and (derived(text) if len(sources) > 1 else text + Mark.UNKNOWN * (call.name == "ln"))
        for target in folders or call.operands[-1:]:
            self._sinks.write_into(target, sources if target != "/dev/null" else [], text)
        for path in sources if call.name == "mv" else []:
            if self._sinks.scopes(path) & {Scope.SYSTEM, Scope.DEVICE} or resolve(path, ".") in {"~", "/root", "/home"}:
                self._sinks.high("system-file", f"moves {shown(path)} away, which is no part of the work")
        return derived("")

    def delete(self, call: ProgramCall) -> str:
        is_recursive = call.name in {"rimraf", "trash"} or bool(call.values("-r", "-R", "--recursive"))
        is_recursive = is_recursive or any(map(may_be_option, call.arguments))
        if is_recursive and (call.values("-f", "--force") or call.name == "rimraf"):
            self._sinks.note(SecurityRisk.MEDIUM, "recursive-forced-delete", "deletes folders without asking")
        for path in call.operands:
            self._sinks.delete(path, is_recursive=is_recursive)
        return derived("")

    def permissions(self, call: ProgramCall) -> str:
        mode = "".join(call.operands[:1])
        if call.name == "chmod" and _SET_ID.match(mode):
            self._sinks.high("privileges", "gives a program the rights of another user")
        is_opened = call.name == "chmod" and call.values("-R", "--recursive") and _OPEN_TO_ALL.match(mode)
        for path in call.operands:  # the mode is none, and may stand among the options
            scopes = self._sinks.scopes(path)
            if scopes & GRAVE or (is_opened and Scope.WHOLE in scopes):
                self._sinks.high("permissions", f"changes the permissions of {shown(path)}")
            elif Scope.UNKNOWN in scopes:
                self._sinks.unknown("permissions", f"changes the permissions of what is not known ({shown(path)})")
        return derived("")

    # Programs that know versions, other machines and databases

    def git(self, call: ProgramCall) -> str:
        words = list(call.arguments)
        while words and words[0].startswith("-"):
            option = words.pop(0)
            if option == "-c" and words:
                self._setting(words.pop(0))
            elif option == "-C" and words:
                self._ask_if_open(call, [words.pop(0)])
            elif option not in LISTS["git calm options"]:
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
        elif verb not in {*LISTS["git looks"], *LISTS["git changes"]}:
            self._sinks.unknown("unknown-program", f"has git do something that is not known ({shown(verb)})")
        if verb not in LISTS["git looks"] and (operands or verb not in {"branch", "config", "remote", "tag"}):
            self._sinks.note(SecurityRisk.MEDIUM, "program", f"runs git {verb}")
        if rest[:1] in [["run"], ["foreach"]] and verb in {"bisect", "submodule"}:
            return self._run_code(" ".join(rest[1:]), "")
        risky_options = [one.removeprefix(verb) for one in LISTS["git asks"] if verb + one not in LISTS["git calm"]]
        for position, word in enumerate(rest):
            if verb == "push" and any(_is_option(option, word) for option in LISTS["git forces"]):
                self._sinks.high("force-push", "overwrites or deletes what others have in the repository")
            is_open = may_be_option(word) and "--" not in rest[:position]
            if is_open or "ext::" in word or any(_is_option(option, word) for option in risky_options):
                self._ask(call, "an option that may run something, or is not known")
        return f"./{Mark.PIECE}\n" if verb == "ls-files" else Mark.NETWORK if verb == "ls-remote" else derived("")

    def _setting(self, text: str) -> None:
        name, _, value = text.partition("=")
        is_calm = name.lower().startswith(LISTS["git settings"]) or value in {"cat", "true", "false", "less"}
        if not is_calm or may_be_option(text):
            self._run_code(value.removeprefix("!"), "")
            self._sinks.unknown("hooks", f"changes a setting with which git may run programs ({shown(name)})")

    def fetch(self, call: ProgramCall) -> str:
        folder = "".join(call.values("-P", "--directory-prefix", "--output-dir"))
        urls = [*call.operands, *call.values("--url")]
        uploads = ["@" + path for path in call.values(*LISTS["fetch uploads"])]
        for text in [*call.values(*LISTS["fetch sends"]), *uploads]:
            found = re.match(r"(?:[^=@<]*=)?[@<]([^;]*)", text)
            content = (call.stdin if found[1] == "-" else self._sinks.read(found[1])) if found else text
            self._sinks.send(content or Mark.UNKNOWN * bool(found), urls, is_file=bool(found))
        self._sinks.send("".join(re.findall(Mark.SECRET, "".join(urls))), urls, is_file=False)
        saves = [path for path in call.values(*LISTS["fetch saves"]) if path.strip("-")]
        names = call.values("-O", "--remote-name", "--output-document")
        if "" in names or (call.name != "curl" and not names):
            saves += [posixpath.basename(re.split(r"[?#]", url)[0].rstrip("/")) or "index.html" for url in urls]
        for path in saves:
            self._sinks.write(posixpath.join(folder, path), Mark.NETWORK)
        return Mark.NETWORK

    def connect(self, call: ProgramCall) -> str:
        if any(re.match(r"(?i)(?:exec|system|shell)\b", word) for word in call.arguments):
            self._sinks.high("reverse-shell", "hands a program over to whoever is at the other end")
        self._sinks.send("".join(call.arguments), [], is_file=False)
        self._sinks.send(call.stdin, [word for word in call.operands if not word.isdigit()], is_file=True)
        self.opaque(call)
        return Mark.NETWORK

    def remote(self, call: ProgramCall) -> str:
        for path in call.operands:
            if any(word.startswith(("--delete", "--remove-source")) for word in call.arguments):
                self._sinks.delete(path, is_recursive=True)
        *sources, target = call.operands or [""]
        if sources and _REMOTE_PATH.match(target):
            self._sinks.send(Mark.UNKNOWN, [target], is_file=True)
        if sources and call.name in {"scp", "rsync"}:
            self._sinks.write_into(target, sources, Mark.NETWORK)
        return Mark.NETWORK

    def database(self, call: ProgramCall) -> str:
        text = " ".join(call.arguments) + "\n" + call.stdin
        if _DROPS.search(text):
            self._sinks.high("database", f"{call.name} {programs.REASONS['database']}")
        if not is_known(text) or _RUN_BY_DATABASE.search(text):
            self._ask(call, "something that is not known, or may run programs")
        for found in re.finditer(r"(?:\\!|\.shell\s|\bsystem\s)(.*)", text):
            self._run_code(found[1], "")
        return derived("")

    def pack(self, call: ProgramCall) -> str:
        for before, word in pairwise(["", *call.arguments]):
            self._run_code(word.partition("exec=")[2], "")
            scopes = self._sinks.scopes(word) if before in {"-C", "-d", "--directory"} else set()
            if scopes & {Scope.SYSTEM, Scope.DEVICE}:
                self._sinks.high("system-file", f"works on files in {shown(word)}")
            is_open = re.match("--(?:abs|files-from)" if before else r"-?\w*[PTIF]|--(?:abs|files-from)", word)
            if is_open or scopes & {Scope.HOME, Scope.UNKNOWN}:
                self._ask(call, "files that are not known")
        return derived(call.stdin + self._sinks.read_all(call.operands))


def _is_option(option: str, word: str) -> bool:
    """Whether a word may give an option: a long one also cut short, a letter also among others."""
    if option.startswith("--"):
        return len(word) > 2 and word.startswith("--") and option.startswith(word.partition("=")[0])
    if len(option) == 2 and option[0] == "-":
        return word[:1] == "-" and word[1:2] != "-" and option[1] in word[1:]
    return word.startswith(option)
