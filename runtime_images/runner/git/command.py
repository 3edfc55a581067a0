"""Running git: it can ask nobody, and a repository's configuration is not trusted.

Views use no hook, pager, editor, file monitor, external diff, text conversion, signature check or network and write
nothing: what a repository says about them is overruled (content filters: `views.without_filters`).
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from typing import Dict, List, Mapping, NamedTuple, Optional

from ..core.arguments import RequestError
from . import LOOK_SECONDS

_LEFT_OUT = ("GIT_", "SSH_", "GCM_")
_PRESERVED = ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH")

_OVERRULED = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    "core.editor=false",
    "core.sshCommand=false",
    "core.askPass=",
    "core.alternateRefsCommand=",
    "credential.helper=",
    "diff.external=",
    "gpg.program=false",
    "gpg.ssh.program=false",
    "gpg.x509.program=false",
    "log.showSignature=false",
    "protocol.allow=never",
    "safe.directory=*",
    "submodule.recurse=false",
)
_LOOKING = ["git", "--no-pager", "--literal-pathspecs", "--no-optional-locks"]
_LOOKING += [part for setting in _OVERRULED for part in ("-c", setting)]


class GitError(RequestError):
    """Git cannot do it; the message is for people, ``code`` for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Output(NamedTuple):
    """What git printed, as much as was wanted, and its exit; ``is_cut`` when it was stopped for printing more."""

    data: bytes
    status: int
    error: str
    is_cut: bool


def environment() -> Dict[str, str]:
    """Git's variables: of its own only those about certificates; nobody is ever asked."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT) or name in _PRESERVED}
    own.update(
        GIT_TERMINAL_PROMPT="0",
        GIT_OPTIONAL_LOCKS="0",
        GIT_NO_LAZY_FETCH="1",
        GIT_PAGER="cat",
        GIT_ASKPASS="",
        LC_ALL="C.UTF-8",
    )
    return own


def look(
    directory: str, arguments: List[str], limit: int, root: str, overruled: Optional[Mapping[str, str]] = None
) -> Output:
    """Run git in a folder of the repository at ``root``, never in one around it, to view something.

    ``overruled`` are settings that precede the configured ones.
    """
    variables = environment()
    variables["GIT_CEILING_DIRECTORIES"] = os.path.dirname(root)
    variables["GIT_WORK_TREE"] = root  # and not where the repository says that its files are
    settings = [part for name, value in (overruled or {}).items() for part in ("-c", f"{name}={value}")]
    try:
        process = subprocess.Popen(
            [*_LOOKING, *settings, *arguments],
            cwd=directory,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.isdir(directory):
            what = "is no folder" if os.path.lexists(directory) else "does not exist"
            raise GitError("not_found", f"{directory} {what}") from None
        raise GitError("no_git", "git is not installed in this sandbox") from None
    except OSError as error:
        raise GitError("failed", f"git cannot be started: {error.strerror}") from error
    with process:
        try:
            return _collected(process, limit, time.monotonic() + LOOK_SECONDS)
        finally:
            process.kill()


def checked(output: Output, what: str) -> bytes:
    """What was printed; `GitError` where git failed, ``no_repository`` also during ``git init``."""
    if output.status != 0 and not output.is_cut:
        if "fatal: not a git repository" in output.error:
            raise GitError("no_repository", "Not a git repository")
        lines = [line.strip() for line in output.error.splitlines() if line.strip()]
        raise GitError("failed", f"{what} failed: {lines[-1] if lines else 'it says nothing about why'}")
    return output.data


def text(data: bytes) -> str:
    """Names and texts for showing; bytes that are no Unicode are replaced."""
    return data.decode("utf-8", "replace")


def _collected(process: "subprocess.Popen[bytes]", limit: int, deadline: float) -> Output:
    pipes: Dict[Optional[int], bytearray] = {}
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ)
                pipes[pipe.fileno()] = bytearray()
        out, error = list(pipes.values())
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise GitError("too_slow", "git took too long in this workspace and was stopped")
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                pipes[key.fd].extend(data)
            if len(out) > limit:
                return Output(bytes(out[:limit]), 0, "", is_cut=True)
            del error[:-2000]
    try:
        status = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise GitError("too_slow", "git took too long in this workspace and was stopped") from None
    return Output(bytes(out), status, text(bytes(error)), is_cut=False)
