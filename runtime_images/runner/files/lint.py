"""The lint program: syntax errors that an edit would make, as reported by the languages' own parsers."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import tempfile
import warnings
from typing import Any, Callable, Dict, List, NamedTuple

from . import disk
from .edits import FILE_LIMIT
from .line_ranges import spliced
from .text_file import decode, is_binary

PROGRAM_SECONDS = 10.0
_MOST = 100


class LintProblem(NamedTuple):
    """What is wrong and in which line; 0 where that is unknown."""

    line: int
    text: str


def main(order: str) -> int:
    """Check a file as an edit would leave it, and print what it would break."""
    found = [{"line": problem.line, "text": problem.text} for problem in report(json.loads(order))]
    sys.stdout.write(json.dumps({"problems": found}))
    return 0


def report(order: Dict[str, Any]) -> List[LintProblem]:
    """Return the problems that are not there yet."""
    path = order["path"]
    try:
        old = disk.read(path, FILE_LIMIT + 1).data if os.path.exists(path) else None
    except disk.FileError:
        return []  # whoever edits it will be told
    new = spliced(old, order["first"], order["last"], order["text"])
    before = {_nameless(problem) for problem in problems(path, old)} if old is not None else set()
    return [problem for problem in problems(path, new) if _nameless(problem) not in before][:_MOST]


def problems(path: str, data: bytes) -> List[LintProblem]:
    """Return the problems of a file of this name and content; none for unknown languages."""
    suffix = os.path.splitext(path)[1].lower()
    if is_binary(data):
        return []
    if suffix in _PARSERS:
        return _PARSERS[suffix](data)
    return _run_linter(data, suffix, *_PROGRAMS[suffix]) if suffix in _PROGRAMS else []


def _nameless(problem: LintProblem) -> str:
    return re.sub(r"\d+", "", problem.text)


def _python(data: bytes) -> List[LintProblem]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(data)
    except SyntaxError as error:
        return [LintProblem(error.lineno or 0, f"{type(error).__name__}: {error.msg}")]
    except (ValueError, RecursionError, MemoryError) as error:
        return [LintProblem(0, f"it cannot be read: {error}")]
    return []


def _json(data: bytes) -> List[LintProblem]:
    try:
        json.loads(decode(data).text)
    except json.JSONDecodeError as error:
        return [LintProblem(error.lineno, f"JSON: {error.msg}")]
    except RecursionError:
        return [LintProblem(0, "JSON: it is nested too deeply")]
    return []


def _toml(data: bytes) -> List[LintProblem]:
    try:
        import tomllib  # Python 3.11 has it
    except ImportError:
        return []
    try:
        tomllib.loads(decode(data).text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        return [LintProblem(int(line.group(1)) if line else 0, f"TOML: {error}")]
    return []


def _run_linter(data: bytes, suffix: str, command: List[str], form: str) -> List[LintProblem]:
    import shutil  # only for languages that Python does not read itself
    import subprocess

    program = shutil.which(command[0])
    if program is None:
        return []
    with tempfile.NamedTemporaryFile(suffix=suffix) as copy:
        copy.write(data)
        copy.flush()
        try:
            done = subprocess.run(
                [program, *command[1:], copy.name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=PROGRAM_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired):
            return []
        output = (done.stdout + done.stderr).decode("utf-8", "replace").replace(copy.name, "")
    if done.returncode == 0:
        return []
    return [LintProblem(int(found[1]), found[2].strip()) for found in re.finditer(form, output, re.MULTILINE)]


_PARSERS: Dict[str, Callable[[bytes], List[LintProblem]]] = {
    ".py": _python,
    ".pyi": _python,
    ".json": _json,
    ".toml": _toml,
}
_BASH = (["bash", "-n"], r"^[^\n]*?: line (\d+): (.*)$")
_NODE = (["node", "--check"], r":(\d+)\n(?s:.*?)^(SyntaxError: .*)$")
_PROGRAMS = {".sh": _BASH, ".bash": _BASH, ".js": _NODE, ".cjs": _NODE, ".mjs": _NODE}
