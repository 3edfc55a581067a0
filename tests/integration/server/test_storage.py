"""Storage that fails under a real server: nothing is said to be stored that is not, and all goes on by itself.

The faults are made by a library of ours that is preloaded; the first test shows that SQLite passes through it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from tests.integration.server.conftest import MakeProcess, ServerProcess, create, following, stored_events
from tests.storage.faults import Faults, build
from tests.storage.sweep import Trial, sweeping

ROOT = Path(__file__).parents[3]
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
    return build(tmp_path_factory.mktemp("library"))


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
    environment = os.environ | Faults(library, tmp_path).environment
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, rule], env=environment, capture_output=True, text=True, timeout=90, check=True
    )
    kept = [value for value, answer in zip((1, 2, 3), during, strict=True) if answer == "stored"]
    assert json.loads(run.stdout) == [during, "stored", [*kept, 4], "ok"]


async def counted(server: ServerProcess, code: str) -> float:
    async with server.client() as client:
        lines = (await client.get("/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if f'code="{code}"' in line)


@pytest.mark.parametrize(
    ("rule", "status", "code"),
    [
        ("write,fallocate 28 0 -1", 507, "disk_full"),
        ("write,open 30 0 -1", 503, "storage_unavailable"),
        ("fsync 5 0 -1", 503, "storage_unavailable"),
    ],
    ids=["ENOSPC", "EROFS", "fsync"],
)
async def test_while_nothing_can_be_stored_new_work_is_refused_and_what_was_at_work_goes_on_by_itself(
    rule: str, status: int, code: str, library: Path, tmp_path: Path, make_process: MakeProcess
) -> None:
    gate = tmp_path / "gate"
    waits = f"while [ ! -e {gate} ]; do sleep 0.05; done; echo done"
    turns = [
        call("execute_bash", {"command": waits}),
        call("execute_bash", {"command": "echo again"}),
        finish("Ready."),
    ]
    faults = Faults(library, tmp_path)
    async with ModelServer(turns) as model:
        asked = {"LLM_MODEL": "openai/m", "LLM_API_KEY": "key", "LLM_BASE_URL": model.url}
        asked["DRYDOCK_GENERATE_TITLES"] = "false"
        server = await make_process("--sandbox", "unconfined", environment={**faults.environment, **asked})
        conversation = await create(server, initial_user_msg="Go on.")
        async with following(server, conversation) as follower, server.client() as client:
            path = f"/api/conversations/{conversation}"
            await follower.until(lambda: follower.count(action="run") == 1)
            acknowledged = follower.frames[-1].get("id", 0)
            faults.switch(rule)
            answers = {
                "new": await client.post("/api/conversations", json={"initial_user_msg": "More."}),
                "message": await client.post(f"{path}/events", json={"action": "message", "args": {"content": "x"}}),
                "fork": await client.post(f"{path}/fork", json={}),
                "rename": await client.patch(path, json={"title": "Other"}),
                "settings": await client.post("/api/settings", json={"language": "de"}),
            }
            for what, answer in answers.items():
                assert answer.status_code == status, (what, answer.text)
                assert ("full" in answer.text) == (code == "disk_full"), (what, answer.text)
                assert str(tmp_path) not in answer.text, what
            assert answers["new"].headers.get("retry-after") == ("5" if status == 503 else None)
            readiness = await client.get("/ready")
            assert (readiness.status_code, readiness.json()["status"]) == (503, "refusing")
            gate.touch()
            told = "STATUS$ERROR_STORAGE"
            await follower.until(lambda: follower.count(id=told) == 1)
            assert follower.count(observation="run") == 0, "what is not stored is not shown"
            faults.switch("")
            await follower.until(lambda: follower.count(action="finish") == 1)
            assert follower.count(id=told) == 1, "told once"
            assert (await client.get("/ready")).json()["status"] == "ok"
            assert len((await client.get("/api/conversations")).json()["results"]) == 1, "nothing half made"
        events = await stored_events(server, conversation)
        assert [event["id"] for event in events] == list(range(len(events)))
        assert len(events) > acknowledged
        outputs = [event["content"].split("\n")[0] for event in events if event.get("observation") == "run"]
        assert outputs == ["done", "again"]
        assert not [event for event in events if event.get("message") == "x"], "it was refused"
        assert await counted(server, code) == 1
        lines = [line for line in server.printed().splitlines() if "nothing can be stored" in line]
        assert len(lines) == 1
        assert not (tmp_path / "data" / "forks").exists() or not list((tmp_path / "data" / "forks").iterdir())


SAMPLE = [
    Trial("message", "write", "ENOSPC", 2, lasts=False),
    Trial("long message", "write", "EDQUOT", 1, lasts=True),
    Trial("long message", "fsync", "EIO", 2, lasts=False),
    Trial("new", "fsync", "EIO", 5, lasts=True),
    Trial("fork", "mkdir", "EROFS", 0, lasts=False),
    Trial("fork", "write", "ENOSPC", 6, lasts=True),
    Trial("fork", "unlink", "EROFS", 0, lasts=False),
    Trial("import", "rename", "ENOSPC", 0, lasts=False),
    Trial("import archive", "open", "EROFS", 0, lasts=True),
    Trial("begin anew", "write", "ENOSPC", 9, lasts=True),
    Trial("settings", "read", "EIO", 0, lasts=False),
    Trial("title", "read", "EIO", 0, lasts=True),
    Trial("delete", "fsync", "EIO", 1, lasts=False),
]
"""Of the thousands of `python -m tests.storage`: one of each kind, those among them that once found something."""


async def test_whatever_call_fails_the_request_is_done_or_refused_in_words_and_nothing_half_made_stays(
    library: Path, tmp_path: Path
) -> None:
    async with sweeping(library, tmp_path) as sweep:
        outcomes = [await sweep.carry_out(trial) for trial in SAMPLE]
        left = await sweep.begin_again()
    assert {one.trial.text: one.findings for one in outcomes if one.findings} == {}
    assert [one.trial.text for one in outcomes if not one.failed] == [], "there are so many calls"
    assert left == []


def test_an_upgrade_a_backup_and_a_restore_are_whole_or_not_done_whatever_call_fails() -> None:
    """One write of each, of the calls that `make storage` tries."""
    things = ["upgrade", "backup again", "restore over another"]
    sample = [sys.executable, "-m", "tests.storage.at_rest", *things, "--of-each", "1", "--calls", "write"]
    run = subprocess.run(sample, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
