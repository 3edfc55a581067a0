"""A small file system of its own, which tests fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """The folder, made, with so much room; the test is left out where nobody may mount anything."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, left: int) -> Path:
    """Leave so many bytes free; returns the file that takes the others."""
    found = os.statvfs(folder)
    path = folder / "filling"
    path.write_bytes(bytes(found.f_bavail * found.f_frsize - left))
    return path
