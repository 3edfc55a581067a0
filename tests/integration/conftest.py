"""After each test all that it has held is given back; what is not fails it, by its name."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.audit import (
    CAN_BE_AUDITED,
    OwnHoldings,
    left_in_engine,
    noting_instances,
    prepare_process,
    settled,
)

_INSTANCE_FILES = ("*/instance-id", "*/*/instance-id")


class _SharedFixtures:
    """Hears of fixtures that are made during a test (a conftest does not hear of those for a whole session)."""

    def __init__(self, before: OwnHoldings, instances: set[str]) -> None:
        self._before = before
        self._instances = instances

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """What a fixture makes for several tests is none of theirs, also where one of them was the first to need it."""
        instances = set(self._instances)
        made = yield
        if fixturedef.scope != "function":
            self._before.take_as_given()
            self._instances &= instances
        return made


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """Where this process and all that it starts make their temporary files, and nobody else does."""
    prepare_process()
    with tempfile.TemporaryDirectory(prefix="drydock-tests-") as name, pytest.MonkeyPatch.context() as patch:
        Path(name).chmod(0o1777)  # some of what is started is another user's
        patch.setenv("TMPDIR", name)
        patch.setattr(tempfile, "tempdir", None)
        yield Path(name)


@pytest.fixture
async def function_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@pytest_asyncio.fixture(loop_scope="module")
async def module_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@pytest.fixture(autouse=True)
def _all_is_given_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """The first of a test's fixtures to begin, and the last to end. A test that fails is not asked for more."""
    if not CAN_BE_AUDITED:
        yield
        return
    loop: asyncio.AbstractEventLoop | None = None
    if inspect.iscoroutinefunction(getattr(request.node, "function", None)):
        marker = request.node.get_closest_marker("asyncio")
        scope = marker.kwargs.get("loop_scope") if marker is not None else None
        loop = request.getfixturevalue(f"{scope or 'function'}_loop")
    place: Path = request.getfixturevalue("tmp_path")
    before, failed = OwnHoldings(place, request.getfixturevalue("scratch"), loop), request.session.testsfailed
    with_engine = request.node.get_closest_marker("docker") is not None
    plugins = request.config.pluginmanager
    with noting_instances() if with_engine else nullcontext(set[str]()) as instances:
        plugins.register(shared := _SharedFixtures(before, instances))
        try:
            yield
        finally:
            plugins.unregister(shared)
    if request.session.testsfailed > failed:
        return
    left = settled(before.left, loop)
    if with_engine:
        instances |= {file.read_text().strip() for files in _INSTANCE_FILES for file in place.glob(files)}
        left += settled(partial(left_in_engine, instances), loop, 0.5)
    assert not left, "the test has left: " + "; ".join(left)
