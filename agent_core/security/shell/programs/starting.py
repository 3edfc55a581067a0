"""Programs that start other programs: in front of a command, for each file, for each line."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.call import Call, Programs, shown
from agent_core.security.shell.marks import SECRET, derived, is_known, one_of
from agent_core.security.shell.paths import GRAVE, Scope

STARTING = Programs()

_LOW = SecurityRisk.LOW
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_EXPORTED_FUNCTION = re.compile(r"BASH_FUNC_(.+?)(?:%%|\(\))\Z", re.DOTALL)
_WITH_VALUE = {
    "sudo": "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir",
    "doas": "-u -C",
    "env": "-u -C -S --unset --chdir --split-string",
    "nice": "-n --adjustment",
    "ionice": "-c -n -p -P",
    "timeout": "-k -s --kill-after --signal",
    "stdbuf": "-i -o -e",
    "exec": "-a",
    "watch": "-n -d --interval",
    "strace": "-e -o -p -s -f",
    "flock": "-w -E -c --timeout",
    "unshare": "-S -G -R -w",
    "chrt": "",
    "taskset": "",
    "time": "-f -o --format --output",
    "xargs": "-a -d -E -I -L -n -P -s --arg-file --delimiter --max-args --max-procs --max-lines --replace",
    "parallel": "-j -a -n -I --jobs --arg-file",
}
_WORDS_BEFORE = {"timeout": 1, "flock": 1, "chrt": 1, "taskset": 1, "chroot": 1}
_DELETERS = frozenset({"rm", "shred", "unlink"})
_RUNNERS_OF_FIND = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_PRINTS_OTHERWISE = frozenset({"-printf", "-ls"})
_FILTER_OF_FIND = re.compile(
    r"-(?:i?(?:name|path|wholename|regex|lname)|newer.*|anewer|cnewer|[acm](?:time|min)|size|empty|user|group|perm|inum|links|uid|gid)\Z"
)
FOUND = "found-by-find"


def _rest(call: Call) -> list[str]:
    """The arguments from the started program's name on."""
    taking = _WITH_VALUE.get(call.name, "").split()
    words = list(call.arguments)
    before = _WORDS_BEFORE.get(call.name, 0)
    while words:
        word = words[0]
        if word == "--":
            words.pop(0)
            break
        if word.startswith("-") and len(word) > 1:
            words.pop(0)
            if word in taking and words:
                words.pop(0)
        elif call.name in {"sudo", "doas"} and _ASSIGNMENT.match(word):
            words.pop(0)
        elif before:
            before -= 1
            words.pop(0)
        else:
            break
    return words[before:] if before else words


@STARTING.rule(
    "nohup",
    "setsid",
    "nice",
    "ionice",
    "timeout",
    "stdbuf",
    "command",
    "builtin",
    "exec",
    "time",
    "chrt",
    "taskset",
    "unbuffer",
    "catchsegv",
    "strace",
    "ltrace",
    "busybox",
    "toybox",
    "unshare",
    "dbus-run-session",
    "xvfb-run",
    "faketime",
    "caffeinate",
    "chronic",
    "eatmydata",
    "fakeroot",
    "proxychains",
    "torsocks",
    "rlwrap",
    "setarch",
    "uv-run",
    "chroot",
    risk=_LOW,
)
def prefix(call: Call) -> str:
    """Starts what follows its own options."""
    if call.name == "command" and call.has("-v", "-V"):
        return "\n".join(f"/usr/bin/{posixpath.basename(name)}" for name in call.operands())
    rest = _rest(call)
    printed = call.run(rest) if rest else ""
    if call.name == "exec" and rest:
        call.shell.leave("exit")
    return printed


@STARTING.rule("sudo", "doas", "pkexec", "run0")
def as_root(call: Call) -> str:
    """Starts what follows as another user."""
    rest = _rest(call)
    if not rest:
        if call.has("-i", "-s", "--login", "--shell"):
            call.high("root", "opens a shell as root")
        return ""
    if posixpath.basename(rest[0]) in _DELETERS:
        call.high("root-delete", "deletes files as root")
    return call.run(rest)


@STARTING.rule("su", "runuser")
def as_user(call: Call) -> str:
    """Runs a text as another user."""
    codes = call.option_values("-c", "--command")
    return "".join([call.run_code(code) for code in codes])


@STARTING.rule("env", risk=_LOW)
def env(call: Call) -> str:
    """Starts what follows with other variables; alone it prints them all."""
    for text in call.option_values("-S", "--split-string"):
        call.run_code(text)
    inner = call.shell.copy()
    rest = _rest(call)
    while rest and "=" in rest[0]:
        name, _, value = rest.pop(0).partition("=")
        call.machine.declare(inner, name, "x", is_local=False)
        call.machine.assign(inner, name, (value,))
        if function := _EXPORTED_FUNCTION.match(name):
            call.machine.run_code(f"{function[1]}{value}", inner, "")
    return call.machine.run_program(rest, inner, call.stdin) if rest else SECRET


@STARTING.rule("watch", "script", "flock", "entr", "ts-node-dev", risk=_LOW)
def by_shell(call: Call) -> str:
    """Runs its arguments, put together, in a shell."""
    codes = call.option_values("-c", "--command")
    rest = _rest(call)
    if codes:
        return "".join([call.run_code(code) for code in codes])
    if call.name == "script":
        return derived(call.stdin)
    if call.name == "watch":
        return call.run_code(" ".join(rest))
    return call.run(rest) if rest else ""


@STARTING.rule("xargs", "parallel", risk=_LOW)
def xargs(call: Call) -> str:
    """Starts a program with what it reads as arguments."""
    rest = _rest(call)
    stdin = "".join(call.read(path) for path in call.option_values("-a", "--arg-file")) or call.stdin
    given = stdin.split()[:64] if is_known(stdin) else _prefixed(stdin)
    replaced = call.option_values("-I", "--replace") or (["{}"] if call.name == "parallel" or call.has("-i") else [])
    if is_given := ":::" in rest:
        position = rest.index(":::")
        rest, given = rest[:position], rest[position + 1 :]
    if call.name == "parallel" and not rest:
        return "".join([call.run_code(line) for line in (given if is_given else stdin.splitlines()[:64])])
    rest = rest or ["echo"]
    if call.name == "parallel" and len(rest) == 1:
        rest = ["sh", "-c", rest[0]]
    for mark in replaced:
        if any(mark in word for word in rest):
            texts = [call.run([word.replace(mark, value) for word in rest], "") for value in given[:8] or [derived("")]]
            return "".join(texts)
    return call.run([*rest, *given], "")


def _prefixed(text: str) -> list[str]:
    words = [word for word in text.split() if word]
    return words[:64] if words else [derived(text)]


@STARTING.rule("find", "fd", "fdfind", "bfs", risk=_LOW)
def find(call: Call) -> str:
    """Lists files, deletes them, or starts programs for them."""
    roots: list[str] = []
    for argument in call.arguments:
        if argument.startswith(("-", "(", "!")) and argument not in {"-H", "-L", "-P"}:
            break
        if not argument.startswith("-"):
            roots.append(argument)
    roots = roots or ["."]
    is_filtered = any(_FILTER_OF_FIND.match(argument) for argument in call.arguments)
    found = [f"{root.rstrip('/')}/{FOUND}" if is_filtered and root != "/" else root for root in roots]
    if "-delete" in call.arguments:
        _judge_delete(call, roots, is_filtered=is_filtered)
    for option in ("-fprint", "-fprintf", "-fls", "-fprint0"):
        for path in call.option_values(option):
            call.write(path, derived(""))
    printed = "\n".join(found) + "\n"
    if _PRINTS_OTHERWISE.intersection(call.arguments):
        printed = derived(printed)
    for position, argument in enumerate(call.arguments):
        if argument in _RUNNERS_OF_FIND:
            words = _until_end(call.arguments[position + 1 :])
            for path in found:
                printed = one_of((printed, call.run([word.replace("{}", path) for word in words], "")))
    return printed


def _judge_delete(call: Call, roots: Sequence[str], *, is_filtered: bool) -> None:
    call.note(SecurityRisk.MEDIUM, "delete", "deletes what it finds")
    for root in roots:
        scope = call.scope(root)
        if scope in GRAVE or (scope in {Scope.WHOLE, Scope.OUTSIDE} and not is_filtered):
            call.high("catastrophic-delete", f"deletes what it finds under {shown(root)}")
        elif scope is Scope.UNKNOWN:
            call.unknown("unknown-delete", "deletes what it finds in a place that is not known")


def _until_end(words: Sequence[str]) -> list[str]:
    for position, word in enumerate(words):
        if word in {";", "+"}:
            return list(words[:position])
    return list(words)


@STARTING.rule("at", "batch")
def later(call: Call) -> str:
    """Has its input run later."""
    call.run_code(call.stdin, "")
    return ""


@STARTING.rule("crontab")
def crontab(call: Call) -> str:
    """Replaces the table of commands that run at set times."""
    if call.has("-r"):
        call.high("schedule", "removes all scheduled commands")
    elif not call.has("-l"):
        call.high("schedule", "schedules commands that run without anybody asking")
    return derived(call.stdin)
