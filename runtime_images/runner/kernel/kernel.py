"""The sandbox's IPython kernel: it runs cells in turn, started at first use, and again when it has ended."""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

from ..core import arguments, processes
from ..core.connection import Request, RequestResult
from ..core.facts import find_python
from ..core.helper_processes import DriverProcess, HelperMessage
from ..core.loop import Loop, Plan, Timer
from ..terminal.output import BoundedText, LiveFeed
from ..terminal.terminal_text import TerminalText

IMAGES_LIMIT = 10
IMAGES_SIZE = 8 * 1024 * 1024

TERMINATE_AFTER = 0.025
KILL_AFTER = 0.045

_QUEUE_LIMIT = 64
_OWN_LIBRARY = "/opt/drydock-kernel"
_LIBRARY = "DRYDOCK_KERNEL_LIBRARY"  # variable: a folder with the libraries, where the sandbox's own Python has none
_BOOT = (
    "import sys, runpy; sys.path[0] = sys.argv.pop(1); sys.path[1:1] = [p for p in [sys.argv[2]] if p];"
    " runpy.run_module('kernel_driver', run_name='__main__', alter_sys=True)"
)
_PREPARE = (
    "__import__('drydock_runner.kernel.kernel_driver.inside', fromlist=['prepare'])"
    ".prepare({directory!r}, {variables!r})"
)
_FIX = (
    "Use a sandbox with one: the image drydock/sandbox:base (drydock image), or install it in an image of your"
    " own (python3 -m pip install ipykernel); for local sandboxes install it in the server's environment"
    " (pip install ipykernel)."
)
_GONE = "all variables, imports and functions are gone"


class CellOrder(NamedTuple):
    """The checked arguments of one ``kernel.run``; times in seconds, ``max_output`` in characters."""

    code: str
    timeout: float
    max_output: int
    env: Dict[str, str]
    init_code: str
    agent_skills: bool


class Cell:
    """One cell and who has asked for it."""

    def __init__(self, loop: Loop, order: CellOrder, request: Request, number: int) -> None:
        self.order = order
        self.request = request
        self.number = number
        self.ticks = processes.now_in_ticks()
        self.stopped_as = ""
        self.error = ""
        self.images: List[str] = []
        self.notices: List[str] = []
        self._images_left_out = 0
        self._updates: Dict[str, str] = {}
        self._clear_next = False
        self._feed = LiveFeed(loop, request.live)
        self._begin_text()

    def take(self, message: Dict[str, Any]) -> None:
        if "clear" in message:
            self._clear_next = message["clear"] == "next"
            if not self._clear_next:
                self._clear()
            return
        if self._clear_next:
            self._clear_next = False
            self._clear()
        if "error" in message:
            self.error = message["error"]
            if self.stopped_as and self.error in ("KeyboardInterrupt", "CancelledError"):
                return  # that it was stopped is said in words
            if self.error == "StdinNotImplementedError":
                self.notices.append("A cell cannot ask for input: put the value into the code.")
        if "stream" in message:
            self._write(f"\n{message['stream']}" if self._is_behind_display else message["stream"])
        elif "omitted" in message:
            self._text.flush()
            self._transcript.leave_out(message["omitted"])
        elif "image" in message:
            room = IMAGES_SIZE - sum(map(len, self.images))
            if len(self.images) < IMAGES_LIMIT and len(message["image"]) <= room:
                self.images.append(message["image"])
            else:
                self._images_left_out += 1
        elif "too_large" in message:
            self._images_left_out += 1
        elif "update" in message:
            if message["update"] in self._updates or len(self._updates) < 20:
                self._updates[message["update"]] = message["text"]
        else:
            self._write_apart(message.get("display") or message.get("traceback") or "")

    def result(self, status: str, directory: str, python: str) -> RequestResult:
        self._feed.close()
        for text in self._updates.values():
            self._write_apart(text)
        self._text.flush()
        cut = self._transcript.take()
        notices = list(self.notices)
        if self._images_left_out:
            notices.append(
                f"Pictures left out: {self._images_left_out}; of a cell at most {IMAGES_LIMIT} are shown, of at most"
                f" {IMAGES_SIZE // 1048576} MB in all."
            )
        more = {"output": cut.text, "omitted": cut.omitted, "images": self.images}
        return _result(status, notices, **more, working_dir=directory, python=python)

    def _begin_text(self) -> None:
        self._transcript = BoundedText(self.order.max_output)
        self._text = TerminalText(self._transcript.append)
        self._is_at_start = True
        self._is_behind_display = False

    def _clear(self) -> None:
        self._begin_text()
        self.images.clear()
        self._updates.clear()

    def _write(self, text: str) -> None:
        self._is_at_start = text.endswith("\n")
        self._is_behind_display = False
        self._text.feed(text)
        self._feed.append(text)

    def _write_apart(self, text: str) -> None:
        if text:
            self._write(text if self._is_at_start else f"\n{text}")
            self._is_behind_display = not self._is_at_start


def _result(status: str, notices: List[str], **more: Any) -> RequestResult:
    result = {"status": status, "output": "", "omitted": 0, "images": [], "working_dir": "", "python": ""}
    return {**result, **more, "notice": " ".join(notices)}


def cell_order(args: Dict[str, Any]) -> CellOrder:
    """Check the arguments of ``kernel.run`` (`BadRequestError`); errors in the code are the kernel's to report."""
    return CellOrder(
        code=arguments.characters(args, "code", 8 * 1024 * 1024),
        timeout=arguments.seconds_or(args, "timeout", 120.0),
        max_output=arguments.integer(args, "max_output", 30000, 0, 64 * 1024),
        env=arguments.variables(args, "env"),
        init_code=arguments.text_or_none(args, "init_code") or "",
        agent_skills=args.get("agent_skills") is not False,
    )


class KernelInterruption:
    """The end of one cell, in a kernel that goes on if it can.

    The kernel gets SIGINT, and again if it then waits for something else: a second one must not hit it while it reports
    the first. The processes that the cell started, and no others, get SIGINT, SIGTERM and SIGKILL. ``start_ticks``: the
    cell's start in clock ticks; ``on_give_up`` is called when the kernel has to be ended.
    """

    def __init__(
        self, loop: Loop, scope: processes.TerminalProcesses, start_ticks: int, on_give_up: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._scope = scope
        self._start_ticks = start_ticks
        self._on_give_up = on_give_up
        self._used = processes.ticks_used(scope.shell)
        self._idle_looks = 0
        self._timers: List[Timer] = []

    def start(self) -> None:
        processes.signal_process(self._scope.shell, signal.SIGINT)
        self._signal_started(signal.SIGINT)
        self._plan(TERMINATE_AFTER, lambda: self._signal_started(signal.SIGTERM))
        self._plan(KILL_AFTER, lambda: self._signal_started(signal.SIGKILL))
        self._plan(1.0, self._ask_again)
        self._plan(1.7, self._look)
        self._plan(15.0, self._on_give_up)

    def finish(self) -> None:
        for timer in self._timers:
            timer.cancel()
        for _ in range(2):  # who forks faster than one look takes is caught by the next
            self._signal_started(signal.SIGKILL)

    def _plan(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(seconds, callback))

    def _ask_again(self) -> None:
        if processes.waits(self._scope.shell):  # otherwise it may be telling of the first
            processes.signal_process(self._scope.shell, signal.SIGINT)

    def _look(self) -> None:
        """Give up a kernel that waits or has worked on; not one that gets no processor time."""
        kernel = self._scope.shell
        self._idle_looks = self._idle_looks + 1 if processes.waits(kernel) else 0
        if self._idle_looks >= 4 or processes.ticks_used(kernel) - self._used >= 150:
            self._on_give_up()
        else:
            self._plan(0.05, self._look)

    def _signal_started(self, number: int) -> None:
        started = processes.of_command(self._scope, self._start_ticks)
        if started:
            processes.send(started, number, self._scope.shell)
            if number == signal.SIGTERM:
                processes.send(started, signal.SIGCONT, self._scope.shell)


class Kernel:
    """Runs one cell at a time. A kernel that hangs or dies costs the cell at hand and its state, not the next cell."""

    def __init__(self, loop: Loop, workspace: str, state_directory: str, mark: str) -> None:
        self._loop = loop
        self._workspace = workspace
        self._state_directory = state_directory
        self._mark = f"{mark}./kernel"  # no terminal can have this name
        self.current_directory: Callable[[], str] = lambda: workspace
        """Where a cell begins, which follows the terminal."""
        self._process: Optional[DriverProcess] = None
        self._scope = processes.TerminalProcesses(0, self._mark, processes.now_in_ticks())
        self._python = ""
        self._is_ready = self._is_fresh = self._has_lent = False
        self._queue: Deque[Tuple[CellOrder, Request]] = deque()
        self._next: Optional[Tuple[CellOrder, Request]] = None
        self._cell: Optional[Cell] = None
        self._interruption: Optional[KernelInterruption] = None
        self._limit = Plan(loop)
        self._number = 0
        self._directory = ""
        self._notice = self._idle = ""

    def run(self, order: CellOrder, request: Request) -> None:
        if len(self._queue) >= _QUEUE_LIMIT:
            request.fail("busy", f"{_QUEUE_LIMIT} cells are waiting for the kernel already: wait for their results")
            return
        self._queue.append((order, request))
        self._serve()

    def cancel(self, request: Request) -> bool:
        """Stop a cell, which is answered as interrupted; False for an unknown one."""
        for entry in [*self._queue, self._next]:
            if entry is not None and entry[1] is request:
                if entry is self._next:
                    self._next = None  # the kernel that is starting is kept for the next cell
                else:
                    self._queue.remove(entry)
                request.finish(_result("interrupted", ["It was stopped by the user before it began."]))
                self._serve()
                return True
        if self._cell is None or self._cell.request is not request:
            return False
        self._stop("interrupted")
        return True

    def restart(self) -> "dict[str, bool]":
        """Start a new kernel in place of the present one, whose cell is answered."""
        self._end("kernel_died", f"The kernel was restarted: {_GONE}.")
        self._serve()
        return {"restarted": self._process is not None}

    def close(self) -> None:
        self._limit.cancel()
        self._end_interruption()
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            processes.kill_all(self._scope)
        self._is_ready = False

    def _serve(self) -> None:
        if self._cell is not None or self._next is not None or not self._queue:
            return
        self._next = self._queue.popleft()
        if self._is_ready:
            self._begin()
        elif self._process is None:
            self._start()

    def _start(self) -> None:
        self._is_ready, self._directory = False, ""
        self._scope = processes.TerminalProcesses(0, self._mark, processes.now_in_ticks())
        self._python = find_python(os.environ.get("PATH", os.defpath), ("python3", "python")) or sys.executable
        folder = os.path.dirname(os.path.abspath(__file__))
        library = os.environ.get(_LIBRARY, "") or (_OWN_LIBRARY if os.path.isdir(_OWN_LIBRARY) else "")
        sockets = os.path.join(self._state_directory, "kernel")
        command = [self._python, "-E", "-c", _BOOT, folder, self._workspace, library, sockets]
        history = os.path.join(self._state_directory, "history")  # the file editor's, for undo
        environment = {**os.environ, processes.MARK: self._mark, "DRYDOCK_EDIT_HISTORY": history}
        if self._next is not None and not self._next[0].agent_skills:
            environment["DRYDOCK_NO_AGENT_SKILLS"] = "1"
        log = os.path.join(self._state_directory, "kernel.log")
        try:
            self._process = DriverProcess(self._loop, command, environment, log, self._received, self._driver_gone)
        except OSError as error:
            self._unavailable(f"its program cannot be started: {error}")
            return
        self._limit.at(120.0, lambda: self._unavailable("it did not start in time"))

    def _begin(self) -> None:
        taken, self._next = self._next, None
        process = self._process
        if taken is None or process is None:
            return
        order, request = taken
        self._number += 1
        cell = self._cell = Cell(self._loop, order, request, self._number)
        if self._notice:
            cell.notices.append(self._notice)
        if self._idle.strip():
            cell.notices.append(f"Meanwhile, what earlier cells have started has printed: {self._idle.strip()}")
        self._notice = self._idle = ""
        codes, directory = [], self.current_directory()
        if directory != self._directory or order.env or self._has_lent:
            moved = directory if directory != self._directory else ""
            codes.append(_PREPARE.format(directory=moved, variables=order.env))
            self._directory, self._has_lent = directory, bool(order.env)
        if self._is_fresh and order.init_code:
            codes.append(order.init_code)
        self._is_fresh = False
        process.send({"run": cell.number, "prepare": codes, "code": order.code})
        self._limit.at(order.timeout, lambda: self._stop("timeout"))

    def _stop(self, status: str) -> None:
        cell = self._cell
        if cell is None or cell.stopped_as:
            return
        cell.stopped_as = status
        self._limit.cancel()
        words = f"The kernel did not react to being interrupted and was ended. A new one is started: {_GONE}."
        self._interruption = KernelInterruption(self._loop, self._scope, cell.ticks, lambda: self._end(status, words))
        self._interruption.start()

    def _received(self, message: HelperMessage) -> None:
        cell = self._cell
        if "cell" in message:
            if message.get("exits"):  # the cell has asked for it, with exit() or %restart
                self._end("completed", f"The kernel was restarted, as the cell wished: {_GONE}.")
                self._serve()
            elif "done" in message:
                if cell is not None and message["cell"] == cell.number:
                    # Groups of errors are only printed.
                    self._answer("error" if cell.error or message["error"] else "completed")
            elif cell is not None:
                cell.take(message)
            else:
                text = message.get("stream") or message.get("display") or ""
                self._idle = (self._idle + text)[-2000:]
        elif "ready" in message:
            self._scope = self._scope._replace(shell=message["ready"]["pid"])
            self._is_ready = self._is_fresh = True
            self._limit.cancel()
            self._begin()
            self._serve()
        elif "unavailable" in message:
            self._unavailable(message["unavailable"])
        elif "died" in message:
            code, words = message["died"]["code"], message["died"]["words"]
            names = {one.value: one.name for one in signal.Signals}
            how = f"was killed by {names.get(-code, f'signal {-code}')}" if code < 0 else f"ended with exit code {code}"
            memory = ", as happens when the sandbox's memory runs out" if code == -9 else ""
            last = f" Its last words: {words}." if words and code not in (0, -9) else ""
            self._end("kernel_died", f"The kernel {how}{memory}.{last} A new one is started: {_GONE}.")
            self._serve()

    def _driver_gone(self) -> None:
        words = self._process.last_words() if self._process is not None else ""
        if self._is_ready:
            self._end("kernel_died", f"The kernel's program ended unexpectedly. A new one is started: {_GONE}.")
            self._serve()
        else:
            self._unavailable(f"its program ended unexpectedly ({words or 'without a word'})")

    def _end(self, status: str, words: str) -> None:
        """End this kernel and start the next; who waits for a cell is told, or else the next request."""
        was_ready, was_used = self._is_ready, not self._is_fresh
        self._end_interruption()
        directory = self._kernel_directory()
        self.close()
        if self._cell is not None:
            self._cell.notices.append(words)
            self._answer(status, directory)
        elif was_ready:
            self._notice = words
        if was_ready and was_used and self._process is None:  # one that ends by itself is not started for ever
            self._start()

    def _unavailable(self, why: str) -> None:
        self.close()
        notice = f"There is no IPython kernel in this sandbox: {why}. {_FIX}"
        waiting, self._next = self._next, None
        if waiting is not None:
            waiting[1].finish(_result("unavailable", [notice]))
        self._serve()

    def _answer(self, status: str, directory: str = "") -> None:
        cell, self._cell = self._cell, None
        self._limit.cancel()
        self._end_interruption()
        if cell is not None:
            where = directory or self._kernel_directory()
            cell.request.finish(cell.result(cell.stopped_as or status, where, self._python))
            self._serve()

    def _end_interruption(self) -> None:
        interruption, self._interruption = self._interruption, None
        if interruption is not None:
            interruption.finish()

    def _kernel_directory(self) -> str:
        try:
            return os.readlink(f"/proc/{self._scope.shell}/cwd") if self._scope.shell else self._directory
        except OSError:
            return self._directory
