"""Programs that manage versions, containers, clusters and databases."""

from __future__ import annotations

import re

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.call import Call, Programs, shown
from agent_core.security.shell.marks import NETWORK, derived, is_known
from agent_core.security.shell.paths import GRAVE, Scope

MANAGING = Programs()

_GIT_LOOKS = frozenset(
    [
        "status",
        "log",
        "diff",
        "show",
        "branch",
        "blame",
        "grep",
        "describe",
        "rev-parse",
        "rev-list",
        "ls-files",
        "ls-tree",
        "ls-remote",
        "shortlog",
        "cat-file",
        "config",
        "remote",
        "tag",
        "stash",
        "reflog",
        "help",
        "version",
        "count-objects",
        "for-each-ref",
        "name-rev",
        "merge-base",
        "check-ignore",
        "whatchanged",
        "symbolic-ref",
        "verify-commit",
        "var",
        "worktree",
        "bisect",
        "notes",
        "submodule",
        "diff-tree",
        "range-diff",
        "--version",
    ]
)
_GIT_CHANGES = re.compile(r"(?:branch|tag|remote|stash|config|reflog|symbolic-ref|worktree|bisect|notes|submodule)\Z")
_GIT_HISTORY = frozenset({"filter-branch", "filter-repo"})
_GIT_RUNS = frozenset({"foreach", "run", "--exec", "-x"})
_GIT_VALUES = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path")
_LOW = SecurityRisk.LOW


@MANAGING.rule("git", risk=_LOW)
def git(call: Call) -> str:
    """Keeps versions; what has been pushed is out."""
    for setting in call.option_values("-c"):
        _judge_setting(call, *setting.partition("=")[::2])
    words = list(call.arguments)
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in _GIT_VALUES else words[1:]
    if not words:
        return derived("")
    verb, rest = words[0], words[1:]
    if not is_known(verb):
        call.unknown("unknown-program", "has git do something that is not known")
    elif verb == "push":
        _push(call, rest)
    elif verb in _GIT_HISTORY:
        call.high("history", f"git {verb} rewrites the whole history")
    elif verb == "config" and len([word for word in rest if not word.startswith("-")]) > 1:
        plain = [word for word in rest if not word.startswith("-")]
        _judge_setting(call, plain[0], plain[1])
        call.note(SecurityRisk.MEDIUM, "program", "changes git's settings")
    elif verb not in _GIT_LOOKS or (_GIT_CHANGES.match(verb) and any(not word.startswith("-") for word in rest)):
        call.note(SecurityRisk.MEDIUM, "program", f"runs git {verb}")
    for position, word in enumerate(rest):
        if word in _GIT_RUNS and verb in {"submodule", "bisect", "rebase"}:
            call.run_code(
                " ".join(rest[position + 1 :])
                if word in {"foreach", "run"}
                else "".join(rest[position + 1 : position + 2])
            )
    return NETWORK if verb in {"ls-remote", "fetch"} else derived("")


def _push(call: Call, rest: list[str]) -> None:
    call.note(SecurityRisk.MEDIUM, "push", "sends commits to another repository")
    push = Call("git push", rest, "", call.shell, call.machine)
    refs = push.operands("-o", "--push-option", "--repo", "--receive-pack", "--exec")[1:]
    if (
        push.has("-f", "--force", "--mirror", "--delete", "-d", "--prune")
        or any(word.startswith(("--force-with-lease", "--force-if-includes")) for word in rest)
        or any(ref.startswith(("+", ":")) for ref in refs)
    ):
        call.high("force-push", "overwrites or deletes what others have in the repository")
    elif any(not is_known(word) for word in rest if not word.startswith("--")) and any(
        not is_known(word[:1]) for word in rest
    ):
        call.unknown("force-push", "pushes with options that are not known")


def _judge_setting(call: Call, name: str, value: str) -> None:
    if value.startswith("!"):
        call.run_code(value[1:], "")
    elif name.lower() in {
        "core.sshcommand",
        "core.pager",
        "core.editor",
        "core.fsmonitor",
        "diff.external",
        "sequence.editor",
    }:
        call.run_code(value, "")
    elif name.lower() == "core.hookspath":
        call.unknown("hooks", "has git run programs from another folder")


@MANAGING.rule("docker", "podman", "nerdctl", "docker-compose")
def container(call: Call) -> str:
    """Runs containers, which may reach the host."""
    words = call.arguments
    if call.has("--privileged") or {"--pid=host", "--userns=host", "--ipc=host"} & set(words):
        call.high("container", "starts a container without borders")
    for volume in call.option_values("-v", "--volume", "--mount"):
        source = re.sub(r".*(?:source|src)=([^,]*).*", r"\1", volume).partition(":")[0]
        if (source.startswith(("/", "~")) and call.scope(source) in GRAVE) or "docker.sock" in volume:
            call.high("container", f"gives a container {shown(source)} of the host")
    if "prune" in words or {"push", "login"} & set(words[:2]):
        call.high("container", "removes what is not in use, or sends images out")
    for verb in ("exec", "run"):
        if verb in words[:2]:
            _inside(call, words[words.index(verb) + 1 :])
    return derived("")


_CONTAINER_VALUES = [
    "-v",
    "-e",
    "-p",
    "-u",
    "-w",
    "-h",
    "-l",
    "-m",
    "--volume",
    "--env",
    "--publish",
    "--user",
    "--workdir",
    "--name",
    "--network",
    "--entrypoint",
    "--mount",
    "--env-file",
    "--hostname",
    "--label",
    "--memory",
    "--cpus",
    "--add-host",
    "--device",
    "--platform",
    "--pull",
    "--cap-add",
    "--cap-drop",
    "--security-opt",
]


def _inside(call: Call, words: list[str]) -> None:
    position = 0
    while position < len(words) and words[position].startswith("-"):
        position += 2 if words[position] in _CONTAINER_VALUES else 1
    inner = Call(call.name, words[position + 1 :], call.stdin, call.shell.copy(), call.machine)
    if inner.arguments:
        inner.run(inner.arguments)


@MANAGING.rule(
    "kubectl",
    "oc",
    "helm",
    "terraform",
    "tofu",
    "pulumi",
    "ansible",
    "ansible-playbook",
    "gh",
    "glab",
    "heroku",
    "vercel",
    "fly",
    "flyctl",
)
def cluster(call: Call) -> str:
    """Manages machines and services elsewhere."""
    words = set(call.operands())
    if words & {"delete", "destroy", "drain", "uninstall", "apps:destroy", "rm"}:
        call.high("remote-delete", f"{call.name} deletes things elsewhere")
    elif words & {"apply", "up", "gist", "release", "secret", "deploy", "exec"} and call.name != "gh":
        call.note(SecurityRisk.MEDIUM, "remote", f"{call.name} changes things elsewhere")
    elif call.name == "gh" and words & {"gist", "secret"}:
        call.high("publish", "makes something public or changes secrets")
    return NETWORK


_DROPS = re.compile(
    r"\b(?:drop\s+(?:database|schema|table|user|role)|truncate\s+(?:table\s+)?\w|delete\s+from\s+[\w.\"`]+\s*(?:;|\Z)"
    r"|dropDatabase|flushall|flushdb)\b|\bdelete\s+from\s+[\w.\"`]+\s*(?:;|\Z)",
    re.IGNORECASE,
)


@MANAGING.rule(
    "psql", "mysql", "mariadb", "sqlite3", "mongo", "mongosh", "redis-cli", "dropdb", "dropuser", "cqlsh", "clickhouse"
)
def database(call: Call) -> str:
    """Talks to a database."""
    text = " ".join(call.arguments) + "\n" + call.stdin
    if call.name in {"dropdb", "dropuser"} or _DROPS.search(text):
        call.high("database", "deletes a database, a table or all of its rows")
    for found in re.finditer(r"(?m)^\s*(?:\\!|\.shell|\.system|system)\s+(.*)$", text):
        call.run_code(found[1], "")
    return derived("")


@MANAGING.rule("tar", "zip", "unzip", "7z", "rar", "cpio", "bsdtar", "gzip", "xz", "bzip2", "zstd")
def archive(call: Call) -> str:
    """Packs and unpacks."""
    for option in call.option_values(
        "--checkpoint-action", "--to-command", "--use-compress-program", "-I", "--unzip-command"
    ):
        call.run_code(option.removeprefix("exec="))
    is_unpacking = (
        call.has("-x", "--extract") or (call.arguments[:1] and "x" in call.arguments[0]) or call.name == "unzip"
    )
    for folder in call.option_values("-C", "--directory", "-d") if is_unpacking else []:
        if call.scope(folder) in {Scope.SYSTEM, Scope.DEVICE}:
            call.high("system-file", f"unpacks files into {shown(folder)}")
    texts = [
        call.read(path)
        for path in call.operands("-C", "-I", "--directory")
        if not path.endswith((".tar", "gz", ".zip", "xz"))
    ]
    return derived(call.stdin + "".join(texts))


@MANAGING.rule("make", "gmake", "just", "ninja")
def build(call: Call) -> str:
    """Runs recipes; those written by the same command are looked at."""
    text = "".join(call.option_values("--eval")) + "".join(
        call.machine.files.get(name, "") for name in ("Makefile", "makefile", "GNUmakefile")
    )
    for line in text.splitlines()[:500]:
        if line.startswith("\t"):
            call.run_code(line.strip().lstrip("@-+"), "")
    return derived("")
