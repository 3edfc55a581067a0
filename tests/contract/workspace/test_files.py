"""Uploads and downloads over the public routes, in real sandboxes."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import time
import zipfile
from collections.abc import AsyncIterator
from typing import Any

import pytest

from server.errors import broke_off
from server.http.files import attachment
from server.session.sandboxes import app_ports
from tests.contract.workspace.conftest import Workspace

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVERY_BYTE = bytes(range(256)) * 40


async def digest(workspace: Workspace, path: str) -> str:
    return (await workspace.run(f"sha256sum -- {path}")).split()[0].lstrip("\\")


async def test_files_of_every_kind_go_up_and_down_byte_for_byte(workspace: Workspace) -> None:
    large = os.urandom(5 * 1024 * 1024) + b"\r\n--limi\r\n--\r\n\r\n-"
    files: list[tuple[str | bytes, bytes]] = [
        ("a.bin", EVERY_BYTE),
        ("empty", b""),
        ("tree/deep/näme 名.txt", b"text\r\nwith ends\n"),
        ("tree/large", large),
        ("back\\slash\\win.txt", b"w"),
    ]
    response = await workspace.upload(*files)
    assert response.status_code == 200
    names = ["a.bin", "empty", "tree/deep/näme 名.txt", "tree/large", "back/slash/win.txt"]
    root = workspace.root
    assert response.json() == {"uploaded_files": [f"{root}/{name}" for name in names], "skipped_files": []}
    for name, (_, data) in zip(names, files, strict=True):
        assert await digest(workspace, f"'{name}'") == hashlib.sha256(data).hexdigest()
        down = await workspace.get("download", path=name)
        assert (down.status_code, down.content) == (200, data)
        assert down.headers["content-length"] == str(len(data))
        assert down.headers["content-disposition"] == attachment(name.rpartition("/")[2])
        assert down.headers["x-content-type-options"] == "nosniff"
    owner = await workspace.run('stat -c %U a.bin tree/deep && stat -c "%a" a.bin && id -un')
    assert owner.split() == [owner.split()[-1]] * 2 + ["644", owner.split()[-1]]


async def test_names_that_are_no_text_are_kept_on_the_way_in_and_can_be_asked_for(workspace: Workspace) -> None:
    response = await workspace.upload((b"odd\xff\xfe.txt", b"odd"))
    assert response.json()["uploaded_files"] == [f"{workspace.root}/odd\ufffd\ufffd.txt"]
    assert await workspace.run("ls | od -An -tx1 -N5") == "6f 64 64 ff fe"
    assert (await workspace.get("list-files")).json() == ["odd\ufffd\ufffd.txt"]
    assert (await workspace.get("download", path="odd\ufffd\ufffd.txt")).content == b"odd"


@pytest.mark.parametrize("name", ["\N{GRINNING FACE}" * 62 + "long.md", "n" * 255])
async def test_a_file_with_the_longest_of_names_is_stored(workspace: Workspace, name: str) -> None:
    assert len(name.encode()) == 255
    for content in (b"new", b"replaced"):
        response = await workspace.upload((name, content))
        assert response.json() == {"uploaded_files": [f"{workspace.root}/{name}"], "skipped_files": []}
        assert (await workspace.get("download", path=name)).content == content


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "/etc/x",
        "a/../../x",
        "..\\x",
        "\\etc\\x",
        "..",
        "out/x",
        "there",
        "nul\0",
        "n" * 300,
        "file/x",
        "a/",
        "",
    ],
)
async def test_a_file_that_cannot_be_stored_is_skipped_with_the_reason_and_the_others_are_not(
    workspace: Workspace, name: str
) -> None:
    await workspace.run("ln -s /tmp out; mkdir there; echo x > file")
    before = await workspace.run("find / -xdev -name x -newer file 2>/dev/null || true")
    response = await workspace.upload(("good", b"1"), (name, b"2" * 3_000_000), ("also good", b"3"))
    assert response.status_code == 200
    found = response.json()
    assert found["uploaded_files"] == [f"{workspace.root}/good", f"{workspace.root}/also good"]
    assert [skipped["name"] for skipped in found["skipped_files"]] == [name.replace("\\", "/")]
    assert found["skipped_files"][0]["reason"]
    assert await workspace.run("find / -xdev -name x -newer file 2>/dev/null || true") == before
    assert sorted((await workspace.run("ls -A | cat")).splitlines()) == ["also good", "file", "good", "out", "there"]


async def test_a_folder_can_be_named_for_all_files_in_the_query_and_in_the_form(workspace: Workspace) -> None:
    response = await workspace.upload(("one", b"1"), path="sub/dir")
    assert response.json()["uploaded_files"] == [f"{workspace.root}/sub/dir/one"]
    head = b"--limit\r\nContent-Disposition: form-data; name="
    form = head + b'"path"\r\n\r\nother\r\n' + head + b'"files"; filename="two"\r\n\r\n2\r\n--limit--\r\n'
    assert (await workspace.send(form)).json()["uploaded_files"] == [f"{workspace.root}/other/two"]
    outside = await workspace.upload(("three", b"3"), path="../..")
    assert outside.json()["uploaded_files"] == []
    assert "out of the workspace" in outside.json()["skipped_files"][0]["reason"]


async def test_a_form_that_breaks_off_leaves_the_whole_files_only(workspace: Workspace) -> None:
    head = b'--limit\r\nContent-Disposition: form-data; name="files"; filename="%s"\r\n\r\n'
    form = head % b"whole" + b"1\r\n" + head % b"half" + b"2" * 3_000_000
    response = await workspace.send(form)
    assert (response.status_code, response.json()["error"]) == (400, "the form breaks off")
    async with workspace.client.stream("GET", f"/api/conversations/{workspace.id}/list-files") as listed:
        assert (await listed.aread(), listed.status_code) == (b'["whole"]', 200)
    assert await workspace.run("ls -A") == "whole"


async def test_what_is_no_form_or_too_large_is_refused_in_words(workspace: Workspace) -> None:
    url = f"/api/conversations/{workspace.id}/upload-files"
    assert (await workspace.client.post(url, json={})).status_code == 400
    assert (await workspace.send(b"nonsense")).status_code == 400
    # One of 60 KB took a second of everybody's time.
    long = {"content-type": f'multipart/form-data; boundary=limit; a="{";" * 2_000}"'}
    assert (await workspace.client.post(url, content=b"--limit--", headers=long)).status_code == 400
    empty = await workspace.send(b'--limit\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n--limit--\r\n')
    assert (empty.status_code, empty.json()["detail"][0]["loc"]) == (422, ["body", "files"])
    large = await workspace.upload(("large", b"x" * (24 * 1024 * 1024)))
    assert (large.status_code, "max_upload_bytes" in large.json()["message"]) == (413, True)
    assert await workspace.run("ls -A") == ""
    for what in ("list-files", "files", "select-file?file=x", "download?path=x", "zip-directory"):
        assert (await workspace.client.get(f"/api/conversations/nobody/{what}")).status_code == 404


async def test_lists_leave_out_what_nobody_looks_at(workspace: Workspace) -> None:
    await workspace.run(
        "mkdir -p .git node_modules __pycache__ lost+found .vscode src/sub build && touch .DS_Store z.txt A.txt "
        "src/main.py src/.DS_Store debug.log && printf 'build/\\n*.log\\n' > .gitignore"
    )
    assert (await workspace.get("list-files")).json() == ["src/", ".gitignore", "A.txt", "z.txt"]
    for path in ("src", "src/", f"{workspace.root}/src"):
        prefix = path.rstrip("/")
        assert (await workspace.get("list-files", path=path)).json() == [f"{prefix}/sub/", f"{prefix}/main.py"]
    entries = (await workspace.get("files")).json()
    assert entries["root"] == workspace.root
    assert [one["name"] for one in entries["entries"] if one["hidden"] and one["kind"] == "file"] == [
        ".DS_Store",
        "debug.log",
    ]
    missing = await workspace.get("files", path="gone")
    told = {"error": "gone does not exist", "code": "not_found", "docs": "/errors/not_found"}
    assert (missing.status_code, missing.json()) == (404, told)
    # As in the original: its client asks for the folder of microagents, and shows an error as one.
    missing = await workspace.get("list-files", path="gone/.openhands/microagents")
    assert (missing.status_code, missing.json()) == (200, [])


async def test_a_text_is_shown_and_what_is_none_is_not(workspace: Workspace) -> None:
    await workspace.run(
        "printf 'näme\\r\\n' > text && printf 'a\\0b' > nul && printf '\\377' > odd && mkdir d && mkfifo f "
        "&& truncate -s 6M big && ln -s /etc/passwd link"
    )
    assert (await workspace.get("select-file", file="text")).json() == {"code": "näme\r\n"}
    for name, status in {"nul": 415, "odd": 415, "d": 400, "f": 400, "big": 413, "link": 403, "gone": 404}.items():
        response = await workspace.get("select-file", file=name)
        assert (response.status_code, next(iter(response.json()))) == (status, "error"), name
    assert (await workspace.get("select-file", file="nul")).json()["error"] == "Unable to open binary file: nul"
    assert (await workspace.get("select-file", file="../../etc/passwd")).status_code == 403
    assert (await workspace.get("select-file")).status_code == 422


async def test_parts_of_a_file_are_sent_and_nothing_that_the_client_has(workspace: Workspace) -> None:
    await workspace.upload(("f", b"0123456789"))

    async def ask(header: str, **more: str) -> tuple[int, bytes, str | None]:
        response = await workspace.get("download", path="f", headers={"range": header, **more})
        return response.status_code, response.content, response.headers.get("content-range")

    assert await ask("bytes=2-4") == (206, b"234", "bytes 2-4/10")
    assert await ask("bytes=7-") == (206, b"789", "bytes 7-9/10")
    assert await ask("bytes=-3") == (206, b"789", "bytes 7-9/10")
    assert await ask("bytes=5-500") == (206, b"56789", "bytes 5-9/10")
    assert (await ask("bytes=10-"))[0::2] == (416, "bytes */10")
    huge = "9" * 5000
    for ignored in ("bytes=4-2", "bytes=-", "lines=1-2", "bytes=1-2,4-5", f"bytes={huge}-", f"bytes=-{huge}"):
        assert await ask(ignored) == (200, b"0123456789", None)
    tag = (await workspace.get("download", path="f")).headers["etag"]
    same = await workspace.get("download", path="f", headers={"if-none-match": f'"x", {tag}'})
    assert (same.status_code, same.content) == (304, b"")
    assert await ask("bytes=0-0", **{"if-range": tag}) == (206, b"0", "bytes 0-0/10")
    await workspace.upload(("f", b"9876543210"))
    assert await ask("bytes=0-0", **{"if-range": tag}) == (200, b"9876543210", None)
    assert (await workspace.get("download", path="f", headers={"if-none-match": tag})).content == b"9876543210"


async def test_folders_are_sent_as_archives(workspace: Workspace) -> None:
    await workspace.run(
        "mkdir -p 'prö ject/sub/empty' && printf a > 'prö ject/a' && head -c 3000000 /dev/zero > 'prö ject/sub/zeros' "
        "&& ln -s /etc/passwd 'prö ject/link' && printf x > top && printf s > closed && chmod 0 closed && mkfifo pipe"
    )
    whole = await workspace.get("zip-directory")
    assert (whole.status_code, whole.headers["content-type"]) == (200, "application/zip")
    assert whole.headers["content-disposition"] == attachment("workspace.zip")
    archive = zipfile.ZipFile(io.BytesIO(whole.content))
    assert archive.testzip() is None
    assert archive.read("prö ject/sub/zeros") == bytes(3000000)
    assert archive.read("prö ject/link") == b"/etc/passwd"
    left_out = archive.read("drydock-left-out.txt").decode()
    assert "pipe: neither a file nor a folder" in left_out
    if await workspace.run("id -u") != "0":
        assert "closed: Permission denied" in left_out
    for what in ("zip-directory", "download"):
        one = await workspace.get(what, path="prö ject")
        assert one.headers["content-disposition"] == attachment("prö ject.zip")
        assert sorted(zipfile.ZipFile(io.BytesIO(one.content)).namelist()) == [
            "a",
            "link",
            "sub/",
            "sub/empty/",
            "sub/zeros",
        ]
    assert (await workspace.get("zip-directory", path="top")).status_code == 400
    assert (await workspace.get("zip-directory", path="../..")).status_code == 403


async def test_who_moves_files_or_looks_at_them_keeps_the_conversation_awake(workspace: Workspace) -> None:
    manager = workspace.app.services.manager
    await workspace.run("head -c 7000000 /dev/zero > zeros; git init -q")
    for what in ("files", "list-files", "select-file?file=x", "git/changes", "git/diff?path=x", "git/log"):
        began = time.monotonic()
        await workspace.client.get(f"/api/conversations/{workspace.id}/{what}")
        assert manager.idle_seconds() <= time.monotonic() - began, what
    sent = 0.0

    async def receive() -> dict[str, Any]:
        return await asyncio.Future()

    async def send(message: Any) -> None:
        nonlocal sent
        if message["type"] == "http.response.body" and message["body"]:
            assert manager.idle_seconds() <= time.monotonic() - sent
            await asyncio.sleep(0.01)
            sent = time.monotonic()

    await workspace.app(scope_of(workspace, "GET", "download?path=zeros"), receive, send)
    assert sent

    async def slowly() -> AsyncIterator[bytes]:
        yield b'--limit\r\nContent-Disposition: form-data; name="files"; filename="f"\r\n\r\n'
        await asyncio.sleep(0.02)
        yield b"x"
        yield b"\r\n--limit--\r\n"

    began = time.monotonic()
    headers = {"content-type": "multipart/form-data; boundary=limit"}
    await workspace.client.post(f"/api/conversations/{workspace.id}/upload-files", content=slowly(), headers=headers)
    assert manager.idle_seconds() <= time.monotonic() - began - 0.01


def scope_of(workspace: Workspace, method: str, what: str) -> dict[str, Any]:
    """A request for the application itself, where the test plays the network."""
    path, _, query = what.partition("?")
    return {
        "type": "http",
        "method": method,
        "path": f"/api/conversations/{workspace.id}/{path}",
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1:3000"), (b"content-type", b"multipart/form-data; boundary=limit")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 3000),
        "scheme": "http",
        "http_version": "1.1",
        "root_path": "",
    }


async def test_who_hangs_up_in_the_middle_of_a_file_leaves_nothing_of_it(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    head = b'--limit\r\nContent-Disposition: form-data; name="files"; filename="half"\r\n\r\n'
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": head + b"x" * 3_000_000, "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: Any) -> None:
        return

    await workspace.app(scope_of(workspace, "POST", "upload-files"), receive, send)
    assert await workspace.run("ls -A") == ""
    assert "Traceback" not in caplog.text


async def test_downloads_that_are_broken_off_do_not_use_up_the_sandbox(workspace: Workspace) -> None:
    await workspace.run("head -c 4000000 /dev/zero > zeros")

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        return

    for _ in range(70):  # more than may be open at once
        await workspace.app(scope_of(workspace, "GET", "download?path=zeros"), receive, send)
    assert (await workspace.get("download", path="zeros")).content == bytes(4000000)


async def test_a_file_that_shrinks_while_it_is_sent_breaks_the_download_off(workspace: Workspace) -> None:
    await workspace.run("head -c 20000000 /dev/zero > zeros")
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 2:
            await workspace.run("truncate -s 1000000 zeros")

    try:
        await workspace.app(scope_of(workspace, "GET", "download?path=zeros"), receive, send)
        assert broke_off.get(), "the web server has nothing to complain about"
    finally:
        broke_off.set(False)
    assert (b"content-length", b"20000000") in sent[0]["headers"]
    assert sum(len(one["body"]) for one in sent[1:]) < 20_000_000
    assert sent[-1]["more_body"], "whoever waits sees that it is not whole"


async def test_a_folder_is_listed_in_pages_that_what_comes_and_goes_does_not_shift(workspace: Workspace) -> None:
    await workspace.run("mkdir b D .git && touch A c e F $'g\\xff'")
    listed = await workspace.get("list-files", limit=3)
    assert listed.json() == ["b/", "D/", "A"]
    entries = (await workspace.get("files", limit=4)).json()
    assert [one["name"] for one in entries["entries"]] == [".git", "b", "D", "A"]
    assert entries["left_out"] == 4
    await workspace.run("rm -r A D && mkdir a C && touch B 0")
    rest = await workspace.client.get(listed.links["next"]["url"])
    assert rest.json() == ["B", "c", "e"]
    last = await workspace.client.get(rest.links["next"]["url"])
    assert last.json() == (await workspace.get("list-files")).json()[-2:]
    assert "link" not in last.headers
    more = (await workspace.get("files", limit=2, page_id=entries["next_page_id"])).json()
    assert [one["name"] for one in more["entries"]] == ["B", "c"]
    assert more["left_out"] == 3
    for what in ("files", "list-files"):
        assert (await workspace.get(what, page_id="x")).status_code == 400


async def test_a_folder_with_more_than_one_answer_takes_is_listed_to_its_end(workspace: Workspace) -> None:
    await workspace.run("seq -w 0 10004 | xargs touch")
    first = (await workspace.get("files")).json()
    assert (len(first["entries"]), first["left_out"]) == (10_000, 5)
    rest = (await workspace.get("files", page_id=first["next_page_id"])).json()
    assert [one["name"] for one in rest["entries"]] == [f"{number:05}" for number in range(10_000, 10_005)]
    assert rest["next_page_id"] is None


async def test_where_nothing_listens_no_port_is_shown_not_even_the_engines_own(workspace: Workspace) -> None:
    # A client of the protocol asks every host that it is told, each three seconds.
    hosts = (await workspace.get("web-hosts")).json()["hosts"]
    assert tuple(hosts.values()) == app_ports(workspace.id)
    assert (await workspace.get("ports")).json()["ports"] == []
