"""Builds the runner from its parts, runs it, and takes it down again."""

from __future__ import annotations

import contextlib
import os
from typing import Dict, NamedTuple

from .browser.browser import Browser
from .core.connection import Operation
from .core.disk_limit import DiskLimiter
from .core.journal import Journal
from .core.lent_secrets import LentSecrets
from .core.log import complain
from .core.loop import Loop
from .core.prctl import adopt_orphans, hide
from .core.workers import Reply, Workers
from .files.requests import FileRequests
from .files.snapshots import Snapshots
from .files.transfers import Transfers
from .git.requests import GitRequests
from .kernel.kernel import Kernel
from .requests import Requests
from .server import Server, watch_signals
from .terminal.output import WholeOutputs
from .terminal.pty import close_inherited
from .tunnels.ports import SandboxPorts
from .tunnels.tunnels import TunnelRegistry

OLD_HOME = "DRYDOCK_OLD_HOME"
"""Variable with the image's home of the user, where another one takes its place."""
_DEPTH = 4
_ENTRIES = 2000
_COPIED_BYTES = 64 * 1024


def furnish(old: str, new: str) -> None:
    """Make the files of the old home available in the new one; existing ones stay.

    Small files right in it, which are settings, are copied, so that they can be changed. Upper folders are made anew,
    so that something can be added; all else is linked. What cannot be had is left out.
    """
    left = _ENTRIES

    def fill(old: str, new: str, depth: int) -> None:
        nonlocal left
        with os.scandir(old) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            left -= 1
            target = os.path.join(new, entry.name)
            with contextlib.suppress(OSError):  # it is there already, or may not be read
                status = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False) and depth <= _DEPTH and left > 0:
                    os.mkdir(target, status.st_mode & 0o777 | 0o700)
                    fill(entry.path, target, depth + 1)
                elif depth == 1 and entry.is_file(follow_symlinks=False) and status.st_size <= _COPIED_BYTES:
                    with open(entry.path, "rb") as settings, open(target, "xb") as copy:
                        copy.write(settings.read(_COPIED_BYTES))
                    os.chmod(target, status.st_mode & 0o777 | 0o600)
                else:
                    os.symlink(entry.path, target)

    with contextlib.suppress(OSError):
        fill(old, new, 1)


_DESCRIPTOR = "fd:"


class DiskLimits(NamedTuple):
    """How much disk may be used (0: any), by what; ``alone`` as in `DiskLimiter`."""

    disk_bytes: int = 0
    disk_entries: int = 0
    alone: bool = False
    own_workspace: bool = True
    """False: the workspace is somebody else's folder and does not count."""


def serve(socket_path: str, state_directory: str, workspace: str, idle_exit_seconds: float, limits: DiskLimits) -> int:
    """Serve until told to end; return the exit code: 0, or 1 when the socket cannot be had.

    ``socket_path`` may be ``fd:`` and the number of a descriptor that listens already.
    """
    descriptor = int(socket_path[len(_DESCRIPTOR) :]) if socket_path.startswith(_DESCRIPTOR) else -1
    close_inherited(descriptor)
    hide()
    if not limits.alone:
        adopt_orphans()
    socket_directory = [] if descriptor >= 0 else [os.path.dirname(os.path.abspath(socket_path))]
    for directory in (state_directory, workspace, *socket_directory):
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
        except OSError as error:
            complain(f"{directory} cannot be made: {error.strerror}; the runner goes on without it")
    old_home = os.environ.pop(OLD_HOME, "/")
    if old_home != "/":
        furnish(old_home, os.environ["HOME"])
    loop = Loop()
    boot = os.urandom(8).hex()
    journal = Journal(state_directory)
    journal.open()
    workers = Workers(loop)
    browser, kernel = Browser(loop, workspace, state_directory), Kernel(loop, workspace, state_directory, boot)
    files = FileRequests(loop, workers, workspace, os.path.join(state_directory, "history"))
    snapshots = Snapshots(loop, workers, workspace, state_directory)
    transfers, repositories = Transfers(loop, workers, workspace), GitRequests(loop, workers, workspace)
    ports = SandboxPorts(boot)
    operations: Dict[str, Operation] = {
        "ports.list": lambda request, _, __: workers.serve(request, "ports.list", lambda: Reply(ports.listening())),
        **files.operations,
        **snapshots.operations,
        **transfers.operations,
        **repositories.operations,
    }
    lent = LentSecrets()
    outputs = WholeOutputs(os.path.join(state_directory, "outputs"), "terminal", lent=lent)
    counted = [state_directory, os.environ.get("HOME", "/"), *([workspace] if limits.own_workspace else [])]
    disk = DiskLimiter(counted, limits.disk_bytes, limits.disk_entries, alone=limits.alone)
    requests = Requests(loop, workspace, boot, journal, browser, kernel, snapshots, outputs, lent, disk, operations)
    tunnels = TunnelRegistry(loop, ports, workspace)
    server = Server(loop, requests, tunnels, workspace, boot, idle_exit_seconds)
    watch_signals(loop, requests)
    try:
        if descriptor >= 0:
            server.serve_at(descriptor)
        else:
            server.listen(socket_path)
    except OSError as error:
        complain(f"the runner cannot listen at {socket_path}: {error}")
        return 1
    disk.start()
    try:
        loop.run()
    finally:
        disk.close()
        server.close()
        requests.close()
        files.close()
        transfers.close()
        repositories.close()
        workers.close()
        journal.close()
        loop.close()
    return 0
