"""Searches through a runner: in processes of their own, so none can keep the runner from anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.runner.client import Client, Runner, processes_with, until

CATASTROPHE = r"(?=((a+)+)b)x"  # a look ahead, which ripgrep does not know


def put(workspace: Path, name: str, content: str = "needle\n") -> Path:
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_files_are_found_by_content_and_by_name(client: Client, workspace: Path) -> None:
    path = put(workspace, "src/a.py")
    everything = {"root": str(workspace), "truncated": False, "unreadable": 0, "too_large": 0}
    assert client.call("search.grep", pattern="NEEDLE").result == {"files": [str(path)], **everything}
    assert client.call("search.glob", pattern="*.py").result == {"files": [str(path)], **everything}
    below = client.call("search.grep", pattern="needle", path="src", include="*.py", limit=1).result
    assert (below["root"], below["files"]) == (f"{workspace}/src", [str(path)])
    assert client.call("search.grep", pattern="(").result["error"].startswith("Invalid regex pattern")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "pattern must be a string (it is missing)"),
        ({"pattern": ""}, "pattern is empty"),
        ({"pattern": "x" * 10_001}, "the limit is 10000"),
        ({"pattern": "x", "path": 7}, "path must be a string"),
        ({"pattern": "x", "path": "a\0"}, "must not hold NUL"),
        ({"pattern": "x", "include": []}, "include must be a string"),
        ({"pattern": "x", "limit": 0}, "limit must be a whole number from 1"),
        ({"pattern": "\ud800"}, "half characters"),
    ],
)
def test_what_is_no_search_is_refused_by_the_name_of_the_argument(
    client: Client, args: dict[str, Any], words: str
) -> None:
    error = client.call("search.grep", **args).error
    assert error["code"] == "bad_request"
    assert words in error["message"]


def test_a_regex_that_takes_for_ever_ends_at_the_limit_and_holds_nothing_up(
    client: Client, runner: Runner, workspace: Path
) -> None:
    put(workspace, "a", "a" * 40 + "\n")
    number = client.send("search.grep", pattern=CATASTROPHE, timeout=0.7)
    assert client.output("echo meanwhile") == "meanwhile\n"
    result = client.wait(number).result
    assert result["error"].startswith("The search took longer than 0.7 s and was stopped: simplify the pattern")
    until(lambda: not _searching(runner), "the search is gone")


def test_a_cancelled_search_is_gone_at_once(client: Client, runner: Runner, workspace: Path) -> None:
    put(workspace, "a", "a" * 40 + "\n")
    number = client.send("search.grep", pattern=CATASTROPHE)
    until(lambda: bool(_searching(runner)), "the search runs")
    assert client.call("cancel", id=number).result == {"cancelled": True}
    assert client.wait(number).error["code"] == "cancelled"
    until(lambda: not _searching(runner), "the search is gone")


def test_too_many_searches_at_once_are_refused_and_the_others_end(client: Client, workspace: Path) -> None:
    put(workspace, "a", "a" * 40 + "\n")
    numbers = [client.send("search.grep", pattern=CATASTROPHE, timeout=1) for _ in range(8)]
    assert client.call("search.glob", pattern="*").error["code"] == "busy"
    assert all("took longer" in client.wait(number).result["error"] for number in numbers)
    assert client.call("search.glob", pattern="*").result["files"] == [str(workspace / "a")]


def _searching(runner: Runner) -> list[int]:
    """Its searches: processes that it has started for one."""
    return [pid for pid in processes_with("runner search") if f"PPid:\t{runner.process.pid}\n" in _status(pid)]


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""  # it has just ended
