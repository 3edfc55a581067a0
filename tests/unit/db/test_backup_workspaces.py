"""Workspaces in a backup: which, from where, what is said of those that are not in it, and how much room they take."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_core.errors import SandboxError
from agent_core.runtime.workspace_archive import WritableFile
from agent_core.testing.store_contract import new_events
from server.cli import main
from server.cli.backup import KeptBackups
from server.db import workspace_copies
from server.db.backup import Backup, BackupEnd, BackupSource
from server.db.database import open_database
from server.db.errors import BackupError
from server.db.repositories.conversations import ConversationRecord
from tests.unit.db.test_backup import converse, open_small, restored, rows_of

SANDBOX = {"provider": "unconfined", "name": "one"}


class PlayedWorkspaces:
    """Workspaces that fail as they are told."""

    def __init__(self, **contents: bytes | list[Exception]) -> None:
        self.contents = contents
        self.asked: list[str] = []

    def write(self, conversation_id: str, sandbox: Mapping[str, str], file: WritableFile) -> list[str]:
        self.asked.append(conversation_id)
        assert sandbox["provider"] == "docker"
        found = self.contents[conversation_id]
        if isinstance(found, list):
            file.write(b"torn")
            if found:
                raise found.pop(0)
            found = b"at last"
        file.write(found)
        return ["odd"] if found == b"some" else []


def backed_up(folder: Path, workspaces: PlayedWorkspaces, reserve: int = 0) -> BackupEnd:
    source = BackupSource.of(folder / "data", None, has_payloads=True)
    made = Backup(source, with_key=True, say=lambda line: None, workspaces=workspaces, reserve=reserve)
    with (folder / "b").open("wb") as file:
        return made.write(file, folder / "copy").end


async def test_each_workspace_is_there_or_named_and_waiting_files_come_first(tmp_path: Path) -> None:
    async with open_small(tmp_path / "data") as database:
        for name in ("a", "b", "c", "d", "e", "f", "waits"):
            await converse(database, name, name)
        await database.conversations.create(ConversationRecord(id="none"))
        (tmp_path / "data/forks").mkdir()
        (tmp_path / "data/forks/waits.tar").write_bytes(b"waiting")

        def changed() -> Exception:
            return SandboxError("It was changed.", code="changed")

        workspaces = PlayedWorkspaces(
            a=b"files",
            b=b"some",
            c=[SandboxError("No engine.", code="engine_unavailable")],
            d=[SandboxError("Gone.", code="lost")],
            e=[changed(), changed()],
            f=[changed(), changed(), changed()],
        )
        end = await asyncio.to_thread(backed_up, tmp_path, workspaces)
    assert (end.workspaces, end.gone) == (("a", "b", "e"), ("d",))
    assert (end.skipped, end.left_out) == ({"c": "No engine.", "f": "It was changed."}, {"b": 1})
    assert workspaces.asked == ["a", "b", "c", "d", "e", "e", "e", "f", "f", "f"]
    restored(tmp_path / "b", tmp_path / "new")
    assert len(rows_of(tmp_path / "new")["conversations"]) == 8
    found = {path.stem: path.read_bytes() for path in (tmp_path / "new/forks").iterdir()}
    assert found == {"a": b"files", "b": b"some", "e": b"tornat last", "waits": b"waiting"}


async def test_a_conversation_that_is_deleted_while_workspaces_are_read_is_left_out(tmp_path: Path) -> None:
    async with open_small(tmp_path / "data") as database:
        for name in ("a", "b"):
            await converse(database, name, name)
        loop = asyncio.get_running_loop()

        class Deleting(PlayedWorkspaces):
            def write(self, conversation_id: str, sandbox: Mapping[str, str], file: WritableFile) -> list[str]:
                asyncio.run_coroutine_threadsafe(database.conversations.delete("b"), loop).result(60)
                return super().write(conversation_id, sandbox, file)

        end = await asyncio.to_thread(backed_up, tmp_path, Deleting(a=b"a", b=[SandboxError("Gone.", code="lost")]))
    assert (end.conversations, end.workspaces, end.gone, end.skipped) == (1, ("a",), (), {})
    restored(tmp_path / "b", tmp_path / "new")
    assert [row[0] for row in rows_of(tmp_path / "new")["conversations"]] == ["a"]


async def test_a_backup_ends_before_the_disk_has_less_than_its_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_small(tmp_path / "data") as database:
        await converse(database, "a", "a")
        free = shutil.disk_usage(tmp_path).free
        with pytest.raises(BackupError, match="has no room for the workspaces and what the disk keeps in reserve"):
            await asyncio.to_thread(backed_up, tmp_path, PlayedWorkspaces(a=b"a"), free + 2**30)
        monkeypatch.setattr(workspace_copies, "_LOOK", 10)
        wanted = iter([0, 1])

        def need_room(_folder: Path, _size: int, what: str) -> None:
            if next(wanted):
                raise BackupError(what)

        monkeypatch.setattr(workspace_copies, "need_room", need_room)
        with pytest.raises(BackupError, match="in reserve"):
            await asyncio.to_thread(backed_up, tmp_path, PlayedWorkspaces(a=[]))


def test_the_command_says_which_workspaces_are_missing_by_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"

    async def make() -> None:
        async with open_database(data) as database:
            for name, sandbox in {"a": SANDBOX, "b": {"provider": "other"}, "c": {**SANDBOX, "name": "two"}}.items():
                await database.conversations.create(ConversationRecord(id=name, sandbox=sandbox))
                await database.events.append(name, new_events("x"))

    asyncio.run(make())
    workspace = data / "sandboxes/one/workspace"
    workspace.mkdir(parents=True)
    (workspace / "file").write_text("mine")
    common = ["--data-dir", str(data)]
    out = tmp_path / "out"
    out.mkdir()
    assert main(["backup", str(out / "b"), "--workspaces", *common]) == 1
    printed = capsys.readouterr()
    assert "3 conversations, 3 events, 0 large payloads, 1 workspaces" in printed.out
    assert "no workspace any more: c (1 in all)" in printed.out
    assert printed.err == "The workspace of b is not in it: Its sandbox is one of other, which is not there.\n"
    assert main(["backup", str(out / "b"), "--force", "--quiet", *common]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["backup", str(out / "b"), "--quiet", *common]) == 2
    assert "exists" in capsys.readouterr().err


def test_so_many_backups_of_this_server_are_kept_and_all_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"

    async def make() -> str:
        async with open_small(data) as database:
            await converse(database, "a", "a")
            await database.conversations.update("a", sandbox={"provider": "other"})
            return database.instance_id

    name = asyncio.run(make())
    common = [str(out), "--data-dir", str(data), "--quiet"]
    assert main(["backup", *common, "--keep", "2"]) == 2
    assert "make it first" in capsys.readouterr().err
    out.mkdir()
    others = [f"drydock-{'0' * 16}-20200101T000000Z.drydock", f"drydock-{name}-20200101T000000Z.drydock.age", "mine"]
    older = [f"drydock-{name}-2020010{number}T000000Z.drydock" for number in (1, 2, 3)]
    of_a_wrong_clock = [f"drydock-{name}-2090010{number}T000000Z.drydock" for number in (1, 2)]
    for one in (*others, *older, *of_a_wrong_clock):
        (out / one).touch()
    assert main(["backup", *common]) == 2
    assert "--keep" in capsys.readouterr().err
    assert main(["backup", *common, "--keep", "0"]) == 2
    capsys.readouterr()
    assert main(["backup", *common, "--keep", "2"]) == 0
    assert capsys.readouterr() == ("", "")
    found = sorted(path.name for path in out.iterdir())
    (new,) = set(found) - {*others, *older}
    assert set(found) == {*others, older[-1], new}
    restored(out / new, tmp_path / "new")
    assert rows_of(tmp_path / "new") == rows_of(data)
    # One of the same second has the next one's name.
    free = KeptBackups(out, name, 1).next()
    free.touch()
    assert KeptBackups(out, name, 1).next() > free
    free.unlink()
    # One without the workspaces that it should have is no reason to remove one that has them.
    (out / new).rename(out / older[0])
    assert main(["backup", *common, "--keep", "1", "--workspaces"]) == 1
    assert "older backups are kept" in capsys.readouterr().err
    assert {older[0], older[-1]} < {path.name for path in out.iterdir()}
