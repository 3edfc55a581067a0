"""Cloning a repository, and setting the user's name for commits.

The password goes through a pipe to the helper that git asks for it, for the one address it is meant for: it is in no
file, argument or variable, and nothing of it is left afterwards.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, List
from urllib.parse import urlsplit

from ..core import facts
from . import MARK, scratch_of
from .command import GitError, environment

_DESCRIPTOR = 9
"""One digit: shells accept no longer descriptor to read from."""

_SETTINGS = (
    "credential.helper=",
    "core.askPass=",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.sshCommand=false",
    "protocol.allow=never",
    "protocol.http.allow=always",
    "protocol.https.allow=always",
    "submodule.recurse=false",
    "advice.detachedHead=false",
)
_PROGRESS = re.compile(r"(Counting|Compressing|Receiving|Resolving|Updating)[a-z ]*:\s+\d+%")
_REASONS = (
    ("authentication", r"Authentication failed|could not read (Username|Password)|HTTP 40[13]|error: 40[13]|denied"),
    ("not_found", r"repository '.*' not found|error: 404|not valid: is this a git repository"),
    ("no_branch", r"Remote branch .* not found"),
    ("no_space", r"No space left|Disk quota"),
    (
        "unreachable",
        r"Could not resolve|Failed to connect|unable to access|Network is unreachable|Connection|timed out",
    ),
)


def clone(order: Dict[str, Any]) -> Dict[str, Any]:
    """Clone ``url`` into ``folder`` (absolute), whole or not at all.

    Codes of a `GitError`: ``authentication``, ``not_found``, ``no_branch``, ``unreachable``, ``no_space``,
    ``too_slow``, ``no_git``, ``failed``.
    """
    folder, password = order["folder"], order.get("password") or ""
    scratch = scratch_of(folder)
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        _run(_arguments(order, scratch), order, password)
        if order["mark"] is not None:  # before it has its name, so that no clone is ever seen without
            with open(os.path.join(scratch, MARK), "w", encoding="ascii") as file:
                file.write(str(order["mark"]))
        os.rename(scratch, folder)
    except OSError as error:
        raise GitError("failed", f"{folder} cannot be made: {error.strerror}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    try:
        with open(os.path.join(folder, ".git", "HEAD"), encoding="utf-8", errors="replace") as file:
            head = file.read(4096).strip()
    except OSError:
        head = ""
    prefix = "ref: refs/heads/"
    return {"cloned": True, "branch": head[len(prefix) :] if head.startswith(prefix) else None}


def instructions(order: Dict[str, Any]) -> Dict[str, Any]:
    """The Markdown files in ``folders`` of the repository at ``url``, by their paths in it; nothing of it stays."""
    scratch = scratch_of(order["folder"])
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        _run(_arguments({**order, "depth": 1}, scratch), order, order.get("password") or "")
        found = facts.markdown([scratch], tuple(os.path.join(*parts) for parts in order["folders"] if parts))
        texts = [{**one, "path": os.path.relpath(one["path"], scratch)} for one in found]
        return {"files": facts.json_safe(texts)}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def identify(order: Dict[str, Any]) -> Dict[str, Any]:
    """Set the name and mail address of this sandbox's user for commits; empty ones stay as they are."""
    for name in ("name", "email"):
        if not order[name]:
            continue
        try:
            done = subprocess.run(
                ["git", "config", "--global", f"user.{name}", order[name]],
                env=environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=10,
            )
        except FileNotFoundError:
            raise GitError("no_git", "git is not installed in this sandbox") from None
        except subprocess.TimeoutExpired:
            raise GitError("too_slow", "git took too long") from None
        if done.returncode != 0:
            raise GitError("failed", done.stderr.decode("utf-8", "replace").strip()[:500])
    return {}


def _arguments(order: Dict[str, Any], folder: str) -> List[str]:
    address = urlsplit(order["url"])
    settings = list(_SETTINGS)
    if order.get("password"):
        answer = f'!f() {{ test "$1" = get && cat <&{_DESCRIPTOR}; }}; f'
        settings.append(f"credential.{address.scheme}://{address.netloc}.helper={answer}")
    arguments = ["git", *(part for setting in settings for part in ("-c", setting))]
    arguments += ["clone", "--progress", "--no-recurse-submodules"]
    if order.get("branch"):
        arguments += ["--branch", order["branch"]]
    if order.get("depth"):
        arguments += ["--depth", str(order["depth"]), "--no-single-branch"]
    return [*arguments, "--", order["url"], folder]


def _run(arguments: List[str], order: Dict[str, Any], password: str) -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, f"username={order.get('username') or ''}\npassword={password}\n".encode())
        os.close(writer)
        os.dup2(reader, _DESCRIPTOR)
        variables = environment()
        variables["GIT_LFS_SKIP_SMUDGE"] = "1"
        process = subprocess.Popen(
            arguments,
            cwd="/",
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(_DESCRIPTOR,) if password else (),
        )
    except FileNotFoundError:
        raise GitError("no_git", "git is not installed in this sandbox") from None
    finally:
        os.close(reader)
        os.close(_DESCRIPTOR)
    with process:
        try:
            _follow(process, float(order["seconds"]), password)
        finally:
            process.kill()


def _follow(process: "subprocess.Popen[bytes]", seconds: float, password: str) -> None:
    deadline, reported_at, text = time.monotonic() + seconds, 0.0, ""
    assert process.stderr is not None  # noqa: S101 - it was order for
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise GitError("too_slow", f"it took longer than {seconds:g} s and was stopped")
            data = os.read(process.stderr.fileno(), 65536)
            if not data:
                break
            text = (text + data.decode("utf-8", "replace"))[-8000:]
            found = list(_PROGRESS.finditer(text))
            if found and time.monotonic() - reported_at > 0.3:
                reported_at = time.monotonic()
                sys.stdout.write(json.dumps({"progress": found[-1].group()}) + "\n")
                sys.stdout.flush()
    if process.wait() != 0:
        raise _failure(text.replace(password, "***") if password else text)


def _failure(text: str) -> GitError:
    lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip() and not _PROGRESS.search(line)]
    reason = next((line for line in reversed(lines) if line.startswith(("fatal:", "error:", "remote:"))), "")
    reason = re.sub(r"^(fatal|error|remote): *", "", reason or (lines[-1] if lines else "git says nothing about why"))
    for code, pattern in _REASONS:
        if re.search(pattern, "\n".join(lines)):
            return GitError(code, reason[:500])
    return GitError("failed", reason[:500])
