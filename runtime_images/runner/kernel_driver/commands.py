"""Commands of a cell (``!command``, ``%pip`` and the like): their output as it comes, and never a question."""

from __future__ import annotations

import codecs
import os
import select
import signal
import subprocess
import sys
from typing import Any

_CHUNK = 64 * 1024
_LOOK_SECONDS = 0.05
_KILL_AFTER_SECONDS = 0.03


def run(shell: Any, command: str) -> None:
    """Run a command with the sandbox's shell, in place of IPython's own way, which gives it a terminal.

    With a terminal a program that asks something would wait for the cell's time limit; so it finds no input. The call
    ends with the command: what that has started in the background goes on, and what it prints later is not shown.
    """
    process = subprocess.Popen(
        [_shell(), "-c", shell.var_expand(command, depth=2)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        _show(process)
    except BaseException:
        _end(process)
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
        if select.select([descriptor], [], [], 0 if ended else _LOOK_SECONDS)[0]:
            data = os.read(descriptor, _CHUNK)
            sys.stdout.write(decoder.decode(data, not data))
            if not data:
                process.wait()
                return
        elif ended:
            sys.stdout.write(decoder.decode(b"", True))
            return


def _end(process: "subprocess.Popen[bytes]") -> None:
    """The cell was interrupted: ask the command's processes to end, and kill them when they do not."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_KILL_AFTER_SECONDS)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue


def _shell() -> str:
    return "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
