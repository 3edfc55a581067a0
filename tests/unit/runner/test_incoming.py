"""Files that come in where the file system knows no files without a name."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from runtime_images.runner.files.confined_folder import ConfinedFolder
from runtime_images.runner.files.transfers import Incoming


@pytest.fixture(autouse=True)
def no_unnamed_files(monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.open

    def refusing(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return really(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refusing)


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "present").write_text("old")
    (tmp_path / "present").chmod(0o755)
    for path, is_kept in (("present", True), ("new/deep/file", True), ("dropped", False)):
        incoming = Incoming(ConfinedFolder(str(tmp_path)), path)
        incoming.part(0, b"new")
        assert path == "present" or not (tmp_path / path).exists()
        if is_kept:
            assert incoming.keep() == 3
        incoming.close()
        incoming.close()
    assert (tmp_path / "present").read_text() == (tmp_path / "new/deep/file").read_text() == "new"
    assert (tmp_path / "present").stat().st_mode & 0o777 == 0o755
    assert sorted(os.listdir(tmp_path)) == ["new", "present"]


def test_a_folder_that_came_into_the_files_place_stays(tmp_path: Path) -> None:
    incoming = Incoming(ConfinedFolder(str(tmp_path)), "place")
    (tmp_path / "place").mkdir()
    with pytest.raises(Exception, match="a folder already"):
        incoming.keep()
    incoming.close()
    assert os.listdir(tmp_path) == ["place"]
