"""A terminal session: one command at a time, its queue, and its answers."""

from __future__ import annotations

import codecs
import os
import re
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

from ..core import arguments, facts, processes
from ..core.arguments import BadRequestError
from ..core.connection import Request, RequestResult
from ..core.journal import JournaledAnswer
from ..core.loop import Loop, Plan
from ..core.text import Cut
from .interrupt import INTERRUPT_KEY, Interruption, TypedInterrupt
from .output import BoundedText, LiveFeed, WholeOutputs
from .pty import key, typed
from .shell import Ended, Shell
from .terminal_text import TerminalText

_COMMAND_LIMIT = 8 * 1024 * 1024
# A Python or JSON value, which is no command: none begins so.
_LITERAL = re.compile(r"""\s*(?:\[\{|\["|\[\[(?=[^\s(])|\{")""")
_QUEUE_LIMIT = 64
_IDLE_CHARACTERS = 2000
_NOTHING = Cut("", 0)

_RESET = "The terminal was reset: a new shell starts, its variables, functions and background jobs are gone."
_FRESH_ENDED = "The shell of its own that it ran in has ended, and everything that it had started."
_STILL_RUNNING = (
    "The command was NOT executed: the previous command is still running in this terminal. Wait for it with an empty "
    "command, give it input with is_input (text, or a key such as C-c, C-z, C-d), or reset the terminal."
)
_NOT_A_COMMAND = (
    "The command was NOT executed: it looks like a Python or JSON value and not like a shell command. Write data to a "
    "file, or hand it to a program through a heredoc."
)
_CONTINUED = "[Below is the output of the previous command.]\n"
_OPTIONS = (
    "It is still running in this terminal: send an empty command to wait for more output, input with is_input, or a "
    "key with is_input (C-c to interrupt it, C-z to suspend it, C-d to end its input), or give the next command that "
    "needs long a timeout."
)
_NOTHING_TO_WAIT_FOR = "There is no previous running command to retrieve logs from."
_NOTHING_TO_INTERACT_WITH = "There is no previous running command to interact with: the input was not sent."
_INPUT_SENT = "The input was sent to the running command, for which another request is waiting."
_ALREADY_WAITED_FOR = "The command is still running, and another request is waiting for its output and its end."
_INPUT_NOT_READ = (
    "The input was not sent: the command has not read what it was sent before, or its terminal is set to take no line "
    "that is so long."
)
_REPLACED = "The shell was replaced by a program (exec); when that ends, the next command gets a new shell."
_SOFT_LIMIT = "The command has no new output after {:g} seconds. " + _OPTIONS
_HARD_LIMIT = "The command timed out after {:g} seconds. " + _OPTIONS
_SHELL_LOST = (
    "The shell {}. The next command gets a new one, in {}, with the old one's variables and functions where they could "
    "be kept; background jobs are no longer under its control."
)


class Order(NamedTuple):
    """The checked arguments of one ``shell.run``; times in seconds, ``max_output`` in characters.

    ``at_once``: a command does not wait for others' commands, nor input for what the command makes of it.
    """

    command: str
    is_input: bool
    timeout: Optional[float]
    soft_timeout: float
    reset: bool
    max_output: int
    at_once: bool
    env: Dict[str, str]

    @property
    def is_typed(self) -> bool:
        return self.is_input and bool(self.command)


def shell_order(args: Dict[str, Any]) -> Order:
    """Check the arguments of ``shell.run``; `BadRequestError` when one is wrong, or two contradict each other."""
    command = arguments.text(args, "command")
    order = Order(
        command=command,
        is_input=arguments.flag(args, "is_input"),
        timeout=arguments.seconds(args, "timeout"),
        soft_timeout=arguments.seconds_or(args, "soft_timeout", 10.0),
        reset=arguments.flag(args, "reset"),
        max_output=arguments.integer(args, "max_output", 30000, 0, 4 * 1024 * 1024),
        at_once=arguments.flag(args, "at_once"),
        env=arguments.variables(args, "env"),
    )
    if "\0" in command:
        raise BadRequestError("command holds a NUL character, which no shell can take: leave it out or write it as \\0")
    try:
        size = len(command.encode("utf-8"))
    except UnicodeEncodeError:
        raise BadRequestError("command holds a lone surrogate, which is not a character: send valid Unicode") from None
    if size > _COMMAND_LIMIT:
        raise BadRequestError(f"command has {size} bytes, the limit is {_COMMAND_LIMIT}: write a file and run that")
    if order.reset and order.is_input:
        raise BadRequestError("reset and is_input contradict each other: a new terminal runs nothing to give input to")
    return order


def fresh_directory(args: Dict[str, Any], workspace: str) -> Optional[str]:
    """Return where a shell for this one command is to begin (`BadRequestError`: nowhere); None for one that is kept."""
    where = arguments.text(args, "cwd", "")
    if not arguments.flag(args, "fresh"):
        if where:
            raise BadRequestError("cwd is for a fresh shell only: leave it out, and put `cd` into the command")
        return None
    if arguments.flag(args, "is_input") or args.get("session") is not None:
        raise BadRequestError("a fresh shell has no session, and runs nothing to give input to")
    found = os.path.join(workspace, where)
    if "\0" in found or not arguments.is_unicode(found) or not os.path.isdir(found):
        raise BadRequestError(f"cwd {where!r} is no directory: give one that exists, or leave it out for the workspace")
    return found


def fresh_answer(answer: JournaledAnswer) -> JournaledAnswer:
    """Return the answer to a command in a shell of its own, which ends with it."""
    result = answer.get("result", {})
    if result.get("status") in ("soft_timeout", "hard_timeout"):
        first = result["notice"].split(". ", 1)[0]
        return {**answer, "result": {**result, "running": False, "notice": f"{first}. {_FRESH_ENDED}"}}
    if result.get("shell_ended"):  # it ends with the command anyway
        return {**answer, "result": {**result, "shell_ended": False, "notice": ""}}
    return answer


class Wait:
    """A request that waits for the command that runs, or for the shell that is to run it."""

    def __init__(self, loop: Loop, request: Request, order: Order, prefix: str = "") -> None:
        self.request = request
        self.order = order
        self.notices: List[str] = []
        self.prefix = prefix
        self.active = time.monotonic()
        self.look = Plan(loop)
        """The next look at the time limits."""
        self._feed = LiveFeed(loop, request.live)

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
        self.transcript = BoundedText(limit, files)
        self._text = TerminalText(self.transcript.append, reply)
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
        return self.transcript.take(limit)


class TerminalSession:
    """One named terminal.

    Orders are served in turn, except what must reach a running command: input, and a reset. Who does not wait in a
    queue is told that it is busy. A command that outlives its time limit goes on, and the next request hears of it.
    """

    def __init__(self, loop: Loop, mark: str, directory: str, files: WholeOutputs) -> None:
        self._loop = loop
        self._files = files
        self._home = directory
        self.shell = Shell(loop, mark, directory, self)
        self._command: Optional[Command] = None
        self._waiting: Optional[Wait] = None
        self._starting: Optional[Wait] = None
        self._queue: Deque[Tuple[Order, Request]] = deque()
        self._stopped_by: List[Callable[[], None]] = []
        self._idle = ""  # the end of what was printed while no command ran
        self._lost = ""

    def run(self, order: Order, request: Request) -> None:
        if order.reset or (self._waiting is None and self._starting is None):
            self._serve(order, request)
        elif order.is_typed and self._waiting is not None:
            self._pass_on(order, request)
        elif order.at_once and not order.is_typed:
            status, notice = "soft_timeout", _ALREADY_WAITED_FOR
            if order.command:
                status, notice = "not_executed", _STILL_RUNNING
            request.finish(self._result(status, [notice]))
        elif len(self._queue) >= _QUEUE_LIMIT:
            request.fail(
                "busy", f"{_QUEUE_LIMIT} commands are waiting for this terminal already: wait for their results"
            )
        else:
            self._queue.append((order, request))

    def cancel(self, request: Request) -> bool:
        """Stop the request's command with its processes, or dequeue it; False when there is none."""
        entry = next((entry for entry in self._queue if entry[1] is request), None)
        is_starting = self._starting is not None and self._starting.request is request
        if entry is not None:
            self._queue.remove(entry)
        elif is_starting:
            self._starting = None  # the shell that is starting is kept for the next command
        if entry is not None or is_starting:
            request.finish(self._result("interrupted", ["The command was cancelled before it began."]))
            return True
        return self._waiting is not None and self._waiting.request is request and self.interrupt(lambda: None)

    def interrupt(self, on_stopped: Callable[[], None]) -> bool:
        """Stop the running command; ``on_stopped`` is called when its processes are gone. False when nothing runs."""
        command = self._command
        if command is None or command.ended is not None:
            return False
        self._stopped_by.append(on_stopped)
        if command.interruption is None:
            command.interrupted = True

            def done() -> None:
                command.interruption = None
                if command.ended is not None and command is self._command:
                    self._deliver(command, command.ended)
                self._notify_stopped()

            command.interruption = Interruption(self._loop, self.shell, command.ticks, done)
            command.interruption.start()
        return True

    def destroy(self, notice: str) -> None:
        """Kill the shell and everything it started, and forget its state; whoever waits gets the notice."""
        wait, command = self._waiting or self._starting, self._command
        self._waiting = self._starting = self._command = None
        self.shell.destroy()
        self.shell.directory = self._home
        self._idle = self._lost = ""
        if command is not None and command.interruption is not None:
            command.interruption.abandon()
        if wait is not None:
            wait.close()
            cut = command.take(wait.order.max_output) if command is not None else _NOTHING
            wait.request.finish(self._result("shell_lost", [notice], cut))
        elif command is not None:
            command.transcript.close()
        self._notify_stopped()

    def close(self, notice: str) -> None:
        self.destroy(notice)
        while self._queue:
            self._queue.popleft()[1].finish(self._result("not_executed", [notice]))

    @property
    def runs(self) -> bool:
        return self._command is not None and self._command.ended is None

    @property
    def is_unused(self) -> bool:
        """True when nothing runs, waits or has an unseen result."""
        return self._command is None and self._starting is None and not processes.belonging(self.shell.scope())

    def _serve(self, order: Order, request: Request) -> None:
        notices: List[str] = []
        if order.reset:
            self.destroy("The terminal was reset while this command was running; the command was killed.")
            notices.append(_RESET)
            if not order.command:
                self._answer(request, self._result("reset", notices, exit_code=0))
                return
        command = self._command
        if not order.is_input and _LITERAL.match(order.command) is not None:
            self._answer(request, self._result("not_executed", [*notices, _NOT_A_COMMAND]))
        elif command is not None and command.ended is None:
            if order.command and not order.is_input:
                cut = command.take(order.max_output)
                self._answer(request, self._result("not_executed", [_STILL_RUNNING], cut, prefix=_CONTINUED))
                return
            wait = Wait(self._loop, request, order, _CONTINUED)
            self._watch(wait)
            wait.notices += self._type(order.command) if order.command else []
        elif command is not None and command.ended is not None:
            self._serve_after_end(command, command.ended, order, request)
        elif not order.command or order.is_input:
            idle, self._idle = self._idle, ""
            notices = [_NOTHING_TO_INTERACT_WITH if order.command else _NOTHING_TO_WAIT_FOR]
            notices += ["The output shown was printed by background jobs since the last command."] if idle else []
            self._answer(request, self._result("not_executed", notices, Cut(idle, 0)))
        else:
            self._begin(order, request, notices)

    def _serve_after_end(self, command: Command, ended: Ended, order: Order, request: Request) -> None:
        self._command = None
        if not order.command:
            self._answer_end(command, ended, Wait(self._loop, request, order, _CONTINUED))
            return
        text = command.take(_IDLE_CHARACTERS).text
        notices = [f"The previous command has ended meanwhile, with exit code {ended.status}."]
        notices[0] += f" Its last output:\n{text}" if text.strip() else ""
        if order.is_input:
            self._answer(request, self._result("not_executed", [*notices, "The input was not sent."]))
        else:
            self._begin(order, request, notices)

    def _pass_on(self, order: Order, request: Request) -> None:
        request.finish(self._result("soft_timeout", self._type(order.command) or [_INPUT_SENT]))

    def _type(self, text: str) -> List[str]:
        named, command = key(text), self._command
        if named is not None and named.data == INTERRUPT_KEY and command is not None:
            is_over = lambda: command is not self._command or command.ended is not None  # noqa: E731
            TypedInterrupt(self._loop, self.shell, command.ticks, is_over).press()
            return [f"{named.name} was sent."]
        if not self.shell.type(named.data if named is not None else typed(text)):
            return [_INPUT_NOT_READ]
        return [f"{named.name} was sent."] if named is not None else []

    def _begin(self, order: Order, request: Request, notices: List[str]) -> None:
        wait = Wait(self._loop, request, order)
        idle, lost, self._idle, self._lost = self._idle, self._lost, "", ""
        notices += [f"Since the last command, background jobs have printed:\n{idle}"] if idle.strip() else []
        notices += [lost] if lost else []
        wait.notices, self._starting = notices, wait
        self.shell.prepare()

    def ready(self) -> None:
        wait, self._starting = self._starting, None
        if wait is None:
            self._next()
            return
        self._command = Command(wait.order.max_output, self.shell.type, self._files)
        self._watch(wait)
        self.shell.run(wait.order.command, wait.order.env)
        while self._queue and self._queue[0][0].is_typed:  # it came before the shell was ready
            self._pass_on(*self._queue.popleft())

    def failed(self, message: str) -> None:
        wait, self._starting = self._starting, None
        if wait is not None:
            wait.close()
            wait.notices.append(f"The command was not run: {message}.")
            wait.request.finish(self._result("shell_lost", wait.notices))
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
        elif not self.shell.kill_if_broken():
            self._answer_running(wait, "soft_timeout")

    def _answer_running(self, wait: Wait, status: str) -> None:
        command = self._command
        if wait is not self._waiting or command is None:
            return
        self._waiting = None
        wait.close()
        notices = [*wait.notices, _REPLACED] if self.shell.replaced else list(wait.notices)
        hard, soft = wait.order.timeout, wait.order.soft_timeout
        if wait.order.at_once and wait.order.is_typed:
            notices.append("The input was sent to the running command, which goes on.")
        else:
            notices.append(_SOFT_LIMIT.format(soft) if hard is None else _HARD_LIMIT.format(hard))
        cut = command.take(wait.order.max_output)
        self._answer(wait.request, self._result(status, notices, cut, prefix=wait.prefix))

    def output(self, data: bytes) -> None:
        if self._command is not None:
            text = self._command.output(data)
            if self._waiting is not None:
                self._waiting.output(text)

    def idle_output(self, data: bytes) -> None:
        parts = [self._idle]
        text = TerminalText(parts.append)
        text.feed(data.decode("utf-8", "replace"))
        text.flush()
        self._idle = "".join(parts)[-_IDLE_CHARACTERS:]

    def ended(self, how: Ended) -> None:
        command = self._command
        if command is not None:
            command.end(how)
            if command.interruption is not None:
                command.interruption.shell_is_back()
            else:
                self._deliver(command, how)

    def lost(self, reason: str) -> None:
        notice = _SHELL_LOST.format(reason, self.shell.directory)
        if (wait := self._waiting or self._starting) is not None:
            wait.notices.append(notice)
        else:
            self._lost = notice

    def _deliver(self, command: Command, ended: Ended) -> None:
        wait, self._waiting = self._waiting, None
        if wait is None:
            return  # the result is kept until somebody asks
        self._command = None
        wait.close()
        self._answer_end(command, ended, wait)

    def _answer_end(self, command: Command, ended: Ended, wait: Wait) -> None:
        status = "interrupted" if command.interrupted else "shell_lost" if ended.killed else "completed"
        notices = wait.notices + ([_SHELL_LOST.format(ended.reason, self.shell.directory)] if ended.reason else [])
        cut = command.take(wait.order.max_output)
        result = self._result(status, notices, cut, ended.status, wait.prefix, ended.background)
        self._answer(wait.request, {**result, "shell_ended": bool(ended.reason)})

    def _answer(self, request: Request, result: RequestResult) -> None:
        request.finish(result)
        self._next()

    def _result(
        self,
        status: str,
        notices: List[str],
        output: Cut = _NOTHING,
        exit_code: int = -1,
        prefix: str = "",
        background: int = -1,
    ) -> RequestResult:
        return {
            "status": status,
            "exit_code": exit_code,
            "prefix": prefix,
            "output": output.text,
            "omitted": output.omitted,
            "working_dir": facts.json_safe(self.shell.directory),
            "pid": background,
            "python": facts.json_safe(facts.find_python(self.shell.path)),
            "username": facts.username(),
            "hostname": os.uname().nodename,
            "running": self.runs,
            "notice": facts.json_safe("\n".join(notices)),
        }

    def _notify_stopped(self) -> None:
        stopped, self._stopped_by = self._stopped_by, []
        for done in stopped:
            done()

    def _next(self) -> None:
        if self._queue and self._waiting is None and self._starting is None:
            self._serve(*self._queue.popleft())
