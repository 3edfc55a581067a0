"""Small parts: keys, reports, history, workers, the loop, and the process table."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_images.runner.core import processes
from runtime_images.runner.core.loop import Loop
from runtime_images.runner.core.workers import TooMuchWorkError, Workers
from runtime_images.runner.files.edits import EditHistory
from runtime_images.runner.terminal.pty import key, typed
from runtime_images.runner.terminal.shell_protocol import quote
from runtime_images.runner.terminal.shell_state import ShellState, StatePipe, StateReader
from runtime_images.runner.terminal.shell_streams import Report, ReportReader


@pytest.mark.parametrize(
    ("text", "name", "data"),
    [
        ("C-c", "CTRL+C", b"\x03"),
        ("C-z", "CTRL+Z", b"\x1a"),
        ("CTRL-d", "CTRL+D", b"\x04"),
        ("CTRL+A", "CTRL+A", b"\x01"),
        ("ENTER", "ENTER", b"\r"),
        ("UP", "UP", b"\x1b[A"),
        ("BS", "BS", b"\x7f"),
        ("PGDN", "PGDN", b"\x1b[6~"),
    ],
)
def test_keys_are_known_by_name(text: str, name: str, data: bytes) -> None:
    assert key(text) == (name, data)


@pytest.mark.parametrize("text", ["", "c", "C-", "C-cc", "C-1", "enter the name", "Tab", "ls", "C-c; ls"])
def test_other_texts_are_no_keys(text: str) -> None:
    assert key(text) is None


def test_lines_are_typed_with_returns() -> None:
    assert typed("a\nb\r\nc") == b"a\rb\rc\r"


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_quoted_text_is_one_word(text: str) -> None:
    printed = subprocess.run(["bash", "-c", f"printf %s {quote(text)}"], capture_output=True, check=True)
    assert printed.stdout == text.encode()


@given(st.lists(st.integers(0, 300), max_size=6))
def test_reports_are_found_among_noise_however_divided(cuts: list[int]) -> None:
    data = b"noise\0w\0" + b"0\0-1\0/a\0/p\0\0" + b"real\0" + b"3\x0042\0/d\xff\0/p\0him\0" + b"more"
    reader = ReportReader()
    reader.expect("real", "other")
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    found = [item for start, end in pairwise(edges) for item in reader.feed(data[start:end])]
    assert found == [Report("real", 3, 42, "/d\udcff", "/p", "him")]


def test_a_flood_in_the_place_of_reports_takes_bounded_memory() -> None:
    reader = ReportReader()
    reader.expect("real")
    for _ in range(100):
        assert reader.feed(b"x" * 100_000) == []
    assert len(reader._buffer) <= 4 * 1024 * 1024 + 100_000


@given(st.lists(st.integers(0, 300), max_size=6))
def test_states_are_found_among_noise_however_divided(cuts: list[int]) -> None:
    data = b"noise\0x.state\0one\0two\0other.state\0declare -- a=1\n\0extglob\0noglob:errexit\0real.state\0more"
    reader = StateReader()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    found = [reader.feed(data[start:end], ("real",)) for start, end in pairwise(edges)]
    states = [state for state in found if state is not None]
    assert states == [ShellState("real", b"declare -- a=1\n", b"extglob", b"noglob:errexit")]
    assert b"shopt -s extglob" in states[0].script()
    assert b"set -o noglob" in states[0].script()
    assert b"set -o errexit" not in states[0].script()


def test_a_state_over_the_limit_is_left_out_and_the_next_is_found() -> None:
    reader = StateReader()
    whole = b"\0declarations\0\0\0real.state\0"
    for _ in range(50):
        assert reader.feed(b"x" * 100_000, ("real",)) is None
    assert reader.feed(whole[13:], ("real",)) is None
    assert reader.feed(whole, ("real",)) == ShellState("real", b"declarations", b"", b"")


def test_a_state_that_is_still_on_its_way_when_its_shell_dies_is_waited_for() -> None:
    pipe = StatePipe(Loop())
    pipe.open()
    try:
        pipe.expect("last")
        pipe.announce("last", at_once=True)
        shell = ["sh", "-c", f"sleep 0.05; printf '\\0declare -- a=1\\0\\0\\0last.state\\0' >{pipe.path}"]
        with subprocess.Popen(shell):
            pipe.shell_died()
        assert b"declare -- a=1" in (pipe.script() or b"")
    finally:
        pipe.close()


def test_a_state_larger_than_a_terminal_hands_out_at_once_is_read_whole_before_the_next_command() -> None:
    declarations = "".join(f"declare -- variable{number}={'x' * 40}\n" for number in range(150))
    pipe = StatePipe(Loop())
    pipe.open()
    try:
        pipe.expect("before")
        written = f"\0{declarations}\0\0\0before.state\0".encode()
        shell = os.open(pipe.path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        assert os.write(shell, written) == len(written)
        os.close(shell)
        pipe.expect("next")
        assert declarations.encode() in (pipe.script() or b"")
    finally:
        pipe.close()


def test_history_falls_back_to_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    history = EditHistory(str(tmp_path / "file"))
    history.push("/a", b"one")
    history.push("/a", b"two")
    assert [history.pop("/a"), history.pop("/a"), history.pop("/a")] == [b"two", b"one", None]


def test_history_outlives_its_object(tmp_path: Path) -> None:
    EditHistory(str(tmp_path)).push("/a", b"one")
    assert EditHistory(str(tmp_path)).pop("/b") is None
    assert EditHistory(str(tmp_path)).pop("/a") == b"one"


def test_versions_of_files_edited_long_ago_make_room_for_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime_images.runner.files.edits.DISK_LIMIT", 1000)
    kept = EditHistory(str(tmp_path))
    for number in range(10):
        kept.push(f"/{number}", bytes(150))
        folder = max(tmp_path.iterdir(), key=lambda path: path.stat().st_ctime_ns)
        os.utime(folder, ns=(number, number))
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*")) <= 1000
    assert kept.pop("/0") is None
    assert kept.pop("/9") == bytes(150)


def test_jobs_of_a_lane_are_done_in_order_and_others_beside_them() -> None:
    loop = Loop()
    workers = Workers(loop)
    order: list[str] = []
    gate = threading.Event()

    def finished(name: str) -> None:
        order.append(name)
        if len(order) == 4:
            loop.stop()

    def start(lane: str, name: str, *, waits: bool = False) -> Callable[[], bool]:
        def work() -> str:
            if waits:
                assert gate.wait(60)
            return name

        return workers.start(lane, work, finished, lambda error: finished(repr(error)))

    start("a", "a1", waits=True)
    start("a", "a2")
    take_back = start("a", "never")
    assert take_back()
    assert not take_back()
    start("b", "b1")

    def failed(_error: Exception) -> None:
        finished("failed")
        gate.set()

    workers.start("c", lambda: str(1 // 0), finished, failed)
    loop.run()
    assert [name for name in order if name.startswith("a")] == ["a1", "a2"]
    assert sorted(order) == ["a1", "a2", "b1", "failed"]
    workers.close()
    loop.close()


def test_the_work_that_waits_is_bounded() -> None:
    loop = Loop()
    workers = Workers(loop)
    gate = threading.Event()

    for _ in range(256):
        workers.start("a", gate.wait)
    with pytest.raises(TooMuchWorkError):
        workers.start("a", gate.wait)
    gate.set()
    workers.close()
    loop.close()


def test_a_callback_that_fails_does_not_end_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
    loop = Loop()
    loop.call_soon(lambda: [][0])
    late = loop.call_later(0.02, loop.stop)
    never = loop.call_later(0.01, lambda: pytest.fail("it was cancelled"))
    never.cancel()
    loop.run()
    assert "IndexError" in capsys.readouterr().err
    late.cancel()
    loop.close()


@pytest.mark.parametrize("shell", [-1, 0, 1])
def test_without_a_shell_no_process_belongs_to_a_terminal(shell: int) -> None:
    everything_since = 0
    assert processes.belonging(processes.TerminalProcesses(shell, "no-such-mark", everything_since)) == []


def test_nothing_older_than_a_terminal_belongs_to_it() -> None:
    shell = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    assert shell.stdout is not None
    child = int(shell.stdout.readline())
    try:
        own = processes.belonging(processes.TerminalProcesses(shell.pid, "none", 0))
        assert [process.pid for process in own] == [child]
        later = processes.now_in_ticks() + 100
        assert processes.belonging(processes.TerminalProcesses(shell.pid, "none", later)) == []
    finally:
        processes.kill_all(processes.TerminalProcesses(shell.pid, "none", 0))
        shell.wait()
        shell.stdout.close()


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_no_signal_is_ever_sent_to_many_processes_or_to_init(pid: int) -> None:
    processes.signal_process(pid, 0)
    processes.signal_group(pid, 0)


def test_a_report_cut_off_by_a_shells_death_does_not_hide_the_next_shells() -> None:
    reader = ReportReader()
    reader.expect("first")
    assert reader.feed(b"\0first\x003\0") == []
    reader.reset()
    reader.expect("second")
    whole = b"half a state\0\0second\x000\0\0/\0/bin\0him\0"
    assert reader.feed(whole) == [Report("second", 0, -1, "/", "/bin", "him")]
