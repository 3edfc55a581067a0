"""Workspaces as tar files, read while somebody inside does what they like."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from pathlib import Path

import pytest

from agent_core.errors import SandboxError
from agent_core.runtime.workspace_archive import MAX_DEPTH, WorkspaceArchive, archive_folder


def names_in(content: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return sorted(tar.getnames())


def archived(folder: Path, most: int = 0) -> tuple[bytes, list[str]]:
    file = io.BytesIO()
    left_out = archive_folder(folder, file, most)
    return file.getvalue(), left_out


def copied(content: bytes, most: int = 0) -> tuple[bytes, list[str]]:
    """As an engine gives it: in chunks."""
    file = io.BytesIO()
    with WorkspaceArchive(file, most) as archive:
        archive.add_tar(content[start : start + 700] for start in range(0, len(content), 700))
    return file.getvalue(), archive.left_out


def as_an_engine_gives_it(folder: Path) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.add(folder, "workspace")
    return file.getvalue()


def test_nothing_outside_is_read_whatever_links_are_put_in_the_way(tmp_path: Path) -> None:
    """A folder, and a file, that are links to the outside half of the time."""
    inside, outside = tmp_path / "workspace", tmp_path / "outside"
    for folder in (inside / "a/b", outside / "b"):
        folder.mkdir(parents=True)
    (outside / "b/file").write_text("secret")
    (inside / "a/b/file").write_text("mine")
    is_over = threading.Event()

    def exchange() -> None:
        while not is_over.is_set():
            os.rename(inside / "a", inside / "kept")
            os.symlink(outside, inside / "a")
            os.unlink(inside / "a")
            os.rename(inside / "kept", inside / "a")
            os.rename(inside / "a/b/file", inside / "file")
            os.symlink(outside / "b/file", inside / "a/b/file")
            os.unlink(inside / "a/b/file")
            os.rename(inside / "file", inside / "a/b/file")

    attacker = threading.Thread(target=exchange)
    attacker.start()
    try:
        found = [archived(inside)[0] for _ in range(400)]
    finally:
        is_over.set()
        attacker.join()
    assert not any(b"secret" in content for content in found)
    assert any(b"mine" in content for content in found)


def test_a_file_of_holes_does_not_fill_the_disk_of_a_backup(tmp_path: Path) -> None:
    (tmp_path / "small").write_text("small")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**43)
    content, left_out = archived(tmp_path, most=1000)
    assert (names_in(content), left_out) == (["small"], ["huge"])
    os.link(tmp_path / "small", tmp_path / "two")
    (tmp_path / "huge").write_bytes(b"h" * 2000)
    content, left_out = copied(as_an_engine_gives_it(tmp_path), most=1000)
    assert (names_in(content), left_out) == (["small", "two"], ["huge"])


def test_what_cannot_be_read_is_named_and_the_rest_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path.joinpath(*["d"] * (MAX_DEPTH + 2))
    deep.mkdir(parents=True)
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "closed").write_text("closed")
    os.mkfifo(tmp_path / "pipe")
    opens = os.open

    def refusing(path: object, flags: int, *rest: int, **options: int) -> int:
        if path == "closed":
            raise PermissionError(13, "no")
        return opens(path, flags, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refusing)
    content, left_out = archived(tmp_path)
    assert sorted(left_out) == ["closed", "/".join(["d"] * (MAX_DEPTH + 1))]
    assert "mine" in names_in(content)
    assert "pipe" not in names_in(content)
    with pytest.raises(SandboxError, match="gone"):
        archived(tmp_path / "none")


def test_a_file_that_becomes_shorter_while_it_is_read_does_not_spoil_the_rest(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode() * 3_000_000)

    class Shortening(io.BytesIO):
        def write(self, data: object, /) -> int:
            for name in "abc":
                os.truncate(tmp_path / name, 10)
            return super().write(data)  # type: ignore[arg-type]

    file = Shortening()
    assert archive_folder(tmp_path, file, 0) == []
    with tarfile.open(fileobj=io.BytesIO(file.getvalue())) as tar:
        sizes = sorted(member.size for member in tar)
    assert sizes in ([10, 10, 3_000_000], [10, 10, 10])


def test_what_an_engine_gives_is_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_bytes(b"\0" * 3000)
    (tmp_path / "link").symlink_to("folder/file")
    whole = as_an_engine_gives_it(tmp_path)
    assert names_in(copied(whole)[0]) == ["folder", "folder/file", "link"]
    for end in range(0, len(whole.rstrip(b"\0")) + 1, 512):
        with pytest.raises(tarfile.ReadError):
            copied(whole[:end])
