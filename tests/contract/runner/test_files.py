"""Files by bytes, and the editor: checks, messages, undo, and what stays exactly as it was."""

from __future__ import annotations

import base64
import os
import resource
import socket
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from tests.contract.runner.client import Client
from tests.unit.runner.test_pictures import png


def edit(client: Client, command: str, path: Path | str, **args: Any) -> dict[str, Any]:
    return client.call("file.edit", command=command, path=str(path), **args).result


def fails(result: dict[str, Any], *words: str) -> None:
    assert result["is_error"] is True, result
    for word in words:
        assert word in result["text"], result
    assert (result["old_content"], result["new_content"], result["diff"]) == (None, None, None)


def numbered(*lines: str, first: int = 1) -> str:
    return "".join(f"{number:6}\t{line}\n" for number, line in enumerate(lines, first))


# Bytes


def test_bytes_are_written_and_read_back(client: Client, workspace: Path) -> None:
    path = workspace / "new/deep/file"
    data = bytes(range(256)) * 10
    written = client.call("file.write", path=str(path), blob=data, mode=0o640).result
    assert written == {"path": str(path), "created": True, "size": 2560}
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    answer = client.call("file.read", path=str(path))
    assert answer.blob == data
    assert answer.result == {"path": str(path), "size": 2560, "offset": 0, "eof": True, "mode": 0o640}
    part = client.call("file.read", path=str(path), offset=250, limit=10)
    assert part.blob == data[250:260]
    assert part.result["eof"] is False
    assert client.call("file.read", path=str(path), offset=5000).blob == b""


def test_replacing_keeps_permission_bits_and_links(client: Client, workspace: Path) -> None:
    target = workspace / "target"
    target.write_text("old")
    target.chmod(0o751)
    (workspace / "link").symlink_to("target")
    assert client.call("file.write", path=str(workspace / "link"), blob=b"new").result["created"] is False
    assert (workspace / "link").is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o751
    assert sorted(os.listdir(workspace)) == ["link", "target"]


@pytest.mark.parametrize("operation", ["file.read", "file.write"])
def test_what_is_no_file_is_refused_at_once(client: Client, workspace: Path, operation: str) -> None:
    os.mkfifo(workspace / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(workspace / "socket"))
    blob = b"x" if operation == "file.write" else None
    begun = time.monotonic()
    for path in (workspace / "fifo", workspace / "socket", workspace, "/dev/zero", "/dev/tty"):
        assert client.call(operation, path=str(path), blob=blob).error["code"] == "not_a_file"
    assert time.monotonic() - begun < 60
    listener.close()


def test_reading_what_is_missing_or_too_large(client: Client, workspace: Path) -> None:
    assert client.call("file.read", path=str(workspace / "none")).error["code"] == "not_found"
    assert client.call("file.read", path=str(workspace / "none/x")).error["code"] == "not_found"
    with (workspace / "large").open("wb") as file:
        file.truncate(65 * 1024 * 1024)
    assert client.call("file.read", path=str(workspace / "large")).error["code"] == "too_large"
    assert client.call("file.read", path=str(workspace / "large"), limit=5).blob == b"\0" * 5


def test_operations_on_one_file_happen_in_order(client: Client, workspace: Path) -> None:
    path = str(workspace / "file")
    numbers = [client.send("file.write", path=path, blob=str(n).encode() * 1000) for n in range(10)]
    numbers.append(client.send("file.read", path=path))
    answers = [client.wait(number) for number in numbers]
    assert answers[-1].blob == b"9" * 1000


# The editor's checks


def test_a_relative_path_is_refused_with_a_suggestion(client: Client, workspace: Path) -> None:
    (workspace / "file").write_text("x")
    fails(edit(client, "view", "file"), "Invalid `path` parameter: file.", "absolute", str(workspace / "file"))
    result = edit(client, "view", "none")
    fails(result, "absolute")
    assert str(workspace) not in result["text"]


@pytest.mark.parametrize("command", ["view", "str_replace", "insert", "undo_edit", "fly"])
def test_other_commands_need_an_existing_path(client: Client, workspace: Path, command: str) -> None:
    fails(edit(client, command, workspace / "none"), "does not exist")


def test_create_does_not_overwrite(client: Client, workspace: Path) -> None:
    (workspace / "file").write_text("x")
    fails(edit(client, "create", workspace / "file"), "cannot overwrite with `create`")
    fails(edit(client, "create", workspace, file_text="x"), "cannot overwrite with `create`")
    assert (workspace / "file").read_text() == "x"


@pytest.mark.parametrize("command", ["str_replace", "insert", "undo_edit"])
def test_directories_are_only_viewed(client: Client, workspace: Path, command: str) -> None:
    fails(edit(client, command, workspace), "only `view`")


@pytest.mark.parametrize(
    ("command", "args", "missing"),
    [
        ("create", {}, "file_text"),
        ("str_replace", {"new_str": "x"}, "old_str"),
        ("str_replace", {"old_str": "x"}, "new_str"),
        ("insert", {"new_str": "x"}, "insert_line"),
        ("insert", {"insert_line": 0}, "new_str"),
    ],
)
def test_missing_parameters_are_named(
    client: Client, workspace: Path, command: str, args: dict[str, Any], missing: str
) -> None:
    path = workspace / ("new" if command == "create" else "file")
    (workspace / "file").write_text("text\n")
    fails(edit(client, command, path, **args), f"Parameter `{missing}` is required for command: {command}.")


def test_an_unknown_command_lists_the_known_ones(client: Client, workspace: Path) -> None:
    (workspace / "file").write_text("x")
    fails(edit(client, "fly", workspace / "file"), "view", "create", "str_replace", "insert", "undo_edit")


def test_large_binary_and_special_files_are_refused_at_once(client: Client, workspace: Path) -> None:
    (workspace / "binary").write_bytes(b"\x7fELF\0\0\0")
    with (workspace / "large").open("wb") as file:
        file.truncate(10 * 1024 * 1024 + 1)
    os.mkfifo(workspace / "fifo")
    for name in ("binary", "large", "fifo"):
        for command in ("view", "str_replace", "insert"):
            result = edit(client, command, workspace / name, old_str="a", new_str="b", insert_line=0)
            fails(result, f"File validation failed for {workspace / name}: ")
    fails(edit(client, "view", "/dev/zero"), "File validation failed for /dev/zero: ")


# View


def test_a_file_is_shown_with_numbered_lines(client: Client, workspace: Path) -> None:
    path = workspace / "file"
    path.write_text("one\n\ttwo\n\nfour")
    result = edit(client, "view", path)
    assert result["text"].endswith(numbered("one", "\ttwo", "", "four"))
    header = result["text"].split("\n")[0]
    assert "cat -n" in header
    assert str(path) in header
    assert (result["prev_exist"], result["is_error"], result["diff"]) == (True, False, None)


def test_a_range_of_lines_is_shown(client: Client, workspace: Path) -> None:
    path = workspace / "file"
    path.write_text("".join(f"line {n}\n" for n in range(1, 11)))
    assert edit(client, "view", path, view_range=[3, 4])["text"].endswith(":\n" + numbered("line 3", "line 4", first=3))
    assert edit(client, "view", path, view_range=[9, -1])["text"].endswith(numbered("line 9", "line 10", first=9))
    clamped = edit(client, "view", path, view_range=[10, 99])["text"]
    assert clamped.startswith("NOTE")
    assert clamped.endswith(numbered("line 10", first=10))
    for wrong in ([0, 3], [11, 12], [5, 4], [1], [1, 2, 3], ["1", "2"], [True, 2], [3, -2]):
        fails(edit(client, "view", path, view_range=wrong), "Invalid `view_range` parameter")


def test_an_empty_file_is_shown_as_such(client: Client, workspace: Path) -> None:
    (workspace / "file").touch()
    for given in (None, [1, -1], [1, 1], [1, 9]):
        result = edit(client, "view", workspace / "file", view_range=given)
        assert (result["is_error"], "(the file is empty)" in result["text"]) == (False, True), (given, result)
    fails(edit(client, "view", workspace / "file", view_range=[2, -1]), "Invalid `view_range` parameter")


def test_a_long_file_is_cut_in_the_middle(client: Client, workspace: Path) -> None:
    (workspace / "file").write_text("".join(f"line {n}\n" for n in range(5000)))
    text = edit(client, "view", workspace / "file")["text"]
    assert len(text) <= 16000
    assert "left out" in text
    assert "grep -n" in text
    assert text.endswith("line 4999\n")


def test_a_directory_is_listed_two_levels_deep(client: Client, workspace: Path) -> None:
    for name in ("b/c/d", "a", ".hidden/x", "b/.also"):
        (workspace / name).mkdir(parents=True)
    (workspace / "b/file").touch()
    (workspace / ".dot").touch()
    (workspace / "link").symlink_to("..")
    result = edit(client, "view", workspace)
    paths = ["/", "/a/", "/b/", "/b/c/", "/b/file", "/link/"]
    assert "".join(f"{workspace}{path}\n" for path in paths) in result["text"]
    assert "2 hidden" in result["text"]
    assert "/b/c/d" not in result["text"]
    fails(edit(client, "view", workspace, view_range=[1, 2]), "view_range")


def test_an_image_is_shown_as_data(client: Client, workspace: Path) -> None:
    data = png()
    (workspace / "picture.PNG").write_bytes(data)
    result = edit(client, "view", workspace / "picture.PNG")
    assert result["image"] == f"data:image/png;base64,{base64.b64encode(data).decode()}"
    assert f"picture.PNG (image/png, 3 x 2 pixels, {len(data)} bytes)" in result["text"]
    fails(edit(client, "str_replace", workspace / "picture.PNG", old_str="a", new_str="b"), "binary")
    (workspace / "wrong.jpg").write_bytes(data)
    assert edit(client, "view", workspace / "wrong.jpg")["image"].startswith("data:image/png;base64,")
    (workspace / "broken.png").write_bytes(data[:-4])
    fails(edit(client, "view", workspace / "broken.png"), "File validation failed", "broken")
    (workspace / "none.png").write_bytes(bytes(100))
    fails(edit(client, "view", workspace / "none.png"), "File validation failed", "ERROR_BINARY_FILE")
    (workspace / "pointer.png").write_text("oid 1\n")
    assert edit(client, "view", workspace / "pointer.png")["text"].endswith("     1\toid 1\n")


# Create, replace, insert, undo


def test_create_writes_a_file_with_its_directories(client: Client, workspace: Path) -> None:
    path = workspace / "new/deep/file.txt"
    result = edit(client, "create", path, file_text="one\ntwo")
    assert path.read_text() == "one\ntwo"
    assert result["text"] == f"File created successfully at: {path}"
    assert (result["prev_exist"], result["old_content"], result["new_content"]) == (False, None, "one\ntwo")
    assert result["diff"].endswith("@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n")


def test_a_unique_text_is_replaced(client: Client, workspace: Path) -> None:
    path = workspace / "file"
    path.write_text("".join(f"{n}\n" for n in range(1, 21)))
    result = edit(client, "str_replace", path, old_str="9\n10\n", new_str="nine\n")
    assert path.read_text() == "1\n2\n3\n4\n5\n6\n7\n8\nnine\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20\n"
    assert numbered("5", "6", "7", "8", "nine", "11", "12", "13", "14", first=5) in result["text"]
    assert result["old_content"].count("\n") == 20
    assert "-9\n-10\n+nine\n" in result["diff"]


def test_special_characters_are_literal(client: Client, workspace: Path) -> None:
    path = workspace / "file"
    path.write_text("a.*b \\1 $x\n")
    edit(client, "str_replace", path, old_str=".*b \\1", new_str="\\g<0> \\n")
    assert path.read_text() == "a\\g<0> \\n $x\n"


def test_a_replacement_that_cannot_be_made_leaves_the_file_alone(client: Client, workspace: Path) -> None:
    path = workspace / "file"
    path.write_text("a\nb\na\n  a\n")
    before = path.stat().st_mtime_ns
    fails(edit(client, "str_replace", path, old_str="nope", new_str="x"), "did not appear verbatim", "`nope`")
    fails(edit(client, "str_replace", path, old_str="a", new_str="x"), "1, 3, 4")
    fails(edit(client, "str_replace", path, old_str="b", new_str="b"), "the same")
    fails(edit(client, "str_replace", path, old_str=" \n ", new_str="b"), "empty")
    fails(edit(client, "str_replace", path, old_str="", new_str="b"), "empty")
    assert path.stat().st_mtime_ns == before
    fails(edit(client, "undo_edit", path), f"No edit history found for {path}.")


def test_white_space_around_the_old_text_is_forgiven_once(client: Client, workspace: Path) -> None:
    path = workspace / "file"
    path.write_text("one\ntwo\n")
    assert edit(client, "str_replace", path, old_str="  two  ", new_str=" 2 ")["is_error"] is False
    assert path.read_text() == "one\n 2 \n"


def test_text_is_removed_by_an_empty_replacement(client: Client, workspace: Path) -> None:
    path = workspace / "file"
    path.write_text("keep remove\n")
    edit(client, "str_replace", path, old_str=" remove", new_str="")
    assert path.read_text() == "keep\n"


@pytest.mark.parametrize(
    ("before", "line", "text", "after"),
    [
        ("a\nb\n", 0, "x", "x\na\nb\n"),
        ("a\nb\n", 1, "x\ny", "a\nx\ny\nb\n"),
        ("a\nb\n", 2, "x", "a\nb\nx\n"),
        ("a\nb", 1, "x", "a\nx\nb"),
        ("a\nb", 2, "x", "a\nb\nx\n"),
        ("", 0, "x", "x\n"),
        ("a\r\nb\r\n", 1, "x\ny", "a\r\nx\r\ny\r\nb\r\n"),
    ],
)
def test_lines_are_inserted_after_a_line(
    client: Client, workspace: Path, before: str, line: int, text: str, after: str
) -> None:
    path = workspace / "file"
    path.write_bytes(before.encode())
    assert edit(client, "insert", path, insert_line=line, new_str=text)["is_error"] is False
    assert path.read_bytes() == after.encode()


@pytest.mark.parametrize("line", [-1, 3])
def test_lines_are_not_inserted_outside_the_file(client: Client, workspace: Path, line: int) -> None:
    (workspace / "file").write_text("a\nb\n")
    fails(edit(client, "insert", workspace / "file", insert_line=line, new_str="x"), "Invalid `insert_line`", "0", "2")


def test_edits_are_undone_one_by_one(client: Client, workspace: Path) -> None:
    path = workspace / "file"
    edit(client, "create", path, file_text="one\n")
    edit(client, "str_replace", path, old_str="one", new_str="two")
    edit(client, "insert", path, insert_line=1, new_str="three")
    result = edit(client, "undo_edit", path)
    assert path.read_text() == "two\n"
    assert result["text"].endswith(numbered("two"))
    assert (result["old_content"], result["new_content"]) == ("two\nthree\n", "two\n")
    edit(client, "undo_edit", path)
    assert path.read_text() == "one\n"
    assert edit(client, "undo_edit", path)["is_error"] is False  # the version that create wrote
    fails(edit(client, "undo_edit", path), f"No edit history found for {path}.")


def test_ten_versions_are_kept(client: Client, workspace: Path) -> None:
    path = workspace / "file"
    path.write_text("version 0")
    for n in range(12):
        edit(client, "str_replace", path, old_str=f"version {n}", new_str=f"version {n + 1}")
    for n in range(11, 1, -1):
        edit(client, "undo_edit", path)
        assert path.read_text() == f"version {n}"
    fails(edit(client, "undo_edit", path), "No edit history")


@pytest.mark.parametrize(
    ("data", "old", "new", "expected"),
    [
        (b"a\r\nb\r\nc\r\n", "b\nc", "x\ny\nz", b"a\r\nx\r\ny\r\nz\r\n"),
        (b"a\r\nb\nc\r\nd\n", "c", "x", b"a\r\nb\nx\r\nd\n"),
        (b"a\r\nb\nc\n", "b\nc", "x\ny", b"a\r\nx\ny\n"),
        (b"\xef\xbb\xbfa\nb\n", "b", "ü", b"\xef\xbb\xbfa\n\xc3\xbc\n"),
        ("é à\nb\n".encode("latin-1"), "b", "ü", "é à\nü\n".encode("latin-1")),
        ("é à\nb\n".encode("latin-1"), "b", "漢", "é à\n漢\n".encode()),
        ("日本語のテキスト\nb\n".encode("shift_jis"), "b", "です", "日本語のテキスト\nです\n".encode("shift_jis")),
        ("日本語のテキスト\nb\n".encode("euc_jp"), "b", "です", "日本語のテキスト\nです\n".encode("euc_jp")),
        ("Съешь ещё этих\nb\n".encode("cp1251"), "b", "ж", "Съешь ещё этих\nж\n".encode("cp1251")),
        ("Съешь ещё этих\nb\n".encode("koi8_r"), "b", "ж", "Съешь ещё этих\nж\n".encode("koi8_r")),
        ("中文文本在这里。\nb\n".encode("gb18030"), "b", "字", "中文文本在这里。\n字\n".encode("gb18030")),
        ("한국어 텍스트\nb\n".encode("euc_kr"), "b", "글", "한국어 텍스트\n글\n".encode("euc_kr")),
        ("\ufeffa\nb\n".encode("utf-16-le"), "b", "ü", "\ufeffa\nü\n".encode("utf-16-le")),
        (b"a\x0cb\x1cc\xe2\x80\xa8d\rb2\nb3\n", "b3", "x", b"a\x0cb\x1cc\xe2\x80\xa8d\rb2\nx\n"),
    ],
    ids=[
        "crlf", "mixed-crlf", "mixed-lf", "bom", "latin-1", "to-utf-8", "shift-jis", "euc-jp", "cp1251", "koi8-r",
        "gb18030", "euc-kr", "utf-16", "odd-line-ends",
    ],
)  # fmt: skip
def test_what_was_not_edited_stays_byte_for_byte(
    client: Client, workspace: Path, data: bytes, old: str, new: str, expected: bytes
) -> None:
    path = workspace / "file"
    path.write_bytes(data)
    result = edit(client, "str_replace", path, old_str=old, new_str=new)
    assert result["is_error"] is False, result
    assert path.read_bytes() == expected
    edit(client, "undo_edit", path)
    assert path.read_bytes() == data


def test_permission_bits_and_symbolic_links_survive_an_edit(client: Client, workspace: Path) -> None:
    (workspace / "target").write_text("#!/bin/sh\n")
    (workspace / "target").chmod(0o755)
    (workspace / "link").symlink_to("target")
    edit(client, "insert", workspace / "link", insert_line=1, new_str="true")
    assert (workspace / "link").is_symlink()
    assert (workspace / "target").read_text() == "#!/bin/sh\ntrue\n"
    assert stat.S_IMODE((workspace / "target").stat().st_mode) == 0o755


def test_broken_and_circular_links_are_explained(client: Client, workspace: Path) -> None:
    (workspace / "loop").symlink_to("loop")
    fails(edit(client, "view", workspace / "loop"), "symbolic links")
    (workspace / "broken").symlink_to("made")
    assert edit(client, "create", workspace / "broken", file_text="x")["is_error"] is False
    assert (workspace / "made").read_text() == "x"


def test_a_path_that_leads_elsewhere_by_its_end_or_a_missing_folder_overwrites_nothing(
    client: Client, workspace: Path
) -> None:
    (workspace / "file").write_text("kept")
    for path in ("file/", "file/.", "none/../file", "file/../file"):
        assert edit(client, "create", f"{workspace}/{path}", file_text="x")["is_error"], path
        assert client.call("file.write", path=f"{workspace}/{path}", blob=b"x").error["code"] == "not_found"
    fails(edit(client, "create", f"{workspace}/new/", file_text="x"), "like a directory's")
    assert {path.name: path.read_text() for path in workspace.iterdir()} == {"file": "kept"}


def test_a_read_only_file_stays_as_it_is_and_a_link_to_itself_does_not_hide_a_directory(
    client: Client, workspace: Path
) -> None:
    (workspace / "loop").symlink_to("loop")
    (workspace / os.fsdecode(b"bad\xff\nname")).write_text("x")
    text = edit(client, "view", workspace)["text"]
    assert f"{workspace}/bad\\xff\\nname\n{workspace}/loop\n" in text
    if os.geteuid() == 0:  # nothing is read-only to root
        return
    (workspace / "file").write_text("x\n")
    (workspace / "file").chmod(0o444)
    fails(edit(client, "str_replace", workspace / "file", old_str="x", new_str="y"), "read-only")
    (workspace / "closed").mkdir(0o300)
    fails(edit(client, "view", workspace / "closed"), "Permission denied")
    (workspace / "closed").chmod(0o700)


def test_a_file_with_the_longest_of_names_can_be_edited(client: Client, workspace: Path) -> None:
    path = workspace / ("漢" * 85)  # 255 bytes
    assert not edit(client, "create", path, file_text="a\n")["is_error"]
    assert not edit(client, "str_replace", path, old_str="a", new_str="b")["is_error"]
    assert path.read_text() == "b\n"
    fails(edit(client, "create", f"{path}x", file_text="a"), "name too long")


def test_a_file_is_the_same_by_every_link_to_it(client: Client, workspace: Path) -> None:
    (workspace / "file").write_text("a\n")
    (workspace / "first").symlink_to("file")
    (workspace / "second").symlink_to(workspace / "first")
    path = [str(workspace / name) for name in ("file", "first", "second")]
    numbers = [
        client.send("file.edit", command="insert", path=path[n % 3], insert_line=0, new_str=str(n)) for n in range(12)
    ]
    assert not any(client.wait(number).result["is_error"] for number in numbers)
    assert (workspace / "file").read_text() == "".join(f"{n}\n" for n in range(11, -1, -1)) + "a\n"
    assert edit(client, "undo_edit", path[0])["new_content"] == "".join(f"{n}\n" for n in range(10, -1, -1)) + "a\n"
    assert (workspace / "second").is_symlink()
    os.link(path[0], workspace / "hard")
    before = (workspace / "file").read_text()
    edit(client, "insert", workspace / "hard", insert_line=0, new_str="new")
    assert (workspace / "file").read_text() == before


def test_a_path_through_a_file_is_explained(client: Client, workspace: Path) -> None:
    (workspace / "file").write_text("x")
    fails(edit(client, "create", workspace / "file/below", file_text="x"), "file")
    fails(edit(client, "view", workspace / ("x" * 300)), "name too long")


def test_a_large_edit_answers_with_a_diff_instead_of_contents(client: Client, workspace: Path) -> None:
    path = workspace / "file"
    path.write_text("x" * 99 + "\n" * 1 + ("y" * 99 + "\n") * 50_000)
    result = edit(client, "str_replace", path, old_str="x" * 99, new_str="z")
    assert (result["old_content"], result["new_content"]) == (None, None)
    assert "+z\n" in result["diff"]


def test_a_file_does_not_grow_over_the_limit(client: Client, workspace: Path) -> None:
    path = workspace / "file"
    path.write_text("a\n" + "x" * (10 * 1024 * 1024 - 10))
    fails(edit(client, "str_replace", path, old_str="a\n", new_str="b" * 100), "limit")
    fails(edit(client, "create", workspace / "new", file_text="x" * (10 * 1024 * 1024 + 1)), "limit")
    assert not (workspace / "new").exists()


def test_a_full_disk_leaves_the_old_content(client: Client, workspace: Path) -> None:
    path = workspace / "file"
    path.write_text("old\n")
    soft = resource.prlimit(client.hello["pid"], resource.RLIMIT_FSIZE)
    resource.prlimit(client.hello["pid"], resource.RLIMIT_FSIZE, (1000, soft[1]))
    try:
        fails(edit(client, "str_replace", path, old_str="old", new_str="x" * 5000), str(path))
        journal = client.call("file.edit", key="c:1", command="create", path=str(path) + "2", file_text="x" * 5000)
        assert journal.result["is_error"] is True
        assert client.output("echo fine", env={"A": "b" * 3000}) == "fine\n"
    finally:
        resource.prlimit(client.hello["pid"], resource.RLIMIT_FSIZE, soft)
    assert path.read_text() == "old\n"
    assert sorted(os.listdir(workspace)) == ["file"]


def test_an_undo_that_a_full_disk_prevents_can_be_asked_for_again(client: Client, workspace: Path) -> None:
    path = workspace / "file"
    path.write_text("long\n" * 1000)
    edit(client, "str_replace", path, old_str="long\n" * 1000, new_str="short\n")
    soft = resource.prlimit(client.hello["pid"], resource.RLIMIT_FSIZE)
    resource.prlimit(client.hello["pid"], resource.RLIMIT_FSIZE, (1000, soft[1]))
    try:
        fails(edit(client, "undo_edit", path), str(path))
    finally:
        resource.prlimit(client.hello["pid"], resource.RLIMIT_FSIZE, soft)
    assert path.read_text() == "short\n"
    assert edit(client, "undo_edit", path)["is_error"] is False
    assert path.read_text() == "long\n" * 1000


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_byte_order_mark_is_no_part_of_the_text_and_stays_first(client: Client, workspace: Path, codec: str) -> None:
    path = workspace / "file"
    path.write_bytes("\ufeffone\ntwo\n".encode(codec))
    assert edit(client, "view", path)["text"].endswith(":\n" + numbered("one", "two"))
    result = edit(client, "insert", path, insert_line=0, new_str="top")
    assert (result["old_content"], result["new_content"]) == ("one\ntwo\n", "top\none\ntwo\n")
    assert path.read_bytes() == "\ufefftop\none\ntwo\n".encode(codec)


def test_a_file_in_the_way_of_a_new_ones_folder_is_named_as_what_it_is(client: Client, workspace: Path) -> None:
    (workspace / "file").write_text("x")
    fails(edit(client, "create", workspace / "file/below/it", file_text="y"), "is not a directory")
    assert client.call("file.write", path=str(workspace / "file/it"), blob=b"y").error["code"] == "not_found"
