"""A Redis of the tests' own, which keeps nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from tests.postgresql import end_with_starter, free_port

START_SECONDS: Final = 30.0
PASSWORD: Final = "of-the-redis-of-tests"


class RedisServer:
    """Runs from `start` to `stop`, at the same port each time; a context manager, which has it run."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self._address = address
        self._folder = Path(tempfile.mkdtemp(prefix="drydock-redis-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.url = f"redis://:{PASSWORD}@{address}:{self.port}/0"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is missing: scripts/real-parts redis"
        options = {"port": self.port, "bind": self._address, "requirepass": PASSWORD, "save": "", "dir": self._folder}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, *words],
                env={"PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_starter,
            )
        began = time.monotonic()
        while b"Ready to accept connections" not in (self._folder / "log").read_bytes().rpartition(b"oO0Oo")[2]:
            if self._process.poll() is not None or time.monotonic() - began > START_SECONDS:
                raise RuntimeError(f"Redis does not start: {(self._folder / 'log').read_text('utf-8', 'replace')}")
            time.sleep(0.01)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_SECONDS)
            self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
