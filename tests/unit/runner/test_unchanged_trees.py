"""A workspace in which nothing was changed is kept under another name at a glance; every change is seen."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime_images.runner.files.snapshot_tree import Tree, TreeStore

LIMIT = 8


class Workspace:
    """A folder with a file, a link and a folder, kept under the name ``first``."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "workspace"
        (self.root / "sub").mkdir(parents=True)
        (self.root / "sub/file").write_text("one")
        (self.root / "link").symlink_to("sub/file")
        self.store = folder / "store"
        self.store.mkdir()
        self.tree = Tree(str(self.root), TreeStore(str(self.store)))

    def settle(self) -> None:
        """Keep the files, as if long after they were written."""
        self.tree.take("first", lambda: False)
        self.tree._looked_at += 10**12


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path)
    made.settle()
    return made


def test_what_has_not_changed_is_kept_under_the_other_name_too(workspace: Workspace) -> None:
    assert workspace.tree.take_unchanged("second", LIMIT)
    (workspace.root / "sub/file").write_text("changed")
    present = workspace.tree.take("third", lambda: False)
    workspace.tree.restore("second", present)
    assert (workspace.root / "sub/file").read_text() == "one"
    again = Tree(str(workspace.root), TreeStore(str(workspace.store)))
    assert all(again.last_taken([name]) for name in ("first", "second", "third"))


def test_the_order_in_which_names_were_kept_outlives_the_process(workspace: Workspace) -> None:
    for name in ("one", "two", "one"):
        workspace.tree.take(name)
    again = Tree(str(workspace.root), TreeStore(str(workspace.store)))
    assert workspace.tree.last_taken(["two", "one"]) == again.last_taken(["two", "one"]) == "one"


def _replace(root: Path) -> None:
    (root / "other").write_text("two")
    os.replace(root / "other", root / "sub/file")


def _swap_link(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to("sub/elsewhere")


def _same_size(root: Path) -> None:
    (root / "sub/file").write_text("two")
    os.utime(root / "sub/file", ns=(1, 1))


def _remove(root: Path) -> None:
    (root / "sub/file").unlink()


def _special(root: Path) -> None:
    os.mkfifo(root / "fifo")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a new file": lambda root: (root / "new").write_text(""),
    "a new file below": lambda root: (root / "sub/new").write_text(""),
    "a new folder": lambda root: (root / "empty").mkdir(),
    "a file removed": _remove,
    "a content of the same size and time": _same_size,
    "a file replaced": _replace,
    "a mode": lambda root: (root / "sub/file").chmod(0o755),
    "a folder's mode": lambda root: (root / "sub").chmod(0o750),
    "a link": _swap_link,
    "a pipe": _special,
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(workspace: Workspace, change: str) -> None:
    CHANGES[change](workspace.root)
    assert not workspace.tree.take_unchanged("second", LIMIT)
    assert not workspace.tree.last_taken(["second"])


def test_a_file_that_was_written_a_moment_before_it_was_kept_is_read_again(workspace: Workspace) -> None:
    (workspace.root / "sub/file").write_text("fresh")
    workspace.tree.take("first", lambda: False)
    assert not workspace.tree.take_unchanged("second", LIMIT)


def test_more_than_a_glance_is_left_to_the_thorough_way(workspace: Workspace) -> None:
    assert not workspace.tree.take_unchanged("second", 2)
    assert workspace.tree.take_unchanged("second", 3)


def test_before_anything_was_kept_and_after_files_were_brought_back_nothing_is_known(workspace: Workspace) -> None:
    fresh = Tree(str(workspace.root), TreeStore(str(workspace.store)))
    assert not fresh.take_unchanged("second", LIMIT)
    workspace.tree.restore("first", workspace.tree.take("kept", lambda: False))
    assert not workspace.tree.take_unchanged("second", LIMIT)


def test_names_are_kept_within_their_number_and_the_newest_stay(workspace: Workspace) -> None:
    for number in range(600):
        assert workspace.tree.take_unchanged(f"name {number}", LIMIT)
    assert workspace.tree.last_taken(["name 599"])
    assert not workspace.tree.last_taken(["name 0"])
    again = Tree(str(workspace.root), TreeStore(str(workspace.store)))
    assert again.last_taken(["name 599"])
