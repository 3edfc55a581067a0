"""The folders that are open in an editor."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from server.doors.acp.editor_files import EditorFilesError, Folders


async def test_paths_stay_in_the_open_folders(tmp_path: Path) -> None:
    home, more, secret = tmp_path / "home", tmp_path / "more", tmp_path / "secret"
    for folder in (home, more, secret):
        folder.mkdir()
    (home / "way").symlink_to(secret)
    folders = Folders([str(home), str(more)])
    assert folders.path("a/b.py") == str(home / "a" / "b.py")
    assert folders.path(".") == str(home)
    assert folders.path(str(more / "x")) == str(more / "x")
    for outside in ("../secret", "/etc/passwd", "way/key", str(secret), f"{home}2", "a/../../secret/key"):
        with pytest.raises(EditorFilesError, match="outside of the user's folder"):
            folders.path(outside)
    for nothing in ("", None, 5, "a\0b"):
        with pytest.raises(EditorFilesError, match="path: is missing"):
            folders.path(nothing)


async def test_what_git_ignores_or_tools_have_made_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "node_modules").mkdir()
    for name in ("a.py", "b.log", "node_modules/c.js"):
        (tmp_path / name).write_text("")
    folders = Folders([str(tmp_path)])
    assert [Path(name).name for name in (await folders.files(str(tmp_path))).files] == ["a.py", "b.log"]
    (tmp_path / ".gitignore").write_text("*.log\nnode_modules\n")
    init = await asyncio.create_subprocess_exec("git", "init", "-q", cwd=tmp_path)
    assert await init.wait() == 0
    assert [Path(name).name for name in (await folders.files(str(tmp_path))).files] == [".gitignore", "a.py"]
    assert (await folders.files(str(tmp_path / "a.py"))).files == [str(tmp_path / "a.py")]
