"""What a bundle does when Python runs it: puts Drydock into a folder. Standard library alone; asks no network.

    python3 drydock.pyz FOLDER

For the folder of the same bundle once more, it loads the images alone.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import venv
import zipfile
from typing import Any

FACTS = "facts.json"
_PIECE = 1024 * 1024
_PLACE = "import sysconfig; print(sysconfig.get_path('purelib'))"
# However long its path is, and whatever is in it: a first line of its own would have limits.
_COMMAND = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
from server.cli import main
sys.exit(main())
"""
_LOAD = """
import sys
from docker import APIClient
client = APIClient(version="auto", timeout=1800)
for step in client.load_image(sys.stdin.buffer) or ():
    if "error" in step:
        sys.exit(step["error"])
"""


def install(bundle: str, folder: str) -> int:
    """Make the folder, with an environment and the command in it, and load the images; returns the exit status."""
    os.umask(0o022)  # programs, which sandboxes of another user may run
    with zipfile.ZipFile(bundle) as archive:
        folder = os.path.abspath(folder)
        facts = json.loads(archive.read(FACTS))
        python, command = (os.path.join(folder, "bin", name) for name in ("python", "drydock"))
        if _facts_in(folder) != facts:
            problem = _problem(facts, folder)
            if problem:
                return _fail(problem)
            venv.create(folder, with_pip=False, symlinks=True)
            asked = subprocess.run([python, "-c", _PLACE], stdout=subprocess.PIPE, check=True)  # noqa: S603
            _unpack(archive, asked.stdout.decode().strip())
            with open(command, "w", encoding="utf-8") as file:
                file.write(_COMMAND.format(python=python))
            os.chmod(command, 0o755)  # noqa: S103
            archive.extract(FACTS, folder)
        sys.stdout.write(f"Drydock {facts['version']} is in {folder}: {command} serve\n")
        for number, name in enumerate(facts["images"]):
            with archive.open(f"images/{number}.tar") as source:
                problem = _load(python, source)
            if problem:
                _fail(f"the image {name} was not loaded: {problem}")
                return _fail("start a Docker engine and run this once more, or use local sandboxes")
            sys.stdout.write(f"loaded the image {name}\n")
    return 0


def _facts_in(folder: str) -> Any:
    try:
        with open(os.path.join(folder, FACTS), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def _problem(facts: dict[str, Any], folder: str) -> str:
    here = [platform.python_implementation(), platform.python_version().rpartition(".")[0]]
    wanted = [facts["implementation"], facts["python"]]
    if here != wanted:
        return f"this bundle is for {' '.join(wanted)}, this is {' '.join(here)}: run it with python{facts['python']}"
    machine = [platform.system(), platform.machine()]
    if machine != [facts["system"], facts["machine"]]:
        return f"this bundle is for {facts['system']} on {facts['machine']}, and this is {' on '.join(machine)}"
    if os.path.isdir(folder) and os.listdir(folder):
        return f"{folder} is not empty: name a folder that is to be made"
    return ""


def _unpack(archive: zipfile.ZipFile, site: str) -> None:
    for member in archive.infolist():
        if not member.filename.startswith("site/"):
            continue
        path = os.path.normpath(os.path.join(site, member.filename[len("site/") :]))
        if not path.startswith(site + os.sep):
            raise ValueError(f"{member.filename} leads out of the folder")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with archive.open(member) as source, open(path, "wb") as target:
            _copy(source, target)
        os.chmod(path, (member.external_attr >> 16) & 0o777 | 0o600)
    _date(site)


def _date(site: str) -> None:
    """What is compiled counts for a source of one second, which the archive does not keep."""
    for folder, _, names in os.walk(site):
        for name in names if os.path.basename(folder) == "__pycache__" else ():
            source = os.path.join(os.path.dirname(folder), name.partition(".")[0] + ".py")
            with open(os.path.join(folder, name), "rb") as file:
                head = file.read(12)
            if os.path.exists(source) and head[4:8] == bytes(4):
                then = int.from_bytes(head[8:12], "little")
                os.utime(source, (then, then))


def _load(python: str, image: Any) -> str:
    """Have the engine load an image; returns why it did not, or "" where it did."""
    loading = subprocess.Popen(  # noqa: S603
        [python, "-c", _LOAD], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert loading.stdin is not None  # noqa: S101
    assert loading.stderr is not None  # noqa: S101
    try:
        with loading.stdin as engine:
            _copy(image, engine)
    except BrokenPipeError:
        pass  # it says why
    said = loading.stderr.read().decode("utf-8", "replace").strip().splitlines()
    return (said[-1] if said else "the engine did not say why") if loading.wait() else ""


def _copy(source: Any, target: Any) -> None:
    piece = source.read(_PIECE)
    while piece:
        target.write(piece)
        piece = source.read(_PIECE)


def _fail(text: str) -> int:
    sys.stderr.write(f"drydock: {text}\n")
    return 1


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(f"usage: python3 {os.path.basename(sys.argv[0])} FOLDER")
    sys.exit(install(sys.argv[0], sys.argv[1]))
