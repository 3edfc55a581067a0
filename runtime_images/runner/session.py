"""A terminal session: one command at a time, those who wait for it, and what each of them is told (agent-core 4.1)."""

from __future__ import annotations

import codecs
import os
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional

from . import facts, keys, processes
from .interrupt import Interruption
from .loop import Loop, Timer
from .output import LiveFeed, Transcript
from .shell import Ended, Shell, ShellEvents
from .terminal import TerminalText

Result = Dict[str, Any]
_QUEUE_LIMIT = 64
_IDLE_CHARACTERS = 2000


class Order(NamedTuple):
    """The checked arguments of one ``shell.run``."""

    command: str
    is_input: bool
    timeout: Optional[float]
    soft_timeout: float
    reset: bool
    max_output: int
    env: Dict[str, str]


class Asker:
    """Who has asked for a command: gets live text, then one result or one error."""

    def __init__(
        self,
        finish: Callable[[Result], None],
        fail: Callable[[str, str], None],
        live: Callable[[str], bool],
    ) -> None:
        self.finish = finish
        self.fail = fail
        self.live = live


class _Wait:
    """An asker waiting for the command that runs."""

    def __init__(self, asker: Asker, order: Order, feed: LiveFeed) -> None:
        self.asker = asker
        self.order = order
        self.feed = feed
        self.notices: List[str] = []
        self.active = time.monotonic()
        self.timers: List[Timer] = []


class _Command:
    """The command that runs, or has ended without anybody having been told."""

    def __init__(self, limit: int) -> None:
        self.ticks = processes.now_in_ticks()
        self.transcript = Transcript(limit)
        self.text = TerminalText(self.transcript.append)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.ended: Optional[Ended] = None
        self.interruption: Optional[Interruption] = None
        self.interrupted = False

    def finish_text(self) -> None:
        self.text.feed(self.decoder.decode(b"", True))
        self.text.flush()


class Session(ShellEvents):
    """One named terminal. Orders are served one after the other; input for a running command goes in between."""

    def __init__(self, loop: Loop, mark: str, directory: str) -> None:
        self._loop = loop
        self._shell = Shell(loop, mark, directory, self)
        self._home = directory
        self._waiting: Optional[_Wait] = None
        self._starting: Optional[_Wait] = None
        self._queue: Deque["tuple[Order, Asker]"] = deque()
        self._command: Optional[_Command] = None
        self._stopped_by: List[Callable[[bool], None]] = []
        self._idle = ""
        self._lost = ""

    # Orders

    def run(self, order: Order, asker: Asker) -> None:
        """Serve an order, now or when those before it have been answered."""
        if self._waiting is None and self._starting is None:
            self._serve(order, asker)
        elif order.is_input and order.command and self._command is not None and self._waiting is not None:
            self._type(order.command)
            asker.finish(self._result("soft_timeout", -1, "", 0, ["The input was sent to the running command."]))
        elif len(self._queue) >= _QUEUE_LIMIT:
            asker.fail("busy", f"{_QUEUE_LIMIT} commands are waiting for this terminal already")
        else:
            self._queue.append((order, asker))

    def cancel(self, asker: Asker) -> bool:
        """Stop what was asked for: the running command with all its processes, or the place in the queue."""
        for entry in list(self._queue):
            if entry[1] is asker:
                self._queue.remove(entry)
                asker.finish(self._result("interrupted", -1, "", 0, ["The command was cancelled before it began."]))
                return True
        wait = self._waiting or self._starting
        if wait is None or wait.asker is not asker:
            return False
        if wait is self._starting:
            self._starting = None
            asker.finish(self._result("interrupted", -1, "", 0, ["The command was cancelled before it began."]))
            return True
        return self.interrupt(lambda _gone: None)

    def interrupt(self, done: Callable[[bool], None]) -> bool:
        """Stop the running command; ``done`` is told when its processes are gone. False: nothing runs."""
        command = self._command
        if command is None or command.ended is not None:
            done(False)
            return False
        self._stopped_by.append(done)
        if command.interruption is None:
            command.interrupted = True
            command.interruption = Interruption(
                self._loop,
                self._shell.pid,
                self._shell.foreground(),
                command.ticks,
                self._shell.mark(),
                done=lambda: self._interruption_done(command),
            )
            command.interruption.start()
        return True

    def destroy(self, notice: str) -> None:
        """Kill the shell and everything it started; whoever waits is told."""
        wait, command = self._waiting or self._starting, self._command
        self._waiting = self._starting = self._command = None
        self._shell.destroy()
        self._shell.directory = self._home
        self._idle = self._lost = ""
        if command is not None:
            if command.interruption is not None:
                command.interruption.abandon()
            command.finish_text()
        if wait is not None:
            self._close_wait(wait)
            cut = command.transcript.take(wait.order.max_output) if command is not None else None
            text, omitted = (cut.text, cut.omitted) if cut is not None else ("", 0)
            wait.asker.finish(self._result("shell_lost", -1, text, omitted, [notice]))
        for done in self._take_stopped_by():
            done(True)
        self._next()

    def child_changed(self) -> None:
        """Pass SIGCHLD on."""
        self._shell.child_changed()

    def _serve(self, order: Order, asker: Asker) -> None:
        notices: List[str] = []
        if order.reset:
            self.destroy("The terminal was reset.")
            notices.append("The terminal was reset: variables, functions and background jobs are gone.")
            if not order.command:
                asker.finish(self._result("reset", 0, "", 0, notices))
                return
        command = self._command
        if command is not None and command.ended is not None:
            self._serve_after_end(command, command.ended, order, asker, notices)
        elif command is not None:
            self._serve_while_running(order, asker)
        elif not order.command or order.is_input:
            self._refuse_without_command(order, asker)
        else:
            self._begin(order, asker, notices)

    def _serve_after_end(self, command: _Command, ended: Ended, order: Order, asker: Asker, notices: List[str]) -> None:
        """The command ended while nobody was waiting for it."""
        self._command = None
        cut = command.transcript.take(order.max_output)
        if not order.command:
            notices = self._end_notices(command, ended)
            status = self._end_status(command, ended)
            asker.finish(self._result(status, ended.status, cut.text, cut.omitted, notices, ended.background))
            return
        tail = cut.text[-_IDLE_CHARACTERS:]
        notices.append(f"The previous command has ended meanwhile with exit code {ended.status}.")
        if tail.strip():
            notices.append(f"The end of its output: {tail}")
        if order.is_input:
            notices.append("The input was not sent.")
            asker.finish(self._result("not_executed", -1, "", 0, notices))
        else:
            self._begin(order, asker, notices)

    def _refuse_without_command(self, order: Order, asker: Asker) -> None:
        if order.is_input:
            notice = "No previous running command to interact with: the input was not sent."
        else:
            notice = "No previous running command to retrieve logs from."
        text, self._idle = self._idle, ""
        if text:
            notice += " The output shown comes from background jobs."
        asker.finish(self._result("not_executed", -1, text, 0, [notice]))

    def _serve_while_running(self, order: Order, asker: Asker) -> None:
        if order.command and not order.is_input:
            notice = (
                "The command was NOT executed: the previous command is still running. Wait for it with an empty "
                "command, send it input with is_input (also keys: C-c, C-z, C-d), or reset the terminal."
            )
            cut = self._take_output(order.max_output)
            asker.finish(self._result("not_executed", -1, cut.text, cut.omitted, [notice]))
            return
        wait = self._wait(order, asker, [])
        if order.command:
            wait.notices += self._type(order.command)

    def _type(self, text: str) -> List[str]:
        named = keys.key(text)
        data = named[1] if named is not None else keys.typed(text)
        if not self._shell.type(data):
            return ["The input was not sent: the command has not read what was sent before."]
        return [f"{named[0]} was sent."] if named is not None else []

    # Beginning and waiting

    def _begin(self, order: Order, asker: Asker, notices: List[str]) -> None:
        wait = _Wait(asker, order, LiveFeed(self._loop, asker.live))
        wait.notices = notices
        if self._idle.strip():
            notices.append(f"Background jobs have printed since the last command: {self._idle}")
        self._idle = ""
        if self._lost:
            notices.append(self._lost)
            self._lost = ""
        self._starting = wait
        if self._shell.usable:
            self.ready()
        else:
            self._shell.start()

    def ready(self) -> None:
        """The shell takes a command now."""
        wait, self._starting = self._starting, None
        if wait is None:
            self._next()
            return
        self._command = _Command(wait.order.max_output)
        self._watch(wait)
        self._shell.run(wait.order.command, wait.order.env)

    def failed(self, message: str) -> None:
        """No shell can be started."""
        wait, self._starting = self._starting, None
        if wait is not None:
            self._close_wait(wait)
            wait.asker.finish(self._result("shell_lost", -1, "", 0, [f"The command was not run: {message}."]))
        self._next()

    def _wait(self, order: Order, asker: Asker, notices: List[str]) -> _Wait:
        wait = _Wait(asker, order, LiveFeed(self._loop, asker.live))
        wait.notices = notices
        self._watch(wait)
        return wait

    def _watch(self, wait: _Wait) -> None:
        self._waiting = wait
        wait.active = time.monotonic()
        if wait.order.timeout is not None:
            wait.timers.append(self._loop.call_later(wait.order.timeout, self._hard_limit))
        else:
            wait.timers.append(self._loop.call_later(wait.order.soft_timeout, self._soft_limit))

    def _soft_limit(self) -> None:
        wait = self._waiting
        if wait is None:
            return
        left = wait.active + wait.order.soft_timeout - time.monotonic()
        if left > 0.0005:
            wait.timers = [self._loop.call_later(left, self._soft_limit)]
            return
        self._answer_running("soft_timeout")

    def _hard_limit(self) -> None:
        self._answer_running("hard_timeout")

    def _answer_running(self, status: str) -> None:
        wait, self._waiting = self._waiting, None
        if wait is None:
            return
        self._close_wait(wait)
        cut = self._take_output(wait.order.max_output)
        if self._shell.replaced:
            wait.notices.append("The shell was replaced by a program (exec); a new one is started when it ends.")
        wait.asker.finish(self._result(status, -1, cut.text, cut.omitted, wait.notices))
        self._next()

    def _take_output(self, limit: int) -> Any:
        command = self._command
        if command is None:
            return Transcript(limit).take()
        command.text.flush()
        return command.transcript.take(limit)

    # What the shell says

    def output(self, data: bytes) -> None:
        """The running command has printed this."""
        command, wait = self._command, self._waiting
        if command is None:
            return
        text = command.decoder.decode(data)
        command.text.feed(text)
        if wait is not None:
            wait.active = time.monotonic()
            wait.feed.append(text)

    def idle_output(self, data: bytes) -> None:
        """Background jobs have printed this."""
        text = TerminalText(self._keep_idle)
        text.feed(data.decode("utf-8", "replace"))
        text.flush()

    def _keep_idle(self, text: str) -> None:
        self._idle = (self._idle + text)[-_IDLE_CHARACTERS:]

    def ended(self, how: Ended) -> None:
        """The running command has ended."""
        command = self._command
        if command is None:
            return
        command.ended = how
        command.finish_text()
        if command.interruption is not None:
            command.interruption.shell_is_back()
        else:
            self._deliver(command, how)

    def _interruption_done(self, command: _Command) -> None:
        command.interruption = None
        if command.ended is not None and command is self._command:
            self._deliver(command, command.ended)
        for done in self._take_stopped_by():
            done(True)

    def _deliver(self, command: _Command, ended: Ended) -> None:
        wait, self._waiting = self._waiting, None
        if wait is None:
            return  # kept until somebody asks
        self._command = None
        self._close_wait(wait)
        cut = command.transcript.take(wait.order.max_output)
        notices = wait.notices + self._end_notices(command, ended)
        status = self._end_status(command, ended)
        result = self._result(status, ended.status, cut.text, cut.omitted, notices, ended.background)
        wait.asker.finish(result)
        self._next()

    def _end_status(self, command: _Command, ended: Ended) -> str:
        if command.interrupted:
            return "interrupted"
        return "shell_lost" if ended.signalled else "completed"

    def _end_notices(self, command: _Command, ended: Ended) -> List[str]:
        if not ended.shell_lost:
            return []
        return [
            f"The shell was {ended.shell_lost}; the next command gets a new one in {self._shell.directory} "
            "(environment and functions are kept where possible, background jobs are no longer under its control)."
        ]

    # Answers

    def _result(
        self, status: str, exit_code: int, output: str, omitted: int, notices: List[str], background: int = -1
    ) -> Result:
        running = self._command is not None and self._command.ended is None
        return {
            "status": status,
            "exit_code": exit_code,
            "output": output,
            "omitted": omitted,
            "working_dir": self._shell.directory,
            "pid": background,
            "python": facts.find_python(self._shell.path),
            "username": facts.username(),
            "hostname": os.uname().nodename,
            "running": running,
            "notice": "\n".join(notices),
        }

    def _close_wait(self, wait: _Wait) -> None:
        wait.feed.close()
        for timer in wait.timers:
            timer.cancel()

    def _take_stopped_by(self) -> List[Callable[[bool], None]]:
        stopped, self._stopped_by = self._stopped_by, []
        return stopped

    def _next(self) -> None:
        if self._queue and self._waiting is None and self._starting is None:
            order, asker = self._queue.popleft()
            self._serve(order, asker)
