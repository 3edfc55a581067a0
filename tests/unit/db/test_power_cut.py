"""A power cut: of what was written last an unknown part is on the disk, whole or torn, and the rest is not."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from agent_core.testing.store_contract import new_events
from server.db.database import DATABASE_FILE, open_database
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
