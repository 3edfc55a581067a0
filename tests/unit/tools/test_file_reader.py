"""Files exactly as they are, on the runner's own code."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_core.errors import ToolError
from agent_core.events.messages import ImageContent
from agent_core.tools.file_reader import MAX_BYTES, FileReaderObservation, FileReaderTool
from runtime_images.runner.core.arguments import RequestError
from runtime_images.runner.files import disk
from tests.answering_sandbox import AnsweringSandbox, FakeCall, Reply

PNG = b"\x89PNG\r\n\x1a\n\0\0"


class Workplace(AnsweringSandbox):
    """The runner's reading, in a shell that is in `working_dir`."""

    async def request(
        self,
        op: str,
        args: Mapping[str, Any],
        *,
        key: str | None = None,
        limit_seconds: float | None = None,
        on_output: Callable[[str], None] | None = None,
        blob: bytes | None = None,
    ) -> Reply:
        assert (op, args["in_shell"], key) == ("file.read", True, None)
        path = str(Path(self.working_dir) / args["path"])
        try:
            content = disk.read(path, args["limit"])
        except RequestError as error:
            raise ToolError(str(error)) from error
        return Reply({"path": path, "size": content.size, "offset": 0, "eof": True}, content.data)


async def read(folder: Path, path: str, **lines: int) -> FileReaderObservation:
    (tool,) = FileReaderTool.create()
    action = tool.action_from_arguments({"path": path, **lines})
    result = await tool.acall(action, FakeCall(Workplace(working_dir=str(folder))))
    assert isinstance(result, FileReaderObservation)
    return result


TEXT = "one\r\ntwo\n\tthree  \nvier ä\n\nlast"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ({}, TEXT),
        ({"start": 0, "end": -1}, TEXT),
        ({"start": 1}, "two\n\tthree  \nvier ä\n\nlast"),
        ({"start": 1, "end": 3}, "two\n\tthree  \n"),
        ({"start": 0, "end": 1}, "one\r\n"),
        ({"end": 2}, "one\r\ntwo\n"),
        ({"start": 5, "end": 6}, "last"),
        ({"start": 5, "end": 99}, "last"),
        ({"start": 2, "end": 1}, "\tthree  \n"),
        ({"start": -4, "end": 0}, "one\r\n"),
        ({"start": 99}, ""),
        ({"start": 99, "end": 100}, ""),
    ],
)
async def test_a_text_is_read_exactly_and_its_lines_are_counted_from_0(
    tmp_path: Path, lines: dict[str, int], expected: str
) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT.encode())
    found = await read(tmp_path, "a.txt", **lines)
    assert (found.text, found.is_error, found.path) == (expected, False, f"{tmp_path}/a.txt")


@pytest.mark.parametrize("text", ["", "\n", "\ufeffmarked", "no end", "a\rb\rc"])
async def test_odd_texts_are_as_they_are(tmp_path: Path, text: str) -> None:
    (tmp_path / "a").write_bytes(text.encode())
    assert (await read(tmp_path, f"{tmp_path}/a")).text == text


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.png", "image/png"),
        ("a.JPG", "image/jpeg"),
        ("a.jpeg", "image/jpeg"),
        ("a.gif", "image/gif"),
        ("a.webp", "image/webp"),
        ("a.pdf", "application/pdf"),
        ("a.mp4", "video/mp4"),
        ("a.webm", "video/webm"),
        ("a.ogg", "video/ogg"),
    ],
)
async def test_a_picture_comes_as_a_data_url_which_no_model_is_shown(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).write_bytes(PNG)
    found = await read(tmp_path, name, start=1, end=2)
    assert found.text == f"data:{kind};base64,{base64.b64encode(PNG).decode()}"
    (shown,) = found.to_llm_content
    assert not isinstance(shown, ImageContent)
    assert "base64" not in shown.text
    assert "that is no text" in shown.text


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("none", "does not exist"),
        ("folder", "is a directory, not a file"),
        ("a.txt/b", "does not exist"),
        ("bytes", "ERROR_BINARY_FILE"),
        ("latin", "no text in UTF-8"),
        ("/dev/zero", "is a device, not a file"),
        ("large", f"at most {MAX_BYTES} are read"),
        ("large.png", f"at most {MAX_BYTES} are read"),
    ],
)
async def test_what_is_no_text_is_an_error_that_says_what_it_is(tmp_path: Path, path: str, problem: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "bytes").write_bytes(b"a\0b")
    (tmp_path / "latin").write_bytes("ä".encode("latin-1"))
    for name in ("large", "large.png"):
        (tmp_path / name).write_bytes(b"x" * (MAX_BYTES + 1))
    found = await read(tmp_path, path)
    assert found.is_error
    assert problem in found.text
    assert path in found.text


async def test_a_model_is_shown_the_ends_of_a_long_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("first" + "x" * 100_000 + "last")
    (shown,) = (await read(tmp_path, "a")).to_llm_content
    assert not isinstance(shown, ImageContent)
    assert len(shown.text) == 30_000
    assert shown.text.startswith("first")
    assert shown.text.endswith("last")
