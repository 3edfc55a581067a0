"""The workspace's files are kept behind each operation and brought back; nothing else is touched."""

from __future__ import annotations

import io
import os
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contract.runner.client import Client, Runner


def run(client: Client, command: str, key: str) -> None:
    assert client.call("shell.run", key=key, command=command, timeout=20).result["exit_code"] == 0


def back(client: Client, *names: str, keep: str = "kept") -> dict[str, Any]:
    return client.call("workspace.restore", names=list(names), keep=keep).result


def test_the_files_behind_each_operation_can_be_had_again(client: Client, workspace: Path) -> None:
    (workspace / "a").write_text("begin")
    client.call("workspace.snapshot", name="c:1")
    run(client, "echo one > a; mkdir -p d/e; echo x > d/e/f; ln -s a link; chmod 755 a", "c:2")
    run(client, "rm -r d; echo two > a; rm link; mkdir link", "c:3")
    assert back(client, "c:2") == {"restored": "c:2", "written": 5, "removed": 1}
    assert (workspace / "a").read_text() == "one\n"
    assert os.access(workspace / "a", os.X_OK)
    assert (workspace / "d/e/f").read_text() == "x\n"
    assert (workspace / "link").readlink() == Path("a")
    assert back(client, "c:1")["restored"] == "c:1"
    assert sorted(os.listdir(workspace)) == ["a"]
    assert (workspace / "a").read_text() == "begin"
    assert back(client, "c:3")["restored"] == "c:3"
    assert (workspace / "link").is_dir()


def test_the_first_name_that_is_known_counts_and_the_present_is_kept(client: Client, workspace: Path) -> None:
    client.call("workspace.snapshot", name="c:1")
    (workspace / "own").write_text("the user's")
    assert back(client, "c:9", "c:5", "c:1", keep="c:10")["restored"] == "c:1"
    assert not (workspace / "own").exists()
    assert back(client, "c:10")["restored"] == "c:10"
    assert (workspace / "own").read_text() == "the user's"
    assert back(client, "none") == {"restored": None, "written": 0, "removed": 0}


def test_of_several_names_the_one_that_was_kept_last_counts(client: Client, workspace: Path) -> None:
    client.call("workspace.snapshot", name="c:3")
    client.call("workspace.snapshot", name="c:2")
    run(client, "echo late > a", "c:1")  # an action that a crash has kept from being carried out until then
    assert back(client, "c:3", "c:2", "c:1")["restored"] == "c:1"
    assert (workspace / "a").read_text() == "late\n"
    (workspace / "a").write_text("again")
    client.call("workspace.snapshot", name="c:2")
    assert back(client, "c:3", "c:1")["restored"] == "c:1"
    assert back(client, "c:3", "c:2", "c:1")["restored"] == "c:2"
    assert (workspace / "a").read_text() == "again"


def test_version_control_and_what_tools_make_again_are_left_alone(client: Client, workspace: Path) -> None:
    for folder in (".git", "node_modules", "sub/.venv"):
        (workspace / folder).mkdir(parents=True)
        (workspace / folder / "file").write_text("before")
    client.call("workspace.snapshot", name="c:1")
    for folder in (".git", "node_modules", "sub/.venv"):
        (workspace / folder / "file").write_text("after")
    (workspace / "new").write_text("x")
    back(client, "c:1")
    assert not (workspace / "new").exists()
    for folder in (".git", "node_modules", "sub/.venv"):
        assert (workspace / folder / "file").read_text() == "after"


def test_caches_do_not_hold_a_folder_that_there_was_not_then_but_a_repository_does(
    client: Client, workspace: Path
) -> None:
    client.call("workspace.snapshot", name="c:1")
    for folder in ("new/__pycache__", "cloned/.git"):
        (workspace / folder).mkdir(parents=True)
        (workspace / folder / "file").write_text("x")
        (workspace / folder).with_name("code").write_text("x")
    back(client, "c:1")
    assert not (workspace / "new").exists()
    assert (workspace / "cloned/.git/file").exists()
    assert not (workspace / "cloned/code").exists()


def test_a_file_over_the_limit_is_neither_kept_nor_removed(client: Client, workspace: Path) -> None:
    client.call("workspace.snapshot", name="c:1")
    with (workspace / "large").open("wb") as file:
        file.truncate(33 * 2**20)
    os.mkfifo(workspace / "pipe")
    assert client.call("workspace.snapshot", name="c:2").result == {"files": 2, "left_alone": 2}
    back(client, "c:1")
    assert (workspace / "large").stat().st_size == 33 * 2**20
    assert (workspace / "pipe").exists()


def test_a_workspace_with_too_many_files_is_refused_in_words_and_nothing_breaks(
    client: Client, workspace: Path
) -> None:
    (workspace / "many").mkdir()
    for number in range(20_001):
        os.symlink("x", workspace / "many" / str(number))
    error = client.call("workspace.snapshot", name="c:1").error
    assert error["code"] == "too_large"
    assert "more than 20000 files" in error["message"]
    run(client, "echo ok > a", "c:2")
    assert client.call("workspace.restore", names=["c:1"], keep="k").result["restored"] is None


def test_a_change_right_after_a_snapshot_is_seen_though_size_and_time_are_alike(
    client: Client, workspace: Path
) -> None:
    path = workspace / "a"
    for number in range(10):
        path.write_text(str(number))
        client.call("workspace.snapshot", name=f"c:{number}")
    for number in (3, 7, 0):
        back(client, f"c:{number}")
        assert path.read_text() == str(number)


def test_they_outlive_the_runner(runner: Runner, client: Client, workspace: Path) -> None:
    (workspace / "a").write_text("one")
    client.call("workspace.snapshot", name="c:1")
    (workspace / "a").write_text("two")
    runner.restart()
    again = runner.connect()
    assert back(again, "c:1")["restored"] == "c:1"
    assert (workspace / "a").read_text() == "one"


def test_before_the_first_wish_nothing_is_kept(client: Client, directory: Path) -> None:
    run(client, "echo one > a", "c:1")
    assert not list(directory.rglob("snapshots"))


def test_what_comes_during_a_long_snapshot_waits_for_a_bounded_time(client: Client, workspace: Path) -> None:
    for number in range(800):
        (workspace / f"f{number}").write_text(f"content {number}" * 20)
    taking = client.send("workspace.snapshot", name="c:1")
    run(client, "echo ok", "c:2")
    assert client.wait(taking).message["id"] == taking


def test_a_waiting_operation_can_be_taken_back(client: Client, workspace: Path) -> None:
    for number in range(800):
        (workspace / f"f{number}").write_text(f"content {number}" * 20)
    client.send("workspace.restore", names=["none"], keep="k")
    taking = client.send("workspace.snapshot", name="c:1")
    waiting = client.send("shell.run", key="c:2", command="touch ran", timeout=10)
    cancelled = client.call("cancel", id=waiting).result["cancelled"]
    answer = client.wait(waiting).message
    client.wait(taking)
    if cancelled and not answer["ok"]:
        assert answer["error"]["code"] == "cancelled"
        assert not (workspace / "ran").exists()


def test_a_copy_of_the_files_goes_into_another_workspace(client: Client, workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git/HEAD").write_text("ref")
    (workspace / "node_modules").mkdir()
    (workspace / "big").write_bytes(os.urandom(9 * 2**20))
    (workspace / "a").write_text("then")
    (workspace / "link").symlink_to("a")
    client.call("workspace.snapshot", name="c:1")
    content = (workspace / "big").read_bytes()
    (workspace / "a").write_text("now")
    parts, offset = [], 0
    while True:
        answer = client.call("workspace.pack", names=["c:1"], keep="k", offset=offset)
        parts.append(answer.blob or b"")
        offset += len(parts[-1])
        if answer.result["eof"]:
            break
    assert len(parts) == 2
    for name in ("a", "big", "link"):
        (workspace / name).unlink()
    offset = 0
    for part in parts:
        client.call("workspace.unpack", offset=offset, blob=part)
        offset += len(part)
    client.call("workspace.unpack", offset=offset, eof=True, blob=b"")
    assert (workspace / "a").read_text() == "then"
    assert (workspace / "big").read_bytes() == content
    assert (workspace / "link").readlink() == Path("a")
    assert (workspace / ".git/HEAD").read_text() == "ref"


def test_what_a_copy_holds_that_anybody_may_have_written_stays_inside_the_workspace(
    client: Client, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "secret").write_text("secret")
    (workspace / "folder").symlink_to(outside)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, link in (
            ("/abs", tarfile.REGTYPE, ""),
            ("../up", tarfile.REGTYPE, ""),
            ("link", tarfile.SYMTYPE, str(outside)),
            ("link/through", tarfile.REGTYPE, ""),
            ("hard", tarfile.LNKTYPE, "../outside/secret"),
            ("hard", tarfile.LNKTYPE, str(outside / "secret")),
            ("hard", tarfile.LNKTYPE, "link/secret"),
            ("pipe", tarfile.FIFOTYPE, ""),
            ("device", tarfile.CHRTYPE, ""),
            ("folder", tarfile.DIRTYPE, ""),
            ("folder/good", tarfile.REGTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, link, 0o700
            archive.addfile(member)
    content = buffer.getvalue()
    client.call("workspace.unpack", offset=0, blob=content)
    assert client.call("workspace.unpack", offset=len(content), eof=True, blob=b"").result == {"entries": 3}
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert outside.stat().st_mode & 0o777 == 0o755
    assert {"link", "folder"} == {path.name for path in workspace.iterdir()} - {".drydock"}
    assert (workspace / "folder/good").exists()
    assert not (workspace / "folder").is_symlink()


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("workspace.snapshot", {}),
        ("workspace.restore", {"names": "c:1", "keep": "k"}),
        ("workspace.restore", {"names": []}),
        ("workspace.unpack", {}),
    ],
)
def test_a_wish_that_cannot_be_read_is_refused(client: Client, op: str, args: dict[str, Any]) -> None:
    assert client.call(op, **args).error["code"] == "bad_request"


def test_two_who_pack_at_the_same_time_have_each_their_own_file(client: Client, workspace: Path) -> None:
    large = os.urandom(9 * 1024 * 1024)
    (workspace / "large").write_bytes(large)
    packed = {"one": b"", "two": b""}
    done: set[str] = set()
    while len(done) < 2:
        for name in sorted(packed.keys() - done):
            offset = len(packed[name])
            answer = client.call("workspace.pack", names=[], keep="c:packed", offset=offset, file=name)
            packed[name] += answer.blob or b""
            if answer.result["eof"]:
                done.add(name)
        (workspace / "large").write_bytes(large[::-1])
    for name, content in (("one", large), ("two", large)):
        with tarfile.open(fileobj=io.BytesIO(packed[name])) as archive:
            file = archive.extractfile("large")
            assert file is not None
            assert file.read() == content, name


def test_a_full_disk_is_said_and_what_was_kept_stays(directory: Path) -> None:
    """The limit on the size of a file, which the system reports as it does a full disk."""
    (directory / "workspace").mkdir()
    (directory / "workspace" / "a").write_text("begin")
    runner = Runner(directory, before=("prlimit", "--fsize=300000"))
    try:
        client = runner.connect()
        client.call("workspace.snapshot", name="c:1")
        (directory / "workspace" / "large").write_bytes(os.urandom(400_000))
        for error in (
            client.call("workspace.snapshot", name="c:2").error,
            client.call("workspace.pack", names=[], keep="c:3").error,
        ):
            assert (error["code"], "free some space" in error["message"]) == ("no_space", True)
            assert "/" not in error["message"]
        (directory / "workspace" / "large").unlink()
        (directory / "workspace" / "a").write_text("changed")
        assert back(client, "c:1")["restored"] == "c:1"
        assert (directory / "workspace" / "a").read_text() == "begin"
    finally:
        runner.close()


def test_what_is_known_of_events_behind_the_end_of_a_log_is_forgotten(
    client: Client, runner: Runner, connect: Callable[[], Client], workspace: Path
) -> None:
    (workspace / "a").write_text("begin")
    client.call("workspace.snapshot", name="c:1")
    for key in ("c:3", "c:5", "c:6:draft", "cc:9"):
        run(client, f"echo {key} >> a", key)
    lost = client.send("shell.run", key="c:7", command="echo begun; sleep 4744", soft_timeout=60)
    client.wait_for_output(lost, "begun")
    client.call("log.end", log="c", last=3)
    assert client.wait(lost).result["status"] == "interrupted"
    assert back(client, "c:7", "c:6:draft", "c:5")["restored"] is None
    runner.restart(signal.SIGKILL)  # nor does the next runner know of them
    after = connect()
    assert back(after, "c:7", "c:6:draft", "c:5")["restored"] is None
    for key in ("c:3", "c:5", "c:6:draft", "cc:9"):
        after.call("shell.run", key=key, command=f"echo {key} >> again", timeout=20)
    assert (workspace / "again").read_text() == "c:5\nc:6:draft\n"
    assert back(after, "c:3")["restored"] == "c:3"
    assert (workspace / "a").read_text() == "beginc:3\n"
