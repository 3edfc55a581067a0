"""Everything in a sandbox but the runner, stopped and continued: the runner stays awake, and so does its own end."""

from __future__ import annotations

import signal
import time
from typing import Dict

from .processes import Process, of_sandbox, signal_process, started

_ROUNDS = 200
_PATIENT_ROUNDS = 100
_ROUND_SECONDS = 0.002


class Freezer:
    """Stops the sandbox's processes until `thaw`; what somebody else had stopped before stays so after it.

    A freezer of the kernel or the engine would hold the runner, too, which could never end a sandbox that its server
    has left behind.
    """

    def __init__(self, *, alone: bool) -> None:
        """``alone`` as in `of_sandbox`."""
        self._alone = alone
        self._stopped: Dict[int, int] = {}
        self.is_frozen = False

    def freeze(self) -> bool:
        """Stop what runs, also what was being started meanwhile; False when something goes on all the same.

        Parents are stopped before their children, so that no shell is awake to be told that its job has stopped.
        """
        self.is_frozen = True
        for turn in range(_ROUNDS):
            running = self._running()
            if not running:
                return True
            for process in running.values():
                if process.parent not in running or turn >= _PATIENT_ROUNDS:
                    self._stopped[process.pid] = process.started
                    signal_process(process.pid, signal.SIGSTOP)
            time.sleep(_ROUND_SECONDS)
        # What waits for the disk is stopped when it has it.
        return all(one.state == "D" for one in self._running().values())

    def thaw(self) -> None:
        """Let them go on, children before their parents, who see nothing of it either."""
        stopped, self._stopped = self._stopped, {}
        for pid, start in sorted(stopped.items(), key=lambda item: item[::-1], reverse=True):
            if started(pid) == start:
                signal_process(pid, signal.SIGCONT)
        self.is_frozen = False

    def _running(self) -> Dict[int, Process]:
        return {one.pid: one for one in of_sandbox(alone=self._alone) if one.state not in "Tt"}
