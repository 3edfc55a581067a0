"""How long a shell that was asked to stop its command is waited for."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from runtime_images.runner.core import processes
from runtime_images.runner.core.loop import Loop
from runtime_images.runner.terminal import interrupt
from runtime_images.runner.terminal.interrupt import Interruption
from runtime_images.runner.terminal.shell import Shell, ShellEvents

PATIENCE_SECONDS = 10.0
PROGRAMS = {
    "heeds": "signal.signal(2, lambda *_: print('asked', flush=True))",
    "ignores": "signal.signal(2, signal.SIG_IGN)",
    "works on": "signal.signal(2, lambda *_: [None for _ in iter(int, 1)])",
}


class HungShell(Shell):
    """A process in a shell's place, which never reports."""

    def __init__(self, loop: Loop, pid: int) -> None:
        super().__init__(loop, "a mark that nothing carries", "/", Mock(spec=ShellEvents))
        self.pid = pid
        self.asked = 0

    def disturbed(self) -> None:
        self.asked += 1


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def process(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    code = f"import signal, time; {PROGRAMS[request.param]}; print('ready', flush=True)\nwhile True: time.sleep(9)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def stop(loop: Loop, process: subprocess.Popen[str], back_after: float | None = None) -> float:
    """Interrupt what stands for a shell; return the seconds until it is dead, or has been let come back."""
    shell = HungShell(loop, process.pid)
    interruption = Interruption(loop, shell, processes.now_in_ticks(), loop.stop)
    begun = time.monotonic()

    def look() -> None:
        if process.poll() is not None or (back_after is not None and time.monotonic() - begun >= back_after):
            interruption.shell_is_back()
        elif time.monotonic() - begun > PATIENCE_SECONDS:
            loop.stop()
        else:
            loop.call_later(0.001, look)

    interruption.start()
    look()
    loop.run()
    assert shell.asked >= 1
    return time.monotonic() - begun


@pytest.mark.parametrize("process", ["heeds"], indirect=True)
def test_a_shell_that_is_slow_to_come_back_is_waited_for(loop: Loop, process: subprocess.Popen[str]) -> None:
    stop(loop, process, back_after=0.2)
    assert process.poll() is None


@pytest.mark.parametrize("process", ["heeds"], indirect=True)
def test_a_shell_that_never_comes_back_is_killed_in_the_end(loop: Loop, process: subprocess.Popen[str]) -> None:
    assert interrupt.GIVE_UP_SLOW_SHELL_AFTER / 2 < stop(loop, process) < PATIENCE_SECONDS
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL


@pytest.mark.parametrize("process", ["ignores", "works on"], indirect=True)
def test_a_shell_that_goes_on_regardless_is_killed_soon(loop: Loop, process: subprocess.Popen[str]) -> None:
    stop(loop, process)
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL


@pytest.mark.parametrize("process", ["ignores"], indirect=True)
def test_what_a_process_ignores_and_uses_is_known(process: subprocess.Popen[str]) -> None:
    assert processes.ignores(process.pid, signal.SIGINT)
    assert not processes.ignores(process.pid, signal.SIGTERM)
    assert not processes.ignores(2**22 - 1, signal.SIGINT)
    assert processes.ticks_used(process.pid) >= 0
    assert processes.ticks_used(2**22 - 1) == 0
