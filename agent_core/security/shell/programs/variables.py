"""Commands of the shell that change its state: variables, names, and where it goes on."""

from __future__ import annotations

import re

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.assignments import LOCALS, declared_letters
from agent_core.security.shell.call import Call, Programs
from agent_core.security.shell.marks import NUMBER, SECRET, SEPARATOR, UNKNOWN, derived, is_known
from agent_core.security.shell.variables import lookup

VARIABLES = Programs()

_LOW = SecurityRisk.LOW
_NAME = re.compile(r"[A-Za-z_]\w*(?:\[.*\])?", re.ASCII | re.DOTALL)
_NAMES_IN_TESTS = frozenset({"-v", "-R"})
_AT_THE_END = frozenset({"EXIT", "exit", "0"})
_CUTS_LINES = frozenset("dnNi")


@VARIABLES.rule("declare", "typeset", "local", "export", "readonly", risk=_LOW)
def declare(call: Call) -> str:
    """Sets variables and what they are for; prints them all, secret ones among them, when it gets none."""
    letters = declared_letters(call.name, call.arguments)
    is_local = call.name in LOCALS and "g" not in letters
    operands = [word for word in call.arguments if word[:1] not in {"-", "+"}]
    for argument in operands:
        name, is_assigned, value = argument.partition("=")
        if not is_known(name):
            call.unknown("unknown-variable", f"sets a variable whose name is not known ({call.name})")
            continue
        plain = name.removesuffix("+")
        call.machine.declare(call.shell, plain.partition("[")[0], letters, is_local=is_local)
        if is_assigned:
            value = derived("".join(lookup(call.shell, plain)) + value) if plain != name else value
            call.assign(plain, *_of_declaration(value))
    return "" if operands else SECRET


def _of_declaration(value: str) -> tuple[str, ...]:
    """``declare "a=(x y)"`` makes an array of what the text, read as words, holds."""
    return (value, derived(value)) if value.startswith("(") else (value,)


@VARIABLES.rule("set", risk=_LOW)
def set_arguments(call: Call) -> str:
    """Sets the arguments of the shell; prints all variables when it gets none."""
    if not call.arguments:
        return SECRET
    if "--" in call.arguments:
        call.shell.arguments = tuple(call.arguments[call.arguments.index("--") + 1 :])
    elif not call.arguments[0].startswith(("-", "+")):
        call.shell.arguments = tuple(call.arguments)
    elif operands := call.operands("-o", "+o"):
        call.shell.arguments = tuple(operands)
    return ""


@VARIABLES.rule("shift", risk=_LOW)
def shift(call: Call) -> str:
    """Drops the first argument of a function or script."""
    if call.shell.arguments is not None:
        count = int(call.arguments[0]) if call.arguments and call.arguments[0].isdigit() else 1
        call.shell.arguments = call.shell.arguments[min(count, 1000) :]
    return ""


@VARIABLES.rule("read", risk=_LOW)
def read(call: Call) -> str:
    """Sets variables to the words of a line."""
    options, names = call.parsed("adinNptu")
    text = call.held(f"/dev/fd/{options.get('u', '0')}") or (UNKNOWN if "u" in options else call.stdin)
    is_line = bool(text) and is_known(text) and "\n" not in text.rstrip("\n")
    separators = lookup(call.shell, "IFS")
    is_plain = is_line and not _CUTS_LINES.intersection(options) and separators in {(" \t\n",), ("",)}
    line = text.rstrip("\n") if is_plain else derived(text)
    if "r" not in options:
        line = re.sub(r"\\(.)", r"\1", line)
    if "a" in options:
        call.shell.variables.pop(options["a"], None)
        call.assign(options["a"], SEPARATOR.join(line.split() if separators != ("",) else [line]))
        return ""
    parts = [line] if separators == ("",) or not names else line.split(None, len(names) - 1)
    for position, name in enumerate(names or ["REPLY"]):
        call.assign(name, parts[position].strip(" \t") if position < len(parts) else "" if is_plain else derived(""))
    return ""


@VARIABLES.rule("mapfile", "readarray", risk=_LOW)
def read_lines(call: Call) -> str:
    """Sets an array to the lines of its input, and runs a text for each of them."""
    options, operands = call.parsed("CcdnOsu")
    if "C" in options:
        call.run_code(options["C"])
    name = operands[0] if operands else "MAPFILE"
    is_plain = is_known(call.stdin) and set(options) <= {"t"}
    text = call.stdin.removesuffix("\n") if is_plain else derived(call.stdin)
    end = "" if "t" in options else "\n"
    call.shell.variables.pop(name, None)
    call.assign(name, SEPARATOR.join(line + end for line in text.split("\n")))
    return ""


@VARIABLES.rule("getopts", risk=_LOW)
def getopts(call: Call) -> str:
    """Sets a variable to the next option."""
    for name in call.arguments[1:2]:
        call.assign(name, derived(""))
    call.assign("OPTARG", derived("".join(call.shell.arguments or (UNKNOWN,))))
    return ""


@VARIABLES.rule("unset", "unalias", risk=_LOW)
def unset(call: Call) -> str:
    """Forgets variables, functions or aliases."""
    for name in call.operands():
        if call.name == "unalias":
            call.shell.aliases.pop(name, None)
        elif call.has("-f"):
            call.shell.functions.pop(name, None)
        elif call.has("-n"):
            call.shell.attributes.pop(name, None)
            call.shell.variables[name] = ("",)
        elif "[" in name:
            call.assign(name, "")
        else:
            call.shell.variables[name] = ("",)
    return ""


@VARIABLES.rule("let", risk=_LOW)
def let(call: Call) -> str:
    """Computes."""
    for argument in call.arguments:
        call.machine.evaluate(argument, call.shell, call.stdin)
    return ""


@VARIABLES.rule("test", "[", risk=_LOW)
def test(call: Call) -> str:
    """Asks; the name of a variable may have a subscript, which is computed."""
    if _NAMES_IN_TESTS.intersection(call.arguments):
        for argument in call.arguments:
            if _NAME.fullmatch(argument):
                call.machine.evaluate(argument, call.shell, call.stdin)
    return ""


@VARIABLES.rule("wait", risk=_LOW)
def wait(call: Call) -> str:
    """Waits for what runs in the background."""
    if name := call.parsed("p")[0].get("p"):
        call.assign(name, NUMBER)
    return ""


@VARIABLES.rule("alias")
def alias(call: Call) -> str:
    """Gives a command a name; what it stands for is looked at, whether it is used or not."""
    for argument in call.operands():
        name, is_defined, text = argument.partition("=")
        if is_defined:
            call.run_code(text, "")
            call.shell.aliases[name] = text
    return ""


@VARIABLES.rule("hash", "enable")
def hash_programs(call: Call) -> str:
    """Says which file a program's name stands for."""
    if call.has("-p", "-f"):
        call.unknown("unknown-program", f"gives programs other meanings ({call.name})")
    return ""


@VARIABLES.rule("trap", risk=_LOW)
def trap(call: Call) -> str:
    """Has a text run later."""
    words = call.arguments[1:] if call.arguments[:1] == ["--"] else call.arguments
    if words and words[0] not in {"-", "-l", "-p", ""}:
        call.machine.defer(words[0], call.shell, at_once=not _AT_THE_END.issuperset(words[1:]))
    return ""


@VARIABLES.rule("compgen", "complete", risk=_LOW)
def complete(call: Call) -> str:
    """Says how words are completed: by what a command prints, or the words of a text that is expanded."""
    options, _ = call.parsed("oAGWFCXPS")
    call.run_code(options.get("C", ""))
    return call.machine.expand(options.get("W", ""), call.shell, call.stdin) or derived("")


@VARIABLES.rule("bind", risk=_LOW)
def bind(call: Call) -> str:
    """Says what a key does; it may run a command."""
    text = call.parsed("mqurfx")[0].get("x", "")
    call.run_code(text.partition(":")[2].strip().strip("\"'"))
    return ""


@VARIABLES.rule("fc", risk=_LOW)
def repeat(call: Call) -> str:
    """Shows earlier commands, or runs them again."""
    if not call.has("-l"):
        call.unknown("unknown-code", "runs an earlier command again")
    return derived("")


@VARIABLES.rule("return", "break", "continue", "exit", "logout", risk=_LOW)
def leave(call: Call) -> str:
    """Does not go on with what comes next."""
    is_end = call.name in {"exit", "logout"}
    if is_end:
        call.machine.end(call.shell)
    call.shell.leave("exit" if is_end else call.name)
    return ""


@VARIABLES.rule("shopt", risk=_LOW)
def shell_options(call: Call) -> str:
    """Changes how the shell works."""
    if call.has("-s") and "lastpipe" in call.arguments:
        call.unknown("unknown-variable", "has the end of a pipe change variables")
    return ""
