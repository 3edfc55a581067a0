"""Builds the runner from its parts, runs it, and takes it down again."""

from __future__ import annotations

import os
from functools import partial

from .browser import Browser
from .complaints import complain
from .editor import Editor
from .file_requests import FileRequests
from .files import Files
from .git_requests import GitRequests
from .history import History
from .journal import Journal
from .kernel import Kernel
from .linting import Lints
from .loop import Loop
from .patcher import Patcher
from .ports import Ports
from .programs import ProgramTunnel
from .pty import close_inherited
from .ranges import Ranges
from .requests import Requests
from .searching import Searches
from .server import Server, watch_signals
from .snapshots import Snapshots
from .switchboard import Tunnels
from .transfers import Transfers
from .whole_files import WholeFiles
from .whole_outputs import WholeOutputs
from .workers import Workers


def serve(socket_path: str, state_directory: str, workspace: str, idle_exit_seconds: float) -> int:
    """Serve until told to end; return the exit code: 0, or 1 when the socket cannot be had."""
    close_inherited()
    for directory in (state_directory, os.path.dirname(os.path.abspath(socket_path)), workspace):
        _make(directory)
    loop = Loop()
    boot = os.urandom(8).hex()
    journal = Journal(state_directory)
    journal.open()
    workers = Workers(loop)
    history = History(os.path.join(state_directory, "history"))
    files = Files(workers, Editor(history), Patcher(workspace, history), WholeFiles(history), Ranges(history))
    searches, lints = Searches(loop, workspace), Lints(loop, workspace)
    browser, kernel = Browser(loop, workspace, state_directory), Kernel(loop, workspace, state_directory, boot)
    snapshots = Snapshots(loop, files, workspace, state_directory)
    transfers, repositories = Transfers(loop, files, workspace), GitRequests(loop, files, workspace)
    asked = FileRequests(files, workspace)
    more = {**transfers.operations, **repositories.operations}
    outputs = WholeOutputs(os.path.join(state_directory, "outputs"), "terminal")
    requests = Requests(
        loop, workspace, boot, journal, asked, searches, lints, browser, kernel, snapshots, outputs, more
    )
    tunnels = Tunnels(loop, Ports(boot), partial(ProgramTunnel, workspace=workspace))
    server = Server(loop, requests, tunnels, workspace, boot, idle_exit_seconds)
    watch_signals(loop, requests)
    try:
        server.listen(socket_path)
    except OSError as error:
        complain(f"the runner cannot listen at {socket_path}: {error}")
        return 1
    try:
        loop.run()
    finally:
        server.close()
        requests.close()
        transfers.close()
        repositories.close()
        workers.close()
        journal.close()
        loop.close()
    return 0


def _make(directory: str) -> None:
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except OSError as error:
        complain(f"{directory} cannot be made: {error.strerror}; the runner goes on without it")
