"""A terminal session: one command at a time, its queue, and its answers."""

from __future__ import annotations

import codecs
import os
import time
from collections import deque
from typing import Callable, Deque, List, Optional, Tuple

from ..core import facts, processes
from ..core.connection import Asker, Result
from ..core.loop import Loop, Plan
from ..core.text import Cut
from . import notices
from .interrupt import INTERRUPT_KEY, Interruption, TypedInterrupt
from .output import BoundedText, IdleOutput, LiveFeed, WholeOutputs
from .pty import key, typed
from .requests import Order
from .shell import Ended, Shell
from .terminal_text import TerminalText

_QUEUE_LIMIT = 64
_IDLE_CHARACTERS = 2000
_NOTHING = Cut("", 0)


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
        self.active = time.monotonic()
        self._feed.append(text)

    def close(self) -> None:
        self.look.cancel()
        self._feed.close()


class Command:
    """The command that runs, or has ended without anybody having been told; ``output`` returns bytes decoded."""

    def __init__(self, limit: int, reply: Callable[[bytes], object], files: Optional[WholeOutputs] = None) -> None:
        self.ticks = processes.now_in_ticks()
        self.ended: Optional[Ended] = None
        self.interruption: Optional[Interruption] = None
        self.interrupted = False
        self._transcript = BoundedText(limit, files)
        self._text = TerminalText(self._transcript.append, reply)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def output(self, data: bytes) -> str:
        text = self._decoder.decode(data)
        self._text.feed(text)
        return text

    def end(self, how: Ended) -> None:
        self.ended = how
        self._text.feed(self._decoder.decode(b"", True))

    def take(self, limit: int) -> Cut:
        self._text.flush()
        return self._transcript.take(limit)

    def forget(self) -> None:
        self._transcript.close()


class TerminalSession:
    """One named terminal.

    Orders are served in turn, except what must reach a running command: input, and a reset. Who does not wait in a
    queue is told that it is busy. A command that outlives its asker's time limit goes on, and the next asker hears of
    it.
    """

    def __init__(self, loop: Loop, mark: str, directory: str, files: WholeOutputs) -> None:
        self._loop = loop
        self._files = files
        self._home = directory
        self._shell = Shell(loop, mark, directory, self)
        self._command: Optional[Command] = None
        self._waiting: Optional[Wait] = None
        self._starting: Optional[Wait] = None
        self._queue: Deque[Tuple[Order, Asker]] = deque()
        self._stopped_by: List[Callable[[], None]] = []
        self._idle = IdleOutput(_IDLE_CHARACTERS)
        self._lost = ""

    def run(self, order: Order, asker: Asker) -> None:
        if order.reset or (self._waiting is None and self._starting is None):
            self._serve(order, asker)
        elif order.is_typed and self._waiting is not None:
            self._pass_on(order, asker)
        elif order.at_once and not order.is_typed:
            status, notice = "soft_timeout", notices.ALREADY_WAITED_FOR
            if order.command:
                status, notice = "not_executed", notices.STILL_RUNNING
            asker.finish(self._result(status, -1, _NOTHING, [notice]))
        elif len(self._queue) >= _QUEUE_LIMIT:
            asker.fail("busy", f"{_QUEUE_LIMIT} commands are waiting for this terminal already: wait for their results")
        else:
            self._queue.append((order, asker))

    def cancel(self, asker: Asker) -> bool:
        """Stop the asker's command with its processes, or dequeue it; False when there is none."""
        entry = next((entry for entry in self._queue if entry[1] is asker), None)
        is_starting = self._starting is not None and self._starting.asker is asker
        if entry is not None:
            self._queue.remove(entry)
        elif is_starting:
            self._starting = None  # the shell that is starting is kept for the next command
        if entry is not None or is_starting:
            asker.finish(self._result("interrupted", -1, _NOTHING, [notices.NOT_BEGUN]))
            return True
        return self._waiting is not None and self._waiting.asker is asker and self.interrupt(lambda: None)

    def interrupt(self, told: Callable[[], None]) -> bool:
        """Stop the running command; ``told`` is called when its processes are gone. False when nothing runs."""
        command = self._command
        if command is None or command.ended is not None:
            return False
        self._stopped_by.append(told)
        if command.interruption is None:
            command.interrupted = True

            def done() -> None:
                command.interruption = None
                if command.ended is not None and command is self._command:
                    self._deliver(command, command.ended)
                self._tell_stopped()

            command.interruption = Interruption(self._loop, self._shell, command.ticks, done)
            command.interruption.start()
        return True

    def destroy(self, notice: str) -> None:
        """Kill the shell and everything it started, and forget its state; whoever waits gets the notice."""
        wait, command = self._waiting or self._starting, self._command
        self._waiting = self._starting = self._command = None
        self._shell.destroy()
        self._shell.directory = self._home
        self._idle.take()
        self._lost = ""
        if command is not None and command.interruption is not None:
            command.interruption.abandon()
        if wait is not None:
            wait.close()
            cut = command.take(wait.order.max_output) if command is not None else _NOTHING
            wait.asker.finish(self._result("shell_lost", -1, cut, [notice]))
        elif command is not None:
            command.forget()
        self._tell_stopped()

    def close(self, notice: str) -> None:
        self.destroy(notice)
        while self._queue:
            self._queue.popleft()[1].finish(self._result("not_executed", -1, _NOTHING, [notice]))

    @property
    def shell(self) -> Shell:
        return self._shell

    @property
    def runs(self) -> bool:
        return self._command is not None and self._command.ended is None

    @property
    def is_unused(self) -> bool:
        """True when nothing runs, waits or has an unseen result."""
        return self._command is None and self._starting is None and not processes.belonging(self._shell.scope())

    def child_changed(self) -> None:
        self._shell.child_changed()

    def _serve(self, order: Order, asker: Asker) -> None:
        said: List[str] = []
        if order.reset:
            self.destroy(notices.RESET_MEANWHILE)
            said.append(notices.RESET)
            if not order.command:
                self._answer(asker, self._result("reset", 0, _NOTHING, said))
                return
        command = self._command
        if order.is_literal:
            self._answer(asker, self._result("not_executed", -1, _NOTHING, [*said, notices.LITERAL]))
        elif command is not None and command.ended is None:
            self._serve_while_running(command, order, asker)
        elif command is not None and command.ended is not None:
            self._serve_after_end(command, command.ended, order, asker)
        elif not order.command or order.is_input:
            idle = self._idle.take()
            said = [notices.NOTHING_TO_INTERACT_WITH if order.command else notices.NOTHING_TO_WAIT_FOR]
            said += [notices.FROM_BACKGROUND] if idle else []
            self._answer(asker, self._result("not_executed", -1, Cut(idle, 0), said))
        else:
            self._begin(order, asker, said)

    def _serve_while_running(self, command: Command, order: Order, asker: Asker) -> None:
        if order.command and not order.is_input:
            cut = command.take(order.max_output)
            self._answer(asker, self._result("not_executed", -1, cut, [notices.STILL_RUNNING], notices.CONTINUED))
            return
        wait = Wait(self._loop, asker, order, notices.CONTINUED)
        self._watch(wait)
        if order.command:
            wait.notices += self._type(order.command)

    def _serve_after_end(self, command: Command, ended: Ended, order: Order, asker: Asker) -> None:
        self._command = None
        if not order.command:
            self._answer_end(command, ended, Wait(self._loop, asker, order, notices.CONTINUED))
            return
        said = [notices.ended_meanwhile(ended.status, command.take(_IDLE_CHARACTERS).text)]
        if order.is_input:
            self._answer(asker, self._result("not_executed", -1, _NOTHING, [*said, notices.INPUT_NOT_SENT]))
        else:
            self._begin(order, asker, said)

    def _pass_on(self, order: Order, asker: Asker) -> None:
        asker.finish(self._result("soft_timeout", -1, _NOTHING, self._type(order.command) or [notices.INPUT_SENT]))

    def _type(self, text: str) -> List[str]:
        named, command = key(text), self._command
        if named is not None and named.data == INTERRUPT_KEY and command is not None:
            is_over = lambda: command is not self._command or command.ended is not None  # noqa: E731
            TypedInterrupt(self._loop, self._shell, command.ticks, is_over).press()
            return [f"{named.name} was sent."]
        if not self._shell.type(named.data if named is not None else typed(text)):
            return [notices.INPUT_NOT_READ]
        return [f"{named.name} was sent."] if named is not None else []

    def _begin(self, order: Order, asker: Asker, said: List[str]) -> None:
        wait = Wait(self._loop, asker, order)
        idle = self._idle.take()
        said += [notices.BACKGROUND_OUTPUT + idle] if idle.strip() else []
        said += [self._lost] if self._lost else []
        self._lost = ""
        wait.notices, self._starting = said, wait
        self._shell.prepare()

    def ready(self) -> None:
        wait, self._starting = self._starting, None
        if wait is None:
            self._next()
            return
        self._command = Command(wait.order.max_output, self._shell.type, self._files)
        self._watch(wait)
        self._shell.run(wait.order.command, wait.order.env)
        while self._queue and self._queue[0][0].is_typed:  # it came before the shell was ready
            self._pass_on(*self._queue.popleft())

    def failed(self, message: str) -> None:
        wait, self._starting = self._starting, None
        if wait is not None:
            wait.close()
            wait.notices.append(f"The command was not run: {message}.")
            wait.asker.finish(self._result("shell_lost", -1, _NOTHING, wait.notices))
        self._next()

    def _watch(self, wait: Wait) -> None:
        self._waiting = wait
        wait.active = time.monotonic()
        if wait.order.timeout is not None:
            wait.look.at(wait.order.timeout, lambda: self._answer_running(wait, "hard_timeout"))
        else:
            wait.look.at(wait.order.soft_timeout, lambda: self._soft_limit(wait))

    def _soft_limit(self, wait: Wait) -> None:
        if wait.order.at_once and wait.order.is_typed:
            self._answer_running(wait, "soft_timeout")
            return
        left = wait.active + wait.order.soft_timeout - time.monotonic()
        if left > 0.0005:  # there was output since the look was planned
            wait.look.at(left, lambda: self._soft_limit(wait))
        elif not self._shell.kill_if_broken():
            self._answer_running(wait, "soft_timeout")

    def _answer_running(self, wait: Wait, status: str) -> None:
        command = self._command
        if wait is not self._waiting or command is None:
            return
        self._waiting = None
        wait.close()
        said = [*wait.notices, notices.REPLACED] if self._shell.replaced else list(wait.notices)
        hard, soft = wait.order.timeout, wait.order.soft_timeout
        if wait.order.at_once and wait.order.is_typed:
            said.append(notices.INPUT_TAKEN)
        else:
            said.append(notices.SOFT_LIMIT.format(soft) if hard is None else notices.HARD_LIMIT.format(hard))
        cut = command.take(wait.order.max_output)
        self._answer(wait.asker, self._result(status, -1, cut, said, wait.prefix))

    def output(self, data: bytes) -> None:
        if self._command is not None:
            text = self._command.output(data)
            if self._waiting is not None:
                self._waiting.output(text)

    def idle_output(self, data: bytes) -> None:
        self._idle.feed(data)

    def ended(self, how: Ended) -> None:
        command = self._command
        if command is not None:
            command.end(how)
            if command.interruption is not None:
                command.interruption.shell_is_back()
            else:
                self._deliver(command, how)

    def lost(self, reason: str) -> None:
        said = notices.SHELL_LOST.format(reason, self._shell.directory)
        if (wait := self._waiting or self._starting) is not None:
            wait.notices.append(said)
        else:
            self._lost = said

    def _deliver(self, command: Command, ended: Ended) -> None:
        wait, self._waiting = self._waiting, None
        if wait is None:
            return  # the result is kept until somebody asks
        self._command = None
        wait.close()
        self._answer_end(command, ended, wait)

    def _answer_end(self, command: Command, ended: Ended, wait: Wait) -> None:
        status = "interrupted" if command.interrupted else "shell_lost" if ended.killed else "completed"
        said = wait.notices + ([notices.SHELL_LOST.format(ended.reason, self._shell.directory)] if ended.reason else [])
        cut = command.take(wait.order.max_output)
        result = self._result(status, ended.status, cut, said, wait.prefix, ended.background)
        self._answer(wait.asker, {**result, "shell_ended": bool(ended.reason)})

    def _answer(self, asker: Asker, result: Result) -> None:
        asker.finish(result)
        self._next()

    def _result(
        self, status: str, exit_code: int, output: Cut, said: List[str], prefix: str = "", background: int = -1
    ) -> Result:
        return {
            "status": status,
            "exit_code": exit_code,
            "prefix": prefix,
            "output": output.text,
            "omitted": output.omitted,
            "working_dir": facts.json_safe(self._shell.directory),
            "pid": background,
            "python": facts.json_safe(facts.find_python(self._shell.path)),
            "username": facts.username(),
            "hostname": os.uname().nodename,
            "running": self.runs,
            "notice": facts.json_safe("\n".join(said)),
        }

    def _tell_stopped(self) -> None:
        stopped, self._stopped_by = self._stopped_by, []
        for done in stopped:
            done()

    def _next(self) -> None:
        if self._queue and self._waiting is None and self._starting is None:
            self._serve(*self._queue.popleft())
