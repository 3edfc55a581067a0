"""The runner on every Python from its floor upwards that this machine has."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.runner.client import Runner


def interpreters() -> list[str]:
    """Return one interpreter for each version found, our own among them."""
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(8, 20):
        path = shutil.which(f"python3.{minor}")
        if path is not None and _works(path):
            found.setdefault((3, minor), path)
    return [found[version] for version in sorted(found)]


def _works(path: str) -> bool:
    return subprocess.run([path, "-S", "-E", "-c", ""], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("python", interpreters())
def test_the_runner_serves(directory: Path, python: str) -> None:
    runner = Runner(directory, python=python)
    try:
        client = runner.connect()
        assert client.output("cd /; kept=1; echo hello") == "hello\n"
        assert client.run("exit 3")["exit_code"] == 3
        assert client.output("pwd; echo $kept") == "/\n1\n"
        number = client.send("shell.run", command="echo begun; sleep 4750", soft_timeout=60)
        client.wait_for_output(number, "begun")
        client.call("cancel", id=number)
        assert client.wait(number).result["status"] == "interrupted"
        path = str(runner.workspace / "file")
        client.call("file.edit", command="create", path=path, file_text="one\n")
        edited = client.call("file.edit", key="c:1", command="str_replace", path=path, old_str="one", new_str="two")
        assert "-one\n+two\n" in edited.result["diff"]
        assert client.call("file.read", path=path).blob == b"two\n"
        assert client.call("workspace.facts").result["working_dir"] == str(runner.workspace)
    finally:
        runner.close()


def test_a_python_that_cannot_make_sessions_while_spawning_forks(directory: Path) -> None:
    code = directory / "code.py"
    code.write_text(
        "import os, sys\n"
        "def refuse(*args, **options): raise NotImplementedError\n"
        "os.posix_spawn = refuse\n"
        "from runner.__main__ import main\n"
        "sys.exit(main(sys.argv[5:]))\n"
    )
    # The runner's client starts `python … -m runner serve …`: here `python` is a script that runs the code above.
    script = directory / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH=. exec {sys.executable} {code} "$@"\n')
    script.chmod(0o755)
    runner = Runner(directory, python=str(script))
    try:
        client = runner.connect()
        assert client.output("tty; kept=1").startswith("/dev/pts/")
        assert client.run("sleep 60", timeout=0.1)["status"] == "hard_timeout"
        assert client.run("C-c", is_input=True)["exit_code"] == 130
        assert client.output("echo $kept") == "1\n"
    finally:
        runner.close()
