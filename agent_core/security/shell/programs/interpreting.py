"""Programs that run a text as a program: shells, and languages that can start programs."""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from collections.abc import Iterator
from typing import Final

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.call import Call, Programs, shown
from agent_core.security.shell.marks import DECODED, NETWORK, derived, is_known

INTERPRETING = Programs()

_LOW = SecurityRisk.LOW
MAX_CODE: Final = 50_000
_SHELL_VALUE_OPTIONS = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
_STARTS_PROGRAMS = re.compile(
    r"\b(?:system|exec[lv]?[pe]*|popen\w*|spawn\w*|qx|fork|child_process|unlink\w*|rm(?:dir|Sync)?|rmtree|remove_tree|eval"
    r"|shell_exec|passthru|proc_open|FileUtils|Deno\.run|Deno\.Command)\b|`"
)
_STARTS_IN_AWK = re.compile(r"system\s*\(|\|\s*getline|\|\s*\"|\"\s*\|")
_SYSTEM_TEXT = re.compile(
    r"(?:system|exec|execSync|popen|shell_exec|passthru|qx|spawn)\s*[({]?\s*([\"'`])((?:(?!\1)[^\\]|\\.)*)\1"
)


@INTERPRETING.rule("sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "fish", "rbash", "yash", risk=_LOW)
def shell(call: Call) -> str:
    """Runs a text, a file, or its input."""
    words = list(call.arguments)
    runs_text = reads_input = False
    while words and words[0][:1] in "-+" and words[0] not in {"", "-"}:
        word = words.pop(0)
        if word == "--":
            break
        if word in _SHELL_VALUE_OPTIONS and words:
            words.pop(0)
        elif not word.startswith("--"):
            runs_text = runs_text or "c" in word
            reads_input = reads_input or "s" in word
    if words[:1] == ["-"]:
        words.pop(0)
    if runs_text:
        return _with_arguments(call, words[0], words[1:]) if words else ""
    if words and not reads_input:
        path = words[0]
        text = _file(call, path)
        call.note(SecurityRisk.MEDIUM, "program", f"runs the script {shown(path)}")
        return derived(call.stdin) if text is None else _with_arguments(call, text, words)
    if call.stdin:
        return _with_arguments(call, call.stdin, [call.name, *words])
    call.note(SecurityRisk.MEDIUM, "program", "opens another shell")
    return derived("")


def _with_arguments(call: Call, text: str, arguments: list[str]) -> str:
    """Run a text in a shell with these arguments, the first of which is ``$0``."""
    inner = call.shell.copy()
    exported = {name for name, letters in inner.attributes.items() if {"f", "x"} <= set(letters)}
    inner.functions = {name: body for name, body in inner.functions.items() if name in exported}
    inner.aliases.clear()
    for name, values in inner.variables.items():
        if "x" not in inner.attributes.get(name, ""):
            inner.variables[name] = ("", *values)  # nobody knows whether it was exported before
    inner.arguments = tuple(arguments[1:])
    if arguments:
        inner.variables["0"] = (arguments[0],)
    return call.machine.run_code(text, inner, call.stdin)


def _file(call: Call, path: str) -> str | None:
    """What a script holds; None for one that was there before, which is as trusted as any program."""
    if not is_known(path):
        if NETWORK in path:
            call.high("remote-code", "runs a script whose name comes from the network")
        call.unknown("unknown-program", "runs a script whose name is not known")
        return None
    return call.held(path)


@INTERPRETING.rule("eval", risk=_LOW)
def evaluate(call: Call) -> str:
    """Runs its arguments as a line of the script."""
    return call.machine.run_code(" ".join(call.arguments), call.shell, call.stdin)


@INTERPRETING.rule("source", ".")
def source(call: Call) -> str:
    """Runs a file in this shell."""
    if not call.arguments:
        return ""
    path = call.arguments[0]
    text = _file(call, path)
    return "" if text is None else call.machine.run_code(text, call.shell, call.stdin)


@INTERPRETING.rule("python", "python2", "python3", "python.*", "python3.*", "pypy", "pypy3", "ipython")
def python(call: Call) -> str:
    """Runs Python."""
    code = _code(call, "-c", stops=("-m",))
    if code is not None:
        _judge_python(call, code)
    return derived(call.stdin)


@INTERPRETING.rule(
    "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua", "osascript", "Rscript", "tclsh", "pwsh"
)
def language(call: Call) -> str:
    """Runs another language."""
    code = _code(call, "-e", "-E", "-r", "-p", "-pe", "-ne", "-le", "-lne", "-nle", "--eval", "--print", "-Command")
    if code is not None:
        _judge_code(call, code, _STARTS_PROGRAMS)
    return derived(call.stdin)


@INTERPRETING.rule("awk", "gawk", "mawk", "nawk", risk=_LOW)
def awk(call: Call) -> str:
    """Runs awk, which may start programs too."""
    if not call.has("-f", "--file"):
        operands = call.operands("-F", "-v")
        _judge_code(call, operands[0] if operands else "", _STARTS_IN_AWK)
        text = "".join(call.read(path) for path in operands[1:] if "=" not in path) or call.stdin
        return derived(text)
    return derived(call.stdin)


@INTERPRETING.rule("vim", "vi", "nvim", "ex", "ed", "emacs", "nano")
def editor(call: Call) -> str:
    """Edits files; its own commands may start programs."""
    for text in [*call.option_values("-c", "--cmd", "--eval"), *(a for a in call.arguments if a.startswith("+"))]:
        if "!" in text or "system" in text or "shell" in text:
            call.run_code(text.partition("!")[2] or text)
    return derived(call.stdin)


def _code(call: Call, *options: str, stops: tuple[str, ...] = ()) -> str | None:
    """The program's text: an option's value, a file of ours, or the input; None for a program that was there before."""
    words = call.arguments
    for position, word in enumerate(words):
        if word in stops:
            return None
        if word in options:
            return "\n".join(words[position + 1 : position + 2])
        for option in options:
            if len(option) == 2 and word.startswith(option) and word[1:2] != "-":
                return word[2:]
        if word == "-":
            return call.stdin
        if not word.startswith("-"):
            return _file(call, word)
    return call.stdin or None


def _judge_code(call: Call, code: str, starts_programs: re.Pattern[str]) -> None:
    if not _judge_origin(call, code):
        return
    for found in _SYSTEM_TEXT.finditer(code[:MAX_CODE]):
        call.run_code(found[2].replace('\\"', '"'), "")
    if len(code) > MAX_CODE or starts_programs.search(code):
        call.unknown(
            "nested-program", f"runs a program in another language ({call.name}) that starts programs or deletes"
        )


def _judge_origin(call: Call, code: str) -> bool:
    """Whether the text is worth looking at: what comes from the network is judged by that alone."""
    if NETWORK in code or DECODED in code:
        call.high("remote-code", "runs a program that comes from the network or was encoded")
        return False
    if not is_known(code):
        call.unknown("unknown-code", "runs a text that is not known as a program")
    return bool(code)


_RUNS_SHELL = frozenset(
    {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "commands.getoutput"}
)
_RUNS_PROGRAM = frozenset(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen"))
_DELETES_TREE = frozenset({"shutil.rmtree", "rmtree", "distutils.dir_util.remove_tree"})
_DELETES_FILE = frozenset({"os.remove", "os.unlink", "os.rmdir", "os.removedirs"})
_RUNS_CODE = frozenset(
    {"exec", "eval", "compile", "__import__", "importlib.import_module", "os.execv", "os.execvp", "pty.spawn"}
)
_OPENS_SOCKET = frozenset({"socket.socket", "socket.create_connection"})


def _judge_python(call: Call, code: str) -> None:
    if not _judge_origin(call, code):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code if len(code) <= MAX_CODE else "(")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        call.unknown("nested-program", "runs Python code that could not be read")
        return
    for function, arguments in _python_calls(tree):
        text, words = arguments
        if function in _RUNS_SHELL or (function in _RUNS_PROGRAM and text is not None):
            _run_text(call, text)
        elif function in _RUNS_PROGRAM:
            if words is None:
                call.unknown("nested-program", "has Python start a program that is not known")
            elif words:
                call.run(words, "")
        elif function in _DELETES_TREE | _DELETES_FILE:
            flag = "-rf" if function in _DELETES_TREE else "-f"
            call.run(["rm", flag, derived("") if text is None else text], "")
        elif function in _RUNS_CODE:
            call.unknown("nested-program", f"has Python run code through {function}")
        elif function in _OPENS_SOCKET:
            call.note(SecurityRisk.MEDIUM, "network", "has Python open a network connection")


def _run_text(call: Call, text: str | None) -> None:
    if text is None:
        call.unknown("nested-program", "has Python run a shell command that is not known")
    else:
        call.run_code(text, "")


def _python_calls(tree: ast.AST) -> Iterator[tuple[str, tuple[str | None, list[str] | None]]]:
    """Each call's function by its dotted name, and its first argument as a text or as a list of texts."""
    names = _imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            dotted = _dotted(node.func)
            first, rest = dotted.partition(".")[::2]
            full = names.get(first, first) + (f".{rest}" if rest else "")
            yield full, _first_argument(node)


def _imported_names(tree: ast.AST) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({alias.asname: alias.name for alias in node.names if alias.asname})
        elif isinstance(node, ast.ImportFrom):
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return names


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Call) and _dotted(node.func) == "__import__" and node.args:
        parts.append(_text(node.args[0]) or "?")
    elif isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def _first_argument(node: ast.Call) -> tuple[str | None, list[str] | None]:
    if not node.args:
        return None, None
    first = node.args[0]
    if isinstance(first, ast.List | ast.Tuple):
        words = [_text(item) for item in first.elts]
        return None, [derived("") if word is None else word for word in words]
    text = _text(first)
    if text is None and isinstance(first, ast.Call) and _dotted(first.func).endswith("expanduser") and first.args:
        text = _text(first.args[0])
    if text is None and isinstance(first, ast.Call) and _dotted(first.func) == "shlex.split" and first.args:
        inner = _text(first.args[0])
        try:
            return None, None if inner is None else shlex.split(inner)
        except ValueError:
            return None, None
    return text, None


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
