"""Programs in the sandbox that the server speaks to over their standard input and output (MCP servers)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_core.runtime.channel.channel import RunnerChannel
from agent_core.runtime.channel.tunnels import PortConnection, PortError
from agent_core.runtime.sandbox import Attachment
from runtime_images.runner.wire import TUNNEL_WINDOW
from tests.contract.runner.client import Runner, connect, until

TWO = """
import os, subprocess, time
print(os.getpid(), subprocess.Popen(["sleep", "600"]).pid, flush=True)
time.sleep(600)
"""
PATH = {"PATH": os.environ["PATH"]}


@pytest.fixture
async def channel(runner: Runner) -> AsyncIterator[RunnerChannel]:
    stream = await asyncio.to_thread(connect, runner.socket)
    channel = await RunnerChannel.open(Attachment(*await asyncio.open_unix_connection(sock=stream)))
    try:
        yield channel
    finally:
        await channel.close()


async def start(channel: RunnerChannel, *command: str, **more: Any) -> PortConnection:
    return await channel.connect({"program": {"command": list(command), "env": PATH, **more}})


async def all_of(program: PortConnection) -> bytes:
    data = b""
    while piece := await program.read():
        data += piece
    return data


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_bytes_go_through_a_program_as_they_are_and_its_end_is_the_end(channel: RunnerChannel) -> None:
    program = await start(channel, "cat")
    sent = os.urandom(3 * TUNNEL_WINDOW)
    reading = asyncio.create_task(all_of(program))
    await program.write(sent)
    program.end()
    assert await reading == sent


async def test_a_program_has_its_arguments_its_variables_its_place_and_last_words(
    channel: RunnerChannel, runner: Runner, tmp_path: Path
) -> None:
    script = 'printf "%s|%s|%s|" "$1" "$OWN" "$PWD"; echo "so be it" >&2'
    program = await start(channel, "sh", "-c", script, "sh", "a b", env={**PATH, "OWN": "x"}, cwd=str(tmp_path))
    assert await all_of(program) == f"a b|x|{tmp_path}|".encode()
    assert program.last_words == "so be it\n"
    assert await all_of(await start(channel, "pwd")) == f"{channel.hello.workspace}\n".encode()


@pytest.mark.parametrize(
    ("order", "code", "said"),
    [
        ({"command": ["no-such-program"]}, "not_found", "no program 'no-such-program' in the sandbox"),
        ({"command": ["/etc/passwd"]}, "not_found", "no program '/etc/passwd'"),
        ({"command": ["true"], "cwd": "/no/such/place"}, "failed", "cannot be started"),
        ({"command": []}, "bad_request", "command must be a list"),
        ({"command": "true"}, "bad_request", "command must be a list"),
        ({"command": ["true"], "env": {"A=B": "x"}}, "bad_request", "env must be"),
        ({"command": ["true", "\0"]}, "bad_request", "command must be a list"),
        ({"command": ["true"], "cwd": 7}, "bad_request", "cwd must be a path"),
    ],
)
async def test_what_cannot_be_started_says_why(
    channel: RunnerChannel, order: dict[str, Any], code: str, said: str
) -> None:
    with pytest.raises(PortError, match=said) as caught:
        await channel.connect({"program": order})
    assert caught.value.code == code


async def test_a_program_that_does_not_read_holds_up_its_writer_and_nobody_else(channel: RunnerChannel) -> None:
    program = await start(channel, "sleep", "600")
    writing = asyncio.create_task(program.write(b"x" * 8 * 1024 * 1024))
    assert (await channel.request("shell.run", {"command": "echo on"})).result["output"].strip() == "on"
    assert not writing.done()
    program.close()
    with pytest.raises(PortError):
        await writing


async def test_a_program_that_stops_reading_still_says_what_it_has_to_say(channel: RunnerChannel) -> None:
    program = await start(channel, "sh", "-c", "exec <&-; sleep 0.2; echo late")
    await program.write(b"x" * TUNNEL_WINDOW)
    assert await all_of(program) == b"late\n"


@pytest.mark.parametrize("way", ["close", "disconnect", "replace"])
async def test_a_program_ends_with_its_connection_and_all_that_it_started_with_it(
    channel: RunnerChannel, runner: Runner, way: str
) -> None:
    program = await start(channel, sys.executable, "-S", "-c", TWO)
    pids = [int(word) for word in (await program.read()).split()]
    assert all(map(is_running, pids))
    if way == "close":
        program.close()
    elif way == "disconnect":
        await channel.close()
    else:
        runner.connect()
    await asyncio.to_thread(until, lambda: not any(map(is_running, pids)), "they have ended")


async def test_a_killed_program_is_at_its_end_and_the_next_one_can_be_started(channel: RunnerChannel) -> None:
    program = await start(channel, "sh", "-c", "echo $$; exec sleep 600")
    os.kill(int(await program.read()), 9)
    assert await program.read() == b""
    program.close()
    assert await all_of(await start(channel, "echo", "again")) == b"again\n"
