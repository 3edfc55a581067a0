"""A conversation moves to another server with its workspace, by the command line and by REST."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.integration.server.conftest import WAIT_SECONDS, MakeProcess, ServerProcess
from tests.integration.server.test_recordings import drydock

BINARY = bytes(range(256)) * 5000


def workspace_of(server: ServerProcess) -> Path:
    (found,) = (server.data_dir / "sandboxes").glob("*/workspace")
    return found


def tree(folder: Path) -> dict[str, tuple[str, int, bytes | str]]:
    """What is below a folder: kind, mode and content of each path."""
    found: dict[str, tuple[str, int, bytes | str]] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode & 0o7777
        if path.is_symlink():
            found[str(path.relative_to(folder))] = ("link", 0, os.readlink(path))
        elif path.is_dir():
            found[str(path.relative_to(folder))] = ("folder", mode, "")
        else:
            found[str(path.relative_to(folder))] = ("file", mode, path.read_bytes())
    return found


async def until_running(server: ServerProcess, conversation_id: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS), server.client() as client:
        while (await client.get(f"/api/conversations/{conversation_id}")).json()["status"] != "RUNNING":  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_conversation_goes_to_another_server_with_its_workspace_and_goes_on_there(
    make_process: MakeProcess, tmp_path: Path
) -> None:
    first = await make_process("--sandbox", "unconfined", name="first")
    second = await make_process("--sandbox", "unconfined", name="second")
    async with first.client() as client:
        made = (await client.post("/api/conversations", json={})).json()["conversation_id"]
        await client.post(f"/api/conversations/{made}/start", json={})
    await until_running(first, made)
    workspace = workspace_of(first)
    (workspace / "empty/deeper").mkdir(parents=True)
    (workspace / "binary").write_bytes(BINARY)
    (workspace / "run.sh").write_text("#!/bin/sh\n")
    (workspace / "run.sh").chmod(0o755)
    (workspace / "private").write_text("x")
    (workspace / "private").chmod(0o600)
    (workspace / "link").symlink_to("empty/deeper")
    (workspace / "elsewhere").symlink_to("/usr/bin/env")
    (workspace / "node_modules/boat").mkdir(parents=True)
    (workspace / "node_modules/boat/index.js").write_text("sail()")
    (workspace / ".git").mkdir()
    (workspace / ".git/HEAD").write_text("ref: refs/heads/main")
    (workspace / "large").write_bytes(BINARY * 30)
    (workspace / "same as large").hardlink_to(workspace / "large")
    (workspace / os.fsdecode(b"no \xff encoding")).write_bytes(b"")
    (workspace / "closed").mkdir(mode=0o500)
    (workspace / "script").write_bytes(b"#!/bin/sh")
    (workspace / "script").chmod(0o4755)
    os.utime(workspace / "script", (1_000_000_000, 1_000_000_000))
    before = tree(workspace)

    file = tmp_path / "conversation.tar"
    assert await drydock("export", made, str(file), DRYDOCK_URL=first.url) == (0, "", "")
    assert file.stat().st_mode & 0o777 == 0o600
    status, _, error = await drydock("export", made, str(file), DRYDOCK_URL=first.url)
    assert (status, "exists; name another file" in error) == (2, True)
    status, new, error = await drydock("import", str(file), DRYDOCK_URL=second.url)
    assert (status, error) == (0, "")
    async with second.client() as client:
        assert (await client.get(f"/api/conversations/{new.strip()}")).json()["status"] == "STOPPED"
        said = {"action": "message", "args": {"content": "And a sail"}}
        assert (await client.post(f"/api/conversations/{new.strip()}/events", json=said)).is_success
        await until_running(second, new.strip())
        copied = tree(workspace_of(second))
        assert {name: copied.get(name) for name in before} == before
        assert (workspace_of(second) / "script").stat().st_mtime == 1_000_000_000
        assert (workspace_of(second) / "large").stat().st_nlink == 2

        # By REST, and what is no such file.
        async with first.client() as source:
            content = (await source.get(f"/api/conversations/{made}/archive")).content
        once = {"Idempotency-Key": "moved"}
        answer = await client.post("/api/conversations/import/archive", content=content, headers=once)
        assert (answer.status_code, answer.json()["conversation_status"]) == (200, "STOPPED")
        again = await client.post("/api/conversations/import/archive", content=content, headers=once)
        assert again.json() == answer.json(), "an answer that was lost is asked for again"
        other = await client.post("/api/conversations/import/archive", content=content[:-1], headers=once)
        assert (other.status_code, other.json()["code"]) == (422, "key_reused")
        count = len((await client.get("/api/conversations")).json()["results"])
        answer = await client.post("/api/conversations/import/archive", content=content[:-20_000])
        assert answer.status_code == 400
        assert "file: " in answer.text
        assert len((await client.get("/api/conversations")).json()["results"]) == count == 2
    assert not [path for path in (second.data_dir / "forks").iterdir() if path.suffix == ".making"]
    assert await drydock("export", "unknown", str(tmp_path / "none"), DRYDOCK_URL=first.url) != (0, "", "")
    assert not (tmp_path / "none").exists()
