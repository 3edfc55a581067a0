"""The conformance suite of the file editor: what it does with hostile files is the same in every provider's sandboxes.

A test module inherits from the class and gives it a fixture ``kit`` (a `SandboxKit`). Each test has
one sandbox for many cases, since starting one takes longer than all that is done in it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from agent_core.runtime.action_runner import DirectContext
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.testing.sandbox_contract import SandboxKit, drop_stream, output
from agent_core.tools.file_editor import FileEditorAction, FileEditorObservation, edit

SPECIAL = """
mkfifo fifo && ln -s fifo to_fifo && ln -s loop loop && ln -s gone dangling && mkdir -p folder && ln -s folder to_folder
printf 'x\\n' > file && ln -s file link && ln -s link chain && printf 'x\\n' > unreadable && chmod 0 unreadable
printf 'x\\n' > fixed && chmod 444 fixed && printf 'x\\n' > tool && chmod 750 tool && mkdir closed && chmod 555 closed
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
head -c 11000000 /dev/zero | tr '\\0' x > huge && printf 'MZ\\0\\1\\2' > binary
"""
REFUSED_VIEWS = (
    ("fifo", "a FIFO"),
    ("to_fifo", "a FIFO"),
    ("socket", "a socket"),
    ("/dev/zero", "a device"),
    ("/dev/tty", "a device"),
    ("/dev/stdin", ""),
    ("/proc/self/mem", ""),
    ("/proc/self/pagemap", ""),
    ("loop", "symbolic links"),
    ("dangling", "does not exist"),
    ("huge", "10.5 MB"),
    ("binary", "binary"),
    ("none/x", "does not exist"),
    ("file/x", "does not exist"),
    ("file/", "does not exist"),
    ("a\0b", "NUL"),
    ("x" * 300, "name too long"),
    ("x/" * 3000, "name too long"),
)


TEXTS = (
    ("utf-8", "é\r\n", "one\ntwo\r\nthree"),
    ("utf-8-sig", "é\n", "one\ntwo\n"),
    ("utf-16", "漢\n", "one\r\ntwo\n"),
    ("utf-16-be", "\ufeff漢\n", "one\ntwo"),
    ("latin-1", "Grüße aus Köln, façade\n", "one\ntwo\n"),
    ("gbk", "中文文件的内容在这里\n", "one\ntwo\n"),
    ("shift_jis", "ひらがなとカタカナ\n", "one\ntwo\n"),
    ("ascii", "", "one\rtwo\r"),
    ("utf-8", "\x0c\u2028\x85\x1c\n", "one\ntwo\n"),
)
"""Encodings, each with a text before and a text around what is edited; what is not edited stays byte for byte."""

BROKEN = (
    ("a.py", "def f(:\n    pass\n", "line 1: SyntaxError"),
    ("a.json", '{"a": 1,\n}\n', "line 2: JSON"),
    ("a.sh", "if true; then\necho\n", "line 3: "),
    ("a.txt", "if (\n", ""),
)


@dataclass
class _Editor:
    sandbox: SandboxConnection

    def path(self, name: str) -> str:
        return name if name.startswith("/") else f"{self.sandbox.working_dir}/{name}"

    async def __call__(self, command: str, name: str, key: str | None = None, **given: Any) -> FileEditorObservation:
        action = FileEditorAction.model_validate({"command": command, "path": self.path(name), **given})
        async with asyncio.timeout(60):
            return FileEditorObservation(**await edit(action, DirectContext(self.sandbox), key, {}))

    async def fails(self, words: str, command: str, name: str, **given: Any) -> None:
        seen = await self(command, name, **given)
        assert seen.is_error, (name, seen.text)
        assert words.lower() in seen.text.lower(), (name[:50], seen.text[-300:])
        assert (seen.old_content, seen.new_content, seen.diff) == (None, None, None)

    async def put(self, name: str, data: bytes) -> None:
        await self.sandbox.request("file.write", {"path": self.path(name)}, blob=data)

    async def bytes_of(self, name: str) -> bytes:
        return (await self.sandbox.request("file.read", {"path": self.path(name)})).blob or b""


class FileEditorContract:
    """View, create, replace, insert, undo."""

    async def test_what_is_no_text_file_is_refused_at_once_and_links_and_modes_stay(self, kit: SandboxKit) -> None:
        editor = _Editor(kit.connect())
        await output(editor.sandbox, SPECIAL)
        for name, words in REFUSED_VIEWS:
            await editor.fails(words, "view", name)
            await editor.fails("" if "/" in name else words, "str_replace", name, old_str="x", new_str="y")
        for name in ("fifo", "socket", "/dev/null", "folder", "to_folder", "file", "link", "huge"):
            await editor.fails("cannot overwrite", "create", name, file_text="x")
        for name in ("file/", "none/../file", "file/.", "/proc/none"):
            assert (await editor("create", name, file_text="x")).is_error, name
        assert not (await editor("str_replace", "chain", old_str="x", new_str="y")).is_error
        assert not (await editor("str_replace", "tool", old_str="x", new_str="y")).is_error
        assert not (await editor("create", "dangling", file_text="made\n")).is_error
        await output(editor.sandbox, "test -L chain && test -L link && test -L dangling")
        shown = "cat file tool gone; stat -c %a tool; ls"
        assert (await output(editor.sandbox, shown)).startswith("y\ny\nmade\n750\n")
        seen = await editor("view", editor.sandbox.working_dir)
        assert f"{editor.path('loop')}\n" in seen.text
        if await output(editor.sandbox, "id -u") != "0":
            await editor.fails("permission denied", "view", "unreadable")
            await editor.fails("read-only", "str_replace", "fixed", old_str="x", new_str="y")
            await editor.fails("permission denied", "create", "closed/file", file_text="x")
            await output(editor.sandbox, "chmod 755 closed; echo x > closed/file; chmod 555 closed")
            assert not (await editor("str_replace", "closed/file", old_str="x", new_str="in place")).is_error
            assert await output(editor.sandbox, "cat closed/file; ls closed") == "in place\nfile"

    async def test_what_is_not_edited_stays_byte_for_byte_in_every_encoding(self, kit: SandboxKit) -> None:
        editor = _Editor(kit.connect())
        for number, (codec, before, text) in enumerate(TEXTS):
            await editor.put(f"f{number}", (before + text).encode(codec))
            seen = await editor("str_replace", f"f{number}", old_str="two", new_str="zwei")
            assert not seen.is_error, (codec, seen.text)
            assert "-two" in (seen.diff or ""), codec
            assert await editor.bytes_of(f"f{number}") == (before + text.replace("two", "zwei")).encode(codec), codec
            undone = await editor("undo_edit", f"f{number}")
            assert (undone.is_error, undone.new_content) == (False, seen.old_content)
            assert await editor.bytes_of(f"f{number}") == (before + text).encode(codec), codec

    async def test_ten_edits_can_be_undone_also_by_the_next_runner_and_each_edit_happens_once(
        self, kit: SandboxKit
    ) -> None:
        editor = _Editor(kit.connect())
        await editor.put("file", b"0\n")
        for number in range(12):
            seen = await editor("str_replace", "file", f"c:{number}", old_str=f"{number}\n", new_str=f"{number + 1}\n")
        drop_stream(editor.sandbox)
        again = await editor("str_replace", "file", "c:11", old_str="11\n", new_str="12\n")
        assert again == seen
        await editor.sandbox.stop()
        again = await editor("str_replace", "file", "c:11", old_str="11\n", new_str="12\n")
        assert again == seen
        undone = [(await editor("undo_edit", "file")).new_content for _ in range(10)]
        assert undone == [f"{number}\n" for number in range(11, 1, -1)]
        await editor.fails("No edit history found", "undo_edit", "file")

    async def test_edits_at_the_same_time_happen_one_after_the_other(self, kit: SandboxKit) -> None:
        editor = _Editor(kit.connect())
        await output(editor.sandbox, "echo end > file; ln -s file link")
        edits = [
            editor("insert", ("file", "link")[number % 2], f"c:{number}", insert_line=0, new_str=f"line {number}")
            for number in range(20)
        ]
        assert not any(seen.is_error for seen in await asyncio.gather(*edits))
        lines = (await output(editor.sandbox, "cat file")).splitlines()
        assert sorted(lines) == sorted([*(f"line {number}" for number in range(20)), "end"])

    async def test_an_edit_that_breaks_the_syntax_is_found_out_before_it_is_written(self, kit: SandboxKit) -> None:
        editor = _Editor(kit.connect())
        await editor.put("b.py", b"x = (\ny = 1\n")
        for name, text, words in BROKEN:
            asked = {"path": editor.path(name), "first": 1, "last": 0, "text": text}
            problems = (await editor.sandbox.request("code.lint", asked)).result["problems"]
            assert " ".join(f"line {one['line']}: {one['text']}" for one in problems).startswith(words), (
                name,
                problems,
            )
            assert bool(problems) is bool(words), name
        asked = {"path": editor.path("b.py"), "first": 2, "last": 2, "text": "y = 2\n"}
        assert (await editor.sandbox.request("code.lint", asked)).result["problems"] == []
        assert await output(editor.sandbox, "ls; cat b.py") == "b.py\nx = (\ny = 1"
