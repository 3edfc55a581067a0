"""``search.grep`` and ``search.glob``: each search in a process of its own, which ends at a limit or when cancelled."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, Callable, Dict, Optional, Set

from . import arguments, processes
from .command import Asker
from .loop import Loop, Timer
from .workers import BusyError

LIMIT_SECONDS = 30.0
_AT_ONCE = 8
_PATTERN_LIMIT = 10000
_RESULT_LIMIT = 8 * 1024 * 1024
_MATCHES_LIMIT = 1000


def order(kind: str, given: Dict[str, Any], workspace: str) -> Dict[str, Any]:
    """Check the arguments of a search; a relative path is one below the workspace.

    Raises:
        BadRequestError: one is missing, too long, or of the wrong type.
    """
    pattern = arguments.characters(given, "pattern", _PATTERN_LIMIT)
    if not pattern:
        raise arguments.BadRequestError("pattern is empty: say what to look for")
    include = arguments.characters(given, "include", _PATTERN_LIMIT) if given.get("include") is not None else None
    path = arguments.characters(given, "path", _PATTERN_LIMIT) if given.get("path") is not None else ""
    if "\0" in path or "\0" in (include or ""):
        raise arguments.BadRequestError("path and include must not hold NUL")
    return {
        "kind": kind,
        "pattern": pattern,
        "path": os.path.normpath(os.path.join(workspace, path)),
        "include": include or None,
        "limit": arguments.integer(given, "limit", 100, 1, _MATCHES_LIMIT),
        "ripgrep": True,
    }


class Search:
    """One search under way."""

    def __init__(self, loop: Loop, order: Dict[str, Any], limit_seconds: float) -> None:
        """Start it.

        Raises:
            OSError: there can be no further process.
        """
        self._loop = loop
        self._seconds = limit_seconds
        self._output = bytearray()
        self._asker: Optional[Asker] = None
        self._ended: Callable[[], None] = lambda: None
        self._reader, writer = os.pipe()
        command = [sys.executable, "-E", "-s", "-S", os.path.dirname(os.path.abspath(__file__)), "search"]
        actions = [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        try:
            self._process = os.posix_spawn(
                sys.executable, [*command, json.dumps(order)], os.environ, file_actions=actions, setpgroup=0
            )
        except OSError:
            os.close(self._reader)
            raise
        finally:
            os.close(writer)
        self._timer: Timer = loop.call_later(limit_seconds, self._overdue)

    def answer(self, asker: Asker, ended: Callable[[], None]) -> None:
        """Give the asker the result when it is there; ``ended`` is called once, before that."""
        self._asker, self._ended = asker, ended
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read)

    def cancel(self) -> bool:
        """Kill it; the asker is told. False when it is over already."""
        asker = self._end()
        if asker is not None:
            asker.fail("cancelled", "the search was cancelled")
        return asker is not None

    def _overdue(self) -> None:
        asker = self._end()
        if asker is not None:
            text = f"The search took longer than {self._seconds:g} s and was stopped"
            advice = "simplify the pattern, or search a folder further down"
            asker.finish({"error": f"{text}: {advice}.", "files": []})

    def _read(self) -> None:
        try:
            data = os.read(self._reader, 1 << 16)
        except BlockingIOError:
            return
        self._output += data
        if data and len(self._output) <= _RESULT_LIMIT:
            return
        output = bytes(self._output)
        asker = self._end()
        if asker is None:
            return
        try:
            asker.finish(json.loads(output))
        except ValueError:
            asker.fail("internal", "the search ended without a result; the runner's standard error says how")

    def _end(self) -> Optional[Asker]:
        """Let go of everything, and return who waits for the result; None when it has ended before."""
        asker, self._asker = self._asker, None
        if asker is not None:
            self._timer.cancel()
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            processes.signal_group(self._process, signal.SIGKILL)  # it has its own, with the programs that it uses
            self._ended()
        return asker


class Searches:
    """Starts searches, a few at a time."""

    def __init__(self, loop: Loop, workspace: str) -> None:
        self._loop = loop
        self._workspace = workspace
        self._under_way: Set[Search] = set()

    def start(self, kind: str, given: Dict[str, Any], asker: Asker) -> Callable[[], bool]:
        """Search and answer; return what cancels it.

        Raises:
            BadRequestError: the arguments are no good.
            BusyError: too many searches are under way, or there can be no further process.
        """
        checked = order(kind, given, self._workspace)
        limit = arguments.seconds(given, "timeout")
        if len(self._under_way) >= _AT_ONCE:
            raise BusyError(f"{_AT_ONCE} searches are under way already")
        try:
            search = Search(self._loop, checked, LIMIT_SECONDS if limit is None else limit)
        except OSError as error:
            raise BusyError(f"no process can be started for the search: {error.strerror}") from error
        self._under_way.add(search)
        search.answer(asker, lambda: self._under_way.discard(search))
        return search.cancel

    def close(self) -> None:
        """Kill what is under way."""
        for search in list(self._under_way):
            search.cancel()
