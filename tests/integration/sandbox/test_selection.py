"""Which sandbox is chosen, and what is said when none can be had."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_core.errors import SandboxError
from agent_core.runtime.sandbox import SandboxWish
from agent_core.runtime.selection import ProviderChoice, choose_provider

NO_ENGINE = "unix:///nowhere/engine.sock"


@pytest.fixture
def bwrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Puts a script of this name first on the PATH; "" hides bubblewrap altogether."""
    # Not pytest's own folder: a sandbox's user must be able to walk to it.
    place = tempfile.TemporaryDirectory(prefix="drydock-bin-")
    folder = Path(place.name)
    folder.chmod(0o755)

    def put(script: str) -> None:
        if script:
            (folder / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
            (folder / "bwrap").chmod(0o755)
            monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        else:
            monkeypatch.setenv("PATH", str(folder))

    yield put
    place.cleanup()


async def choose(wish: SandboxWish, data_dir: Path, **options: Any) -> ProviderChoice:
    chosen = await choose_provider(wish, data_dir=str(data_dir), **options)
    await chosen.provider.close()
    return chosen


def runs(word: str) -> bool:
    """Whether a process has this word in its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes():
                return True
    return False


@pytest.mark.docker
@pytest.mark.parametrize("wish", ["auto", "docker"])
async def test_docker_is_taken_where_engine_and_image_are_there(wish: SandboxWish, tmp_path: Path) -> None:
    chosen = await choose(wish, tmp_path)
    assert chosen.provider.name == "docker"
    assert "engine answers" in chosen.reason
    assert "drydock/sandbox:base is there" in chosen.reason


@pytest.mark.bubblewrap
async def test_without_an_engine_the_local_sandbox_is_taken_and_the_reason_told(tmp_path: Path) -> None:
    chosen = await choose("auto", tmp_path, docker_host=NO_ENGINE)
    assert chosen.provider.name == "local"
    assert "No Docker engine answers" in chosen.reason


@pytest.mark.docker
@pytest.mark.bubblewrap
async def test_without_the_image_the_local_sandbox_is_taken_and_the_reason_told(tmp_path: Path) -> None:
    chosen = await choose("auto", tmp_path, image="drydock/sandbox:not-built")
    assert chosen.provider.name == "local"
    assert "make sandbox-image" in chosen.reason


@pytest.mark.bubblewrap
async def test_local_is_taken_when_asked_for(tmp_path: Path) -> None:
    assert (await choose("local", tmp_path)).provider.name == "local"


async def test_unconfined_is_taken_only_in_so_many_words(tmp_path: Path, bwrap: Callable[[str], None]) -> None:
    bwrap("")
    chosen = await choose("unconfined", tmp_path)
    assert chosen.provider.name == "unconfined"
    assert "WITHOUT ISOLATION" in chosen.reason
    with pytest.raises(SandboxError) as caught:
        await choose("auto", tmp_path, docker_host=NO_ENGINE)
    assert caught.value.code == "no_sandbox"
    for word in ("No Docker engine answers", "bubblewrap", "apt-get install bubblewrap", "--sandbox unconfined"):
        assert word in str(caught.value)


async def test_docker_asked_for_and_not_there_is_an_error_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(SandboxError) as caught:
        await choose("docker", tmp_path, docker_host=NO_ENGINE)
    assert caught.value.code == "engine_unavailable"
    assert "DOCKER_HOST" in str(caught.value)


@pytest.mark.docker
async def test_an_image_asked_for_and_not_there_is_an_error_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(SandboxError) as caught:
        await choose("docker", tmp_path, image="127.0.0.1:1/nobody/nothing:1")
    assert caught.value.code == "image_missing"
    assert "docker pull 127.0.0.1:1/nobody/nothing:1" in str(caught.value)


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("No permissions to create a new namespace", "user namespaces"),
        ("setting up uid map: Permission denied", "user namespaces"),
        ("Unknown option --disable-userns", "too old"),
        ("Can't mount proc on /newroot/proc: Operation not permitted", "hides /proc"),
    ],
)
async def test_a_bubblewrap_that_cannot_isolate_is_refused_with_the_reason_and_the_fix(
    tmp_path: Path, bwrap: Callable[[str], None], words: str, advice: str
) -> None:
    bwrap(f'echo "bwrap: {words}" >&2; exit 1')
    with pytest.raises(SandboxError) as caught:
        await choose("local", tmp_path)
    assert caught.value.code == "no_isolation"
    assert words in str(caught.value)
    assert advice in str(caught.value)


async def test_a_bubblewrap_that_hangs_is_given_up_in_the_time_that_a_start_may_take(
    tmp_path: Path, bwrap: Callable[[str], None]
) -> None:
    seconds = f"9{time.time_ns() % 10**9}"
    bwrap(f"exec sleep {seconds}")
    with pytest.raises(SandboxError, match=r"not ready within 0\.5 s") as caught:
        await choose("local", tmp_path, start_seconds=0.5)
    assert caught.value.code == "no_isolation"
    assert not runs(seconds)
