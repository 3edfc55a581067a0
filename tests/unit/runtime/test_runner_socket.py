"""Sockets in folders that a sandbox can write to: found without following anything that leads elsewhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent_core.errors import SandboxLostError
from agent_core.runtime.channel.runner_stream import RunnerStream, attachment, connect, connect_below
from agent_core.runtime.docker import sandbox as docker_sandbox
from agent_core.runtime.sandbox import SandboxSpec
from agent_core.testing.fake_sandbox import FakeProvider
from runtime_images.runner import wire
from tests.listening import listening_at
from tests.waiting import until

HELLO = wire.encode({"hello": {}})


@asynccontextmanager
async def listening(path: Path) -> AsyncIterator[None]:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)
        await writer.drain()

    path.parent.mkdir(parents=True, exist_ok=True)
    async with listening_at(path, greet):
        yield


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "root").mkdir()
    descriptor = os.open(tmp_path / "root", os.O_PATH)
    yield descriptor
    os.close(descriptor)


async def test_whoever_listens_below_a_folder_is_reached(root: int, tmp_path: Path) -> None:
    async with listening(tmp_path / "root/state/s"):
        stream = await connect_below(root, "/state/s", os.getpid())
        assert stream is not None
        assert await stream.first_word()
        assert await stream.reader.read(len(HELLO)) == HELLO
        stream.abort()


async def test_whoever_is_not_the_one_that_is_looked_for_is_nobody(root: int, tmp_path: Path) -> None:
    async with listening(tmp_path / "root/state/s"):
        assert await connect_below(root, "/state/s", os.getpid() + 1) is None
        assert await connect_below(root, "/state/s", 0) is None


@pytest.mark.parametrize("linked", ["root/state", "root/state/s"])
async def test_a_link_on_the_way_to_a_socket_is_not_followed(root: int, tmp_path: Path, linked: str) -> None:
    async with listening(tmp_path / "elsewhere/s"):
        link = tmp_path / linked
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(tmp_path / ("elsewhere" if linked == "root/state" else "elsewhere/s"))
        assert await connect_below(root, "/state/s", os.getpid()) is None
        assert await connect(link) is None


async def test_what_is_not_there_not_listening_or_no_socket_is_nobody(root: int, tmp_path: Path) -> None:
    assert await connect_below(root, "/state/s", os.getpid()) is None
    async with listening(tmp_path / "root/state/s"):
        pass
    (tmp_path / "root/state/file").write_text("x")
    assert await connect_below(root, "/state/s", os.getpid()) is None
    assert await connect_below(root, "/state/file", os.getpid()) is None
    assert await connect(tmp_path / "root/state/file") is None


async def test_no_descriptor_stays_open(root: int, tmp_path: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert await connect_below(root, "/not/there", os.getpid()) is None
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("pid", [0, os.getpid(), 2**22 + 1], ids=["none", "another", "too large"])
async def test_a_process_that_is_not_of_the_container_is_no_way_in(pid: int) -> None:
    assert await docker_sandbox.connect({"Id": "f" * 64, "State": {"Pid": pid}}) is None


async def test_a_stream_that_has_ended_before_it_is_taken_is_closed(root: int, tmp_path: Path) -> None:
    async def greet_and_go(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HELLO)

    sandbox = FakeProvider().create(SandboxSpec("c", "i", image="", data_dir=str(tmp_path)))
    (tmp_path / "root/state").mkdir()
    async with listening_at(tmp_path / "root/state/s", greet_and_go):
        stream = await connect_below(root, "/state/s", os.getpid())
        assert stream is not None
        assert await stream.first_word()
        await until(lambda: stream.ended)

        async def connect_again() -> RunnerStream:
            raise AssertionError("a sandbox that does not run is not connected to")

        with pytest.raises(SandboxLostError):
            await attachment(sandbox, stream, connect_again)
        assert stream.transport.is_closing()
