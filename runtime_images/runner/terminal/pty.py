"""A pseudo-terminal, its typed input, and the shell process on it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import struct
import termios
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..core import processes
from ..core.loop import Loop
from .terminal_text import COLUMNS, ROWS

CANONICAL_LIMIT = 4095
"""Bytes of a line, without its end, that a terminal keeps; what is typed beyond them is lost."""
_PIECE = 4000
_DISABLED = b"\0"


class TypedLine:
    """The line being typed while the terminal (``descriptor``: the program's end) collects lines.

    The end-of-input key hands on what there is of a line; only at the beginning of one does it mean the end.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.length = 0

    def takes(self, data: bytes) -> bool:
        lines = data.replace(b"\n", b"\r").split(b"\r")
        return max(map(len, lines)) <= CANONICAL_LIMIT or self._flush_key() != _DISABLED

    def due(self) -> bytes:
        key = self._flush_key()
        if key is None:
            self.length = 0
        return key if key and key != _DISABLED and self.length >= _PIECE else b""

    def room(self, data: bytes) -> int:
        whole = room = max(1, _PIECE - self.length)
        if room >= len(data):
            return len(data)
        while whole > 0 and data[whole] & 0xC0 == 0x80:  # a character that takes several bytes stays whole
            whole -= 1
        return whole or room

    def typed(self, data: bytes) -> None:
        end = max(data.rfind(b"\r"), data.rfind(b"\n"))
        self.length = len(data) - end - 1 if end >= 0 else self.length + len(data)

    def _flush_key(self) -> Optional[bytes]:
        """The key that hands a line on unfinished; None where the program gets every byte at once."""
        modes = termios.tcgetattr(self._descriptor)
        return bytes(modes[6][termios.VEOF]) if modes[3] & termios.ICANON else None


class Key(NamedTuple):
    """A key: its name for notices, and what a terminal sends for it."""

    name: str
    data: bytes


_NAMED = {
    "ENTER": b"\r",
    "TAB": b"\t",
    "BS": b"\x7f",
    "ESC": b"\x1b",
    "UP": b"\x1b[A",
    "DOWN": b"\x1b[B",
    "RIGHT": b"\x1b[C",
    "LEFT": b"\x1b[D",
    "HOME": b"\x1b[H",
    "END": b"\x1b[F",
    "PGUP": b"\x1b[5~",
    "PGDN": b"\x1b[6~",
}
_CONTROL = re.compile(r"(?:C-|CTRL[-+])([A-Z])\Z", re.IGNORECASE)


def key(text: str) -> Optional[Key]:
    """Return the key that the whole text names, or None."""
    name = text.strip()
    if name in _NAMED:
        return Key(name, _NAMED[name])
    match = _CONTROL.match(name)
    if match is None:
        return None
    letter = match.group(1).upper()
    return Key(f"CTRL+{letter}", bytes([ord(letter) - ord("A") + 1]))


def typed(text: str) -> bytes:
    """The bytes of a person typing the text and pressing Enter, which a terminal sends as a carriage return."""
    return text.replace("\r\n", "\n").replace("\n", "\r").encode("utf-8", "replace") + b"\r"


_SIGNAL_KEYS = {b"\x03": signal.SIGINT, b"\x1a": signal.SIGTSTP, b"\x1c": signal.SIGQUIT}


class Terminal:
    """Both ends of one pseudo-terminal; raises OSError when the system has none to give.

    The program's end stays open here: programs that outlive their shell keep a terminal for the next shell.
    """

    def __init__(self) -> None:
        self.master, self._slave = os.openpty()
        self.name = os.ttyname(self._slave)
        os.set_blocking(self.master, False)
        os.set_blocking(self._slave, False)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        # Nothing is echoed, line ends stay as written, and no key stops the output for good.
        modes: List[Any] = termios.tcgetattr(self._slave)
        modes[0] &= ~(termios.IXON | termios.IXOFF)
        modes[0] |= getattr(termios, "IUTF8", 0x4000)
        modes[1] &= ~termios.ONLCR
        modes[3] &= ~(termios.ECHO | termios.ECHONL)
        self._modes = modes
        self._pending = bytearray()
        self._line = TypedLine(self._slave)
        self.restore()

    def restore(self) -> None:
        """Undo what programs did to the terminal's modes and drop input that nobody read."""
        self._pending.clear()
        self._line.length = 0
        termios.tcsetattr(self._slave, termios.TCSANOW, self._modes)
        with contextlib.suppress(OSError):
            # Reading also has the kernel act now on keys that it still holds, an interrupt above all.
            while os.read(self._slave, 65536):
                continue
        with contextlib.suppress(termios.error):  # not every sandbox's kernel knows how to flush
            termios.tcflush(self._slave, termios.TCIFLUSH)

    def foreground(self) -> int:
        try:
            return max(0, os.tcgetpgrp(self.master))
        except OSError:
            return 0

    def write(self, loop: Loop, data: bytes) -> bool:
        """Type the bytes; what the program does not take at once is typed when it does.

        False, and nothing typed: too much is waiting, or a line is longer than the terminal could hand on whole. A key
        that stands for a signal sends it: not every sandbox's kernel does, or only late.
        """
        number = _SIGNAL_KEYS.get(data)
        sends = number is not None and termios.tcgetattr(self._slave)[3] & termios.ISIG
        if number is not None and sends and (group := self.foreground()) > 0:
            processes.signal_group(group, number)
            return True
        if len(self._pending) + len(data) > 1024 * 1024 or not self._line.takes(data):
            return False
        idle = not self._pending
        self._pending += data
        if idle:
            self._drain(loop)
        return True

    def close(self, loop: Loop) -> None:
        loop.remove_reader(self.master)
        loop.remove_writer(self.master)
        os.close(self.master)
        os.close(self._slave)

    def _drain(self, loop: Loop) -> None:
        try:
            while self._pending:
                if (key := self._line.due()) and os.write(self.master, key):
                    self._line.length = 0
                piece = bytes(self._pending[:2048])
                count = os.write(self.master, piece[: self._line.room(piece)])
                self._line.typed(piece[:count])
                del self._pending[:count]
        except BlockingIOError:
            loop.add_writer(self.master, lambda: self._drain(loop))
            return
        except OSError:
            self._pending.clear()
        loop.remove_writer(self.master)


class Inlet:
    """A terminal opened by its path, to which a shell writes what is for the runner.

    Only a terminal has a path that others of this user can open and nobody can take away: the runner's own descriptors
    are hidden (see ``hide``), and a pipe in a folder could be removed.
    """

    def __init__(self) -> None:
        self.reader, self._writer = os.openpty()
        self.path = os.ttyname(self._writer)
        os.set_blocking(self.reader, False)
        self.restore()

    def restore(self) -> None:
        """Pass bytes through unchanged, whatever a program made of the modes."""
        modes = termios.tcgetattr(self._writer)
        modes[0] = modes[1] = modes[3] = 0
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._writer, termios.TCSANOW, modes)

    def close(self, loop: Loop) -> None:
        loop.remove_reader(self.reader)
        os.close(self.reader)
        os.close(self._writer)


def spawn_shell(
    shell: str, arguments: Tuple[str, ...], terminal: Terminal, control: int, environment: Dict[str, str]
) -> int:
    """Start the shell as leader of a new session on the terminal and return its process id.

    Standard input is the control pipe; output goes nowhere, since each command is given the terminal for its own time.
    Raises OSError without such a shell or any process to be had (EAGAIN: their limit).
    """
    # Opening a terminal makes it the controlling one of a session leader that has none.
    actions: List[Any] = [
        (os.POSIX_SPAWN_OPEN, 1, terminal.name, os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, control, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    signals = [number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)]
    try:
        return os.posix_spawn(
            shell, arguments, environment, file_actions=actions, setsid=True, setsigmask=[], setsigdef=signals
        )
    except NotImplementedError:  # a Python built for C libraries that could not yet make sessions this way
        return _fork_shell(shell, arguments, terminal, control, environment)


def _fork_shell(
    shell: str, arguments: Tuple[str, ...], terminal: Terminal, control: int, environment: Dict[str, str]
) -> int:
    pid = os.fork()
    if pid != 0:
        return pid
    try:  # only system calls from here on: other threads of the runner may have held locks
        os.setsid()
        os.close(os.open(terminal.name, os.O_RDWR))
        null = os.open(os.devnull, os.O_RDWR)
        for source, target in ((control, 0), (null, 1), (null, 2)):
            os.dup2(source, target)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execve(shell, arguments, environment)
    finally:
        os._exit(127)


def shell_environment(mark: str) -> Dict[str, str]:
    """Return the environment of a shell: the runner's own, a terminal that can show everything, and no pager."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DRYDOCK_")}
    environment.update(TERM="xterm-256color", PAGER="cat", GIT_PAGER="cat", MANPAGER="cat")
    environment[processes.MARK] = mark
    if processes.SANDBOX_MARK in os.environ:
        environment[processes.SANDBOX_MARK] = os.environ[processes.SANDBOX_MARK]
    if not any(environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")):
        environment["LANG"] = "C.UTF-8"
    environment.setdefault("HOME", os.path.expanduser("~"))
    environment.setdefault("PATH", os.defpath)
    return environment


def close_inherited(spared: int) -> None:
    """Close inherited descriptors beyond the standard streams and ``spared`` (-1: none)."""
    if spared >= 0:
        os.set_inheritable(spared, False)
        os.closerange(3, spared)
    os.closerange(max(3, spared + 1), 1024)  # nobody hands on higher ones


def exit_code(status: int) -> int:
    """Return a wait status as a shell would: the exit code, or 128 + the signal's number."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def how_ended(status: int) -> str:
    """Return what a wait status says, as the end of a sentence."""
    if os.WIFSIGNALED(status):
        return f"was killed by signal {os.WTERMSIG(status)}"
    return f"has ended with exit code {os.WEXITSTATUS(status)}"


def find_program(name: str) -> Optional[str]:
    """Return where a program is, or None when the image has none of that name."""
    folders = (os.environ.get("PATH") or os.defpath).split(":")
    for folder in [*folders, "/bin", "/usr/bin", "/usr/local/bin"]:
        candidate = os.path.join(folder, name)
        if folder and os.access(candidate, os.X_OK):
            return candidate
    return None
