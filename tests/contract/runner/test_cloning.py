"""Clones that take too long, are cancelled, or find their place taken: nothing of them stays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_core.session import repository
from tests.contract.runner.client import Client, until
from tests.contract.workspace.git_server import TOKEN, GitServer


@pytest.fixture
def git_server(tmp_path: Path) -> Iterator[GitServer]:
    server = GitServer(tmp_path)
    yield server
    server.close()


def test_a_clone_that_takes_too_long_is_stopped_and_leaves_nothing(
    client: Client, workspace: Path, git_server: GitServer
) -> None:
    url = f"{git_server.url}/ann/slow.git"
    result = client.call("git.clone", url=url, folder="slow", password=TOKEN, timeout=0.5).result
    assert (result["code"], "0.5 s" in result["error"]) == ("too_slow", True)
    assert os.listdir(workspace) == []


def test_a_clone_that_is_cancelled_leaves_nothing(client: Client, workspace: Path, git_server: GitServer) -> None:
    number = client.send("git.clone", url=f"{git_server.url}/ann/slow.git", folder="slow")
    assert git_server.asked.wait(60)
    assert client.call("cancel", id=number).result == {"cancelled": True}
    assert client.wait(number).error["code"] == "cancelled"
    until(lambda: os.listdir(workspace) == [], "the clone is gone")


def test_progress_is_told_and_what_is_there_is_left_alone(
    client: Client, workspace: Path, git_server: GitServer
) -> None:
    git_server.make("ann/open")
    answer = client.call("git.clone", url=f"{git_server.url}/ann/open.git", folder="open")
    assert answer.result == {"cloned": True, "branch": "main"}
    assert '"progress"' in "".join(answer.live)
    (workspace / "open/file").write_text("mine")
    assert client.call("git.clone", url=f"{git_server.url}/ann/open.git", folder="open").result == {"cloned": False}
    assert (workspace / "open/file").read_text() == "mine"
    shutil.rmtree(workspace / "open")


def test_a_clone_has_its_mark_until_somebody_takes_it_away(
    client: Client, workspace: Path, git_server: GitServer
) -> None:
    git_server.make("ann/marked")
    order: dict[str, Any] = {"url": f"{git_server.url}/ann/marked.git", "folder": "marked"}
    mark = workspace / "marked" / repository.MARK
    assert client.call("git.clone", **order, mark=17).result == {"cloned": True, "branch": "main"}
    assert client.call("git.clone", **order, mark=18).result == {"cloned": False, "mark": 17}
    for text in ("", "17 ", "-1", "\0", "1" * 30):
        mark.write_text(text)
        assert client.call("git.clone", **order).result.get("mark") in (None, 2**53 - 1)
    mark.unlink()
    assert client.call("git.clone", **order).result == {"cloned": False}
    os.mkfifo(mark)
    assert client.call("git.clone", **order).result == {"cloned": False}
    shutil.rmtree(workspace / "marked")


@pytest.mark.parametrize(
    "args",
    [
        {"url": "https://ann@host/x.git"},
        {"url": "ssh://host/x.git"},
        {"url": "ext::sh -c evil"},
        {"url": "file:///etc"},
        {"url": "https://host/x\n"},
        {"folder": "a/b"},
        {"folder": ".."},
        {"folder": ""},
        {"branch": "-x"},
        {"password": "a\nb"},
        {"password": "x" * 1000},
    ],
)
def test_orders_that_could_mean_something_else_are_refused(client: Client, args: dict[str, str]) -> None:
    order: dict[str, Any] = {"url": "https://host.invalid/x.git", "folder": "x", **args}
    assert client.call("git.clone", **order).error["code"] in {"bad_request", "forbidden"}


def test_instructions_of_another_repository_are_read_and_nothing_of_it_stays(
    client: Client, workspace: Path, git_server: GitServer
) -> None:
    texts = {"skills/a.md": "A", "skills/deep/b.md": "B", "microagents/c.md": "C", "skills/README.md": "R", "d.md": "D"}
    git_server.publish("ann/shared", {**texts, "skills/e.py": "E"})
    order: dict[str, Any] = {"url": f"{git_server.url}/ann/shared.git", "folders": ["skills", "microagents", "none"]}
    found = client.call("git.instructions", **order).result["files"]
    assert {one["path"]: one["content"] for one in found} == {
        "skills/a.md": "A",
        "skills/deep/b.md": "B",
        "microagents/c.md": "C",
    }
    assert os.listdir(workspace) == []
    missing = client.call("git.instructions", url=f"{git_server.url}/ann/none.git", folders=["skills"]).result
    assert missing["code"] in {"not_found", "authentication"}
    slow = client.call("git.instructions", **{**order, "url": f"{git_server.url}/ann/slow.git"}, timeout=0.5).result
    assert slow["code"] == "too_slow"
    assert os.listdir(workspace) == []
    for folders in (["../x"], "skills", [7]):
        refused = client.call("git.instructions", **{**order, "folders": folders}).error
        assert refused["code"] in {"bad_request", "forbidden"}
