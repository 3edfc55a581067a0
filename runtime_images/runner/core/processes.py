"""Processes of a terminal or a sandbox, found in /proc, and signals for them; ``prctl`` for the runner's own."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from .log import complain

_TICKS = os.sysconf("SC_CLK_TCK")
MARK = "DRYDOCK_TERMINAL"
SANDBOX_MARK = "DRYDOCK_SANDBOX"
"""Variable of all processes of a sandbox that shares its host's process table."""
_DELETED = " (deleted)"
ENVIRONMENT_LIMIT = 256 * 1024


class Process(NamedTuple):
    """One line of the process table."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: int
    """In clock ticks since the machine started."""
    used: int
    """Processor time in clock ticks."""


class TerminalProcesses(NamedTuple):
    """A terminal's own processes: those of its shell's session, and those that carry its mark.

    ``mark`` is the value of ``DRYDOCK_TERMINAL``, which marks programs that left the session and lost their parent.
    ``since`` is when the terminal was made, in clock ticks: nothing older is its own.
    """

    shell: int
    mark: str
    since: int


class ExecProgram(NamedTuple):
    """The program that ``exec`` has put in a shell's place."""

    directory: str
    environment: List[Tuple[bytes, bytes]]


def replacement(pid: int, argument: bytes) -> Optional[ExecProgram]:
    """Return the program that runs as this process, or None when it still has the argument it was started with."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = file.read(64 * 1024).split(b"\0")
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read(1024 * 1024).split(b"\0")
        directory = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None
    if argument in arguments or arguments == [b""]:  # or it is just ending
        return None
    pairs = [entry.partition(b"=") for entry in entries]
    return ExecProgram(directory, [(name, value) for name, separator, value in pairs if separator])


def directory(pid: int, name: str) -> str:
    """Return a process's working directory: ``name`` if that names it, else the real path, or ""."""
    link = f"/proc/{pid}/cwd"
    with contextlib.suppress(OSError, ValueError):
        if name.startswith("/") and os.path.samestat(os.stat(name), os.stat(link)):
            return name
    try:
        path = os.readlink(link)
    except OSError:
        return name if name.startswith("/") and os.path.isdir(name) else ""
    return path[: -len(_DELETED)] if path.endswith(_DELETED) else path


def ended(child: int) -> Optional[int]:
    """Return a child's wait status, 0 if collected elsewhere; None while it lives: a stopped one is continued."""
    try:
        pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
    except ChildProcessError:
        return 0
    if pid and os.WIFSTOPPED(status):
        os.kill(pid, signal.SIGCONT)
        return None
    return status if pid else None


def lacks_descriptors(shell: int) -> bool:
    """Whether a shell may open so few files (``ulimit -n``) that no command would run and only status 1 be seen."""
    try:
        limit = resource.prlimit(shell, resource.RLIMIT_NOFILE)[0]
    except (AttributeError, OSError):  # it has ended, or this system does not tell
        return False
    return 0 <= limit < 14


def now_in_ticks() -> int:
    """Return the time on the clock of :attr:`Process.started`."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)


def seconds_since(ticks: int) -> float:
    """Return the seconds since a time on the clock of :attr:`Process.started`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / _TICKS


def started(pid: int) -> Optional[int]:
    """Return when the process was started, in clock ticks; None when it is gone, or a zombie."""
    process = _read(str(pid))
    return None if process is None or process.state in "ZX" else process.started


def is_copy(pid: int, shell: int) -> bool:
    """True while what the shell has forked is no other program yet; a subshell is a copy as long as it lives."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as own, open(f"/proc/{shell}/cmdline", "rb") as its:
            return own.read(4096) == its.read(4096)
    except OSError:
        return False


def table() -> Dict[int, Process]:
    """Return all living processes by their id; zombies are not among them."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = _read(name)
            if process is not None and process.state not in "ZX":
                found[process.pid] = process
    return found


def belonging(scope: TerminalProcesses) -> List[Process]:
    """Return all processes of a terminal but its shell, also those that left its session or lost their parent."""
    by_id = table()
    shell = scope.shell
    variable = f"{MARK}={scope.mark}".encode()
    own: List[Process] = []
    others: List[Process] = []
    for process in by_id.values():
        if process.pid in (1, shell, os.getpid()) or process.started < scope.since:
            continue
        is_below = shell > 1 and (process.session == shell or _descends(process, shell, by_id))
        (own if is_below else others).append(process)
    return own + [process for process in others if _marked(process.pid, variable)]


def of_sandbox(*, alone: bool) -> List[Process]:
    """Return all processes of the sandbox but this one.

    ``alone``: no others are here but the first one and those put in from outside. Otherwise they are this one's
    descendants and what carries the sandbox's mark.
    """
    by_id = table()
    own = os.getpid()
    if alone:
        return [process for process in by_id.values() if process.pid not in (1, own) and process.parent != 0]
    name = os.environ.get(SANDBOX_MARK, "")
    variable = f"{SANDBOX_MARK}={name}".encode()
    return [
        process
        for process in by_id.values()
        if process.pid not in (1, own)
        and (_descends(process, own, by_id) or (bool(name) and _marked(process.pid, variable)))
    ]


def end_children(*, alone: bool) -> None:
    """Kill orphans of the sandbox, for a moment: also what forks and ends again and again."""
    own = os.getpid()
    parents = (own, 1) if alone else (own,)
    killed: Set[int] = set()
    for _ in range(200):
        found: Set[int] = set()
        for parent in parents:
            with contextlib.suppress(OSError):  # gone, or a kernel that does not tell
                for thread in os.listdir(f"/proc/{parent}/task"):
                    with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:
                        found.update(map(int, file.read().split()))
        found -= {1, own}
        for pid in found:
            signal_process(pid, signal.SIGKILL)
        if found <= killed and all(started(pid) is None for pid in found):
            return  # what one of them had forked before it was killed would be among them by now
        killed |= found


def of_command(scope: TerminalProcesses, start_ticks: int) -> List[Process]:
    """Return the processes that a command begun at that time has started, not background jobs of earlier ones."""
    by_id = {process.pid: process for process in belonging(scope)}

    def is_new(process: Process) -> bool:
        for one in _ancestry(process, by_id):
            if one.started < start_ticks:
                return False
            if one.parent == scope.shell:
                break
        return True

    return [process for process in by_id.values() if is_new(process)]


def send(processes: Iterable[Process], number: int, shell: int) -> None:
    """Send the signal to each process, to whole groups at once where possible, never to the shell's own group."""
    groups: Set[int] = set()
    spared = (shell, os.getpgrp())
    for process in processes:
        if process.group in spared:
            signal_process(process.pid, number)
        elif process.group not in groups:
            groups.add(process.group)
            signal_group(process.group, number)


def signal_process(pid: int, number: int) -> None:
    """Send a signal to a process, if it is there."""
    if pid > 1:  # 0 and -1 would mean many processes
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def signal_group(group: int, number: int) -> None:
    """Send a signal to all processes of a group."""
    if group > 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def ignores(pid: int, number: int) -> bool:
    """True when the process ignores the signal."""
    ignored = read_file(pid, "status", 8192).partition(b"\nSigIgn:")[2].split(None, 1)
    return bool(ignored) and bool(int(ignored[0], 16) & 1 << (number - 1))


def waits(pid: int) -> bool:
    """True when the process waits for something other than the processor or a disk; or is gone."""
    process = _read(str(pid))
    return process is None or process.state not in "RD"


def ticks_used(pid: int) -> int:
    """Return the processor time that the process itself has used, in clock ticks; 0 when it is gone."""
    process = _read(str(pid))
    return 0 if process is None else process.used


def kill_all(scope: TerminalProcesses) -> None:
    """Kill the shell and everything it has started, in a bounded number of rounds."""
    signal_process(scope.shell, signal.SIGKILL)
    for _ in range(20):
        processes = belonging(scope)
        if not processes:
            return
        send(processes, signal.SIGKILL, scope.shell)
        for process in processes:
            signal_process(process.pid, signal.SIGKILL)


def kill_family(pid: int) -> None:
    """Kill a process and all that descend from it, in a bounded number of rounds."""
    for _ in range(5):
        by_id = table()
        family = [process for process in by_id.values() if process.pid == pid or _descends(process, pid, by_id)]
        for process in family:
            signal_process(process.pid, signal.SIGKILL)
        if len(family) <= 1:
            return


def descends(pid: int, ancestor: int) -> bool:
    """True when the process is a child of the other one, or a child's child."""
    by_id = table()
    return pid in by_id and _descends(by_id[pid], ancestor, by_id)


def read_file(pid: int, name: str, limit: int) -> bytes:
    """Return the beginning of a process's file in /proc; b"" when that is gone, or another user's."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read(limit)
    except OSError:
        return b""


def _read(name: str) -> Optional[Process]:
    try:
        with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
            text = file.read(1024)
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    parent, group, session = (int(field) for field in fields[1:4])
    used = int(fields[11]) + int(fields[12])
    return Process(int(name), fields[0].decode(), parent, group, session, int(fields[19]), used)


def _ancestry(process: Process, by_id: Dict[int, Process]) -> Iterator[Process]:
    for _ in range(256):
        yield process
        if process.parent not in by_id:
            return
        process = by_id[process.parent]


def _descends(process: Process, ancestor: int, by_id: Dict[int, Process]) -> bool:
    return any(one.parent == ancestor for one in _ancestry(process, by_id))


def _marked(pid: int, variable: bytes) -> bool:
    return variable in read_file(pid, "environ", ENVIRONMENT_LIMIT).split(b"\0")


_DUMPABLE = 4
_CHILD_SUBREAPER = 36


def hide() -> None:
    """Keep others out of this process's memory and descriptors; programs started later are not hidden.

    Commands run as the same user as the runner, whose memory holds secrets lent to others of them and whose descriptors
    lead to the server.
    """
    if not _prctl(_DUMPABLE, 0):
        complain("other programs of this user can look into the runner: this Python cannot call prctl")


def adopt_orphans() -> None:
    """Make orphans this process's children, so that they are found whatever their session and environment."""
    _prctl(_CHILD_SUBREAPER, 1)  # without it there are still the marks


def _prctl(option: int, value: int) -> bool:
    """False when this Python cannot, or the kernel refuses."""
    try:
        import _ctypes  # and not ctypes, which would take as long to load as half of the runner

        own: Any = None  # the names that this process has loaded already
        call = _ctypes.dlsym(_ctypes.dlopen(own, 0), "prctl")
        return bool(_ctypes.call_function(call, (option, value, 0, 0, 0)) == 0)
    except (ImportError, AttributeError, OSError):
        return False
