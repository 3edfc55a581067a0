from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from server.db.storage_probe import StorageProbe, damage_in, file_system, probe_storage

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /srv rw,relatime - xfs /dev/vdb rw
31 30 0:26 / /srv/our\040data rw,relatime shared:7 - nfs4 host:/export rw,vers=4.2
"""


def test_the_kind_of_file_system_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    found = [file_system(Path(one), mounts) for one in ("/var", "/srv/x", "/srv/our data/drydock", "/srv/our")]
    assert found == ["ext4", "xfs", "nfs4", "xfs"]
    assert file_system(Path("/"), tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("kind", "milliseconds", "words"),
    [
        ("ext4", 2.0, ""),
        ("nfs4", 2.0, "database_url"),
        ("fuse.sshfs", 2.0, "local disk"),
        ("tmpfs", 0.0, "in memory"),
        ("ext4", 80.0, "faster disk"),
    ],
)
def test_what_speaks_against_a_storage_is_said_with_what_to_do(kind: str, milliseconds: float, words: str) -> None:
    danger = StorageProbe(kind, milliseconds).danger
    assert words in danger
    assert bool(danger) == bool(words)


def test_a_probe_leaves_nothing(tmp_path: Path) -> None:
    assert probe_storage(tmp_path).sync_milliseconds > 0
    assert list(tmp_path.iterdir()) == []


def test_damaged_pages_are_found(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE things (value)")
        database.executemany("INSERT INTO things VALUES (?)", [("word " * 200,)] * 100)
        database.commit()
    assert damage_in(file, 10) == ""
    with file.open("r+b") as opened:
        opened.seek(4096 * 5)
        opened.write(os.urandom(4096))
    assert damage_in(file, 10)
    assert damage_in(file, -1) is None
