"""What a path means to a person: the work at hand, the whole of it, the home directory, the system, a secret."""

from __future__ import annotations

import posixpath
import re
from enum import Enum, auto

from agent_core.security.shell.marks import ALL

HOME = "~"
WORKSPACE = "/workspace"
STDIN_FILE = "/dev/fd/0"


class Scope(Enum):
    """Where a path leads."""

    INSIDE = auto()
    """Some place in the workspace, a temporary folder, or a cache."""
    WHOLE = auto()
    """All of the workspace (or of a temporary folder) at once."""
    OUTSIDE = auto()
    """Beside the workspace, as far as one can tell."""
    HOME = auto()
    """The home directory or what a person keeps there."""
    SYSTEM = auto()
    """The root directory, or a part of the operating system."""
    DEVICE = auto()
    """A disk, memory, or a switch of the kernel."""
    UNKNOWN = auto()
    """Nobody can tell."""


GRAVE = frozenset({Scope.HOME, Scope.SYSTEM, Scope.DEVICE})
"""Places that no task in a workspace has to change."""

_HARMLESS_DEVICE = re.compile(
    r"/dev/(?:null|zero|full|random|urandom|stdin|stdout|stderr|tty|ptmx|fd(?:/.*)?|shm/.+)\Z", re.DOTALL
)
_DEVICE = re.compile(r"/dev(?:/.*)?\Z|/proc/(?:sysrq-trigger|sys(?:/.*)?|kcore|\d+/mem)\Z|/sys(?:/.*)?\Z", re.DOTALL)
_HOMES = re.compile(r"~[^/]*|/root|/home/[^/]+|\$HOME|/Users/[^/]+")
_HOME_CACHE = re.compile(r"\.(?:cache|npm|local|pyenv|nvm|m2|gradle|rustup|cargo|tox|venv)(?:/.*)?\Z", re.DOTALL)
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", WORKSPACE)  # noqa: S108 - names are judged here, nothing is created
_DESCRIPTOR = re.compile(r"/(?:proc/(?:self|thread-self|\d+)/fd/(\d+)|dev/(stdin|stdout|stderr))\Z")
_STANDARD = {"stdin": "0", "stdout": "1", "stderr": "2"}
_ONLY_PATTERN = re.compile(r"[*?.\[\]!^{},]*\Z")
_SECRET_NAME = re.compile(
    r"\.env|\.env\.(?!example|sample|template|dist).+|id_(?:rsa|dsa|ecdsa|ed25519)|\.netrc|\.pgpass|\.git-credentials"
    r"|\.npmrc|\.pypirc|\.htpasswd|g?shadow|.+\.(?:pem|key|p12|pfx|kdbx|jks|keystore)|credentials(?:\.json|\.db)?"
    r"|secrets?\.(?:ya?ml|json|toml|env|txt)|\.?vault[_-]pass(?:word)?(?:\.txt)?"
)
_SECRET_FOLDER = re.compile(
    r"(?:^|/)(?:\.ssh(?!/known_hosts|/.*\.pub\Z)|\.aws|\.gnupg|\.azure|\.config/(?:gh|gcloud))(?:/|\Z)|/\.kube/config\Z"
    r"|/\.docker/config\.json\Z|^/(?:var/)?run/secrets(?:/|\Z)|^/proc/(?:self|\d+|\*)/environ\Z"
    r"|/\.mozilla/|google-chrome/"
)
_START_FILE = re.compile(r"\.(?:bash(?:rc|_profile|_login|_logout)|profile|zsh(?:rc|env)|z?login|inputrc)\Z")


def resolve(path: str, folder: str) -> str:
    """`path` as it is meant in `folder`: absolute, or from the home directory, or relative to the workspace."""
    joined = path if path.startswith(("/", HOME)) else posixpath.join(folder, path)
    normal = posixpath.normpath(joined)
    normal = "/" + normal.lstrip("/") if normal.startswith("/") else normal
    if normal == WORKSPACE:
        return "."
    if descriptor := _DESCRIPTOR.match(normal):
        return "/dev/fd/" + (descriptor[1] or _STANDARD[descriptor[2]])
    return normal.removeprefix(WORKSPACE + "/") or "."


def scope_of(path: str, folder: str = ".") -> Scope:
    """Where `path` leads when the working directory is `folder`; patterns count as all that they could match."""
    if not path:
        return Scope.INSIDE
    resolved = resolve(path, folder)
    if resolved.startswith("/"):
        return _absolute(resolved)
    if resolved.startswith(HOME):
        return _in_home(resolved.partition("/")[2])
    if any(mark in resolved for mark in ALL):
        return Scope.UNKNOWN
    first = resolved.partition("/")[0]
    if first == "..":
        return Scope.OUTSIDE
    if resolved in {".", ".git"}:
        return Scope.WHOLE
    return Scope.WHOLE if _ONLY_PATTERN.match(resolved) else Scope.INSIDE


def _absolute(path: str) -> Scope:
    if _HARMLESS_DEVICE.match(path):
        return Scope.INSIDE
    for folder in _TEMPORARY:
        if path == folder or path.startswith(folder + "/"):
            rest = path[len(folder) + 1 :]
            if any(mark in rest for mark in ALL):
                return Scope.UNKNOWN
            return Scope.WHOLE if _ONLY_PATTERN.match(rest) else Scope.INSIDE
    if _DEVICE.match(path):
        return Scope.DEVICE
    if home := _HOMES.match(path):
        rest = path[home.end() :]
        if not rest or rest.startswith("/"):
            return _in_home(rest[1:])
    if len(path) > 1 and path[1] in ALL:
        return Scope.UNKNOWN
    return Scope.SYSTEM


def _in_home(rest: str) -> Scope:
    if _HOME_CACHE.match(rest):
        return Scope.UNKNOWN if any(mark in rest for mark in ALL) else Scope.INSIDE
    return Scope.HOME


def is_secret(path: str, folder: str = ".") -> bool:
    """Whether a file of this name usually holds keys, passwords or tokens."""
    resolved = resolve(path, folder)
    return bool(_SECRET_FOLDER.search(resolved) or _SECRET_NAME.fullmatch(posixpath.basename(resolved)))


def is_start_file(path: str, folder: str = ".") -> bool:
    """Whether what this file holds is run at every later start of a shell."""
    return bool(_START_FILE.search(resolve(path, folder)))
