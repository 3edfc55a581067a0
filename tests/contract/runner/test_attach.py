"""The bridge that an exec in the sandbox runs: its standard streams are the runner's socket."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime_images.runner.attach import SUFFIX
from runtime_images.runner.wire import Decoder, Frame, encode
from tests.contract.runner.client import PACKAGE, PATIENCE_SECONDS, PYTHON, Client, Runner


def attach(path: Path, *options: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    near, far = socket.socketpair()
    process = subprocess.Popen(
        [PYTHON, "-S", "-E", "-m", "runner", "attach", "--socket", str(path), *options],
        cwd=PACKAGE,
        stdin=far.fileno(),
        stdout=far.fileno(),
    )
    far.close()
    return process, near


@pytest.fixture
def bridge(runner: Runner) -> Iterator[tuple[subprocess.Popen[bytes], Client]]:
    process, stream = attach(runner.socket)
    client = Client(stream)
    try:
        yield process, client
    finally:
        client.close()
        process.wait(PATIENCE_SECONDS)


def test_requests_and_answers_go_through(bridge: tuple[subprocess.Popen[bytes], Client]) -> None:
    _, client = bridge
    path = str(Path(client.hello["workspace"]) / "file")
    data = os.urandom(5_000_000)
    assert client.call("file.write", path=path, blob=data).result["size"] == len(data)
    answer = client.call("file.read", path=path)
    assert answer.blob == data
    number = client.send("shell.run", command="echo begun; read x; echo $x", soft_timeout=20)
    client.wait_for_output(number, "begun")
    client.call("shell.run", command="through", is_input=True)
    assert client.wait(number).result["output"] == "begun\nthrough\n"


def test_the_bridge_ends_with_either_side(bridge: tuple[subprocess.Popen[bytes], Client], runner: Runner) -> None:
    process, client = bridge
    client.stream.shutdown(socket.SHUT_WR)
    assert process.wait(PATIENCE_SECONDS) == 0
    second, stream = attach(runner.socket)
    again = Client(stream)
    runner.process.kill()
    assert second.wait(PATIENCE_SECONDS) == 0
    again.close()


def test_the_bridge_waits_for_a_runner_that_is_starting(directory: Path) -> None:
    process, stream = attach(directory / "runner.sock")
    runner = Runner(directory)
    try:
        client = Client(stream)
        assert client.call("ping").message["ok"] is True
        client.close()
        assert process.wait(PATIENCE_SECONDS) == 0
    finally:
        runner.close()


def test_without_a_runner_the_bridge_gives_up_with_a_reason(directory: Path) -> None:
    result = subprocess.run(
        [PYTHON, "-m", "runner", "attach", "--socket", str(directory / "none"), "--wait-seconds", "0.05"],
        cwd=PACKAGE,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert result.returncode == 3
    assert b"no runner answers" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "usage"),
        (["fly"], "usage"),
        (["serve"], "--socket is required"),
        (["attach", "--socket"], "needs a value"),
        (["attach", "--socket", "x", "--what", "y"], "unknown option --what"),
        (["attach", "--socket", "x", "--wait-seconds", "long"], "number of seconds"),
    ],
)
def test_wrong_arguments_are_explained(arguments: list[str], words: str) -> None:
    result = subprocess.run(
        [PYTHON, "-m", "runner", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert words in result.stderr


def test_the_folder_itself_can_be_started(directory: Path) -> None:
    result = subprocess.run(
        [PYTHON, "-I", str(PACKAGE / "runner"), "attach", "--socket", "/none", "--wait-seconds", "0"],
        cwd=directory,
        capture_output=True,
        check=False,
    )
    assert result.returncode == 3


def test_a_bridge_that_is_killed_lets_the_runner_go_on_with_the_next(
    bridge: tuple[subprocess.Popen[bytes], Client], runner: Runner
) -> None:
    process, client = bridge
    client.call("shell.run", command="x=kept")
    process.kill()
    assert client.stream.recv(1) == b"", "the runner keeps the pipes of an exec that has ended"
    second, stream = attach(runner.socket)
    again = Client(stream)
    assert again.call("shell.run", command="echo $x").result["output"] == "kept\n"
    again.close()
    assert second.wait(PATIENCE_SECONDS) == 0


def test_the_newest_bridge_wins_and_the_one_before_is_told_and_ends(
    bridge: tuple[subprocess.Popen[bytes], Client], runner: Runner
) -> None:
    process, client = bridge
    second, stream = attach(runner.socket)
    again = Client(stream)
    assert client.receive().message["error"]["code"] == "replaced"
    assert process.wait(PATIENCE_SECONDS) == 0
    assert again.call("ping").result["sessions"] == []
    again.close()
    assert second.wait(PATIENCE_SECONDS) == 0


def test_pipes_that_carry_one_way_each_are_taken_as_well(runner: Runner) -> None:
    process = subprocess.Popen(
        [PYTHON, "-S", "-E", "-m", "runner", "attach", "--socket", str(runner.socket)],
        cwd=PACKAGE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    decoder, frames = Decoder(), list[Frame]()
    data = os.urandom(3_000_000)
    path = str(runner.workspace / "file")
    process.stdin.write(encode({"id": 1, "op": "file.write", "args": {"path": path}}, data))
    process.stdin.write(encode({"id": 2, "op": "file.read", "args": {"path": path}}))
    process.stdin.flush()
    while len(frames) < 3:
        frames += decoder.feed(process.stdout.read1())  # type: ignore[attr-defined] # a buffered reader has it
    assert frames[2].blob == data
    process.stdin.close()
    assert process.wait(PATIENCE_SECONDS) == 0
    process.stdout.close()


def test_whoever_hands_over_nothing_useful_is_turned_away(runner: Runner, directory: Path) -> None:
    runner.connect()
    for ancillary in ((), (1,), (1, 2, 3)):
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(PATIENCE_SECONDS)
            control.connect(f"{runner.socket}{SUFFIX}")
            socket.send_fds(control, [b"x"], list(ancillary))
            assert control.recv(1) == b""
    with socket.socket(socket.AF_UNIX) as silent, (directory / "ordinary").open("w+") as file:
        silent.connect(f"{runner.socket}{SUFFIX}")
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(PATIENCE_SECONDS)
            control.connect(f"{runner.socket}{SUFFIX}")
            socket.send_fds(control, [b"x"], [file.fileno(), file.fileno()])
            assert control.recv(1) == b""
    process, stream = attach(runner.socket)
    client = Client(stream)
    assert client.call("ping").message["ok"] is True
    client.close()
    assert process.wait(PATIENCE_SECONDS) == 0
