"""The runner, put into a sandbox and started there."""

from __future__ import annotations

import io
import marshal
import os
import sys
import tarfile
import time
from functools import cache
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path

from agent_core.runtime.sandbox import RUNNER_ROOT, SOCKET, STATE_DIR, WORKSPACE, SandboxLimits
from runtime_images.runner import wire

GIVEN_WORKSPACE = f"{RUNNER_ROOT}/given/workspace"
"""Where the workspace's volume is mounted a second time, in a folder that is closed to the sandbox's user."""

IDLE_EXIT_SECONDS = 48 * 3600
"""The runner ends when no server attached for two days (its server's data may be deleted); the workspace stays."""
PROGRAM_IDLE_EXIT_SECONDS = 600
"""So does one whose sandbox ends with its owner, which holds it all the time; it starts again when it is asked."""

_ROOT_MODE = 0o755
_UNCHECKED_HASH = (1).to_bytes(4, "little")
"""Of bytecode (PEP 552): it goes by the hash of its source, which need not be looked at."""


_BOOT = """
import sys
if sys.version_info < (3, 8):
    sys.exit("drydock: Python 3.8 or newer is needed, this is " + sys.version.split()[0])
import os, runpy
sys.path[0] = ROOT
if INIT:
    import signal
    awaited = {signal.SIGCHLD, signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    child = os.fork()
    while child:
        found = signal.sigwaitinfo(awaited)
        if found.si_signo != signal.SIGCHLD and found.si_pid == 0:
            os.kill(child, signal.SIGINT)
        gone = -1
        while gone:
            try:
                gone, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if gone == child:
                os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)
home = os.environ.get("HOME", "/")
if home == "/" or not os.access(home, os.W_OK):
    os.environ.update(HOME=ROOT + "/home", DRYDOCK_OLD_HOME=home)
    os.environ["PATH"] = ROOT + "/home/.local/bin:" + os.environ.get("PATH", os.defpath)
if PROCESSES:
    import resource
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
if FILE_SIZE:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
if LOG:
    log = os.open(ROOT + "/state/log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
runpy.run_module("runner", run_name="__main__", alter_sys=True)
"""


def boot_command(
    python: str,
    *,
    root: str = RUNNER_ROOT,
    processes: int = 0,
    file_size: int = 0,
    log: bool = False,
    init: bool = False,
) -> list[str]:
    """The command that runs the runner, to be followed by its arguments; `root` holds ``runner/`` and ``home/``.

    Neither variables nor files of the image change what Python imports. A user without a home of its own gets one.
    `processes` are the user's most, set from inside: newer kernels count this sandbox alone; `file_size` is the most
    that one file may have. `log`: write to ``state/log`` instead of the streams it is given, which would show where
    those are on the host. `init`: be the first process of a container whose engine has none of its own: the runner's
    parent, which buries what nobody waits for, and hands on the wish to end when it comes from outside.
    """
    code = _BOOT.replace("ROOT", repr(root)).replace("PROCESSES", str(processes)).replace("LOG", repr(log))
    code = code.replace("INIT", repr(init)).replace("FILE_SIZE", repr(file_size))
    return [python, "-E", "-s", "-S", "-c", code]


def serve_arguments(
    limits: SandboxLimits,
    *,
    ends_with_owner: bool = False,
    socket: str = SOCKET,
    state_dir: str = STATE_DIR,
    workspace: str = WORKSPACE,
    own_workspace: bool = True,
    alone: bool = True,
) -> list[str]:
    """Arguments of the runner, which keeps to the `limits` of the disk.

    `own_workspace`: what is in the workspace counts as the sandbox's; `alone`: it sees no processes but the sandbox's.
    """
    return [
        *("serve", "--socket", socket, "--state-dir", state_dir, "--workspace", workspace),
        *("--idle-exit-seconds", str(PROGRAM_IDLE_EXIT_SECONDS if ends_with_owner else IDLE_EXIT_SECONDS)),
        *("--disk-bytes", str(limits.disk), "--disk-entries", str(limits.inodes)),
        *("--own-workspace", "yes" if own_workspace else "no", "--alone", "yes" if alone else "no"),
    ]


@cache
def runner_files() -> tuple[tuple[str, bytes], ...]:
    """``(path below the package, content)`` of its code, with bytecode for our Python, which halves its start."""
    package = Path(wire.__file__).parent
    found: list[tuple[str, bytes]] = []
    for path in sorted(package.rglob("*.py")):
        name, source = path.relative_to(package), path.read_bytes()
        code = compile(source, f"{RUNNER_ROOT}/runner/{name}", "exec", dont_inherit=True)
        head = MAGIC_NUMBER + _UNCHECKED_HASH + source_hash(source)
        cached = name.parent / "__pycache__" / f"{name.stem}.{sys.implementation.cache_tag}.pyc"
        found += [(str(name), source), (str(cached), head + marshal.dumps(code))]
    return tuple(found)


@cache
def runner_archive(uid: int, gid: int, with_workspace: bool) -> bytes:
    """A tar archive for `RUNNER_ROOT`: the runner, whose code is root's, its folders and, if wished, the workspace."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _folder(archive, "runner", _ROOT_MODE, 0, 0)
        _folder(archive, os.path.relpath(STATE_DIR, RUNNER_ROOT), 0o700, uid, gid)
        _folder(archive, "home", 0o700, uid, gid)
        for name, content in runner_files():
            for parent in reversed(Path(name).parents[:-1]):
                _folder(archive, f"runner/{parent}", _ROOT_MODE, 0, 0)
            entry = tarfile.TarInfo(f"runner/{name}")
            entry.size = len(content)
            entry.mode = 0o644
            entry.mtime = int(time.time())
            archive.addfile(entry, io.BytesIO(content))
        if with_workspace:
            place = os.path.relpath(GIVEN_WORKSPACE, RUNNER_ROOT)
            _folder(archive, os.path.dirname(place), 0o700, 0, 0)
            _folder(archive, place, 0o755, uid, gid)
    return buffer.getvalue()


def workspace_archive(uid: int, gid: int) -> bytes:
    """A tar archive to unpack at ``/`` that gives the workspace to `uid`, and holds nothing else."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _folder(archive, WORKSPACE.lstrip("/"), 0o755, uid, gid)
    return buffer.getvalue()


def _folder(archive: tarfile.TarFile, path: str, mode: int, uid: int, gid: int) -> None:
    entry = tarfile.TarInfo(path)
    entry.type = tarfile.DIRTYPE
    entry.mode = mode
    entry.uid, entry.gid = uid, gid
    entry.mtime = int(time.time())
    archive.addfile(entry)
