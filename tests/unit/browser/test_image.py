"""What the sandbox image with a browser has is what the tests use."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def test_the_images_library_has_the_versions_that_are_tested() -> None:
    tested = dict(PIN.findall((ROOT / "requirements-dev.lock").read_text()))
    lock = (ROOT / "runtime_images/browser/requirements.lock").read_text()
    pinned = dict(PIN.findall(lock))
    assert set(pinned) >= {"playwright", "greenlet"}
    assert {name: tested[name] for name in pinned} == pinned
    assert lock.count("--hash=sha256:") > len(pinned)
    assert "://" not in lock
