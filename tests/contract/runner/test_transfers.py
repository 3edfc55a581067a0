"""Files in and out of the workspace: byte for byte, whole or not at all, and never outside of it."""

from __future__ import annotations

import io
import os
import shutil
import stat
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.contract.runner.client import Client, Runner

EVERY_BYTE = bytes(range(256))


def put(client: Client, path: str, data: bytes, *, part: int = 1 << 20) -> dict[str, Any]:
    """Store a file; the answer of the first request that failed, else that of the last."""
    begun = client.call("transfer.write", path=path)
    if begun.message.get("ok") is not True:
        return begun.message
    ident = begun.result["id"]
    for offset in range(0, len(data), part):
        client.call("transfer.put", id=ident, offset=offset, blob=data[offset : offset + part]).result  # noqa: B018
    return client.call("transfer.keep", id=ident).message


def get(client: Client, path: str = "", *, limit: int = 1 << 20) -> bytes:
    ident = client.call("transfer.read", path=path).result["id"]
    data, ended = bytearray(), False
    while not ended:
        answer = client.call("transfer.next", id=ident, offset=len(data), limit=limit)
        ended = answer.result["eof"]
        assert len(answer.blob or b"") <= limit
        data += answer.blob or b""
    client.call("transfer.drop", id=ident).result  # noqa: B018
    return bytes(data)


def unzipped(data: bytes) -> zipfile.ZipFile:
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert archive.testzip() is None
    return archive


def refusal(client: Client, op: str, **args: Any) -> str:
    return client.call(op, **args).error["code"]


@pytest.mark.parametrize("size", [0, 1, 256, 3 * 1024 * 1024 + 7])
def test_a_file_goes_in_and_out_byte_for_byte(client: Client, workspace: Path, size: int) -> None:
    data = (EVERY_BYTE * (size // 256 + 1))[:size]
    assert put(client, "new/deep/naïve 名.bin", data)["result"] == {"size": size}
    assert (workspace / "new/deep/naïve 名.bin").read_bytes() == data
    assert get(client, "new/deep/naïve 名.bin", limit=100_000) == data


def test_nothing_is_seen_of_a_file_before_its_last_byte_and_nothing_stays_of_one_that_is_dropped(
    client: Client, workspace: Path
) -> None:
    (workspace / "present").write_text("old")
    for path in ("fresh/one", "present"):
        ident = client.call("transfer.write", path=path).result["id"]
        client.call("transfer.put", id=ident, offset=0, blob=b"new").result  # noqa: B018
        assert os.listdir(workspace) == ["present"]
        assert (workspace / "present").read_text() == "old"
        client.call("transfer.drop", id=ident).result  # noqa: B018
        assert refusal(client, "transfer.put", id=ident, offset=0, blob=b"x") == "not_found"
    assert os.listdir(workspace) == ["present"]


def test_a_file_that_is_replaced_keeps_its_rights_and_a_link_is_replaced_itself(
    client: Client, workspace: Path
) -> None:
    (workspace / "tool").write_text("#!/bin/sh")
    (workspace / "tool").chmod(0o755)
    (workspace / "link").symlink_to("tool")
    assert put(client, "tool", b"new")["ok"]
    assert put(client, "link", b"other")["ok"]
    assert stat.S_IMODE((workspace / "tool").stat().st_mode) == 0o755
    assert (workspace / "tool").read_bytes() == b"new"
    assert not (workspace / "link").is_symlink()


@pytest.mark.parametrize(
    "path",
    ["../out", "a/../../out", "/etc/passwd", "..", "a/..", "\0", "out/x", "up/x", "far/x", "round/x", "up/../../x"],
)
def test_no_name_and_no_link_leads_out(client: Client, workspace: Path, path: str) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "x").write_text("secret")
    (workspace / "out").symlink_to(outside)
    (workspace / "up").symlink_to("..")
    (workspace / "far").symlink_to("/etc")
    (workspace / "round").symlink_to("round")
    for op in ("transfer.read", "transfer.write", "folder.list"):
        assert refusal(client, op, path=path) in {"forbidden", "bad_request"}, op
    assert os.listdir(outside) == ["x"]
    assert (outside / "x").read_text() == "secret"


def test_links_inside_are_followed_and_absolute_names_below_the_workspace_are_taken(
    client: Client, workspace: Path
) -> None:
    (workspace / "a/b").mkdir(parents=True)
    (workspace / "a/b/file").write_text("here")
    (workspace / "one").symlink_to("a/b")
    (workspace / "two").symlink_to(workspace / "one")
    (workspace / "three").symlink_to("two/../b/file")
    for path in ("one/file", "two/file", "three", f"{workspace}/two/file", "./a//b/./file"):
        assert get(client, path) == b"here", path
    assert put(client, "two/more/new", b"1")["ok"]
    assert (workspace / "a/b/more/new").read_bytes() == b"1"
    (workspace / "nowhere").symlink_to("gone/../../x")
    assert refusal(client, "transfer.write", path="nowhere/file") == "not_found"


def test_a_link_that_changes_all_the_time_never_leads_out(client: Client, workspace: Path) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    (workspace / "real").mkdir()
    (workspace / "real/file").write_text("inside")
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            for target in (outside, "real"):
                (workspace / "next").symlink_to(target)
                (workspace / "next").rename(workspace / "door")

    changing = threading.Thread(target=change)
    (workspace / "door").symlink_to("real")
    changing.start()
    try:
        for _ in range(150):
            answer = client.call("transfer.read", path="door/file")
            if answer.message["ok"]:
                ident = answer.result["id"]
                assert client.call("transfer.next", id=ident).blob == b"inside"
                client.call("transfer.drop", id=ident)
            put(client, "door/put", b"x")
    finally:
        stop.set()
        changing.join()
    assert os.listdir(outside) == ["file"]


def test_what_is_no_file_is_refused_at_once(client: Client, workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")
    (workspace / "folder").mkdir()
    (workspace / "file").write_text("x")
    assert refusal(client, "transfer.read", path="fifo") == "not_a_file"
    assert refusal(client, "transfer.write", path="fifo") == "not_a_file"
    assert refusal(client, "transfer.write", path="folder") == "not_a_file"
    assert refusal(client, "transfer.write", path="folder/") == "bad_request"
    assert refusal(client, "transfer.write", path="file/below") == "not_found"
    assert refusal(client, "transfer.read", path="missing") == "not_found"
    assert refusal(client, "transfer.write", path="n" * 300) == "bad_request"
    assert refusal(client, "folder.list", path="file") == "not_a_file"


def test_a_file_that_grows_is_sent_as_it_was_and_one_that_shrinks_ends_early(client: Client, workspace: Path) -> None:
    growing, shrinking = workspace / "growing", workspace / "shrinking"
    for path in (growing, shrinking):
        path.write_bytes(b"x" * 1000)
    idents = []
    for path in (growing, shrinking):
        begun = client.call("transfer.read", path=path.name).result
        assert (begun["kind"], begun["size"], begun["name"]) == ("file", 1000, path.name)
        idents.append(begun["id"])
    with growing.open("ab") as file:
        file.write(b"y" * 1000)
    os.truncate(shrinking, 10)
    answer = client.call("transfer.next", id=idents[0], offset=0)
    assert (answer.blob, answer.result["eof"]) == (b"x" * 1000, True)
    assert client.call("transfer.next", id=idents[1], offset=0).blob == b"x" * 10


def test_a_folder_is_sent_as_an_archive_with_its_structure_rights_and_links(client: Client, workspace: Path) -> None:
    (workspace / "pack/deep/empty").mkdir(parents=True)
    (workspace / "pack/deep/every").write_bytes(EVERY_BYTE * 5000)
    (workspace / "pack/run").write_text("#!/bin/sh")
    (workspace / "pack/run").chmod(0o755)
    (workspace / "pack/link").symlink_to("/etc/passwd")
    (workspace / "pack/名").write_text("name")
    (workspace / "other").write_text("not asked for")
    os.mkfifo(workspace / "pack/fifo")
    Path(os.fsdecode(os.fsencode(workspace / "pack") + b"/odd\xff")).write_text("odd")
    archive = unzipped(get(client, "pack", limit=65536))
    names = {info.filename: info for info in archive.infolist()}
    odd = (b"odd\xff").decode("cp437")
    assert set(names) == {"deep/", "deep/empty/", "deep/every", "run", "link", "名", odd, "drydock-left-out.txt"}
    assert archive.read("deep/every") == EVERY_BYTE * 5000
    assert archive.read(odd) == b"odd"
    assert (names["run"].external_attr >> 16) & 0o777 == 0o755
    assert stat.S_ISLNK(names["link"].external_attr >> 16)
    assert archive.read("link") == b"/etc/passwd"
    assert b"fifo: neither a file nor a folder" in archive.read("drydock-left-out.txt")


def test_an_archive_costs_no_memory(client: Client, runner: Runner, workspace: Path) -> None:
    with (workspace / "sparse").open("wb") as file:
        file.truncate(96 * 1024 * 1024)
    (workspace / "noise").write_bytes(os.urandom(32 * 1024 * 1024))
    before = runner.memory_kilobytes()
    ident = client.call("transfer.read", path="").result["id"]
    size, ended, part = 0, False, b""
    while not ended:
        answer = client.call("transfer.next", id=ident, offset=size, limit=1 << 20)
        again = client.call("transfer.next", id=ident, offset=size, limit=1 << 20)
        ended, part = answer.result["eof"], answer.blob or b""
        assert again.blob == part or not part
        size += len(part)
    assert 32 * 1024 * 1024 < size < 34 * 1024 * 1024
    assert runner.memory_kilobytes() - before < 24 * 1024
    assert refusal(client, "transfer.next", id=ident, offset=0) == "bad_request"


def test_a_list_has_folders_first_and_says_what_is_usually_not_looked_at(client: Client, workspace: Path) -> None:
    for name in ("b", "A", "node_modules", ".git", "build"):
        (workspace / name).mkdir()
    for name in ("z.txt", "Y.log", ".gitignore", ".DS_Store", "b/inner.log"):
        (workspace / name).write_text("build/\n*.log\n")
    (workspace / "link").symlink_to("b")
    (workspace / "broken").symlink_to("nothing")
    Path(os.fsdecode(os.fsencode(workspace) + b"/odd\xff")).write_text("odd")
    listed = client.call("folder.list").result
    assert listed["left_out"] == 0
    entries = {entry["name"]: entry for entry in listed["entries"]}
    order = [".git", "A", "b", "build", "link", "node_modules", ".DS_Store", ".gitignore", "broken"]
    assert list(entries) == [*order, "odd\ufffd", "Y.log", "z.txt"]
    hidden = {name for name, entry in entries.items() if entry["hidden"]}
    assert hidden == {".git", "build", "node_modules", ".DS_Store", "Y.log"}
    assert (entries["link"]["kind"], entries["link"]["link"], entries["broken"]["kind"]) == ("folder", True, "missing")
    assert entries["z.txt"]["size"] == 13
    assert [entry["hidden"] for entry in client.call("folder.list", path="b").result["entries"]] == [True]
    assert get(client, "odd\ufffd") == b"odd"
    shutil.rmtree(workspace)
    assert refusal(client, "folder.list") == "not_found"


def test_only_so_many_transfers_are_open_at_once(client: Client) -> None:
    idents = [client.call("transfer.write", path=f"f{n}").result["id"] for n in range(64)]
    assert refusal(client, "transfer.write", path="one-more") == "busy"
    client.call("transfer.drop", id=idents[0]).result  # noqa: B018
    assert put(client, "one-more", b"1")["ok"]


def test_an_archive_comes_in_pieces_no_larger_than_asked_for(client: Client, runner: Runner) -> None:
    files = {f"{number}.bin": os.urandom(70_001) for number in range(9)}
    for name, data in files.items():
        put(client, name, data)
    with zipfile.ZipFile(io.BytesIO(get(client, limit=99_991))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files
