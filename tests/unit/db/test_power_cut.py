"""A power cut: of what was written last an unknown part is on the disk, whole or torn, and the rest is not."""

from __future__ import annotations

import logging
import os
import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from agent_core.testing.store_contract import new_events
from server.db.data_folder import LOCK_FILE
from server.db.database import DATABASE_FILE, open_database
from server.db.errors import DatabaseError
from server.db.sqlite import damage_of

CUTS = int(os.environ.get("CUTS", "12"))
WAL = f"{DATABASE_FILE}-wal"


async def image_in(folder: Path, image: Path) -> tuple[Path, int]:
    """The files of a database at work, and how much of its write-ahead log is in use."""
    async with open_database(folder) as database:
        await database.make_room()  # the log has old frames behind the new ones, as that of a server at work
        for number in range(30):
            for log in ("a", "b"):
                await database.events.append(log, new_events(f"{log}{number} " * 200))
        for name in (DATABASE_FILE, WAL, "instance-id", "secret.key"):
            shutil.copy(folder / name, image)
    return image, used_bytes(image / WAL)


def used_bytes(wal: Path) -> int:
    """How much of a write-ahead log belongs to its present generation: its frames bear the salt of its head."""
    data = wal.read_bytes()
    page = int.from_bytes(data[8:12], "big")
    end = 32
    while data[end + 8 : end + 16] == data[16:24]:
        end += 24 + page
    return end


def cut(image: tuple[Path, int], folder: Path, seed: int) -> None:
    """Put into `folder` what a power cut has left: the log up to somewhere, and behind it nothing, zeros or noise."""
    source, used = image
    shutil.copytree(source, folder, dirs_exist_ok=True)
    rng = random.Random(seed)
    data = bytearray((folder / WAL).read_bytes())
    place = rng.randrange(used) // rng.choice((1, 512, 4120)) * rng.choice((1, 512, 4120)) % used
    match seed % 4:
        case 0:
            del data[place:]
        case 1:
            data[place:used] = bytes(used - place)
        case 2:
            data[place:used] = rng.randbytes(used - place)
        case _:  # one sector in the middle did not reach the disk, those behind it did
            data[place : place + 512] = rng.randbytes(min(512, len(data) - place))
    (folder / WAL).write_bytes(data)


async def test_what_is_left_of_each_log_is_its_beginning_and_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    image, lengths = await image_in(tmp_path / "live", tmp_path / "image"), set()
    for seed in range(CUTS):
        folder = tmp_path / str(seed)
        cut(image, folder, seed)
        async with open_database(folder) as database:
            for log in ("a", "b"):
                read = [one.payload for one in await database.events.read(log, limit=100)]
                assert read == [(f"{log}{number} " * 200).encode() for number in range(len(read))], seed
                assert await database.events.append(log, new_events("more")) == len(read)
                lengths.add(len(read))
        with closing(sqlite3.connect(folder / DATABASE_FILE)) as file:
            assert damage_of(file) == "", seed
        shutil.rmtree(folder)
    assert len(lengths) > 3, "the cuts were at different places"


PAGE = 4096


async def test_a_checkpoint_that_the_disk_has_lost_in_part_is_found_when_the_machine_comes_back(tmp_path: Path) -> None:
    """Some pages of the database are those of before, though their sync was said to be done."""
    live, file = tmp_path / "live", tmp_path / "live" / DATABASE_FILE
    async with open_database(live) as database:
        for number in range(60):
            for log in ("a", "b"):
                await database.events.append(log, new_events(f"{log}{number} " * 200))
            if number == 20:
                _checkpoint(file)
                before = file.read_bytes()
            if number == 55:
                _checkpoint(file)
        image = {one: (live / one).read_bytes() for one in (DATABASE_FILE, WAL, "instance-id", "secret.key")}
    after, outcomes = image[DATABASE_FILE], Counter[str]()
    before += bytes(len(after) - len(before))
    changed = [at for at in range(0, len(after), PAGE) if after[at : at + PAGE] != before[at : at + PAGE]]
    for seed in range(CUTS):
        rng, folder = random.Random(seed), tmp_path / str(seed)
        folder.mkdir(mode=0o700)
        lost, pages = rng.sample(changed, rng.randint(1, len(changed))), bytearray(after)
        for at in lost:
            pages[at : at + PAGE] = before[at : at + PAGE]
        for name, content in (image | {DATABASE_FILE: bytes(pages)}).items():
            (folder / name).write_bytes(content)
        (folder / LOCK_FILE).write_text("1\nanother-start-of-the-machine\n")
        try:
            async with open_database(folder) as database:
                for log in ("a", "b"):
                    read = [one.payload for one in await database.events.read(log, limit=100)]
                    assert read == [(f"{log}{number} " * 200).encode() for number in range(len(read))], seed
                    outcomes["whole" if len(read) == 60 else "shorter"] += 1
        except DatabaseError as error:
            assert "is damaged" in str(error), seed  # noqa: PT017
            with pytest.raises(DatabaseError, match="is damaged"):  # and so it stays
                async with open_database(folder):
                    pass
            outcomes["refused"] += 1
        shutil.rmtree(folder)
    logging.getLogger(__name__).info("%s", dict(outcomes))
    assert outcomes["refused"], outcomes


def _checkpoint(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        assert other.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
