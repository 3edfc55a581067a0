"""The data folder is its user's alone, however it was left."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from server.db.data_folder import prepare_data_dir
from server.db.database import open_database
from server.db.errors import DataDirectoryError


def modes_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)) or ".": oct(stat.S_IMODE(path.lstat().st_mode))
        for path in [folder, *folder.rglob("*")]
        if not path.is_symlink()
    }


@pytest.fixture
def opened(tmp_path: Path) -> Path:
    """A data folder that others may do anything in."""
    folder = tmp_path / "data"
    for name in ("blobs/ab", "sandboxes/one", "forks", "backup"):
        (folder / name).mkdir(parents=True)
    for name in ("drydock.db", "drydock.db-wal", "secret.key", "token", "blobs/ab/x", "sandboxes/one/file", "backup/y"):
        (folder / name).write_text("x")
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)
    return folder


def test_what_others_could_reach_they_cannot_any_more_and_the_log_says_so(
    opened: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert prepare_data_dir(opened) == opened
    for name, mode in modes_of(opened).items():
        if name.startswith("sandboxes/"):  # others run there, and reach no more than is shown to them
            assert mode in ("0o777", "0o666")
        else:
            assert mode == ("0o700" if (opened / name).is_dir() else "0o600"), name
    (line,) = caplog.messages
    assert "others could reach" in line
    assert f"{opened} (mode 777) and" in line
    caplog.clear()
    prepare_data_dir(opened)
    assert caplog.messages == []


def test_a_link_is_not_followed(opened: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    outside.chmod(0o755)
    (outside / "file").chmod(0o644)
    (opened / "blobs/link").symlink_to(outside)
    (opened / "file").symlink_to(outside / "file")
    prepare_data_dir(opened)
    assert modes_of(outside) == {".": "0o755", "file": "0o644"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_another_user_is_named_and_left_alone(opened: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.chown(opened / "token", 12345, 12345)
    os.chown(opened / "backup", 12345, 12345)
    with caplog.at_level(logging.WARNING):
        prepare_data_dir(opened)
    (line,) = [message for message in caplog.messages if "another user's" in message]
    assert "backup (uid 12345) and 1 more" in line or "token (uid 12345) and 1 more" in line
    assert oct(stat.S_IMODE((opened / "backup/y").stat().st_mode)) == "0o666"


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1 if owner else 12345)
    if owner == 0:
        os.chown(tmp_path, 54321, 54321)
    with pytest.raises(DataDirectoryError, match=r"belongs to another user \(uid \d+\).*chown"):
        prepare_data_dir(tmp_path)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
async def test_a_new_folder_is_private_under_any_mask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        async with open_database(tmp_path / "data"):
            found = modes_of(tmp_path / "data")
    finally:
        os.umask(before)
    wide = {name: mode for name, mode in found.items() if mode not in ("0o700", "0o600")}
    assert wide == {}
    assert {"drydock.db", "secret.key", "instance-id", "instance.lock"} <= found.keys()
