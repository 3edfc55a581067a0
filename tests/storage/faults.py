"""A server's storage that fails on command, by a library that is preloaded (``faults.c`` says what it knows)."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("faults.c")
NUMBERS = {name: getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EIO", "EROFS")}


def build(folder: Path) -> Path:
    """The library, compiled into this folder."""
    made, compiler = folder / "storage_faults.so", shutil.which("cc")
    assert compiler is not None, "a C compiler is needed (cc)"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", made, SOURCE, "-ldl"], check=True, timeout=60)
    return made


class Faults:
    """The faults of what is below `folder`/data, switched while it runs; `trace` lists the calls that a rule names."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._control = folder / "control"
        self.trace = folder / "trace"
        self.environment = {
            "LD_PRELOAD": str(library),
            "STORAGE_FAULTS_FOLDER": str(folder / "data"),
            "STORAGE_FAULTS_CONTROL": str(self._control),
            "STORAGE_FAULTS_TRACE": str(self.trace),
        }

    def switch(self, rule: str) -> None:
        """`CALLS ERRNO SKIP COUNT`, or "" for none; the trace begins anew."""
        new = self._control.with_suffix(".new")
        new.write_text(rule)
        new.replace(self._control)
        if rule:
            self.trace.unlink(missing_ok=True)

    def calls(self) -> list[tuple[str, bool, str]]:
        """Each call since the rule was switched on: its name, whether it failed, and its path."""
        lines = self.trace.read_text().splitlines() if self.trace.exists() else []
        parts = (line.split(" ", 2) for line in lines)
        return [(name, outcome == "failed", path) for name, outcome, path in parts]


def alone() -> None:
    """Keep the library to this process: what it starts has good storage (a server's ``RUN_FIRST``)."""
    os.environ.pop("LD_PRELOAD", None)
