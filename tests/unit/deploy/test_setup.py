"""`scripts/setup` in a checkout of its own, with programs that only note how they were called."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NPM = """#!/bin/sh
echo "npm $* cache:$npm_config_cache" >>"$CALLS"
case "$*" in
  *" ci "*) rm -rf frontend_stub/node_modules/* && mkdir -p frontend_stub/node_modules/new ;;
  *) mkdir -p frontend_stub/dist && touch frontend_stub/dist/index.html ;;
esac
"""
PYTHON = """#!/bin/sh
case "$*" in
  *"-m venv .venv")
    echo made >>"$CALLS"
    mkdir -p .venv/bin && cp "$0" .venv/bin/python && touch .venv/bin/activate .venv/bin/drydock
    chmod +x .venv/bin/drydock
    echo "command = python3 -m venv $(pwd -P)/.venv" >.venv/pyvenv.cfg ;;
  *" config get global.index-url") echo "$CONFIGURED_INDEX_URL" ;;
  *" config get "*) exit 1 ;;
  *"-m pip"*" --target build/uv "*) mkdir -p build/uv/bin && cp "${CALLS%calls}programs/uv" build/uv/bin/uv ;;
  *"-m pip"*) echo "pip" >>"$CALLS" ;;
  --version) echo "Python 3.11.0" ;;
esac
"""
UV = """#!/bin/sh
echo "uv index:$UV_DEFAULT_INDEX cert:$SSL_CERT_FILE cache:$UV_CACHE_DIR $*" >>"$CALLS"
"""


class Checkout:
    """A folder with the scripts, and the calls that they made of other programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "dry dock's"
        self.programs = folder / "programs"
        self.calls = folder / "calls"
        shutil.copytree(ROOT / "scripts", self.folder / "scripts")
        for name in ("pyproject.toml", "requirements.lock", "requirements-dev.lock", "requirements-setup.lock"):
            shutil.copy(ROOT / name, self.folder)
        (self.folder / "server").mkdir()
        (self.folder / "server" / "__init__.py").touch()
        (self.folder / "frontend_stub").mkdir()
        shutil.copy(ROOT / "frontend_stub" / "package-lock.json", self.folder / "frontend_stub")
        self.programs.mkdir()
        for name, text in (("npm", NPM), ("python3", PYTHON), ("node", "#!/bin/sh\nexit 0\n"), ("uv", UV)):
            self.program(name, text)

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def set_up(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self.calls.write_text("")
        return subprocess.run(
            [self.folder / "scripts" / "setup", *arguments],
            env={
                "PATH": f"{self.programs}:/usr/bin:/bin",
                "CALLS": str(self.calls),
                "HOME": str(self.folder),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def made(self) -> list[str]:
        """What the programs were called for."""
        return [line.split()[0] for line in self.calls.read_text().splitlines()]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_what_is_set_up_is_left_alone_the_second_time(checkout: Checkout) -> None:
    first = checkout.set_up("--no-sandbox")
    assert first.returncode == 0, first.stderr
    assert checkout.made() == ["made", "uv", "pip", "npm", "npm"]
    second = checkout.set_up("--no-sandbox")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert checkout.made() == []


def test_an_environment_whose_making_was_broken_off_is_made_anew(checkout: Checkout) -> None:
    checkout.set_up("--no-sandbox")
    (checkout.folder / ".venv" / "bin" / "activate").unlink()
    checkout.set_up("--no-sandbox")
    assert checkout.made() == ["made", "uv", "pip"]


def test_an_environment_that_moved_with_its_checkout_is_made_anew(checkout: Checkout) -> None:
    checkout.set_up("--no-sandbox")
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("elsewhere"))
    checkout.set_up("--no-sandbox")
    assert checkout.made() == ["made", "uv", "pip"]


def test_links_are_replaced_and_what_they_lead_to_is_left_alone(checkout: Checkout, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    for name in ("venv", "node_modules"):
        (shared / name).mkdir(parents=True)
        (shared / name / "kept").touch()
    (checkout.folder / ".venv").symlink_to(shared / "venv")
    (checkout.folder / "frontend_stub" / "node_modules").symlink_to(shared / "node_modules")
    done = checkout.set_up("--no-sandbox")
    assert done.returncode == 0, done.stderr
    assert [file.name for file in (shared / "venv").iterdir()] == ["kept"]
    assert [file.name for file in (shared / "node_modules").iterdir()] == ["kept"]
    assert not (checkout.folder / "frontend_stub" / "node_modules").is_symlink()


def test_a_home_that_cannot_be_written_is_not_needed(checkout: Checkout) -> None:
    done = checkout.set_up("--no-sandbox", HOME="/proc/nobody")
    assert done.returncode == 0, done.stderr
    calls = checkout.calls.read_text()
    assert f"cache:{checkout.folder}/build/npm-cache" in calls
    assert f"cache:{checkout.folder}/build/uv-cache" in calls


def test_where_uv_cannot_work_pip_does(checkout: Checkout) -> None:
    checkout.program("uv", "#!/bin/sh\necho 'no such platform' >&2\nexit 2\n")
    done = checkout.set_up("--no-sandbox")
    assert done.returncode == 0, done.stderr
    assert "uv could not: no such platform; installing with pip" in done.stdout
    assert checkout.made() == ["made", "pip", "pip", "npm", "npm"]


def test_uv_asks_the_index_that_pip_is_configured_for_with_its_certificates(checkout: Checkout) -> None:
    checkout.set_up("--no-sandbox", CONFIGURED_INDEX_URL="https://index.test/simple", PIP_CERT="/certs.pem")
    assert "uv index:https://index.test/simple cert:/certs.pem " in checkout.calls.read_text()


def test_what_uv_was_told_itself_counts_before_what_pip_is_configured_for(checkout: Checkout) -> None:
    checkout.set_up("--no-sandbox", CONFIGURED_INDEX_URL="https://other.test", UV_DEFAULT_INDEX="https://index.test")
    assert "uv index:https://index.test " in checkout.calls.read_text()


def test_a_python_that_is_too_old_is_told_with_what_to_do(checkout: Checkout) -> None:
    checkout.program("python3.10", '#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.10.1"\nexit 1\n')
    done = checkout.set_up(PYTHON="python3.10")
    assert done.returncode == 1
    assert "needs Python 3.11 or newer; found: Python 3.10.1" in done.stderr
    assert "make run PYTHON=" in done.stderr


@pytest.mark.parametrize(("script", "found"), [("echo v18.1.0; exit 1", "v18.1.0"), (None, "no node")])
def test_a_node_that_is_too_old_or_missing_is_told_with_what_to_do(
    checkout: Checkout, script: str | None, found: str
) -> None:
    path = f"{checkout.programs}:/usr/bin:/bin"
    if script is None:
        (checkout.programs / "node").unlink()
        path = str(
            only(checkout.programs, "bash", "env", "dirname", "id", "grep", "find", "cut", "head", "mkdir", "cat")
        )
    else:
        checkout.program("node", f"#!/bin/sh\n{script}\n")
    done = checkout.set_up("--no-sandbox", PATH=path)
    assert done.returncode == 1
    assert f"needs Node.js 20.19 or newer to be built; found: {found}" in done.stderr
    assert "https://nodejs.org" in done.stderr


def only(programs: Path, *names: str) -> Path:
    """The folder of programs with these of the system beside them, and no others."""
    for name in (
        *names,
        "sha256sum",
        "ls",
        "sort",
        "xargs",
        "cksum",
        "mktemp",
        "rm",
        "cp",
        "touch",
        "chmod",
        "tail",
        "sh",
    ):
        found = shutil.which(name, path=os.defpath)
        assert found is not None, name
        (programs / name).symlink_to(found)
    return programs


def test_an_unknown_sandbox_is_refused_with_those_that_there_are(checkout: Checkout) -> None:
    done = checkout.set_up(SANDBOX="dokcer")
    assert done.returncode == 1
    assert "SANDBOX is 'dokcer'; it must be auto, docker, local or unconfined." in done.stderr
