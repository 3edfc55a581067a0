"""Local sandboxes of an ordinary user, who may neither make control groups nor be somebody else."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.bubblewrap

ROOT = Path(__file__).parents[3]
USER = 12345
CHOSEN = "first_command or fork_bomb or paused or host_is_not or bounded or privileges or state or ended_at_once"


async def spawn(python: str, *words: str, folder: str, user: int | None) -> tuple[int, str]:
    site = next(path for path in sys.path if path.endswith("site-packages"))
    process = await asyncio.create_subprocess_exec(
        python,
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": folder,
            "TMPDIR": folder,
            "PYTHONPATH": f"{ROOT}:{site}",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode("utf-8", "replace")


async def readable_python(folder: str, user: int | None) -> str:
    """An interpreter that this user may run and that finds our packages."""
    tried = []
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            code, said = await spawn(
                python, "-c", "import pytest, agent_core.runtime.local.provider", folder=folder, user=user
            )
        except OSError as error:
            code, said = 1, str(error)
        if code == 0:
            return python
        tried.append(f"{python}: {said.strip()[-200:]}")
    pytest.fail(f"no Python with our packages that an ordinary user may run: {tried}")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that an ordinary user can walk to; pytest's own ones are closed to others."""
    with tempfile.TemporaryDirectory(prefix="drydock-user-") as name:
        if os.geteuid() == 0:
            os.chown(name, USER, USER)
        yield Path(name)


async def test_an_ordinary_user_gets_the_same_isolation(folder: Path) -> None:
    user = USER if os.geteuid() == 0 else None
    python = await readable_python(str(folder), user)
    code, said = await spawn(
        python,
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(folder / "pytest"), "-k", CHOSEN),
        "tests/contract/sandbox/test_local.py",
        folder=str(folder),
        user=user,
    )
    assert code == 0, said[-4000:]
    assert "passed" in said


WHAT_HOLDS = """
import asyncio, sys
from agent_core.runtime.local.provider import LocalProvider

async def main():
    provider = LocalProvider(sys.argv[1])
    print((await provider.check()).reason)
    await provider.close()

asyncio.run(main())
"""


async def test_limits_that_do_not_hold_here_are_said(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root knows that an ordinary user may make no control groups here")
    python = await readable_python(str(folder), USER)
    code, said = await spawn(python, "-c", WHAT_HOLDS, str(folder), folder=str(folder), user=USER)
    assert code == 0, said
    assert "the memory of a whole sandbox cannot be limited here" in said
    assert "each of its processes may have as much as it" in said
