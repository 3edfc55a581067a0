"""What `scripts/test` prints first: on what it runs, whoever runs it and whatever is not there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMES = (
    *("user", "umask", "kernel", "cgroup", "engine", "/dev/net/tun", "tcp_wmem", "tcp_rmem", "python", "node"),
    *("bubblewrap", "slirp4netns", "processors", "memory", "free disk", "locale", "TMPDIR"),
)
NEEDED = ("bash", "awk", "cat", "cut", "df", "dirname", "getconf", "head", "id", "stat", "tr", "uname")


def facts(folder: Path, *, umask: int, path: str) -> dict[str, str]:
    environment = {"PATH": path, "TMPDIR": str(folder), "LC_ALL": "C"}
    command = [str(ROOT / "scripts" / "facts")]
    told = subprocess.run(
        command, cwd=ROOT, env=environment, umask=umask, capture_output=True, text=True, check=True, timeout=120
    )
    assert told.stderr == ""
    return {line[7:22].strip(): line[22:].strip() for line in told.stdout.splitlines()}


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_each_fact_has_a_line(tmp_path: Path, umask: int) -> None:
    told = facts(tmp_path, umask=umask, path=os.environ["PATH"])
    assert set(NAMES) <= told.keys()
    assert all(told.values())
    assert told["umask"] == f"{umask:04o}"
    assert f"({os.getuid()})" in told["user"]
    assert str(tmp_path) in told["TMPDIR"]


def test_what_is_not_there_is_said_and_nothing_fails(tmp_path: Path) -> None:
    for name in NEEDED:
        found = next(Path(folder) / name for folder in os.environ["PATH"].split(":") if (Path(folder) / name).exists())
        (tmp_path / name).symlink_to(found)
    (tmp_path / "env").symlink_to("/usr/bin/env")
    told = facts(tmp_path, umask=0o022, path=str(tmp_path))
    assert set(NAMES) <= told.keys()
    assert told["engine"] == "no docker command"
    assert {told[name] for name in ("node", "bubblewrap", "slirp4netns")} == {"not there"}


def test_the_tests_begin_with_them() -> None:
    script = (ROOT / "scripts" / "test").read_text("utf-8")
    assert script.index('"$here/facts"') < script.index('"$here/setup"')
