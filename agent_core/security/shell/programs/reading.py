"""Programs that only look at things, and those whose output can be told."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.call import Call, Program, Programs, shown
from agent_core.security.shell.marks import DECODED, SECRET, derived, is_known
from agent_core.security.shell.paths import is_secret, resolve
from agent_core.security.shell.quoting import decode_ansi_c

READING = Programs()

_QUIET = """
: ag apropos apt-cache arch basename bc bg break cal caller cksum clear cmp column comm continue
cut date df diff dir dircolors dirname disown du egrep exit expand export expr factor false fc fd fg fgrep file
fmt fold free getconf getent getopt getopts groups grep head help history hostid hostname id infocmp
info jobs join jq last less local locale look ls lsb_release lsblk lscpu lsmod lsof lspci lsusb man md5sum more mapfile
nl nm nproc numfmt objdump od paste pathchk pgrep popd pr ps pstree pushd pwdx read readarray readelf readlink realpath
readonly return rev rg seq set sha1sum sha256sum sha512sum shift shopt shuf size sleep sort ss stat strings suspend sum
tac tail
times top tr tree true tsort tty type typeset tput ulimit umask unalias uname unexpand uniq unset uptime users vdir
vmstat w wait wc whatis whereis who whoami xxd yes yq zcat zgrep zless netstat
"""
_LOW = SecurityRisk.LOW
_READERS = frozenset(
    {"cat", "head", "tail", "less", "more", "strings", "tac", "nl", "od", "xxd", "cut", "grep", "sort"}
)
_FORMAT = re.compile(r"%(?:%|[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])")

for _name in _QUIET.split():
    READING[_name] = Program(_LOW)


@READING.rule("echo", risk=_LOW)
def echo(call: Call) -> str:
    """Prints its arguments."""
    words = list(call.arguments)
    options = ""
    while words and re.fullmatch(r"-[neE]+", words[0]):
        options += words.pop(0)
    text = " ".join(words)
    return (decode_ansi_c(text) if "e" in options else text) + ("" if "n" in options else "\n")


@READING.rule("printf", risk=_LOW)
def printf(call: Call) -> str:
    """Prints by a format."""
    words = list(call.arguments)
    if words[:1] == ["--"]:
        words.pop(0)
    if words[:1] == ["-v"]:
        if len(words) > 1:
            call.shell.variables[words[1]] = (derived("".join(words)),)
        return ""
    if not words:
        return ""
    form, values = decode_ansi_c(words[0]), words[1:]
    if not values or not _FORMAT.search(form):
        return form.replace("%%", "%")
    printed = ""
    while values and len(printed) < 100_000:
        printed += _FORMAT.sub(lambda found: _formatted(found.group(), values), form)
        if not _FORMAT.search(form.replace("%%", "")):
            break
    return printed


def _formatted(directive: str, values: list[str]) -> str:
    if directive == "%%":
        return "%"
    value = values.pop(0) if values else ""
    return decode_ansi_c(value) if directive.endswith("b") else value


@READING.rule(*_READERS, risk=_LOW)
def read_files(call: Call) -> str:
    """Prints files, or parts of them."""
    if call.name == "sort":
        for path in call.option_values("-o", "--output"):
            call.write(path, derived(call.stdin))
    if call.name == "xxd" and call.has("-r"):
        return DECODED
    operands = call.operands()
    if call.name == "grep":
        operands = operands[1:]
    texts = [call.stdin if path == "-" else call.read(path) for path in operands] or [call.stdin]
    text = "".join(texts)
    return text if call.name == "cat" else derived(text)


@READING.rule("base64", "base32", "uudecode", "openssl", "gunzip", "zcat", "unxz", "bunzip2", "gpg", risk=_LOW)
def decode(call: Call) -> str:
    """Makes another text of a text."""
    text = "".join(call.read(path) for path in call.operands() if call.name == "base64") or call.stdin
    if not (
        call.has("-d", "-D", "--decode", "--decrypt") or call.name in {"gunzip", "zcat", "unxz", "bunzip2", "uudecode"}
    ):
        return derived(text)
    if call.name == "base64" and is_known(text):
        try:
            return base64.b64decode(text.strip(), validate=True).decode() + DECODED
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return DECODED
    return DECODED + derived(text)


@READING.rule("pwd", risk=_LOW)
def pwd(call: Call) -> str:
    """Prints the working directory."""
    return call.shell.folder + "\n"


@READING.rule("cd", "pushd", "popd", risk=_LOW)
def cd(call: Call) -> str:
    """Changes the working directory."""
    operands = call.operands()
    target = operands[0] if operands else "~" if call.name == "cd" else "-"
    call.shell.folder = derived("") if target.startswith(("-", "+")) else resolve(target, call.shell.folder)
    return ""


@READING.rule("which", risk=_LOW)
def which(call: Call) -> str:
    """Prints where a program is."""
    return "\n".join(f"/usr/bin/{posixpath.basename(name)}" for name in call.operands()) + "\n"


@READING.rule("mktemp")
def mktemp(call: Call) -> str:
    """Makes a temporary file or folder."""
    return "/tmp/tmp.made-by-mktemp\n"  # noqa: S108 - a name to go on with; nothing is created


@READING.rule("printenv", "declare", "typeset", "export", "set", "readonly", "compgen", risk=_LOW)
def show_variables(call: Call) -> str:
    """Prints variables, secret ones among them, when it has no arguments to set."""
    if call.name == "set":
        return _set_arguments(call)
    for argument in call.operands():
        name, is_assigned, value = argument.partition("=")
        if is_assigned:
            call.shell.variables[name] = (value,)
    if not call.operands() or call.name == "printenv":
        return SECRET
    return ""


def _set_arguments(call: Call) -> str:
    if not call.arguments:
        return SECRET
    if "--" in call.arguments:
        call.shell.arguments = tuple(call.arguments[call.arguments.index("--") + 1 :])
    elif not call.arguments[0].startswith(("-", "+")):
        call.shell.arguments = tuple(call.arguments)
    return ""


@READING.rule("shift", risk=_LOW)
def shift(call: Call) -> str:
    """Drops the first argument of a function or script."""
    if call.shell.arguments is not None:
        count = int(call.arguments[0]) if call.arguments and call.arguments[0].isdigit() else 1
        call.shell.arguments = call.shell.arguments[min(count, 1000) :]
    return ""


@READING.rule("read", "mapfile", "readarray", risk=_LOW)
def read_variables(call: Call) -> str:
    """Sets variables to what it reads."""
    is_line = bool(call.stdin) and is_known(call.stdin) and "\n" not in call.stdin.rstrip("\n")
    text = call.stdin if is_line else derived(call.stdin)
    names = call.operands("-p", "-d", "-n", "-t", "-u", "-i", "-N") or ["REPLY"]
    parts = text.split(None, len(names) - 1) if call.name == "read" else [derived(call.stdin)]
    for position, name in enumerate(names):
        call.shell.variables[name] = (parts[position].rstrip("\n") if position < len(parts) else derived(""),)
    return ""


@READING.rule("alias")
def alias(call: Call) -> str:
    """Gives a command a name; what it stands for is looked at, whether it is used or not."""
    for argument in call.operands():
        name, is_defined, text = argument.partition("=")
        if is_defined:
            call.run_code(text, "")
            call.shell.aliases[name] = text
    return ""


@READING.rule("unset", "unalias", risk=_LOW)
def unset(call: Call) -> str:
    """Forgets variables, functions or aliases."""
    for name in call.operands():
        if call.name == "unalias":
            call.shell.aliases.pop(name, None)
        elif call.has("-f"):
            call.shell.functions.pop(name, None)
        else:
            call.shell.variables[name] = ("",)
    return ""


@READING.rule("sed", risk=_LOW)
def sed(call: Call) -> str:
    """Edits a text; its own command ``e`` runs programs."""
    scripts = call.option_values("-e", "--expression") or call.operands()[:1]
    if any(re.search(r"(?:^|[;\s\d$/])e(?:\s|$)|/[gip0-9]*e[gip0-9]*\s*(?:$|;)", script) for script in scripts):
        call.unknown("sed-runs", "has sed run commands that it finds in a text")
    files = call.operands("-e", "-f")[0 if call.option_values("-e", "-f", "--expression", "--file") else 1 :]
    if call.has("-i", "--in-place"):
        for path in files:
            call.write(path, derived(call.held(path) or ""))
        return ""
    return derived("".join(call.read(path) for path in files) or call.stdin)


@READING.rule("tee", risk=_LOW)
def tee(call: Call) -> str:
    """Copies its input to files and prints it."""
    for path in call.operands():
        call.write(path, call.stdin, append=call.has("-a", "--append"))
    return call.stdin


@READING.rule("cp", "mv", "ln", "install", "rename")
def copy(call: Call) -> str:
    """Puts files elsewhere."""
    target = call.option_values("-t", "--target-directory")
    operands = call.operands("-t", "-m", "-o", "-g", "-S")
    sources, targets = (operands, target) if target else (operands[:-1], operands[-1:])
    for path in targets:
        text = "".join(call.held(source) or "" for source in sources)
        if any(is_secret(source, call.shell.folder) for source in sources):
            text += SECRET
        call.write(path, text or derived(""))
    if call.name == "mv":
        for path in sources:
            if call.scope(path).name in {"SYSTEM", "DEVICE"} or path.rstrip("/") in {"~", "/root", "/home"}:
                call.high("system-file", f"moves {shown(path)} away, which is no part of the work")
    return ""


@READING.rule("hash", "enable")
def hash_programs(call: Call) -> str:
    """Says which file a program's name stands for."""
    if call.has("-p", "-f"):
        call.unknown("unknown-program", f"gives programs other meanings ({call.name})")
    return ""


@READING.rule("let", "test", "[", risk=_LOW)
def evaluate_numbers(call: Call) -> str:
    """Computes; the shell runs what stands in the subscripts of its texts."""
    for argument in call.arguments:
        if "[" in argument and ("$(" in argument or "`" in argument):
            call.run_code(f'echo "{argument}"')
    return ""
