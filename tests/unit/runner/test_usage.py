"""What files take on a disk, however they are named, hidden or held."""

from __future__ import annotations

import os
from pathlib import Path

from runtime_images.runner import server
from runtime_images.runner.core.disk_usage import TreeUsage, measure

BLOCK = 64 * 1024


def written(path: Path, size: int = BLOCK) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    return path


def empty(folder: Path) -> TreeUsage:
    return measure([str(folder)])


def test_what_is_allocated_counts_once_whatever_it_is_called(tmp_path: Path) -> None:
    before = empty(tmp_path)
    file = written(tmp_path / "file")
    (tmp_path / "again").hardlink_to(file)
    (tmp_path / "link").symlink_to("/etc")
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(10 * 1024**3)
    found = measure([str(tmp_path)])
    assert found.entries == before.entries + 3
    assert BLOCK <= found.bytes - before.bytes < 2 * BLOCK
    assert found.whole


def test_a_file_without_a_name_counts_for_who_holds_it(tmp_path: Path) -> None:
    before = empty(tmp_path)
    file = written(tmp_path / "file")
    with file.open("rb"):
        file.unlink()
        assert measure([str(tmp_path)]).bytes == before.bytes
        found = measure([str(tmp_path)], [os.getpid()])
        assert found.bytes - before.bytes >= BLOCK
        assert found.entries > before.entries
    assert measure([str(tmp_path)], [os.getpid()]).bytes < found.bytes


def test_closed_folders_are_looked_into_and_stay_closed(tmp_path: Path) -> None:
    before = empty(tmp_path)
    written(tmp_path / "closed" / "deep" / "file")
    for folder in ("closed/deep", "closed"):
        (tmp_path / folder).chmod(0)
    assert measure([str(tmp_path)]).bytes - before.bytes >= BLOCK
    assert (tmp_path / "closed").stat().st_mode & 0o777 == 0
    (tmp_path / "closed").chmod(0o700)
    assert (tmp_path / "closed/deep").stat().st_mode & 0o777 == 0
    (tmp_path / "closed/deep").chmod(0o700)


def test_what_is_too_deep_or_too_much_is_more_than_allowed(tmp_path: Path) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    found = measure([str(tmp_path)])
    assert not found.whole
    assert found.exceeds(1024**4, 0)
    assert not found.exceeds(0, 0)
    flat = tmp_path / "flat"
    for number in range(100):
        written(flat / str(number), 1)
    assert measure([str(flat)], most_entries=10).exceeds(0, 10)
    assert measure([str(flat)], most_entries=10).entries < 100


def test_limits_are_of_bytes_of_entries_or_of_nothing() -> None:
    assert TreeUsage(11, 5).exceeds(10, 0)
    assert TreeUsage(11, 5).exceeds(0, 4)
    assert not TreeUsage(10, 5).exceeds(10, 5)
    assert not TreeUsage(11, 5).exceeds(0, 0)


def test_a_folder_that_is_not_there_takes_nothing(tmp_path: Path) -> None:
    assert measure([str(tmp_path / "none")]) == TreeUsage(0, 0)


def test_a_new_home_has_what_the_old_one_has_and_can_be_changed(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / ".config").mkdir(parents=True)
    (old / ".bashrc").write_text("alias x=y")
    (old / ".config" / "tool").write_text("setting")
    package = old / ".local/lib/python3/site-packages/package"
    package.mkdir(parents=True)
    (package / "code.py").write_text("code")
    written(old / "large", 100_000)
    new.mkdir()
    (new / ".profile").write_text("mine")
    (old / ".profile").write_text("theirs")
    server.furnish(str(old), str(new))
    server.furnish(str(old), str(new))
    assert (new / ".bashrc").read_text() == "alias x=y"
    assert not (new / ".bashrc").is_symlink()
    assert (new / ".profile").read_text() == "mine"
    assert (new / ".config" / "tool").read_text() == "setting"
    assert (new / "large").resolve() == old / "large"
    site = new / ".local/lib/python3/site-packages"
    assert (site / "package/code.py").read_text() == "code"
    assert not site.is_symlink()
    (new / ".config" / "other").write_text("new")
    assert not (old / ".config" / "other").exists()


def test_a_home_of_very_many_files_is_linked_to_from_above(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for number in range(2100):
        written(old / "many" / str(number), 1)
    (old / "zoo").mkdir()
    new.mkdir()
    server.furnish(str(old), str(new))
    assert (new / "zoo").is_symlink()
