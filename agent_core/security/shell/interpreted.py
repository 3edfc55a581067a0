"""Programs in other languages than the shell's: what their text starts, writes or deletes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final, Protocol

from agent_core.security.shell.programs import program_named
from agent_core.security.shell.sinks import Mark, Sinks

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


class ShellModel(Protocol):
    """What runs commands (in thought), for the rules that know programs which run others."""

    sinks: Sinks

    def run(self, words: Sequence[str], stdin: str) -> str:
        """Start a program with its arguments, the name first; returns what it prints."""
        ...

    def run_code(self, text: str, stdin: str, *, later: bool = False) -> str:
        """Run a text as a shell script, perhaps at another time than now; returns what it prints."""
        ...

    def assign(self, name: str, text: str) -> None:
        """Give a variable a value."""
        ...

    def go_to(self, folder: str) -> None:
        """Change the working directory."""
        ...


class CodeJudge:
    """Judges a program by its text: Python's is read for what it may do unseen, any other counts as UNKNOWN."""

    def __init__(self, shell: ShellModel) -> None:
        self._shell = shell
        self._sinks = shell.sinks

    def judge(self, interpreter: str, code: str) -> None:
        """Judge what this interpreter is given as a program."""
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
