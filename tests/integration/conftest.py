"""With ``AUDIT=1``: after each test all that it has held is given back; what is not fails it, by its name."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_core.runtime.loop_thread import library_loop
from tests.integration.audit import AUDITED, OwnHoldings, left_in_engine, settled

_INSTANCE_FILE = "*/instance-id"


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """Where this process and all that it starts make their temporary files, and nobody else does."""
    library_loop().run(asyncio.sleep(0))  # a process has it for good from its first use on, which is no test's
    with tempfile.TemporaryDirectory(prefix="drydock-tests-") as name, pytest.MonkeyPatch.context() as patch:
        Path(name).chmod(0o1777)  # some of what is started is another user's
        patch.setenv("TMPDIR", name)
        patch.setattr(tempfile, "tempdir", None)
        yield Path(name)


@pytest.fixture
async def own_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@pytest.fixture(autouse=True)
def _all_is_given_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """The first of a test's fixtures to begin, and the last to end."""
    if not AUDITED:
        yield
        return
    is_asynchronous = inspect.iscoroutinefunction(getattr(request.node, "function", None))
    loop: asyncio.AbstractEventLoop | None = request.getfixturevalue("own_loop") if is_asynchronous else None
    place: Path = request.getfixturevalue("tmp_path")
    before = OwnHoldings(place, request.getfixturevalue("scratch"), loop)
    yield
    left = settled(before)
    if request.node.get_closest_marker("docker"):
        instances = {str(getattr(value, "instance_id", "")) for value in request.node.funcargs.values()}
        instances |= {file.read_text().strip() for file in place.glob(_INSTANCE_FILE)}
        left += left_in_engine(instances - {""})
    assert not left, "the test has left: " + "; ".join(left)
