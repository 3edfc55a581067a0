"""Facts about the sandbox and its workspace, found without running a program."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import lru_cache
from typing import Any, Dict, Iterator, List, Optional, Tuple

_INSTRUCTIONS = (
    "AGENTS.md",
    "AGENT.md",
    "CLAUDE.md",
    "GEMINI.md",
    ".cursorrules",
    ".openhands_instructions",
    ".github/copilot-instructions.md",
)
_INSTRUCTION_BYTES = 32 * 1024
_NESTED_FILES = 50
_FOREIGN_FOLDERS = {"__pycache__", "build", "dist", "node_modules", "site-packages", "target", "vendor", "venv"}
_FOLDERS = 1000


@lru_cache(maxsize=None)
def username() -> str:
    """Return the name of the user the runner runs as, or its number when it has none."""
    uid = os.getuid()
    try:
        import pwd  # its one home; absent from some minimal builds

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return os.environ.get("USER") or str(uid)


def find_python(path: str, names: Tuple[str, ...] = ("python", "python3")) -> Optional[str]:
    """Return the first python (or python3) on a search path, as a shell with that PATH would find it."""
    folders = [folder for folder in path.split(":") if folder.startswith("/")]
    for name in names:
        for folder in folders:
            candidate = f"{folder}/{name}"
            if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
                return candidate
    return None


def workspace(directory: str) -> Dict[str, Any]:
    """Return the facts of the workspace (result of ``workspace.facts``)."""
    git = _git(directory)
    if git is None:  # the one repository right below, if there is one only
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            folders = [one.path for one in entries if one.is_dir(follow_symlinks=False)][:_FOLDERS]
            below = [folder for folder in folders if os.path.exists(os.path.join(folder, ".git"))]
            git = _git(below[0]) if len(below) == 1 else None
    roots = [directory] if git is None or git["root"] in (None, directory) else [directory, git["root"]]
    found = {
        "working_dir": directory,
        "user": username(),
        "hostname": os.uname().nodename,
        "os": _system(),
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "git": git,
        "instructions": [*(one for root in roots for one in _instructions(root)), *_nested(directory, roots)],
        "skills": markdown(roots, (".agents/skills", ".openhands/skills", ".openhands/microagents")),
        "agents": markdown(roots, (".agents/agents", ".openhands/agents")),
    }
    return json_safe(found)  # type: ignore[no-any-return] # what it is given is what it returns


def json_safe(value: Any) -> Any:
    """Return a JSON value in which undecodable bytes of names are escapes, as a log needs it."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {json_safe(name): json_safe(item) for name, item in value.items()}
    return [json_safe(item) for item in value] if isinstance(value, list) else value


def _system() -> str:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        for line in _read(path, 16384).splitlines():
            if line.startswith("PRETTY_NAME="):
                return line[len("PRETTY_NAME=") :].strip("\"'")
    name = os.uname()
    return f"{name.sysname} {name.release}"


def _instructions(directory: str) -> List[Dict[str, str]]:
    found: List[Dict[str, str]] = []
    for name in _INSTRUCTIONS:
        folder, base = os.path.split(os.path.join(directory, name))
        try:
            present = [entry for entry in os.listdir(folder) if entry.lower() == base.lower()]
        except OSError:
            continue
        for entry in sorted(present, key=base.__ne__):  # the exact name first
            found += _document(os.path.join(folder, entry), _INSTRUCTION_BYTES)
    return found


def _nested(directory: str, roots: List[str]) -> List[Dict[str, str]]:
    names = {name.lower() for name in _INSTRUCTIONS if os.sep not in name}
    found: List[Dict[str, str]] = []
    waiting = [directory]
    for looked, folder in enumerate(waiting):
        if looked == _FOLDERS or len(found) >= _NESTED_FILES:
            break
        try:
            with os.scandir(folder) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in inside:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in _FOREIGN_FOLDERS:
                    waiting.append(entry.path)
            elif folder not in roots and entry.name.lower() in names:
                found += _document(entry.path, _INSTRUCTION_BYTES)
    return found[:_NESTED_FILES]


def _document(path: str, limit: int) -> List[Dict[str, str]]:
    content = _read(path, limit)
    return [{"path": path, "content": content}] if content.strip() else []


def markdown(roots: List[str], names: Tuple[str, ...]) -> List[Dict[str, str]]:
    """Return the Markdown files in these folders of the roots: 200 at most, and 2 MiB."""
    found: List[Dict[str, str]] = []
    room = 2 * 1024 * 1024
    for folder in [os.path.join(root, name) for root in roots for name in names]:
        for path in _markdown_files(folder):
            content = _read(path, min(room, 64 * 1024))
            room -= len(content)
            if content.strip():
                found.append({"path": path, "content": content})
            if len(found) == 200 or room <= 0:
                return found
    return found


def _markdown_files(folder: str) -> Iterator[str]:
    """Yield the Markdown files below a folder, sorted by path; links to folders are not followed."""
    seen = 0
    for place, folders, files in os.walk(folder):
        folders.sort()
        seen += len(folders) + len(files)
        if seen > 5000:
            return
        for name in sorted(files):
            if name.lower().endswith(".md") and name.lower() != "readme.md":
                yield os.path.join(place, name)


def _git(directory: str) -> Optional[Dict[str, Optional[str]]]:
    root = os.path.abspath(directory)
    while not os.path.exists(os.path.join(root, ".git")):
        directory, root = root, os.path.dirname(root)
        if root == directory:
            return None
    folder = os.path.join(root, ".git")
    if not os.path.isdir(folder):
        pointer = _read(folder, 4096).strip()
        if pointer.startswith("gitdir:"):
            folder = os.path.join(root, pointer[len("gitdir:") :].strip())
    head = _read(os.path.join(folder, "HEAD"), 4096).strip()
    branch = head[len("ref: refs/heads/") :] if head.startswith("ref: refs/heads/") else (head[:12] or None)
    common = _read(os.path.join(folder, "commondir"), 4096).strip()
    config = os.path.join(folder, common, "config") if common else os.path.join(folder, "config")
    return {"branch": branch, "remote": _remote(_read(config, 256 * 1024)), "root": root}


def _remote(config: str) -> Optional[str]:
    """The URL of ``origin``, else of the first remote, without user name and password."""
    section = ""
    urls: Dict[str, str] = {}
    for line in config.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line
        elif section.startswith('[remote "') and line.partition("=")[0].strip() == "url":
            urls.setdefault(section[len('[remote "') :].partition('"')[0], line.partition("=")[2].strip())
    url = urls.get("origin") or next(iter(urls.values()), None)
    if url is None or "://" not in url:
        return url
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _read(path: str, limit: int) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(descriptor, "rb") as file:
        if not os.path.isfile(f"/proc/self/fd/{descriptor}"):
            return ""
        try:
            return file.read(limit).decode("utf-8", "replace")
        except OSError:
            return ""
