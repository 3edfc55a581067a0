"""EditorFiles from the editor's folder into the workspace: what goes, in which pieces, and what is too much."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from acp.connection import Connection

from drydock_client import DrydockClient, Uploaded
from drydock_client.resources import FilesApi
from server.doors.acp import editor_files
from server.doors.acp.editor import EditorClient
from server.doors.acp.editor_files import EditorFiles, EditorFilesError, Folders
from server.doors.acp.json_rpc import StdioTransport
from tests.unit.acp.test_lines import lines_of


class KeptFiles(FilesApi):
    """A workspace in memory."""

    def __init__(self) -> None:
        self.batches: list[dict[str, bytes]] = []

    async def upload(self, conversation_id: str, files: Mapping[str, bytes], *, folder: str = "") -> Uploaded:
        self.batches.append(dict(files))
        return Uploaded(uploaded_files=tuple(files))


async def nothing(method: str, params: object, is_notification: bool) -> None:
    """Nobody asks here."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "lib").mkdir(parents=True)
    for name, size in (("a", 1), ("b", 20), ("lib/c", 3)):
        (folder / name).write_bytes(b"x" * size)
    (folder / "away").symlink_to("/etc/hostname")
    return folder


@pytest.fixture
def workspace() -> KeptFiles:
    return KeptFiles()


@pytest.fixture
async def copying(project: Path, workspace: KeptFiles) -> EditorFiles:
    client = DrydockClient()
    client.files = workspace
    lines: StdioTransport = lines_of(b"")[0]
    return EditorFiles(client, EditorClient(Connection(nothing, lines, listening=False)), "id", Folders([str(project)]))


async def test_a_folder_goes_whole_but_for_links_that_lead_out(copying: EditorFiles, workspace: KeptFiles) -> None:
    told = await copying.copy_in(".")
    assert told == "Copied to project in the workspace: 3 files. Left out: project/away."
    assert [sorted(batch) for batch in workspace.batches] == [["project/a", "project/b", "project/lib/c"]]
    assert await copying.copy_in("lib/c") == "Copied to project/lib/c in the workspace: 1 file."


async def test_what_is_too_large_is_left_out_and_too_much_is_refused(
    copying: EditorFiles, workspace: KeptFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editor_files, "MAX_FILE", 10)
    assert "Left out: project/away, project/b." in await copying.copy_in(".")
    monkeypatch.setattr(editor_files, "MAX_BYTES", 3)
    with pytest.raises(EditorFilesError, match="more than 3 bytes"):
        await copying.copy_in(".")
    with pytest.raises(EditorFilesError, match="there is nothing to copy"):
        await copying.copy_in("none")
    with pytest.raises(EditorFilesError):
        await copying.copy_in("..")
    monkeypatch.setattr(editor_files, "MAX_BYTES", 100)
    monkeypatch.setattr(editor_files, "BATCH_FILES", 1)
    workspace.batches.clear()
    await copying.copy_in(".")
    assert [len(batch) for batch in workspace.batches] == [1, 1]


async def test_what_an_editor_does_not_take_is_not_handed_over(copying: EditorFiles) -> None:
    with pytest.raises(EditorFilesError, match="the editor takes no files"):
        await copying.copy_out("a", "a")
