"""Programs that only look at things, and those whose output can be told."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.call import Call, Program, Programs, shown
from agent_core.security.shell.marks import DECODED, SECRET, derived, is_known, one_of
from agent_core.security.shell.paths import is_secret, resolve
from agent_core.security.shell.printing import decode_echo, printed_by

READING = Programs()

_QUIET = """
: ag apropos apt-cache arch basename bc bg cal caller cksum clear cmp column comm cut date df diff dir dircolors
dirname disown du egrep expand expr factor false fd fg fgrep file fmt fold free getconf getent getopt groups grep head
help history hostid hostname id infocmp info jobs join jq last less local locale look ls lsb_release lsblk lscpu lsmod
lsof lspci lsusb man md5sum more nl nm nproc numfmt objdump od paste pathchk pgrep popd pr ps pstree pushd pwdx
readelf readlink realpath rev rg seq sha1sum sha256sum sha512sum shuf size sleep sort ss stat strings suspend sum tac
tail times top tr tree true tsort tty type tput ulimit umask uname unexpand uniq uptime users vdir vmstat w wc whatis
whereis who whoami xxd yes yq zcat zgrep zless netstat
"""
_LOW = SecurityRisk.LOW
_READERS = frozenset(
    {"cat", "head", "tail", "less", "more", "strings", "tac", "nl", "od", "xxd", "cut", "grep", "sort"}
)

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
    if "e" not in options:
        return text + ("" if "n" in options else "\n")
    printed, is_ended = decode_echo(text)
    return printed + ("" if "n" in options or is_ended else "\n")


@READING.rule("printf", risk=_LOW)
def printf(call: Call) -> str:
    """Prints by a format, or sets a variable to what it would print."""
    words = list(call.arguments)
    name = ""
    while words[:1] == ["--"] or (words and words[0].startswith("-v")):
        option = words.pop(0)
        if option != "--":
            name = option[2:] or (words.pop(0) if words else "")
    printed = printed_by(words[0], words[1:]) if words else ""
    if not name:
        return printed
    call.assign(name, printed)
    return ""


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


@READING.rule("printenv", risk=_LOW)
def show_environment(call: Call) -> str:
    """Prints variables, secret ones among them."""
    return SECRET


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
        if call.name == "ln":
            text = one_of((text, derived(text)))  # the source may be written to later
        call.write(path, text or derived(""))
    if call.name == "mv":
        for path in sources:
            if call.scope(path).name in {"SYSTEM", "DEVICE"} or path.rstrip("/") in {"~", "/root", "/home"}:
                call.high("system-file", f"moves {shown(path)} away, which is no part of the work")
    return ""
