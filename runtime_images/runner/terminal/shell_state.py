"""A shell's state: how the shell writes it down, the pipe on which it does, and the script that restores it.

Written after every command, needed only when the shell is lost. Bash writes line by line, so nobody listens to the pipe
meanwhile: waking for each line would cost more than the command.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections import deque
from typing import Deque, FrozenSet, List, NamedTuple, Optional, Tuple

from ..core.arguments import VARIABLE
from ..core.loop import Loop, Plan
from .pty import Inlet

LIMIT = 4 * 1024 * 1024
_READ = 64 * 1024
_READS_IN_A_ROW = 1024
_OPTIONS = re.compile(r"[a-z0-9_:-]*\Z")
ENDS = "x"
"""The last letter of the word behind a state that a shell writes when it ends."""
_ENDS_A_SHELL = ("emacs", "errexit", "noexec", "onecmd", "vi")


def write_down(word: str, pipe: str) -> str:
    """Bash commands that write variables, functions, aliases and umask to the pipe, then the options that are on."""
    return (
        "{ \\builtin printf '\\0' || [[ 1 ]]; "
        "\\builtin declare -p; \\builtin declare -f; \\builtin declare -Fx; \\builtin alias -p; \\builtin umask -p; "
        f'\\builtin printf \'\\0%s\\0%s\\0%s\\0\' "${{BASHOPTS-}}" "${{SHELLOPTS-}}" {word}.state; }} >|{pipe}'
    )


class ShellState(NamedTuple):
    """State written by a shell: commands, and the options of ``shopt`` and of ``set`` that are on."""

    word: str
    declarations: bytes
    switches: bytes
    settings: bytes

    def script(self) -> bytes:
        """Switches first: functions may need the syntax they allow; settings last: some would end the script."""
        before: List[str] = []
        after: List[str] = []
        for variable, on, off in (("BASHOPTS", self.switches, "shopt -u"), ("SHELLOPTS", self.settings, "set +o")):
            names = on.decode("ascii", "replace")
            if not names or _OPTIONS.match(names) is None:
                continue
            check = f"[[ :{names}: == *:$_drydock:* ]] || \\builtin {off} $_drydock"
            before.append(f"for _drydock in ${{{variable}//:/ }}; do {check}; done")
            if variable == "BASHOPTS":
                before.append(f"\\builtin shopt -s {names.replace(':', ' ')}")
            else:
                after = [f"\\builtin set -o {name}" for name in names.split(":") if name not in _ENDS_A_SHELL]
        if before:
            before.append("\\builtin unset -v _drydock")
        return b"\n".join(["\n".join(before).encode(), self.declarations, "\n".join(after).encode()])


class StateReader:
    """Finds states in what comes out of the pipe; anything that does not end with an expected word is ignored."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._is_too_long = False
        self._fields: Deque[bytes] = deque(maxlen=3)

    def reset(self) -> None:
        self._buffer.clear()
        self._fields.clear()
        self._searched = 0
        self._is_too_long = False

    def feed(self, data: bytes, words: Tuple[str, ...]) -> Optional[ShellState]:
        found = None
        self._buffer += data
        while True:
            end = self._buffer.find(0, self._searched)
            if end < 0:
                break
            field = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._searched = 0
            word = field[: -len(".state")].decode("ascii", "replace") if field.endswith(b".state") else ""
            if self._is_too_long:
                self.reset()
            elif word and word in words and len(self._fields) == 3:
                found = ShellState(word, *self._fields)
                self._fields.clear()
            else:
                self._fields.append(field)
        self._searched = len(self._buffer)
        if len(self._buffer) > LIMIT:
            self.reset()
            self._is_too_long = True
        return found


class StatePipe:
    """The pipe to which a shell writes its state."""

    def __init__(self, loop: Loop) -> None:
        self._state: Optional[ShellState] = None
        self._environment: List[Tuple[bytes, bytes]] = []
        self.lent: FrozenSet[str] = frozenset()
        """Variables of the running command only, which the next shell does not get."""
        self._lent_in_state: FrozenSet[str] = frozenset()
        self._loop = loop
        self._reader = StateReader()
        self._pipe: Optional[Inlet] = None
        self._words: Tuple[str, ...] = ()
        self._announced = ""
        self._plan = Plan(loop)

    @property
    def path(self) -> str:
        return self._pipe.path if self._pipe is not None else os.devnull

    def open(self) -> None:
        if self._pipe is None:
            self._pipe = Inlet()

    def restore(self) -> None:
        if self._pipe is not None:
            self._pipe.restore()

    def close(self) -> None:
        self._stop_listening()
        if self._pipe is not None:
            self._pipe.close(self._loop)
            self._pipe = None
        self._reader.reset()
        self._state = None
        self._environment = []
        self._lent_in_state = frozenset()

    def script(self) -> Optional[bytes]:
        """The script that restores the last complete state; None without one."""
        if self._state is None and not self._environment:
            return None
        lines = [self._state.script() if self._state is not None else b""]
        for name, value in self._environment:
            if VARIABLE.match(name.decode("utf-8", "replace")) and name != b"_":
                lines.append(b"export " + name + b"='" + value.replace(b"'", b"'\\''") + b"'")
        if self._lent_in_state:
            lines.append(f"unset -v {' '.join(sorted(self._lent_in_state))}".encode())
        return b"\n".join(lines)

    def replaced(self, environment: List[Tuple[bytes, bytes]]) -> None:
        """A program took the shell's place, with these variables, which the next shell gets on top."""
        self.read()
        self._environment = environment
        self._lent_in_state = self.lent

    def expect(self, *words: str) -> None:
        """Set the words that validate a state from now on; what was written before is read first."""
        self.read()
        self._words = words

    def announce(self, word: str, *, at_once: bool = False) -> None:
        """The shell is about to write its state, ended by this word; read after a while, unless ``at_once``.

        The pipe has room for an ordinary state meanwhile; a shell with more to write waits.
        """
        self._announced = word
        if at_once:
            self._listen()
        elif not self._plan.is_planned:
            self._plan.at(0.05, self._listen)

    def read(self) -> None:
        """Read all that the shell has written so far: a terminal hands out at most a page at a time."""
        for _ in range(_READS_IN_A_ROW):
            if self._pipe is None:
                return
            try:
                data = os.read(self._pipe.reader, _READ)
            except OSError:  # nothing there now
                return
            found = self._reader.feed(data, self._words)
            if found is not None:
                self._state, self._environment = found, []
                # Only a shell that ends in the middle of a command still has what was lent to that.
                self._lent_in_state = self.lent if found.word.endswith(ENDS) else frozenset()
                if found.word == self._announced:
                    self._announced = ""

    def shell_died(self) -> None:
        """Read a dead shell's last words, which the kernel may hand on late; drop an unfinished state."""
        self.read()
        end = time.monotonic() + 0.2
        while self._pipe is not None and self._announced and (left := end - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(self._pipe.reader, select.POLLIN)
            poll.poll(left * 1000)
            self.read()
        self._stop_listening()
        self._reader.reset()

    def _listen(self) -> None:
        self._stop_listening()
        self.read()
        if self._pipe is not None and self._announced:
            self._loop.add_reader(self._pipe.reader, self._readable)

    def _readable(self) -> None:
        self.read()
        if not self._announced:
            self._stop_listening()

    def _stop_listening(self) -> None:
        self._plan.cancel()
        if self._pipe is not None:
            self._loop.remove_reader(self._pipe.reader)
