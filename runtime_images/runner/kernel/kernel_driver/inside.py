"""The kernel's own process: plain text, bounded output, helpers for cells."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Tuple

import zmq
from ipykernel import kernelapp
from ipykernel.iostream import IOPubThread, OutStream
from IPython import version_info
from jupyter_client.jsonutil import json_default
from tornado.ioloop import IOLoop
from traitlets.config import Config

from ... import agent_skills
from . import OMITTED

_WINDOW_SECONDS = 0.2
_WINDOW_CHARACTERS = 128 * 1024
_TAIL_CHARACTERS = 64 * 1024


class BoundedStream(OutStream):  # type: ignore[misc] # ipykernel has no types
    """Publishes output in order; of a flood both ends of each moment, and how much is missing.

    Without a bound the messages of a fast program would fill the memory.
    """

    _last: Optional[BoundedStream] = None

    def __init__(self, *args: Any, **options: Any) -> None:
        self._bound = threading.RLock()
        self._window_began = 0.0
        self._room = _WINDOW_CHARACTERS
        self._pending: List[str] = []
        self._pending_length = 0
        self._next_look = 0
        self._left_out = 0
        self._is_dirty = False
        super().__init__(*args, **options)

    def write(self, string: str) -> int:
        if not isinstance(string, str):
            raise TypeError(f"write() argument must be str, not {type(string).__name__}")
        with self._bound:
            if self._pending and self._pending_length < self._next_look:  # in a flood: as little as possible
                self._pending.append(string)
                self._pending_length += len(string)
                return len(string)
            self._take(string)
        return len(string)

    def flush(self) -> None:
        if self._is_dirty:
            self._is_dirty = False
            super().flush()

    def close(self) -> None:
        """Publishes what there is and stays open, for the cells that follow."""
        self.release()

    def release(self) -> None:
        with self._bound:
            self._release()
        self.flush()

    def _pass_on(self, text: str) -> None:
        before, BoundedStream._last = BoundedStream._last, self
        if before is not None and before is not self:
            before.flush()  # so that what two streams are given comes in its order
        self._is_dirty = True
        super().write(text)

    def _take(self, text: str) -> None:
        now = time.monotonic()
        if now - self._window_began > _WINDOW_SECONDS:
            self._release()
            self._window_began, self._room = now, _WINDOW_CHARACTERS
        if not self._pending and self._room > 0:
            self._pass_on(text[: self._room])
            self._room -= len(text)
            text = text[self._room :] if self._room < 0 else ""
        if not text:
            return
        joined = "".join((*self._pending, text))
        over = len(joined) - _TAIL_CHARACTERS
        if over > 0:
            self._left_out += over
            joined = joined[over:]
        if not self._pending:
            self.pub_thread.schedule(self._release_later)
        self._pending = [joined]
        self._pending_length = len(joined)
        self._next_look = self._pending_length + _TAIL_CHARACTERS

    def _release_later(self) -> None:
        self._io_loop.call_later(_WINDOW_SECONDS, self._release_if_free)

    def _release_if_free(self) -> None:
        """In the publishing thread: whoever writes now may wait for this very thread."""
        if not self._bound.acquire(blocking=False):
            self._release_later()
            return
        try:
            self._release()
        finally:
            self._bound.release()

    def _release(self) -> None:
        if not self._pending:
            return
        text = "".join(self._pending)
        self._pending = []
        left_out, self._pending_length, self._left_out = self._left_out, 0, 0
        if left_out:
            self.flush()
            self.session.send(self.pub_thread, OMITTED, {"characters": left_out}, parent=self.parent_header)
        self._pass_on(text)


_FRAMES = 20


def bounded(format_traceback: Callable[..., List[str]]) -> Callable[..., List[str]]:
    """Wrap IPython's traceback formatter to leave out the middle of very many frames, a millisecond or more each."""

    def short(kind: Any, value: Any, trace: Optional[TracebackType] = None, *more: Any, **options: Any) -> List[str]:
        frames: List[TracebackType] = []
        frame = trace
        while frame is not None:
            frames.append(frame)
            frame = frame.tb_next
        over = len(frames) - 2 * _FRAMES
        if over <= 0:
            return format_traceback(kind, value, trace, *more, **options)
        shown: Optional[TracebackType] = None
        for frame in reversed(frames[:_FRAMES] + frames[-_FRAMES:]):
            shown = TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
        lines = format_traceback(kind, value, shown, *more, **options)
        return [f"[{over} frames in the middle of the calls are left out here]", *lines]

    return short


def warm(shell: Any) -> None:
    """Have IPython load what it needs for errors, so that the first interrupted cell is answered at once."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        shell.InteractiveTB.structured_traceback(*sys.exc_info())


# ipykernel takes a TCP port for it, which would be one of the sandbox's ports that users see and open.
class PortlessThread(IOPubThread):  # type: ignore[misc] # ipykernel has no types
    """ipykernel's thread that hears of forks, at `address`; keeps its port where ipykernel does it otherwise."""

    address = ""
    _is_portless = False

    def _setup_pipe_in(self) -> None:
        super()._setup_pipe_in()
        pipe = getattr(getattr(self, "_pipe_in", None), "socket", None)
        if pipe is not None:
            pipe.unbind(pipe.last_endpoint)
            pipe.bind(self.address)
            self._is_portless = True

    def _setup_pipe_out(self) -> Tuple[Any, Any]:
        if not self._is_portless:
            ends: Tuple[Any, Any] = super()._setup_pipe_out()
            return ends
        context = zmq.Context()  # the fork's own
        pipe = context.socket(zmq.PUSH)
        pipe.linger = 3000
        pipe.connect(self.address)
        return context, pipe


def run(shell: Any, command: str) -> None:
    """Run a command with the sandbox's shell, in place of IPython's own way, which gives it a terminal.

    With a terminal a program that asks something would wait for the time limit; so it finds no input. The call ends
    with the command: later output of its background processes is not shown.
    """
    process = subprocess.Popen(
        ["/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh", "-c", shell.var_expand(command, depth=2)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        _show(process)
    except BaseException:
        for number in (signal.SIGINT, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(0.03)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        raise
    finally:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        process.stdout.close()
    code = process.returncode
    shell.user_ns["_exit_code"] = 128 - code if code < 0 else code


def _show(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    descriptor = process.stdout.fileno()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        ended = process.poll() is not None
        if select.select([descriptor], [], [], 0 if ended else 0.05)[0]:
            data = os.read(descriptor, 64 * 1024)
            sys.stdout.write(decoder.decode(data, not data))
            if not data:
                process.wait()
                return
        elif ended:
            sys.stdout.write(decoder.decode(b"", True))
            return


_TEXT_LIMIT = 1024 * 1024

_lent: Dict[str, Tuple[str, Optional[str]]] = {}
"""The running cell's variables, and their values before."""


class KernelApp(kernelapp.IPKernelApp):  # type: ignore[misc] # ipykernel has no types
    """ipykernel's program, with room for many messages, and without a port."""

    def init_iopub(self, context: Any) -> None:
        context.sndhwm = 100_000
        PortlessThread.address = f"ipc://{self.ip}-p"  # beside its other sockets; their paths may hardly be longer
        kernelapp.IOPubThread = PortlessThread  # which ipykernel lets nobody choose
        super().init_iopub(context)


def prepare(directory: str, variables: Dict[str, str]) -> None:
    """Before a cell: follow the terminal's directory, and take the lent variables in place of the last cell's."""
    for name, (value, before) in _lent.items():
        if os.environ.get(name) == value:  # otherwise a cell has set it for itself
            del os.environ[name]
            os.environ.update({} if before is None else {name: before})
    _lent.clear()
    _lent.update({name: (value, os.environ.get(name)) for name, value in variables.items()})
    os.environ.update(variables)
    if directory:
        with contextlib.suppress(OSError):  # it is gone: the terminal's user has removed it
            os.chdir(directory)


def main() -> None:
    """Run the kernel until it is told to end."""
    # When memory runs out it shall be the kernel's or its children's turn; not every sandbox lets us say so.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("600")
    # pip may install into the user's folder although a distribution forbids it, unless its own is writable.
    if not os.access(sysconfig.get_path("purelib"), os.W_OK):
        os.environ.setdefault("PIP_BREAK_SYSTEM_PACKAGES", "1")
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    config = Config()
    config.IPKernelApp.outstream_class = f"{BoundedStream.__module__}.{BoundedStream.__name__}"
    config.Session.packer = f"{__name__}.pack"
    config.IPKernelApp.log_level = "ERROR"
    config.IPythonKernel._execute_sleep = 0.0
    config.InteractiveShell.colors = "nocolor" if version_info[0] >= 9 else "NoColor"
    config.InteractiveShell.banner1 = ""
    config.HistoryManager.hist_file = ":memory:"
    config.DisplayFormatter.active_types = ["text/plain", "image/png", "image/jpeg"]
    config.Completer.use_jedi = False
    app = KernelApp.instance(config=config)
    app.initialize(sys.argv[1:])
    shell: Any = app.shell
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, BoundedStream)]
    shell.events.register("post_run_cell", lambda *_: _put_in_order(streams))
    shell.system = lambda command: run(shell, command)
    shell.register_magic_function(lambda _line: shell.ask_exit(), "line", "restart")
    _bound_displays(shell)
    if not os.environ.get("DRYDOCK_NO_AGENT_SKILLS"):
        _give_helpers(shell)
    shell.InteractiveTB.structured_traceback = bounded(shell.InteractiveTB.structured_traceback)
    # An interrupt shall wake a loop that a cell awaits, which ipykernel's handler does not: a loop with a handler for
    # any signal is woken by all, and the one taken here means nothing to a kernel.
    wake = lambda: asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, lambda: None)  # noqa: E731
    IOLoop.current().add_callback(wake)
    IOLoop.current().call_later(0.3, lambda: warm(shell))
    app.start()


def _release_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, BoundedStream):
            stream.release()


def _put_in_order(streams: List[BoundedStream]) -> None:
    """After each cell: prints go to the streams again, even if it closed them."""
    for stream in streams:
        current = getattr(sys, stream.name)
        if current is None or getattr(current, "closed", False):
            setattr(sys, stream.name, stream)
    _release_streams()


def _give_helpers(shell: Any) -> None:
    """Let cells find the helpers by name, even after ``%reset``."""
    reset = shell.reset

    def reset_and_give(*args: Any, **options: Any) -> None:
        reset(*args, **options)
        shell.push(agent_skills.available(), interactive=False)

    shell.reset = reset_and_give
    shell.push(agent_skills.available(), interactive=False)


def _bound_displays(shell: Any) -> None:
    """Bound the text of a single value, which would fill the receivers' memory."""
    plain = shell.display_formatter.format

    def bounded(*args: Any, **options: Any) -> Any:
        _release_streams()
        data, metadata = plain(*args, **options)
        text = data.get("text/plain")
        if isinstance(text, str) and len(text) > _TEXT_LIMIT:
            left_out = f"[… {len(text) - _TEXT_LIMIT} characters left out here …]"
            data["text/plain"] = f"{text[: _TEXT_LIMIT // 2]} {left_out} {text[-_TEXT_LIMIT // 2 :]}"
        return data, metadata

    shell.display_formatter.format = bounded


def pack(message: Any) -> bytes:
    """A message as JSON that can always be sent, also with half characters."""
    return json.dumps(message, default=json_default, ensure_ascii=True, allow_nan=False).encode("ascii")
