"""The preloaded library that makes storage fail: SQLite passes through it, and what is refused is not stored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("storage_faults.c")

PROGRAM = """
import json, os, sqlite3, sys
folder, control = os.environ["STORAGE_FAULTS_FOLDER"], os.environ["STORAGE_FAULTS_CONTROL"]

def switch(rule):
    with open(control + ".new", "w") as file:
        file.write(rule)
    os.replace(control + ".new", control)

def insert(value):
    try:
        database.execute("INSERT INTO things VALUES (?)", (value,))
    except sqlite3.Error as error:
        return error.sqlite_errorname
    return "stored"

database = sqlite3.connect(folder + "/a.db", isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("PRAGMA synchronous=FULL")
database.execute("CREATE TABLE things (value)")
switch(sys.argv[1])
during = [insert(value) for value in (1, 2, 3)]
switch("")
after = insert(4)
kept = [value for (value,) in database.execute("SELECT value FROM things ORDER BY value")]
print(json.dumps([during, after, kept, database.execute("PRAGMA integrity_check").fetchone()[0]]))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("library") / "storage_faults.so"
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", made, SOURCE, "-ldl"], check=True)
    return made


@pytest.mark.parametrize(
    ("rule", "during"),
    [
        ("write 28 0 -1", ["SQLITE_FULL"] * 3),
        ("write 5 0 -1", ["SQLITE_IOERR_WRITE"] * 3),
        ("fsync 5 0 -1", ["SQLITE_IOERR_FSYNC"] * 3),
        ("fsync 5 1 1", ["stored", "SQLITE_IOERR_FSYNC", "stored"]),
    ],
)
def test_what_the_disk_refuses_is_not_stored_and_the_next_insert_after_the_fault_is(
    rule: str, during: list[str], library: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    faults = {"STORAGE_FAULTS_FOLDER": str(folder), "STORAGE_FAULTS_CONTROL": str(tmp_path / "control")}
    environment = os.environ | faults | {"LD_PRELOAD": str(library)}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, rule], env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    kept = [value for value, answer in zip((1, 2, 3), during, strict=True) if answer == "stored"]
    assert json.loads(run.stdout) == [during, "stored", [*kept, 4], "ok"]
