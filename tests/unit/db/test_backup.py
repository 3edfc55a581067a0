"""Backups of a database that is in use, and what becomes of them: everything is there again, or nothing is touched."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
from pydantic import SecretStr

from agent_core.testing.store_contract import new_events, payloads
from server.auth.secrets import SecretBox
from server.cli import main
from server.db import progress as progress_module
from server.db.archives import ArchiveError
from server.db.backup import END, HEADER, Backup, BackupEnd, BackupHeader, BackupSource
from server.db.data_folder import ID_FILE, LAST_BACKUP, REPLACED, RESTORED, RESTORING
from server.db.database import BLOB_FOLDER, DATABASE_FILE, KEY_FILE, Database, open_database
from server.db.engine import DatabaseSettings
from server.db.errors import BackupError
from server.db.repositories.conversations import ConversationRecord
from server.db.restore import Restore
from server.db.sealing_keys import next_key_file
from tests.unit.db.test_key_rotation import check_everything_is_readable, fill

SMALL = DatabaseSettings(synchronous="NORMAL", inline_payload_bytes=100)
LARGE = b"large" * 50_000
ROOT = Path(__file__).parents[3]


def open_small(data_dir: Path) -> AbstractAsyncContextManager[Database]:
    return open_database(data_dir, SMALL)


async def converse(database: Database, conversation_id: str, *parts: str | bytes) -> None:
    """A conversation with a log, and a sub-agent's log below it."""
    await database.conversations.create(
        ConversationRecord(id=conversation_id, agent_state="running", sandbox={"provider": "docker", "container": "c"})
    )
    await database.events.append(conversation_id, new_events(*parts))
    epoch = await database.events.claim(f"{conversation_id}~helper")
    await database.events.append(f"{conversation_id}~helper", new_events(b"sub" * 100), epoch=epoch)


def rows_of(data_dir: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table."""
    connection = sqlite3.connect(data_dir / DATABASE_FILE)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in tables}  # noqa: S608
    connection.close()
    return found


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def backed_up(data_dir: Path, file: Path, say: Callable[[str], None] = lambda line: None) -> BackupEnd:
    with file.open("wb") as target:
        made = Backup(BackupSource.of(data_dir, None, has_payloads=True), with_key=True, say=say)
        return made.write(target, file.with_suffix(".copy")).end


def restored(file: Path, data_dir: Path, *, take_over: bool = True, replace: bool = False) -> None:
    with file.open("rb") as source:
        Restore(data_dir, take_over=take_over, replace=replace, say=lambda line: None).read(source)


async def test_everything_is_there_again(tmp_path: Path) -> None:
    await fill(tmp_path / "data")
    async with open_small(tmp_path / "data") as database:
        await converse(database, "C1 with Capitals", b"large" * 100, "small", b"\0\xff" * 300)
        (tmp_path / "data/forks").mkdir()
        (tmp_path / "data/forks/c1.tar").write_bytes(b"files")
        end = await asyncio.to_thread(backed_up, tmp_path / "data", tmp_path / "b")
    assert (end.conversations, end.events, end.payloads, end.missing) == (3, 4, 3, ())
    restored(tmp_path / "b", tmp_path / "new")
    assert rows_of(tmp_path / "new") == rows_of(tmp_path / "data")
    assert files_of(tmp_path / "new/blobs") == files_of(tmp_path / "data/blobs")
    for name in (KEY_FILE, ID_FILE, "forks/c1.tar"):
        assert (tmp_path / "new" / name).read_bytes() == (tmp_path / "data" / name).read_bytes()
    async with open_small(tmp_path / "new") as database:
        await check_everything_is_readable(database)
        assert await payloads(database.events, "C1 with Capitals") == [b"large" * 100, b"small", b"\0\xff" * 300]
        assert await database.events.append("C1 with Capitals", new_events("on")) == 3
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "new").rglob("*")} == {0}


async def test_a_backup_of_a_database_that_is_written_to_is_one_moment_of_it(tmp_path: Path) -> None:
    """Two logs are appended to in turn: whoever sees the second's event has the first's, and its payload."""
    async with open_small(tmp_path / "data") as database:
        await converse(database, "a")
        await converse(database, "b")
        making = asyncio.create_task(asyncio.to_thread(lambda: [one_more(tmp_path, n) for n in range(5)]))
        count = 0
        while not making.done():
            for log in ("a", "b"):
                await database.events.append(log, new_events(f"{count} " * 50))
            count += 1
        sizes = []
        for number, last in enumerate(await making):
            async with open_small(tmp_path / f"new{number}") as copy:
                first, second = await payloads(copy.events, "a"), await payloads(copy.events, "b")
            assert len(first) - len(second) in (0, 1)
            assert first == [f"{one} ".encode() * 50 for one in range(len(first))]
            assert len(first) + len(second) + 2 == last
            sizes.append(len(first))
    assert sizes == sorted(sizes)
    assert 0 < sizes[-1] <= count


def one_more(folder: Path, number: int) -> int:
    end = backed_up(folder / "data", folder / f"b{number}")
    restored(folder / f"b{number}", folder / f"new{number}")
    return end.events


async def test_what_is_deleted_or_not_yet_whole_while_it_is_made_is_left_out_with_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "PROGRESS_SECONDS", 0)
    loop = asyncio.get_running_loop()
    async with open_small(tmp_path / "data") as database:
        for name in ("a", "b", "c"):
            await converse(database, name, name.encode() * 200)
        await database.events.append("unfinished", new_events("x", b"y" * 200))
        deleted: list[str] = []

        def delete_one(line: str) -> None:
            if line.startswith("payloads") and not deleted:  # a's first one is in it by now
                deleted.append("b")
                asyncio.run_coroutine_threadsafe(database.conversations.delete("b"), loop).result(60)

        end = await asyncio.to_thread(backed_up, tmp_path / "data", tmp_path / "b", delete_one)
        # What the server itself has lost is no reason to have no backup of the rest.
        lost = next((tmp_path / "data/blobs/c").iterdir())
        lost.unlink()
        later = await asyncio.to_thread(backed_up, tmp_path / "data", tmp_path / "later")
    assert deleted == ["b"]
    assert (end.conversations, end.events, end.missing) == (2, 4, ())
    assert (later.conversations, later.events, later.missing) == (2, 4, (f"{BLOB_FOLDER}/c/{lost.name}",))
    restored(tmp_path / "b", tmp_path / "new")
    found = rows_of(tmp_path / "new")
    assert {row[0] for row in found["events"]} == {"a", "a~helper", "c", "c~helper"}
    assert {row[0] for row in found["conversations"]} == {"a", "c"}
    assert sorted({name.split("/")[0] for name in files_of(tmp_path / "new/blobs")}) == ["a", "c", *helpers(tmp_path)]


def helpers(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "new/blobs").iterdir() if path.name.startswith("~"))


async def test_a_restored_server_is_another_one_beside_the_first(tmp_path: Path) -> None:
    await fill(tmp_path / "data")
    async with open_small(tmp_path / "data") as database:
        await converse(database, "a", "x")
        await database.conversations.set_option("a", "other_sandboxes", {"local": {"name": "n"}})
        await database.conversations.create(ConversationRecord(id="asks", agent_state="awaiting_user_confirmation"))
    backed_up(tmp_path / "data", tmp_path / "b")
    restored(tmp_path / "b", tmp_path / "new", take_over=False)
    async with open_small(tmp_path / "new") as database:
        record = await database.conversations.get("a")
        assert record is not None
        assert (record.sandbox, record.agent_state, record.options) == (None, None, {})
        asks = await database.conversations.get("asks")
        assert asks is not None
        assert asks.agent_state == "awaiting_user_confirmation"  # retention leaves it alone
        assert [webhook.active for webhook in await database.webhooks.all()] == [False]
        assert database.instance_id != (tmp_path / "data" / ID_FILE).read_text().strip()


async def test_the_key_in_a_backup_is_the_one_that_its_database_is_sealed_with(tmp_path: Path) -> None:
    """A rotation that was killed between the database and the key file has left both keys."""
    await fill(tmp_path / "data")
    key_file = tmp_path / "data" / KEY_FILE
    new = key_file.read_bytes()
    key_file.rename(next_key_file(key_file))
    SecretBox.open(key_file)
    backed_up(tmp_path / "data", tmp_path / "b")
    restored(tmp_path / "b", tmp_path / "new")
    assert (tmp_path / "new" / KEY_FILE).read_bytes() == new
    next_key_file(key_file).unlink()
    with pytest.raises(BackupError, match="not the one that the database's secrets are sealed with"):
        backed_up(tmp_path / "data", tmp_path / "c")


async def test_without_the_key_the_folder_s_own_is_kept_or_the_missing_one_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = await fill(tmp_path / "data")
    backup = tmp_path / "b"
    data, file = str(tmp_path / "data"), str(backup)
    assert main(["backup", file, "--without-key", "--data-dir", data]) == 0
    assert "does not hold the key" in capsys.readouterr().out
    assert key not in backup.read_bytes()
    assert main(["restore", file, "--data-dir", str(tmp_path / "new")]) == 0
    key_id = SecretBox.open(tmp_path / "data" / KEY_FILE).key_id
    assert f"its id is {key_id}" in capsys.readouterr().out
    assert main(["restore", file, "--force", "--take-over", "--data-dir", data]) == 0
    assert "The key" not in capsys.readouterr().out
    async with open_database(tmp_path / "data") as database:
        assert (await database.user_secrets.values("ann"))["API_KEY"].secret == SecretStr("five")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of a few conversations."""
    folder = tmp_path_factory.mktemp("whole")

    async def make() -> None:
        async with open_small(folder / "data") as database:
            await converse(database, "a", LARGE)

    asyncio.run(make())
    backed_up(folder / "data", folder / "b")
    return folder / "b"


def refused(content: bytes, tmp_path: Path) -> str:
    """Why this is not restored; nothing is left of it, and what was there is as before."""
    target = tmp_path / "target"
    target.mkdir(exist_ok=True)
    (target / "mine").write_text("mine")
    with pytest.raises((ArchiveError, BackupError)) as caught:
        Restore(target, take_over=False, replace=True, say=lambda line: None).read(io.BytesIO(content))
    assert sorted(path.name for path in target.iterdir()) == ["instance.lock", "mine"]
    return str(caught.value)


def test_a_torn_backup_is_refused_wherever_it_ends(whole: Path, tmp_path: Path) -> None:
    content = whole.read_bytes()
    last = content.rindex(END.encode())
    for end in [*range(0, last, len(content) // 40), last, last + 100, last + 600]:
        assert "take another one" in refused(content[:end], tmp_path)


def test_a_changed_backup_is_refused_whichever_byte_it_is(whole: Path, tmp_path: Path) -> None:
    content = whole.read_bytes()
    with tarfile.open(whole) as tar:
        places = [(one.name, one.offset_data + part) for one in tar for part in (0, one.size // 2, one.size - 1)]
    for name, place in places:
        changed = bytearray(content)
        changed[place] ^= 0x01
        assert "backup" in refused(bytes(changed), tmp_path), name


def rewritten(file: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]) -> bytes:
    with tarfile.open(file) as tar:
        members = [(one, (tar.extractfile(one) or io.BytesIO()).read()) for one in tar]
    change(members)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return target.getvalue()


def insert_second(member: tarfile.TarInfo, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.insert(1, (member, b""))


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "blobs/../../outside", "forks/../outside.tar", "mine"])
def test_a_backup_writes_nothing_but_what_belongs_into_a_data_folder(whole: Path, tmp_path: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    content = rewritten(whole, partial(insert_second, member))
    assert "does not belong there" in refused(content, tmp_path)
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
        link = tarfile.TarInfo("forks/a.tar")
        link.type, link.linkname = kind, "../../outside"
        content = rewritten(whole, partial(insert_second, link))
        assert "does not belong there" in refused(content, tmp_path)
    assert not list(tmp_path.glob("**/outside*"))


def test_what_is_no_backup_or_one_of_a_newer_version_is_refused(whole: Path, tmp_path: Path) -> None:
    assert "no whole backup" in refused(b"something else", tmp_path)
    assert "if it is compressed or encrypted, undo that first" in refused(gzip.compress(whole.read_bytes()), tmp_path)
    other = io.BytesIO()
    with tarfile.open(fileobj=other, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("file"), io.BytesIO())
    assert "this is no backup of a server: it begins with 'file'" in refused(other.getvalue(), tmp_path)

    def newer(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        header = BackupHeader.model_validate_json(members[0][1])
        text = header.model_copy(update={"revision": "9999", "version": "9.9"}).model_dump_json().encode()
        member = tarfile.TarInfo(HEADER)
        member.size = len(text)
        members[0] = member, text

    assert "made by a newer version of Drydock (9.9" in refused(rewritten(whole, newer), tmp_path)


ODD_HEADERS = {
    "no number": b"30 GNU.sparse.map=nothing,none\n",
    "too many digits": b"1" * 5000 + b" a=b\n",
    "too long": b"1" * 100_000,
}


@pytest.mark.parametrize("name", [*ODD_HEADERS, "in one another", "holes"])
def test_headers_that_no_library_reads_are_damage(whole: Path, tmp_path: Path, name: str) -> None:
    content = whole.read_bytes()
    with tarfile.open(whole) as tar:
        end = tar.getmembers()[1].offset
    header, text = tarfile.TarInfo("odd"), ODD_HEADERS.get(name, b"6 a=b\n")
    header.type, header.size = (tarfile.GNUTYPE_SPARSE, 0) if name == "holes" else (tarfile.XHDTYPE, len(text))
    odd = header.tobuf(tarfile.GNU_FORMAT) + text.ljust(-(-len(text) // 512) * 512, b"\0") * bool(header.size)
    why = refused(content[:end] + odd * (2000 if name == "in one another" else 1) + content[end:], tmp_path)
    assert why.startswith("this is no whole backup of a server (")


@pytest.mark.parametrize("name", [ID_FILE, KEY_FILE])
def test_a_data_folder_whose_name_or_key_is_damaged_is_replaced_whole(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    data, bare = tmp_path / "data", tmp_path / "bare"
    restored(whole, data)
    assert main(["backup", str(bare), "--without-key", "--data-dir", str(data)]) == 0
    before = rows_of(data)
    (data / name).write_text("damaged")
    assert main(["restore", str(bare), "--force", "--take-over", "--data-dir", str(data)]) == 0
    assert rows_of(data) == before
    assert (data / KEY_FILE).exists() is (name == ID_FILE)
    assert ("secret.key of then" in capsys.readouterr().out) is (name == KEY_FILE)
    assert not [*data.glob(f"{RESTORING}*"), *data.glob(f"{RESTORED}*")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root works for others")
def test_what_root_restores_is_the_owners_of_the_folder(whole: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for _ in range(2):
        data.mkdir(exist_ok=True)
        os.chown(data, 12345, 12345)
        restored(whole, data, replace=True)
    found = {path: path.stat() for path in data.rglob("*") if "replaced-" not in str(path.parent)}
    assert {(one.st_uid, one.st_gid) for one in found.values()} == {(12345, 12345)}
    assert {one.st_mode & 0o077 for one in found.values()} == {0}


def test_a_folder_that_is_not_empty_is_kept_and_one_in_use_is_not_touched(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    restored(whole, data)
    before = rows_of(data)
    assert main(["restore", str(whole), "--data-dir", str(data)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert rows_of(data) == before
    assert main(["restore", str(whole), "--data-dir", str(data), "--force"]) == 0
    (old,) = data.glob(f"{REPLACED}*")
    assert str(old) in capsys.readouterr().out
    assert rows_of(old) == before
    assert (old / ID_FILE).read_text() != (data / ID_FILE).read_text()

    async def while_it_runs() -> None:
        async with open_database(data):
            assert main(["restore", str(whole), "--data-dir", str(data), "--force"]) == 2

    asyncio.run(while_it_runs())
    assert "another Drydock server" in capsys.readouterr().err


@pytest.mark.parametrize("moves", range(9))
def test_a_restore_that_is_killed_while_it_exchanges_the_contents_is_finished_by_the_next_start(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    data = tmp_path / "data"
    restored(whole, data)
    (data / "sandboxes").mkdir()
    (data / "mine").write_text("mine")
    rename, done = Path.rename, 0

    class Killed(BaseException):
        pass

    def killing(path: Path, target: Path) -> Path:
        nonlocal done
        if path.parent == data or path.parent.parent == data:
            if done == moves + 1:  # the first one begins the exchange
                raise Killed
            done += 1
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killing)
        with pytest.raises(Killed):
            restored(whole, data, replace=True)

    async def start() -> None:
        async with open_small(data) as database:
            assert await payloads(database.events, "a") == [LARGE]

    asyncio.run(start())
    assert not [*data.glob(f"{RESTORING}*"), *data.glob(f"{RESTORED}*")]
    (old,) = data.glob(f"{REPLACED}*")
    assert (old / "mine").read_text() == "mine"
    assert (data / "sandboxes").is_dir()  # it is the same server


def test_the_file_is_this_user_s_alone_and_never_replaced_unasked(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    restored(whole, Path(data))
    file = tmp_path / "out" / "b"
    assert main(["backup", str(file), "--data-dir", data]) == 2
    assert f"there is no folder {file.parent}" in capsys.readouterr().err
    file.parent.mkdir()
    assert main(["backup", str(file.parent), "--data-dir", data]) == 2
    assert "is a folder" in capsys.readouterr().err
    file.write_text("older")
    assert main(["backup", str(file), "--data-dir", data]) == 2
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == "older"
    assert main(["backup", str(file), "--data-dir", data, "--force"]) == 0
    printed = capsys.readouterr()
    assert "1 conversations, 2 events, 2 large payloads" in printed.out
    assert "holds the key" in printed.out
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]
    assert str(file) in (Path(data) / LAST_BACKUP).read_text()
    assert main(["backup", str(tmp_path / "c"), "--data-dir", str(tmp_path / "none")]) == 2
    assert f"{tmp_path / 'none' / DATABASE_FILE} cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("at", ["database", "payloads"])
def test_a_backup_that_is_broken_off_leaves_nothing(
    whole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    at: str,
) -> None:
    restored(whole, tmp_path / "data")
    before = sorted(path.name for path in (tmp_path / "data").iterdir())
    monkeypatch.setattr(progress_module, "PROGRESS_SECONDS", 0)
    monkeypatch.setattr("server.cli.backup.say", lambda line: os.kill(os.getpid(), number) if at in line else None)
    for file in ("b", "-"):
        (tmp_path / "out").mkdir(exist_ok=True)
        assert main(["backup", file if file == "-" else f"{tmp_path}/out/b", "--data-dir", f"{tmp_path}/data"]) == 2
        assert f"broken off by {number.name}; nothing was written" in capsys.readouterr().err
        assert list((tmp_path / "out").iterdir()) == []
        assert sorted(path.name for path in (tmp_path / "data").iterdir()) == before


def test_what_a_killed_backup_has_left_goes_with_the_next_one_of_another_name(whole: Path, tmp_path: Path) -> None:
    """Names with the time in them, as of ``--keep``, never come again."""
    restored(whole, tmp_path / "data")
    out = tmp_path / "out"
    out.mkdir()
    fork = os.fork()
    if fork == 0:
        Backup.write = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment, method-assign]
        main(["backup", f"{out}/first", "--data-dir", f"{tmp_path}/data"])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == -signal.SIGKILL
    assert len(list(out.iterdir())) == 2
    assert main(["backup", str(out), "--keep", "2", "--data-dir", f"{tmp_path}/data"]) == 0
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []


@pytest.fixture
def file_limit() -> Iterator[Callable[[int], None]]:
    """Lets no file of this process become larger: the system refuses to write on, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("share", [0.2, 0.9, 1.1])
def test_a_disk_that_is_full_leaves_nothing_of_a_backup_nor_of_a_restore(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], file_limit: Callable[[int], None], share: float
) -> None:
    """In the copy of the database, and behind it, where the file itself grows."""
    data, out = tmp_path / "data", tmp_path / "out"
    restored(whole, data)
    before = rows_of(data)
    out.mkdir()
    file_limit(int((data / DATABASE_FILE).stat().st_size * share))
    backup = main(["backup", str(out / "b"), "--data-dir", str(data)])
    restore = main(["restore", str(whole), "--force", "--data-dir", str(data)]) if share < 1 else 2
    file_limit(resource.RLIM_INFINITY)
    assert (backup, restore) == (2, 2)
    assert "drydock: the " in capsys.readouterr().err
    assert list(out.iterdir()) == []
    assert not [path for path in data.iterdir() if path.name.startswith((".", RESTORING, REPLACED))]
    assert rows_of(data) == before


def test_a_backup_goes_from_one_program_to_another(whole: Path, tmp_path: Path) -> None:
    restored(whole, tmp_path / "data")
    drydock = [sys.executable, "-m", "server"]
    command = [*drydock, "backup", "-", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as making:
        taking = subprocess.run(
            [*drydock, "restore", "-", "--take-over", "--data-dir", str(tmp_path / "new")],
            cwd=ROOT,
            stdin=making.stdout,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (making.wait(60), taking.returncode) == (0, 0), taking.stderr
    assert "1 conversations, 2 events, 2 large payloads" in taking.stdout
    assert rows_of(tmp_path / "new") == rows_of(tmp_path / "data")


def test_a_database_that_is_no_file_is_left_to_its_own_means_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRYDOCK_DATABASE_URL", "postgres://ann:hunter2@host/name?password=hunter2")
    file = tmp_path / "backup"
    for command in ("backup", "restore"):
        assert main([command, str(file), "--data-dir", str(tmp_path / "data")]) == 2
        told = capsys.readouterr().err
        assert "with its own means" in told
        assert "hunter2" not in told
    assert list(tmp_path.iterdir()) == []
