"""What killed processes have left goes at the next start, and nothing that is somebody's."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import insert

from agent_core.events.event import utc_now
from server.db.database import open_database
from server.db.leftovers import OLD_SECONDS, remove_leftovers
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.webhooks import StoredWebhook
from server.db.tables import chat_turns, webhook_positions


def made(path: Path, age: float = 0.0) -> Path:
    path.mkdir(parents=True) if path.name.startswith(("drydock-", ".plugin-")) else path.write_text("x")
    if path.is_dir():
        (path / "inside").write_text("x")
    os.utime(path, (time.time() - age,) * 2)
    return path


async def test_half_files_old_scratch_and_rows_of_nobody_go_and_all_else_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data, scratch = tmp_path / "data", tmp_path / "scratch"
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    scratch.mkdir()
    sandbox = data / "sandboxes" / "drydock-a"
    sandbox.mkdir(parents=True)
    gone = [
        made(data / ".probe-0123456789abcdef"),
        made(data / ".secret.key.0123456789abcdef"),
        made(data / ".plugin-0123abcd"),
        made(data / ".last-backup.json.0123abcd"),
        made(sandbox / "process.json.new"),
        made(scratch / "drydock-compiled-abc", OLD_SECONDS + 60),
        made(scratch / "drydock-check-abc", OLD_SECONDS + 60),
    ]
    stays = [
        made(sandbox / "process.json"),
        made(data / "notes.new"),
        made(scratch / "drydock-compiled-young"),
        made(scratch / "drydock-check-held", OLD_SECONDS + 60),
        made(scratch / "drydock-somebodys", OLD_SECONDS + 60),
        made(scratch / "other", OLD_SECONDS + 60),
    ]
    caplog.set_level("INFO", "server.db.leftovers")
    held = os.open(scratch / "drydock-check-held", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)  # as its owner does, until it ends
    async with open_database(data) as database:
        for name, log in (("for all", None), ("for one", "deleted")):
            about = StoredWebhook(id=name, user_id="me", url="http://x", secret=SecretStr("s"), conversation_id=log)
            await database.webhooks.create(about)
        await remove_leftovers(database)  # where there is no conversation at all
        assert [one.id for one in await database.webhooks.all()] == ["for all"]
        caplog.clear()
        for path in gone:
            made(path, OLD_SECONDS + 60)
        await database.conversations.create(ConversationRecord(id="here", user_id="me", created_at=utc_now()))
        for name in ("here", "deleted"):
            await database.writer.execute(
                insert(chat_turns).values(user_id="me", digest=name, conversation_id=name, event_id=1)
            )
            await database.writer.execute(
                insert(webhook_positions).values(webhook_id="w", conversation_id=name, position=1)
            )
        await remove_leftovers(database)
        await remove_leftovers(database)
        left = [
            row[0] for row in await database.engines.select(chat_turns.select().with_only_columns(chat_turns.c.digest))
        ]
    os.close(held)
    assert left == ["here"]
    assert not [path for path in gone if path.exists()]
    assert not [path for path in stays if not path.exists()]
    assert [record.getMessage() for record in caplog.records if record.name == "server.db.leftovers"] == [
        "removed what killed processes have left: 5 files and folders, 2 rows"
    ]
