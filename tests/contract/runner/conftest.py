"""The runner as a real process. A provider that reaches it in another way overrides ``connect``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.runner.client import Client, Runner

StartRunner = Callable[..., Client]


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path: a socket's name has little room."""
    with tempfile.TemporaryDirectory(prefix="runner-") as name:
        yield Path(name)


@pytest.fixture
def runner(directory: Path) -> Iterator[Runner]:
    runner = Runner(directory)
    try:
        yield runner
    finally:
        runner.close()


@pytest.fixture
def start(directory: Path) -> Iterator[StartRunner]:
    """Starts a runner with these options and connects to it."""
    made: list[Runner] = []

    def begin(**options: Any) -> Client:
        made.append(Runner(directory, **options))
        return made[0].connect()

    yield begin
    for runner in made:
        runner.close()


@pytest.fixture
def connect(runner: Runner) -> Callable[[], Client]:
    return runner.connect


@pytest.fixture
def client(connect: Callable[[], Client]) -> Client:
    return connect()


@pytest.fixture
def workspace(client: Client) -> Path:
    return Path(client.hello["workspace"])
