"""The file of a repository that names its sandbox's image."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.errors import SandboxError, SandboxLostError, ToolError
from server.session.repository_sandbox import FILES, OWN_FILE, RepositoryWish, image_in, read_wish
from tests.answering_sandbox import AnsweringSandbox, Asked

DEVCONTAINER = FILES[1]


@pytest.mark.parametrize(
    ("file", "content", "image"),
    [
        (OWN_FILE, 'image = "python:3.12"', "python:3.12"),
        (OWN_FILE, "", ""),
        (OWN_FILE, "\ufeffimage = ' a/b:1 '", "a/b:1"),
        (DEVCONTAINER, '{"image": "python:3.12"}', "python:3.12"),
        (DEVCONTAINER, '{"build": {"dockerfile": "Dockerfile"}}', ""),
        (
            DEVCONTAINER,
            '// first\n{ /* "image": "no" */ "name": "a // b, }", "image": "python:3.12", // why\n'
            ' "features": {"x": {},}, "list": [1, /* two */ ], }',
            "python:3.12",
        ),
        (DEVCONTAINER, '{"name": "quote \\" // no comment", "image": "a:1"}', "a:1"),
    ],
)
def test_the_image_is_read_from_toml_or_from_json_as_editors_write_it(file: str, content: str, image: str) -> None:
    assert image_in(file, content.encode()) == image


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        (OWN_FILE, b'imgae = "a:1"', "did you mean image"),
        (OWN_FILE, b"memory = 1", "only image can be set here"),
        (OWN_FILE, b"image = 7", "no name of an image"),
        (OWN_FILE, b"image = ", "no valid TOML"),
        (OWN_FILE, b"\xff\xfe", "no text in UTF-8"),
        (OWN_FILE, b"#" * 100_001, "more than 100000 bytes"),
        (DEVCONTAINER, b"[]", "no JSON object"),
        (DEVCONTAINER, b"{", "no valid JSON"),
        (DEVCONTAINER, b"[" * 50_000, "no valid JSON"),
        (DEVCONTAINER, b'{"image": "${localEnv:IMAGE}"}', "no name of an image"),
        (DEVCONTAINER, b'{"image": ["a:1"]}', "no name of an image"),
        (DEVCONTAINER, b" /*" * 30_000, "no valid JSON"),
        (DEVCONTAINER, b"{" + b"/*a*/" * 15_000, "no valid JSON"),
        (DEVCONTAINER, b"," * 90_000, "no valid JSON"),
        (DEVCONTAINER, b'"' + b'\\"' * 49_000, "no valid JSON"),
    ],
)
def test_what_cannot_be_read_is_told(file: str, content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        image_in(file, content)


class Repository(AnsweringSandbox):
    """A sandbox with a repository in it, without any such file, whose second answer may be another."""

    def __init__(self, second: Exception | None = None) -> None:
        super().__init__()
        self._second = second

    def answer(self, asked: Asked) -> dict[str, Any]:
        if self._second is not None and len(self.asked) == 2:
            raise self._second
        if not asked.args["path"].endswith("HEAD"):
            raise ToolError("it is not there")
        return {}


async def test_a_file_that_is_not_there_is_no_wish_and_one_that_could_not_be_asked_for_is_unknown() -> None:
    assert await read_wish(Repository(), "/workspace/a") == RepositoryWish("")
    assert await read_wish(Repository(SandboxError("no answer in time")), "/workspace/a") is None
    with pytest.raises(SandboxLostError):
        await read_wish(Repository(SandboxLostError("gone")), "/workspace/a")
