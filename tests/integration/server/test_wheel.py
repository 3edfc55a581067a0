"""The wheel: built twice, installed into an environment of its own, served from an empty folder, and taken away."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.server.conftest import ServerProcess, create, following
from tests.integration.server.forks import ROOT

USER = 12345
MOST_BYTES = 4_000_000
PACKAGES = ("agent_core", "drydock_client", "migrations", "runtime_images", "server")
PROGRAMS = ("bash", "bwrap", "git", "rg", "sh", "slirp4netns")
HURRIED = {
    "DRYDOCK_LLM_PROFILES": '{"demo": {"model": "demo/tour", "litellm_extra_body": {"pace": 0}}}',
    "DRYDOCK_LLM_PROFILE": "demo",
    "DRYDOCK_WARM_SANDBOXES": "0",
}
"""The built-in demo, without its pauses, and nothing that waits for the next conversation."""
ASSET = re.compile(r'(?:src|href)="(/assets/[^"]+)"')


class Installed(NamedTuple):
    """An environment with the wheel and what it needs, which every user may read; `programs`: a PATH without Node."""

    folder: Path
    wheel: Path
    again: Path
    venv: Path
    programs: Path

    def environment(self, home: Path) -> dict[str, str]:
        return {"PATH": str(self.programs), "HOME": str(home)}

    def run(self, *words: str, home: Path) -> str:
        """What one of its commands prints, run in its home with a strict umask."""
        done = self._done(*words, home=home)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refused(self, *words: str, home: Path) -> str:
        """Why it does not."""
        done = self._done(*words, home=home)
        assert done.returncode == 2, done.stdout + done.stderr
        return done.stderr

    def _done(self, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.venv / "bin" / words[0], *words[1:]],
            cwd=home,
            env=self.environment(home),
            umask=0o077,
            capture_output=True,
            text=True,
            check=False,
        )


def script(name: str, *words: str | Path, umask: int = 0o022, **environment: str) -> str:
    done = subprocess.run(
        [ROOT / "scripts" / name, *words],
        env={**os.environ, **environment},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python_of_all() -> str:
    """An interpreter of our version that every user may run, or else our own."""
    look = "import sys; sys.exit(sys.version_info[:2] != tuple(map(int, sys.argv[1:])))"
    for python in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if (
            shutil.which(python)
            and not subprocess.run([python, "-c", look, *map(str, sys.version_info[:2])]).returncode
        ):
            return python
    return str(getattr(sys, "_base_executable", sys.executable))


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    with tempfile.TemporaryDirectory(prefix="drydock-wheel-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        once, again, programs, venv = (folder / part for part in ("once", "again", "programs", "venv"))
        script("wheel", once, umask=0o077, SOURCE_DATE_EPOCH="1700000000")
        script("wheel", again, SOURCE_DATE_EPOCH="1700000000")
        (wheel,), (second,) = once.glob("*.whl"), again.glob("*.whl")
        programs.mkdir()
        for program in PROGRAMS:
            if (found := shutil.which(program)) is not None:
                (programs / program).symlink_to(found)
        script("uv", "venv", "--quiet", "--python", python_of_all(), venv)
        words = ("pip", "install", "--quiet", "--constraint", ROOT / "requirements.lock", "--python", venv)
        try:
            script("uv", *words, "--offline", wheel)
        except AssertionError:  # what `scripts/setup` has installed with was not uv, or its cache is gone
            script("uv", *words, wheel)
        yield Installed(folder, wheel, second, venv, programs)


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty folder that an ordinary user can walk to."""
    with tempfile.TemporaryDirectory(prefix="drydock-home-") as name:
        yield Path(name)


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_same_files_make_the_same_wheel(installed: Installed) -> None:
    assert installed.wheel.name == installed.again.name == "drydock-0.1.0-py3-none-any.whl"
    assert installed.wheel.read_bytes() == installed.again.read_bytes()
    assert installed.wheel.stat().st_size < MOST_BYTES


def test_it_has_the_packages_as_they_are_and_the_built_page_and_nothing_else(installed: Installed) -> None:
    names = names_in(installed.wheel)
    ours = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if "__pycache__" not in path.parts
    }
    assert {name for name in names if name.endswith(".py")} == ours
    built = ROOT / "frontend_stub" / "dist"
    page = {f"server/page_files/{path.relative_to(built)}" for path in built.rglob("*") if path.is_file()}
    pages = {f"server/docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    images = {
        f"runtime_images/{kind}/{name}" for kind in ("base", "browser") for name in ("Dockerfile", "requirements.lock")
    }
    assert page | pages | images <= set(names)
    rest = {Path(name).suffix for name in set(names) - ours - page - pages - images if ".dist-info/" not in name}
    assert rest == {".in", ".j2", ".lock", ".mako", ".md", ".typed"}


def test_it_says_what_it_is(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        read = {Path(name).name: archive.read(name).decode() for name in archive.namelist() if ".dist-info/" in name}
    head, _, body = read["METADATA"].partition("\n\n")
    for line in ("Name: drydock", "License-Expression: MIT", "Requires-Python: >=3.11", "Provides-Extra: browser"):
        assert line in head.splitlines()
    assert body.startswith("# Drydock")
    assert read["LICENSE"] == (ROOT / "LICENSE").read_text()
    assert "drydock = server.cli:main" in read["entry_points.txt"]


class InstalledServer(ServerProcess):
    """`drydock serve` as somebody types it who has installed the wheel, in an empty folder."""

    def __init__(self, installed: Installed, home: Path, user: int | None) -> None:
        super().__init__(home / "empty" / "data", "--sandbox", "local", plainly=True)
        self.installed, self.home, self.user = installed, home, user
        self.log = installed.folder / f"log-of-{user}"
        self.data_dir.parent.mkdir()
        if user is not None:
            os.chown(home, user, user)
            os.chown(self.data_dir.parent, user, user)
            # What this user has imported, with its strict umask, is compiled for the other one, too.
            subprocess.run(["chmod", "-R", "a+rX", installed.venv], check=True)

    async def _begun(self, arguments: list[str], environment: dict[str, str]) -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                self.installed.venv / "bin" / "drydock",
                *("serve", "--port", "0", *self.options),
                cwd=self.data_dir.parent,
                env=self.installed.environment(self.home) | HURRIED,
                stdout=log,
                stderr=log,
                umask=0o077,
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
            )


@pytest.mark.bubblewrap
@pytest.mark.parametrize("user", [None, USER], ids=["this_user", "ordinary_user"])
async def test_served_from_an_empty_folder_it_has_its_page_and_a_whole_conversation(
    installed: Installed, home: Path, user: int | None
) -> None:
    if user is not None and os.geteuid() != 0:
        pytest.skip("only root may be somebody else; who runs this is an ordinary user already")
    server = InstalledServer(installed, home, user)
    try:
        await server.start()
        async with server.client() as client:
            page = (await client.get("/")).raise_for_status().text
            assets = ASSET.findall(page)
            assert len(assets) >= 2
            for asset in assets:
                assert (await client.get(asset)).is_success
        conversation = await create(server, initial_user_msg="Show me around.")
        async with following(server, conversation) as follower:
            await follower.until(lambda: follower.count(observation="agent_state_changed") > 1)
            await follower.until(lambda: follower.frames[-1].get("extras", {}).get("agent_state") == "finished")
            assert follower.count(observation="run") >= 2
        assert os.listdir(home) == ["empty"]
        assert os.listdir(home / "empty") == ["data"]
    finally:
        await server.close()


@pytest.mark.bubblewrap
def test_all_that_its_doctor_advises_can_be_done_without_a_checkout(installed: Installed, home: Path) -> None:
    said = installed.run("drydock", "doctor", "--sandbox", "local", "--port", "0", home=home)
    assert f"built, in {installed.venv}" in said
    assert "scripts/" not in said
    assert " make " not in said.replace("(in a checkout: make sandbox-image)", "")
    assert installed.run("drydock", "docs", "configuration", home=home) == (ROOT / "docs/configuration.md").read_text()


LIBRARY = """
import sys
from agent_core import LLM, Agent, Conversation
from agent_core.tools import get_default_tools
import agent_core, drydock_client

agent = Agent(llm=LLM(usage_id="agent", model="demo/tour", litellm_extra_body={"pace": 0}), tools=get_default_tools())
with Conversation(agent=agent, workspace="project", visualizer=None) as conversation:
    conversation.send_message("Show me around.")
    conversation.run()
    print(conversation.state.execution_status, agent_core.__file__, [name for name in sys.modules if name == "server"])
"""


@pytest.mark.bubblewrap
def test_a_program_has_the_library_of_it(installed: Installed, home: Path) -> None:
    (home / "project").mkdir()
    said = installed.run("python", "-c", LIBRARY, home=home)
    assert "finished" in said.lower()
    assert str(installed.venv) in said
    assert said.endswith("[]\n")


NOT_FOR_THE_DEMO = ("boto3", "botocore", "debugpy", "hf_xet", "jedi", "litellm", "openai", "tokenizers")


@pytest.fixture
def small_image(tmp_path: Path) -> Iterator[str]:
    """An image with next to nothing in it."""
    name = f"drydock/test-{os.getpid()}-bundle"
    (tmp_path / "Dockerfile").write_text("FROM scratch\nLABEL dev.drydock.other=bundle\nCOPY Dockerfile /\n")
    subprocess.run(["docker", "build", "-q", "-t", name, tmp_path], check=True, capture_output=True)
    yield name
    subprocess.run(["docker", "rmi", "-f", name], check=False, capture_output=True)


@pytest.mark.docker
@pytest.mark.bubblewrap
def test_a_bundle_of_it_is_installed_and_serves_without_any_network(
    installed: Installed, home: Path, small_image: str
) -> None:
    (site,) = installed.venv.glob("lib/python*/site-packages")
    for name in NOT_FOR_THE_DEMO:  # half of it all, which only takes time here
        shutil.rmtree(site / name, ignore_errors=True)
    bundle, folder, empty = home / "drydock.pyz", home / "it is here", home / "empty"
    empty.mkdir()
    said = installed.run("drydock", "bundle", str(bundle), "--image", small_image, home=home)
    assert f"with {small_image}" in said
    refused = installed.refused("drydock", "bundle", str(bundle), home=home)
    assert "is there already; name another file, or give --force" in refused
    subprocess.run(["docker", "rmi", "-f", small_image], check=True, capture_output=True)
    alone = [str(shutil.which("unshare")), "--net", *(() if os.geteuid() == 0 else ("--user", "--map-root-user"))]
    program = ROOT / "tests" / "integration" / "server" / "without_network.py"
    done = subprocess.run(
        [*alone, os.path.realpath(installed.venv / "bin" / "python"), program, bundle, folder, empty],
        env=installed.environment(empty) | HURRIED,
        umask=0o077,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("all of it without a network\n"), done.stdout + done.stderr
    assert f"loaded the image {small_image}" in done.stdout
    subprocess.run(["docker", "inspect", small_image], check=True, capture_output=True)


def test_taken_away_it_leaves_nothing(installed: Installed) -> None:
    """The last one here."""
    (site,) = installed.venv.glob("lib/python*/site-packages")
    installed.run("drydock", "--version", home=installed.folder)
    script("uv", "pip", "uninstall", "--quiet", "--python", installed.venv, "drydock")
    assert not [path.name for path in site.iterdir() if path.name.startswith((*PACKAGES, "drydock"))]
    assert not (installed.venv / "bin" / "drydock").exists()
