"""What all tests share: a home of their own, and property tests that try the same examples in every run, without limits
of time, since a busy machine would fail them. With HYPOTHESIS_EXPLORE=1 they look for new examples."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.leftovers import Leftovers

if TYPE_CHECKING:
    from tests.postgresql import Cluster

# Here, since helpers of its suites are imported by many other tests first.
pytest.register_assert_rewrite("agent_core.testing.sandbox_contract")

# A slow example says nothing about the code when other work has the processors; a test that hangs is ended by its
# own limit.
settings.register_profile(
    "untimed",
    deadline=None,
    derandomize="HYPOTHESIS_EXPLORE" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
# For `make check`: fewer examples where a test does not say how many it needs. `make test` tries all of them.
settings.register_profile("quick", settings.get_profile("untimed"), max_examples=30)
settings.load_profile("untimed")

TESTS = Path(__file__).parent
COMPUTING = "unit"
LAST_WAITING = 0.85

# Nothing of what is imported and collected is ever garbage: it is not looked through again and again.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # all reports come to the process that the workers work for
        config.pluginmanager.register(Leftovers())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items[:] = in_turns(items)


def in_turns(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests in the order in which several processes take their files: those of each folder evenly over the run, so
    that what computes and what waits for servers, containers and browsers go on beside each other. The last ones are
    short, and compute: no process is left alone with a long one.
    """
    files: dict[Path, list[pytest.Item]] = {}
    folders: dict[str, list[Path]] = {}
    for item in items:
        if item.path not in files:
            files[item.path] = []
            folders.setdefault(item.path.relative_to(TESTS).parts[0], []).append(item.path)
        files[item.path].append(item)
    places = {
        path: (1.0 if folder == COMPUTING else LAST_WAITING) * number / len(paths)
        for folder, paths in folders.items()
        for number, path in enumerate(paths)
    }
    return [item for path in sorted(places, key=places.__getitem__) for item in files[path]]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def home_of_drydock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Nothing that the user of this machine keeps has a say in a test, and no test leaves anything with it."""
    home = tmp_path_factory.mktemp("drydock-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRYDOCK_HOME", str(home))
        yield home


@pytest.fixture(scope="session", autouse=True)
def memory_of_tests() -> Iterator[None]:
    """A server in this process has no ceiling of memory but one that is set: the memory is that of thousands of tests,
    and what the machine has left depends on what else runs there.
    """
    if (sandboxes := sys.modules.get("server.session.sandboxes")) is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        ceiling = sandboxes.MemoryCeiling
        patch.setattr(sandboxes, "MemoryCeiling", lambda limit: ceiling(limit or 0))
        yield


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Cluster]:
    """A PostgreSQL that runs, this process's alone; tests that use it are marked `postgresql`."""
    from tests.postgresql import Cluster  # what it needs is not loaded for tests that do not

    cluster = Cluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
async def postgresql_url(postgresql: Cluster) -> str:
    """The address of a database with all tables, and nothing in them, which the tests share."""
    return await postgresql.shared_database()


@pytest.fixture
async def new_postgresql_url(postgresql: Cluster) -> AsyncIterator[str]:
    """The address of a new database without any tables."""
    name = await postgresql.new_database()
    yield postgresql.url(name)
    await postgresql.drop(name)
