"""A kept bash on a terminal: given one command at a time, watched, and restarted with its state kept."""

from __future__ import annotations

import os
import signal
from typing import Dict, NamedTuple, Optional, Protocol, Tuple

from ..core import processes
from ..core.loop import Loop, Plan
from .pty import exit_code, how_ended, shell_environment, spawn_shell
from .shell_protocol import ShellProtocol
from .shell_streams import ControlLine, Report, Streams

FIRST_LOOK_SECONDS = 0.1


class Ended(NamedTuple):
    """End of a command; ``background`` is the process id of its last background job (-1: none).

    ``reason`` says how its shell ended with it, if it did; ``killed``: not by the command's own will.
    """

    status: int
    background: int
    reason: str = ""
    killed: bool = False


class ShellEvents(Protocol):
    """Events of a shell for its owner; every method is called from the loop."""

    def ready(self) -> None:
        """The shell takes a command now."""

    def failed(self, message: str) -> None:
        """No shell can be started."""

    def output(self, data: bytes) -> None:
        """The running command has printed this."""

    def idle_output(self, data: bytes) -> None:
        """Something has printed this while no command was running."""

    def ended(self, how: Ended) -> None:
        """The running command has ended, and all its output has been delivered."""

    def lost(self, reason: str) -> None:
        """The shell ended while no command ran; a command that it had not read goes on in the next."""


class Shell:
    """One bash process and its terminal, replaced when the process ends."""

    def __init__(self, loop: Loop, mark: str, directory: str, events: ShellEvents) -> None:
        self._loop = loop
        self._mark = mark
        self._events = events
        self.directory = directory
        self.path = os.environ.get("PATH", os.defpath)
        self.pid = 0
        self.replaced = self._hung_up = self._unsure = False
        self._since = processes.now_in_ticks()
        self._status = 0
        self._streams = Streams(loop, self._take_output, self._take_report)
        self._control: Optional[ControlLine] = None
        self._report: Optional[Report] = None
        self._protocol = ShellProtocol(self._streams)
        self._plan = Plan(loop)
        self._next_look = Plan(loop)
        self._look_after = FIRST_LOOK_SECONDS
        self._idle_looks = self._requests = 0
        self._running = self._plain = self._starting = self._settling = False
        # The last command, until the shell is known to have read it, and the one that the next shell is to run.
        self._sent: Optional[Tuple[str, Dict[str, str]]] = None
        self._again: Optional[Tuple[str, Dict[str, str]]] = None

    def prepare(self) -> None:
        """Make a shell, an old or a new one, ready; ends, perhaps at once, in ``ready`` or ``failed``."""
        if self.pid > 0 and processes.lacks_descriptors(self.pid):
            self._events.lost("could open no more files (ulimit -n)")
            self._start()
        elif self.pid <= 0 or self._hung_up:
            self._start()
        elif self._unsure:
            self._settle(20)
        else:
            self._events.ready()

    def disturbed(self) -> None:
        """An interrupt was sent to the shell.

        It may have cost the line that reports, which is sent again, or come late, with the next command, which waits
        until the shell has reported once more.
        """
        self._unsure = True
        if self._running:
            self._ask_again()

    def gives_up(self) -> None:
        """The command is to be stopped: it is not begun again, whatever becomes of the shell."""
        again, self._sent, self._again = self._again, None, None
        if again is not None:
            self._events.ended(Ended(128 + signal.SIGINT, -1))

    def _ask_again(self) -> None:
        if self._control is not None:
            self._control.send(b"\n" + self._protocol.report())

    def _watch_report(self) -> None:
        """From now on look, ever more seldom, whether the running command's report was lost."""
        self._look_after = FIRST_LOOK_SECONDS
        self._idle_looks = self._requests = 0
        self._next_look.at(self._look_after, self._look)

    def _look(self) -> None:
        """See whether the shell reads the runner's lines again, and has them all.

        Then it is not running the command any more, during which its standard input is the terminal: it is asked to
        report once more, and ended if it does not.
        """
        idle = self._report is None and self._control is not None and self._control.is_read_by(self.pid)
        self._idle_looks = self._idle_looks + 1 if idle else 0
        self._look_after = FIRST_LOOK_SECONDS if idle else min(self._look_after * 2, 1.0)
        self._next_look.at(self._look_after, self._look)
        if self._idle_looks < 2:
            return
        self._idle_looks = 0
        self._requests += 1
        if self._requests <= 3:
            self._ask_again()
        else:
            processes.signal_process(self.pid, signal.SIGKILL)

    def _settle(self, tries: int) -> None:
        """Have the shell report until it does, lest an interrupt on its way cost half of the next command."""
        if tries == 0 or self._control is None:
            self._start()
            return
        self._starting = self._settling = True
        self._unsure = False
        self._streams.restore()
        self._protocol.expect()
        self._control.send(b"\n" + self._protocol.report())
        self._plan.at(0.1, lambda: self._settle(tries - 1))

    def _start(self) -> None:
        self._discard_process()
        self._starting = self._settling = False
        path = self._protocol.choose()
        if path is None:
            self._fail("there is no bash and no sh in this image: install bash, or use an image that has it")
            return
        try:
            terminal, arguments = self._streams.open(), self._protocol.dialect.arguments
            self._control = ControlLine(self._loop, self._control_lost)
            self.pid = spawn_shell(path, arguments, terminal, self._control.shell_end, shell_environment(self._mark))
        except OSError as error:
            self._discard_process()
            self._fail(f"no shell can be started: {error.strerror or error}")
            return
        self._control.started()
        self._starting = True
        self._control.send(self._protocol.start(self.directory, plain=self._plain))
        self._plan.at(10.0, self._start_failed)

    def run(self, command: str, variables: Dict[str, str]) -> None:
        """Run a command, in the next shell if this is lost before it has read it; ends in ``ended``."""
        self._sent, self._again = (command, variables), None
        self._send(command, variables)

    def _send(self, command: str, variables: Dict[str, str]) -> None:
        if self._control is None:
            raise RuntimeError("the shell has not been started")
        self._streams.read_terminal()  # what jobs of before have printed is not this command's
        self._streams.restore()
        self._running = True
        lines, after = self._protocol.run(command, variables, self._status)
        self._control.send_command(lines, after, apart=self._protocol.dialect.reads_ahead)
        self._streams.hold()
        self._watch_report()

    @property
    def is_reading(self) -> bool:
        return self._running and self._control is not None and self._control.is_being_read

    def type(self, data: bytes) -> bool:
        """False when too much typed before is still unread."""
        self._unsure = True  # an interrupt key may come just when the command ends by itself
        if self._next_look.is_planned:  # what is typed may cost the shell a line
            self._watch_report()
        return self._streams.is_open and self._streams.terminal.write(self._loop, data)

    def foreground(self) -> int:
        return self._streams.terminal.foreground() if self._streams.is_open else 0

    def scope(self) -> processes.TerminalProcesses:
        return processes.TerminalProcesses(self.pid, self._mark, self._since)

    def kill_if_broken(self) -> bool:
        """Kill a shell that can never report, because the command has closed the shell's own input; True if so."""
        broken = self._hung_up and not self.replaced and self.pid > 0 and not processes.belonging(self.scope())
        if broken:
            processes.signal_process(self.pid, signal.SIGKILL)
        return broken

    def child_changed(self) -> None:
        status = processes.ended(self.pid) if self.pid > 0 else None
        if status is not None:
            self._died(status)

    def destroy(self) -> None:
        processes.kill_all(self.scope())
        self._discard_process()
        self._next_look.cancel()
        self._streams.close()
        self._status = 0
        self._sent = self._again = None
        self._running = self._starting = self._settling = False
        self._plan.cancel()

    def _discard_process(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        processes.signal_process(self.pid, signal.SIGKILL)  # collected with the runner's other dead children
        self.pid = 0
        self.replaced = self._hung_up = self._unsure = False

    def _start_failed(self) -> None:
        """The profile, the restored state or the machine prevents the start: try once without the former two."""
        self._starting = False
        if self._plain:
            self._plain = False
            self._discard_process()
            self._fail("the shell did not become ready in time")
        else:
            self._plain = True
            self._start()

    def _fail(self, message: str) -> None:
        if self._again is None:
            self._events.failed(message)
        else:
            self._again = None
            self._events.ended(Ended(-1, -1, f"was lost and has not run the command: {message}", True))

    def _take_output(self, data: bytes) -> None:
        before, after = self._protocol.boundary.divide(data)
        self._emit(before)
        if after:
            self._events.idle_output(after)
        self._check_ended()

    def _emit(self, data: bytes) -> None:
        if data and self._running:
            self._events.output(data)
        elif data and self._settling:
            self._events.idle_output(data)

    def _take_report(self, report: Report) -> None:
        self.directory = processes.directory(self.pid, report.directory) or self.directory
        self.path = report.path
        if report.word != self._protocol.word:
            self._streams.state.announce(report.word, at_once=True)
        elif self._report is None and (self._running or self._starting):
            self._report = report
            if self._running:
                self._streams.state.announce(report.word)
            self._streams.read_terminal()
            self._streams.watch()
            if self._report is not None and self._protocol.boundary.awaited:
                # The terminal delivers a moment later than the pipe; if it does not deliver, go on without.
                self._plan.at(0.2, self._give_up_marker)
            self._check_ended()

    def _give_up_marker(self) -> None:
        self._emit(self._protocol.boundary.give_up())
        self._check_ended()

    def _check_ended(self) -> None:
        report = self._report
        if report is None or self._protocol.boundary.awaited:
            return
        self._plan.cancel()
        self._report = None
        if self._starting:
            self._starting = self._settling = self._plain = False
            again, self._again = self._again, None
            if again is not None:
                self._send(*again)
            else:
                self._events.ready()
        elif self._running:
            self._running = False
            self._next_look.cancel()
            self._status = max(0, report.status)
            self._events.ended(Ended(report.status, report.background))

    def _control_lost(self) -> None:
        self._hung_up = True
        if not self._running or self.is_reading:
            processes.signal_process(self.pid, signal.SIGKILL)
            return
        program = processes.replacement(self.pid, self._protocol.dialect.known_by.encode())
        if program is None:
            return
        self.replaced = True
        self.directory = program.directory
        self._streams.state.replaced(program.environment)

    def _died(self, status: int) -> None:
        replaced, unread = self.replaced, self.is_reading
        self._next_look.cancel()
        self.pid = 0
        if self._control is not None:
            self._control.close()
            self._control = None
        self._streams.read_reports()
        self._streams.reader.reset()
        self._streams.state.shell_died()
        self._streams.read_terminal()
        self._streams.watch()
        self._plan.cancel()
        if self._settling:
            self._start()
        elif self._starting:
            self._start_failed()
        elif self._running and unread:
            self._emit(self._protocol.boundary.give_up())
            self._running = False
            self._status = exit_code(status)
            self._again, self._sent = self._sent, None
            if self._again is None:
                self._events.ended(Ended(-1, -1, f"{how_ended(status)} and has not run the command", True))
            else:
                self._events.lost(how_ended(status))
                self._start()
        elif self._running:
            self._plan.at(0.01, lambda: self._finish_death(status, replaced))
        else:
            self._status = exit_code(status)
            self._events.lost(how_ended(status))

    def _finish_death(self, status: int, replaced: bool) -> None:
        self._streams.read_terminal()
        if not self._running:
            return
        self._report = None
        self._emit(self._protocol.boundary.give_up())
        self._running = False
        self._status = exit_code(status)
        self._events.ended(Ended(self._status, -1, how_ended(status), os.WIFSIGNALED(status) and not replaced))
