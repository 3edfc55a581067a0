"""Sinks: where a command's data goes; what is not literal stands in it as marks that go wherever the text goes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from agent_core.events.risk import SecurityRisk
from agent_core.security.shell.parser import Budget


class Mark:
    """Characters that stand for text that is not literal."""

    UNKNOWN: Final = "\x00"  # not known
    NETWORK: Final = "\x01"  # from the network
    SECRET: Final = "\x02"  # noqa: S105 - a secret, or with one in it
    DECODED: Final = "\x03"  # encoded before, so that nobody could see what it is
    MANY: Final = "\x04"  # not known, and perhaps split into several words by the shell
    NUMBER: Final = "\x06"  # a number, of any sign
    PIECE: Final = "\x05"  # a number, or the name of some file in a folder: not known, but it leads nowhere else


MARKS: Final = "\x00\x01\x02\x03\x04\x05\x06"
MAX_FOLDERS: Final = 64
MAX_TEXT: Final = 200_000  # longer texts are kept by their taints only
_NOT_KNOWN: Final = re.compile(f"[{MARKS}]")
_OPEN: Final = re.compile("[\x00-\x04\x06]")

QUIET_FILES: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/1", "/dev/fd/2"})
WORKSPACE: Final = "/workspace"
_TEMPORARY: Final = re.compile(r"(?:/tmp|/var/tmp|/dev/shm)(?:/(.*))?\Z", re.DOTALL)
_HARMLESS_DEVICE: Final = re.compile(r"(?s)/dev/(?:null|zero|full|u?random|std(?:in|out|err)|tty|ptmx|fd(?:/.*)?)\Z")
_DEVICE: Final = re.compile(r"(?s)/dev(?:/.*)?\Z|/proc/(?:sysrq-trigger|sys(?:/.*)?|kcore|\d+/mem)\Z|/sys(?:/.*)?\Z")
_HOME: Final = re.compile(r"(?:~[^/]*|/root|/home/[^/]+|/Users/[^/]+)(?:/(.*))?\Z", re.DOTALL)
_CACHE: Final = re.compile(r"\.(?:cache|npm|local|pyenv|nvm|m2|gradle|rustup|cargo|tox|venv)(?:/|\Z)")
_ONLY_PATTERN: Final = re.compile(r"[*?.\[\]!^{},]*\Z")
_SECRET_NAME: Final = re.compile(
    r"\.env|\.env\.(?!example|sample|template|dist).+|id_(?:rsa|dsa|ecdsa|ed25519)|\.netrc|\.pgpass|\.git-credentials"
    r"|\.npmrc|\.pypirc|\.htpasswd|g?shadow|.+\.(?:pem|key|p12|pfx|kdbx|jks|keystore)|credentials(?:\.json|\.db)?"
    r"|secrets?\.(?:ya?ml|json|toml|env|txt)|\.?vault[_-]pass(?:word)?(?:\.txt)?"
)
_SECRET_FOLDER: Final = re.compile(
    r"(?:^|/)(?:\.ssh(?!/known_hosts|/.*\.pub\Z)|\.aws|\.gnupg|\.azure|\.config/(?:gh|gcloud))(?:/|\Z)|/\.kube/config\Z"
    r"|/\.docker/config\.json\Z|^/(?:var/)?run/secrets(?:/|\Z)|^/proc/(?:self|\d+|\*)/environ\Z"
    r"|/\.mozilla/|google-chrome/"
)
_START_FILE: Final = re.compile(r"\.(?:bash(?:rc|_profile|_login|_logout)|profile|zsh(?:rc|env)|z?login|inputrc)\Z")
_RUN_BY_GIT: Final = re.compile(r"(?:^|/)(?:\.git/(?:hooks(?:/|\Z)|config\Z)|\.gitconfig\Z|\.config/git/)")
_LOCAL: Final = re.compile(
    r"(?i)(?:[a-z]+://)?(?:[^/@]*@)?(?:localhost|127(?:\.\d+){3}|\[::1\]|0\.0\.0\.0)(?=[:/?#]|\Z)"
)


class Scope(Enum):
    """Kinds of places that paths lead to."""

    INSIDE = auto()  # some place in the workspace, a temporary folder, or a cache
    WHOLE = auto()  # all of the workspace (or of a temporary folder) at once, or what is beside it
    HOME = auto()  # the home directory or what a person keeps there
    SYSTEM = auto()  # the root directory, or a part of the operating system
    DEVICE = auto()  # a disk, memory, or a switch of the kernel
    UNKNOWN = auto()  # nobody can tell


GRAVE: Final = frozenset({Scope.HOME, Scope.SYSTEM, Scope.DEVICE})  # no task in a workspace has to change them


def is_known(text: str) -> bool:
    """Whether `text` is known to the last character."""
    return not _NOT_KNOWN.search(text)


def may_be_option(word: str) -> bool:
    """Whether a word may turn out to be an option, or several words."""
    return Mark.MANY in word or bool(_OPEN.match(word))


def derived(text: str, unknown: str = Mark.UNKNOWN) -> str:
    """What a program prints that was given `text`: unknown, and tainted with all that `text` is tainted with."""
    return unknown + "".join(mark for mark in (Mark.NETWORK, Mark.SECRET, Mark.DECODED) if mark in text)


def shown(text: str) -> str:
    """A text for a reason: what is not known as an ellipsis, and not too long."""
    text = _NOT_KNOWN.sub("…", text)
    return repr(text if len(text) <= 80 else text[:79] + "…")


def resolve(path: str, folder: str) -> str:
    """`path` as it is meant in `folder`: absolute, or from the home directory, or relative to the workspace."""
    normal = posixpath.normpath(path if path.startswith(("/", "~")) else posixpath.join(folder, path))
    normal = "/" + normal.lstrip("/") if normal.startswith("/") else normal
    return "." if normal == WORKSPACE else normal.removeprefix(WORKSPACE + "/")


def scope_of(path: str, folder: str = ".") -> Scope:
    """Where `path` leads when the working directory is `folder`; patterns count as all that they could match."""
    resolved = resolve(path, folder)
    home, temporary = _HOME.match(resolved), _TEMPORARY.match(resolved)
    is_elsewhere = resolved.startswith("/") and not home and not temporary
    if _OPEN.search(path + folder):
        is_grave = is_elsewhere and _OPEN.split(resolved)[0].count("/") > 1 and ".." not in path.split("/")
        return Scope.SYSTEM if is_grave else Scope.UNKNOWN
    if is_elsewhere:
        if _HARMLESS_DEVICE.match(resolved):
            return Scope.INSIDE
        return Scope.DEVICE if _DEVICE.match(resolved) else Scope.SYSTEM
    if home:
        return Scope.INSIDE if _CACHE.match(home[1] or "") else Scope.HOME
    rest = (temporary[1] or "") if temporary else resolved
    is_whole = rest.partition("/")[0] == ".." or rest == ".git" or _ONLY_PATTERN.match(rest)
    return Scope.WHOLE if is_whole else Scope.INSIDE


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was noticed: its risk, the rule (a short name) and the reason for a person to read."""

    risk: SecurityRisk
    rule: str
    reason: str


class Sinks:
    """What a command's data reaches, with the files that it has written and the folders that it may be in."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.folders: frozenset[str] = frozenset({"."})
        self.left: frozenset[str] = frozenset()  # where the shell still is if what changes its folder has failed
        self.moves = self.roams = False  # whether it changes its folder at all, and in what runs again and again
        self.loops = 0
        self.files: dict[str, list[str]] = {}  # by the last part of their names: many paths may lead to a file
        self.budget = Budget()

    def note(self, risk: SecurityRisk, rule: str, reason: str) -> None:
        """Keep a finding; a thousand are enough for any decision."""
        finding = Finding(risk, rule, reason)
        if len(self.findings) < 1000 and finding not in self.findings[-20:]:
            self.findings.append(finding)

    def high(self, rule: str, reason: str) -> None:
        """Keep a finding that somebody has to be asked about."""
        self.note(SecurityRisk.HIGH, rule, reason)

    def unknown(self, rule: str, reason: str) -> None:
        """Keep that something cannot be told."""
        self.note(SecurityRisk.UNKNOWN, rule, reason)

    def go_to(self, folder: str) -> None:
        """Change the working directory."""
        self.moves, self.roams = True, self.roams or self.loops > 0
        self.left |= self.folders
        is_near = Mark.UNKNOWN not in self.left and len(self.folders) <= MAX_FOLDERS
        is_certain = is_known(folder) and (is_near or folder.startswith(("/", "~")))
        self.folders = frozenset(resolve(folder, old) if is_certain else Mark.UNKNOWN for old in self.folders)

    def scopes(self, path: str) -> set[Scope]:
        """Where a path may lead."""
        self.budget.spend(len(self.folders) // 8)
        return {scope_of(path, folder) for folder in self.folders}

    def is_secret(self, path: str) -> bool:
        """Whether a file usually holds a secret."""
        self.budget.spend(len(self.folders) // 8)
        resolved = {resolve(path, folder) for folder in self.folders}
        return any(_SECRET_FOLDER.search(one) or _SECRET_NAME.fullmatch(posixpath.basename(one)) for one in resolved)

    def write(self, path: str, text: str, *, append: bool = False) -> None:
        """A text goes to a file."""
        if path in QUIET_FILES:
            return
        scopes = self.scopes(path)
        resolved = [resolve(path, folder) for folder in self.folders]
        if path.startswith(("/dev/tcp/", "/dev/udp/")):
            self.send(text, [path], is_file=True)
        elif Scope.DEVICE in scopes:
            self.high("device", f"writes to the device {shown(path)}")
        elif Scope.SYSTEM in scopes:
            self.high("system-file", f"writes to {shown(path)}, which belongs to the system")
        elif Scope.HOME in scopes and (self.is_secret(path) or any(map(_START_FILE.search, resolved))):
            self.high("login", f"changes {shown(path)}, which decides who gets in or what runs at login")
        elif Scope.UNKNOWN in scopes or re.search(r"[*?\[]", path) or any(map(_RUN_BY_GIT.search, resolved)):
            self.unknown("unknown-file", f"writes to {shown(path)}, which is not known or holds what git runs")
        else:
            self.note(SecurityRisk.MEDIUM, "write", f"writes to {shown(path)}")
        text = text if len(text) <= MAX_TEXT else derived(text)
        texts = self.files.setdefault(posixpath.basename(posixpath.normpath(path)), [])
        is_whole = path.endswith(".py") and text.endswith("\n")  # what was there before may have begun a line
        texts += [one for one in (text, Mark.UNKNOWN)[: 1 + (append and not is_whole)] if one not in texts]

    def write_into(self, target: str, sources: Iterable[str], text: str) -> None:
        """A text goes to a file, or to files with the names of others if it is a folder."""
        for name in ["", *(posixpath.basename(path.rstrip("/")) for path in sources)]:
            self.write(posixpath.join(target, name).rstrip("/") or "/", text)

    def read(self, path: str) -> str:
        """What a file holds: what the command has written to it, or unknown (a secret, if it is one)."""
        if self.is_secret(path):
            self.note(SecurityRisk.MEDIUM, "secret", f"reads {shown(path)}, which usually holds a secret")
            return Mark.SECRET
        texts = self.written(path)
        return texts[0] if len(texts) == 1 else derived("".join(map(derived, texts)))

    def read_all(self, paths: Iterable[str]) -> str:
        """What these files hold together; of more than is worth looking at, its taints."""
        texts = [self.read(path) for path in paths]
        is_short = sum(map(len, texts)) <= MAX_TEXT
        return "".join(texts) if is_short else derived("".join(map(derived, texts)))

    def written(self, path: str) -> list[str]:
        """All that the command may have put into a file."""
        return self.files.get(posixpath.basename(posixpath.normpath(path)), [])

    def delete(self, path: str, *, is_recursive: bool) -> None:
        """A file goes, or a folder with all that is in it."""
        scopes = self.scopes(path)
        if scopes & GRAVE or (is_recursive and Scope.WHOLE in scopes):
            self.high("catastrophic-delete", f"deletes {shown(path)}, which no single task needs gone")
        elif Scope.UNKNOWN in scopes:
            self.unknown("unknown-delete", f"deletes something that is not known ({shown(path)})")

    def code(self, text: str) -> None:
        """A text is run as a program."""
        if Mark.NETWORK in text:
            self.high("remote-code", "runs what comes from the network as a program")
        if Mark.DECODED in text:
            self.high("hidden-code", "runs a program that was encoded, so that nobody sees what it does")
        if not is_known(text):
            self.unknown("unknown-code", "runs a text that is not known as a program")

    def send(self, text: str, addresses: Sequence[str], *, is_file: bool) -> None:
        """A text goes to these addresses, of a server or a file of a network connection."""
        if addresses and all(map(_LOCAL.match, addresses)):
            return
        if Mark.SECRET in text:
            self.high("exfiltration", "sends a secret over the network")
        elif not is_known(text):
            risk = SecurityRisk.HIGH if is_file else SecurityRisk.UNKNOWN
            self.note(risk, "exfiltration", "sends what is not known over the network")
