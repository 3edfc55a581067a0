"""What runs in the kernel's own process before the first cell: plain text, bounded output, helpers for cells."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import sysconfig
from typing import Any, Callable, Dict, List, Optional, Tuple

from ipykernel import kernelapp
from IPython import version_info
from jupyter_client.jsonutil import json_default
from tornado.ioloop import IOLoop
from traitlets.config import Config

from .. import agent_skills
from . import commands, tracebacks
from .fork_pipe import PortlessThread
from .streams import BoundedStream

_SHOWN = ["text/plain", "image/png", "image/jpeg"]
_TEXT_LIMIT = 1024 * 1024
_MESSAGES_LIMIT = 100_000
_WARM_AFTER_SECONDS = 0.3
_FIRST_TO_GO = "600"  # when memory runs out it shall be the kernel's or its children's turn, not ours

_lent: Dict[str, Tuple[str, Optional[str]]] = {}
"""The variables of the cell that runs, and what they were before."""


class Kernel(kernelapp.IPKernelApp):  # type: ignore[misc] # the library has no types
    """ipykernel's program, with room for many messages on their way, and without a port."""

    def init_iopub(self, context: Any) -> None:
        context.sndhwm = _MESSAGES_LIMIT
        PortlessThread.address = f"ipc://{self.ip}-p"  # beside its other sockets; their paths may hardly be longer
        kernelapp.IOPubThread = PortlessThread  # which the library lets nobody choose
        super().init_iopub(context)


def prepare(directory: str, variables: Dict[str, str]) -> None:
    """Before a cell: go where the terminal is, and take over what variables it is lent, in place of the last one's."""
    for name, (value, before) in _lent.items():
        if os.environ.get(name) == value:  # otherwise a cell has set it for itself
            del os.environ[name]
            os.environ.update({} if before is None else {name: before})
    _lent.clear()
    _lent.update({name: (value, os.environ.get(name)) for name, value in variables.items()})
    os.environ.update(variables)
    if directory:
        try:
            os.chdir(directory)
        except OSError:
            return  # it is gone: the terminal's user has removed it


def main() -> None:
    """Run the kernel until it is told to end."""
    _go_first()
    _let_pip_install()
    app = Kernel.instance(config=_config())
    app.initialize(sys.argv[1:])
    shell: Any = app.shell
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, BoundedStream)]
    shell.events.register("post_run_cell", _after_each_cell(streams))
    shell.system = lambda command: commands.run(shell, command)
    shell.register_magic_function(lambda _line: shell.ask_exit(), "line", "restart")
    _bound_displays(shell)
    _give_helpers(shell)
    shell.InteractiveTB.structured_traceback = tracebacks.bounded(shell.InteractiveTB.structured_traceback)
    IOLoop.current().add_callback(_wake_for_signals)
    IOLoop.current().call_later(_WARM_AFTER_SECONDS, lambda: tracebacks.warm(shell))
    app.start()


def _config() -> Any:
    config = Config()
    config.IPKernelApp.outstream_class = f"{BoundedStream.__module__}.{BoundedStream.__name__}"
    config.Session.packer = f"{__name__}.pack"
    config.IPKernelApp.log_level = "ERROR"
    config.IPythonKernel._execute_sleep = 0.0
    config.InteractiveShell.colors = "nocolor" if version_info[0] >= 9 else "NoColor"
    config.InteractiveShell.banner1 = ""
    config.HistoryManager.hist_file = ":memory:"
    config.DisplayFormatter.active_types = _SHOWN
    config.Completer.use_jedi = False
    return config


def _release_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, BoundedStream):
            stream.release()


def _after_each_cell(streams: List[BoundedStream]) -> Callable[..., None]:
    def put_in_order(*_: Any) -> None:
        for stream in streams:
            stream.put_back()
        _release_streams()

    return put_in_order


def _give_helpers(shell: Any) -> None:
    """Let cells find the helpers by their names, also when one has made the namespace empty with ``%reset``."""
    reset = shell.reset

    def give() -> None:
        shell.push(agent_skills.available(), interactive=False)

    def reset_and_give(*args: Any, **options: Any) -> None:
        reset(*args, **options)
        give()

    shell.reset = reset_and_give
    give()


def _bound_displays(shell: Any) -> None:
    """Let no single value's text fill the memory of those that it is sent to."""
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
    """A message as JSON that can be sent whatever is in it, also half characters."""
    return json.dumps(message, default=json_default, ensure_ascii=True, allow_nan=False).encode("ascii")


async def _wake_for_signals() -> None:
    """Let an interrupt wake a loop that waits for something that a cell awaits: ipykernel's own handler does not.

    A loop with a handler for any signal is woken by all of them; the one taken here means nothing to a kernel.
    """
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, lambda: None)


def _let_pip_install() -> None:
    """Let pip put packages into the user's folder, also where a distribution keeps its own Python to itself.

    Where the distribution's folder could be written, it stays as careful as it is.
    """
    if not os.access(sysconfig.get_path("purelib"), os.W_OK):
        os.environ.setdefault("PIP_BREAK_SYSTEM_PACKAGES", "1")
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")


def _go_first() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(_FIRST_TO_GO)
    except OSError:
        return  # not every sandbox lets us
