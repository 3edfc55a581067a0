from __future__ import annotations

import errno
import io
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runtime_images.runner.core.journal import Journal


def done(text: str) -> dict[str, Any]:
    return {"ok": True, "result": {"output": text}}


def opened(directory: Path, **limits: int) -> Journal:
    journal = Journal(str(directory), **limits)
    journal.open()
    return journal


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_answers_are_kept_until_acknowledged(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    assert journal.state("k") == "unknown"
    journal.begin("k")
    assert (journal.state("k"), journal.answer("k")) == ("running", None)
    journal.finish("k", done("x"))
    assert (journal.state("k"), journal.answer("k")) == ("done", done("x"))
    assert journal.acknowledge(["k", "other"]) == 1
    assert journal.state("k") == "unknown"
    journal.close()


def test_the_next_runner_finds_answers_and_what_was_broken_off(tmp_path: Path) -> None:
    first = opened(tmp_path)
    for key in ("done", "acknowledged", "broken", "withdrawn"):
        first.begin(key)
    first.finish("done", done("é \ud800"))
    first.finish("acknowledged", done("x"))
    first.acknowledge(["acknowledged"])
    first.withdraw("withdrawn")
    first.close()
    second = opened(tmp_path)
    assert second.answer("done") == done("é \ud800")
    assert second.state("acknowledged") == second.state("withdrawn") == "unknown"
    broken = second.answer("broken")
    assert broken is not None
    assert broken["error"]["code"] == "interrupted"
    second.close()
    third = opened(tmp_path)
    assert third.answer("broken") == broken
    third.close()


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_line_broken_off_in_the_middle_costs_only_itself(tmp_path: Path, cut: int) -> None:
    first = opened(tmp_path)
    first.begin("a")
    first.finish("a", done("x"))
    first.begin("b")
    first.finish("b", done("y"))
    first.close()
    path = tmp_path / "journal"
    path.write_bytes(path.read_bytes()[:-cut])
    second = opened(tmp_path)
    assert second.answer("a") == done("x")
    assert second.state("b") == "done"  # at least known to have been begun
    second.begin("c")
    second.finish("c", done("z"))
    second.close()
    third = opened(tmp_path)
    assert third.answer("c") == done("z")
    third.close()


def test_garbage_in_the_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(
        b'\x00\xff\n{"k":1}\n[]\n3\n{"x":1}\n{"k":"a","a":{"ok":true,"result":{}}}\nnot json'
    )
    journal = opened(tmp_path)
    assert journal.answer("a") == {"ok": True, "result": {}}
    journal.close()


def test_the_oldest_answers_make_room_but_are_not_taken_for_unknown(tmp_path: Path) -> None:
    journal = opened(tmp_path, size=10_000)
    for n in range(30):
        journal.begin(f"k{n}")
        journal.finish(f"k{n}", done("x" * 1000))
    first = journal.answer("k0")
    assert first is not None
    assert first["error"]["code"] == "forgotten"
    assert journal.answer("k29") == done("x" * 1000)
    journal.close()


def test_the_number_of_entries_is_bounded(tmp_path: Path) -> None:
    journal = opened(tmp_path, entries=10)
    for n in range(30):
        journal.begin(f"k{n}")
        journal.finish(f"k{n}", done("x"))
    assert [journal.state(f"k{n}") for n in (0, 19, 20, 29)] == ["unknown", "unknown", "done", "done"]
    journal.close()


def test_once_every_answer_is_safe_elsewhere_nothing_of_them_is_on_disk(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for key in ("a", "b"):
        journal.begin(key)
        journal.finish(key, done(f"a secret of {key}"))
    journal.acknowledge(["a"])
    assert b"a secret of b" in (tmp_path / "journal").read_bytes()
    journal.begin("running")
    journal.acknowledge(["b"])
    assert (tmp_path / "journal").read_bytes() == b'{"k":"running"}\n'
    journal.finish("running", done("a secret"))
    assert opened(tmp_path).answer("running") == done("a secret")
    journal = opened(tmp_path)
    journal.acknowledge(["running"])
    assert (tmp_path / "journal").read_bytes() == b""
    journal.begin("next")
    journal.finish("next", done("x"))
    assert opened(tmp_path).answer("next") == done("x")


def test_the_file_does_not_grow_with_what_was_acknowledged(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for n in range(3000):
        journal.begin(f"k{n}")
        journal.finish(f"k{n}", done("x" * 20_000))
        journal.acknowledge([f"k{n}"])
    assert (tmp_path / "journal").stat().st_size < 20_000_000
    journal.close()


def test_a_full_disk_is_noted_and_survived(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.begin("before")
    journal.finish("before", done("x"))
    with full_disk(500):
        journal.begin("k")
        journal.finish("k", done("y" * 1000))
        assert "memory only" in journal.trouble
        assert journal.answer("k") == done("y" * 1000)
    journal._retry_at = 0.0
    journal.begin("after")
    assert journal.trouble == ""
    journal.close()
    second = opened(tmp_path)
    assert [second.state(key) for key in ("before", "k", "after")] == ["done", "done", "done"]
    assert second.answer("k") == done("y" * 1000)
    second.close()


def test_a_disk_that_has_no_room_for_the_note_either_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(tmp_path)
    log = FullLog()
    monkeypatch.setattr("sys.stderr", log)
    with full_disk(0):
        journal.begin("k")
        journal.finish("k", done("x"))
    assert log.refused
    assert "memory only" in journal.trouble
    assert journal.answer("k") == done("x")
    journal.close()


class FullLog(io.StringIO):
    """Standard error in a file on a full disk."""

    refused = 0

    def write(self, text: str) -> int:
        self.refused += 1
        raise OSError(errno.ENOSPC, "No space left on device")


def test_without_a_directory_everything_stays_in_memory(tmp_path: Path) -> None:
    journal = opened(tmp_path / "none")
    journal.begin("k")
    journal.finish("k", done("x"))
    assert journal.answer("k") == done("x")
    assert "memory only" in journal.trouble
    journal.close()


def test_what_may_show_a_lent_secret_is_in_memory_only(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.begin("before")
    first.finish("before", done("harmless"))
    first.withholds = True
    for number in range(3):
        first.begin(f"k{number}")
        first.finish(f"k{number}", done("shown " * 100))
    assert first.answer("k0") == done("shown " * 100)
    assert first.acknowledge(["k1"]) == 1
    first._rewrite()
    assert b"shown" not in (tmp_path / "journal").read_bytes()
    first.close()
    second = opened(tmp_path)
    assert second.answer("before") == done("harmless")
    assert [second.state(f"k{number}") for number in range(3)] == ["done", "unknown", "done"]
    answer = second.answer("k2")
    assert answer is not None
    assert answer["error"]["code"] == "forgotten"
    assert "a secret had been lent" in answer["error"]["message"]
    second.close()
