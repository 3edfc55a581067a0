"""The unit for systemd: read by systemd itself, and by what it gives and takes away."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from server.cli.parser import parser

ROOT = Path(__file__).parents[3]
UNITS = ROOT / "deploy" / "systemd"
UNIT = UNITS / "drydock.service"
SECONDS = 60
MOST_EXPOSED = 25
"""Of 100: what systemd counts of what a service could do that it need not."""


def analyze(*words: str, root: Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    assert program is not None, "systemd-analyze is missing: scripts/real-parts systemd"
    command = [program, *words, f"--root={root}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A root folder with the unit, as it would be installed."""
    units = tmp_path / "etc" / "systemd" / "system"
    (units / "drydock.service.d").mkdir(parents=True)
    shutil.copy(UNIT, units)
    shutil.copytree("/lib/systemd/system", tmp_path / "usr" / "lib" / "systemd" / "system", symlinks=True)
    command = tmp_path / "opt" / "drydock" / "bin" / "drydock"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("has_local_sandboxes", [False, True])
def test_systemd_understands_every_line(machine: Path, has_local_sandboxes: bool) -> None:
    if has_local_sandboxes:
        shutil.copy(UNITS / "local-sandboxes.conf", machine / "etc" / "systemd" / "system" / "drydock.service.d")
    done = analyze("verify", "--man=no", "--recursive-errors=no", "drydock.service", root=machine)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_unit_takes_away_what_a_server_does_not_need(machine: Path) -> None:
    done = analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSED}", "drydock.service", root=machine)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def test_the_unit_bounds_what_it_takes_and_hides_its_token() -> None:
    text = UNIT.read_text("utf-8")
    given = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    assert {"MemoryMax", "TasksMax", "LimitNOFILE", "TimeoutStopSec", "TimeoutStartSec", "RestartSec"} <= set(given)
    assert "DRYDOCK_TOKEN_FILE=%d/token" in given["Environment"]
    words = given["ExecStart"].split()[1:]
    options = parser().parse_args(words)
    assert (options.command, str(options.config)) == ("serve", "/etc/drydock/drydock.toml")
