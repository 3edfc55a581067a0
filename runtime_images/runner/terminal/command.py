"""The parts of a terminal session: what is asked, who asks, and the command that runs."""

from __future__ import annotations

import codecs
import os
import re
import time
from typing import Callable, Dict, List, NamedTuple, Optional

from ..core import facts, names, processes
from ..core.cut_text import Cut
from ..core.loop import Loop, Plan
from ..core.request import Asker, Result
from .interrupt import Interruption
from .output import BoundedText, LiveFeed, WholeOutputs
from .shell import Ended
from .terminal_text import TerminalText

_LITERAL = re.compile(r"""\s*(?:\[\{|\["|\[\[(?=[^\s(])|\{")""")


class Order(NamedTuple):
    """The checked arguments of one ``shell.run``; times in seconds, ``max_output`` in characters.

    With ``at_once`` a command is not to wait for those of others, nor input for what the command makes of it.
    """

    command: str
    is_input: bool = False
    timeout: Optional[float] = None
    soft_timeout: float = 10.0
    reset: bool = False
    max_output: int = 30000
    at_once: bool = False
    env: Dict[str, str] = {}  # noqa: RUF012 - a NamedTuple's default, never changed

    @property
    def is_typed(self) -> bool:
        """True for what is typed at the command that runs."""
        return self.is_input and bool(self.command)

    @property
    def is_literal(self) -> bool:
        """True when the command is a Python or JSON value by mistake; no shell command begins so."""
        return not self.is_input and _LITERAL.match(self.command) is not None


class Wait:
    """An asker waiting for the command that runs, or for the shell that is to run it."""

    def __init__(self, loop: Loop, asker: Asker, order: Order, prefix: str = "") -> None:
        self.asker = asker
        self.order = order
        self.notices: List[str] = []
        self.prefix = prefix
        self.active = time.monotonic()
        self.look = Plan(loop)
        """The next look at the time limits."""
        self._feed = LiveFeed(loop, asker.live)

    def output(self, text: str) -> None:
        """Say that the command has printed something."""
        self.active = time.monotonic()
        self._feed.append(text)

    def close(self) -> None:
        """End the waiting: nothing live any more, no limits."""
        self.look.cancel()
        self._feed.close()


class Command:
    """The command that runs, or has ended without anybody having been told."""

    def __init__(self, limit: int, reply: Callable[[bytes], object], files: Optional[WholeOutputs] = None) -> None:
        self.ticks = processes.now_in_ticks()
        self.ended: Optional[Ended] = None
        self.interruption: Optional[Interruption] = None
        self.interrupted = False
        self._transcript = BoundedText(limit, files)
        self._text = TerminalText(self._transcript.append, reply)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def output(self, data: bytes) -> str:
        """Take what programs wrote to the terminal; return it decoded."""
        text = self._decoder.decode(data)
        self._text.feed(text)
        return text

    def end(self, how: Ended) -> None:
        """Say that nothing more will come."""
        self.ended = how
        self._text.feed(self._decoder.decode(b"", True))

    def take(self, limit: int) -> Cut:
        """Return the output since the last call, cut to a limit."""
        self._text.flush()
        return self._transcript.take(limit)

    def forget(self) -> None:
        """Say that nobody will ask for the output any more."""
        self._transcript.close()


def make_result(
    status: str,
    exit_code: int,
    output: Cut,
    said: List[str],
    background: int,
    running: bool,
    directory: str,
    path: str,
    prefix: str,
) -> Result:
    """Return the result of ``shell.run``; ``directory`` and ``path`` are the shell's."""
    return {
        "status": status,
        "exit_code": exit_code,
        "prefix": prefix,
        "output": output.text,
        "omitted": output.omitted,
        "working_dir": names.whole(directory),
        "pid": background,
        "python": names.whole(facts.find_python(path)),
        "username": facts.username(),
        "hostname": os.uname().nodename,
        "running": running,
        "notice": names.whole("\n".join(said)),
    }
