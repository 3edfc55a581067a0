"""Another key for what is encrypted at rest: as a whole or not at all, whenever the process is killed."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from agent_core.mcp.grants import ServerSignIn
from server.auth.secrets import SecretBox, SecretKeyError
from server.cli import main
from server.cli.rotate_key import rotate_key
from server.db.database import DATABASE_FILE, KEY_FILE, Database, open_database
from server.db.engine import DatabaseSettings
from server.db.errors import InstanceRunningError
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.user_settings import ProviderToken, StoredSettings
from server.db.repositories.webhooks import StoredWebhook
from server.db.sealing_keys import Rotation
from server.db.sealing_keys import rotate_key as rotate
from server.db.tables import metadata
from server.session.agents.agent_sessions import OWN_SERVERS, opened_servers, sealed_servers
from server.settings.mcp_config import McpConfig
from server.settings.settings import Settings
from tests.unit.db.conftest import save_settings

SETTINGS = StoredSettings(
    language="de",
    llm_api_key=SecretStr("sk-one"),
    mcp_config={"sse_servers": [{"url": "https://example.com", "api_key": "sk-two"}]},
    provider_tokens={"github": ProviderToken(token=SecretStr("gh-three"), host="git.example.com")},
)
SERVERS = McpConfig.model_validate({"shttp_servers": [{"url": "https://example.com/mcp", "api_key": "sk-four"}]})
SIGN_IN = ServerSignIn(server="https://example.com/mcp", scope="read", is_wanted=True)
ANN = "ann"


async def fill(data_dir: Path, settings: DatabaseSettings | None = None) -> bytes:
    """A data folder with secrets of every kind in it; returns its key file."""
    async with open_database(data_dir, settings) as database:
        await save_settings(database, SETTINGS)
        await save_settings(database, SETTINGS, ANN)
        await database.user_secrets.create("API_KEY", "five", "of the shop", ANN)
        webhook = StoredWebhook(id="w1", user_id=ANN, url="https://example.com/?key=8", secret=SecretStr("whsec_six"))
        await database.webhooks.create(webhook)
        await database.mcp_sign_ins.begin(SIGN_IN, "state", "seven", ANN)
        for conversation_id in ("c1", "c2"):
            options = {OWN_SERVERS: sealed_servers(database.secrets, conversation_id, SERVERS), "other": "v1"}
            await database.conversations.create(ConversationRecord(id=conversation_id, options=options))
    return (data_dir / KEY_FILE).read_bytes()


async def check_everything_is_readable(database: Database) -> None:
    assert await database.settings.get() == SETTINGS
    assert await database.settings.get(ANN) == SETTINGS
    assert (await database.user_secrets.values(ANN))["API_KEY"].secret == SecretStr("five")
    (webhook,) = await database.webhooks.all()
    assert (webhook.secret, webhook.url) == (SecretStr("whsec_six"), "https://example.com/?key=8")
    assert await database.mcp_sign_ins.get(SIGN_IN.server, ANN) == SIGN_IN
    begun = await database.mcp_sign_ins.begun("state")
    assert begun is not None
    assert begun.pending == "seven"
    for conversation_id in ("c1", "c2"):
        record = await database.conversations.get(conversation_id)
        assert record is not None
        assert opened_servers(database.secrets, record) == SERVERS
        assert record.options["other"] == "v1"


async def sealed_texts(data_dir: Path, settings: DatabaseSettings) -> set[str]:
    """Everything in the database that is encrypted, in whatever column."""
    async with open_database(data_dir, settings) as database:
        rows = [row for table in metadata.tables.values() for row in await database.engines.select(table.select())]
    return {one for row in rows for one in re.findall(r"v1:[\w-]{20,}=*", str(tuple(row)))}


async def rotated(data_dir: Path, settings: DatabaseSettings) -> Rotation:
    async with open_database(data_dir, settings) as database:
        return await rotate(database.writer, database.secrets, data_dir / KEY_FILE, database.audit)


async def test_everything_is_readable_with_the_new_key_and_the_old_one_is_refused(
    tmp_path: Path, database_settings: DatabaseSettings
) -> None:
    old = await fill(tmp_path, database_settings)
    before = await sealed_texts(tmp_path, database_settings)
    assert await rotated(tmp_path, database_settings) == Rotation(sealed=len(before), unreadable=0)
    after = await sealed_texts(tmp_path, database_settings)
    assert (len(after), before & after) == (13, set()), "whatever table it is in"
    new = (tmp_path / KEY_FILE).read_bytes()
    assert new != old
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / f"{KEY_FILE}.next").exists()
    async with open_database(tmp_path, database_settings) as database:
        await check_everything_is_readable(database)
    (tmp_path / KEY_FILE).write_bytes(old)
    with pytest.raises(SecretKeyError, match="is not the one"):
        async with open_database(tmp_path, database_settings):
            pytest.fail("it was opened")


async def test_a_rotation_that_was_killed_after_all_was_sealed_is_finished_by_the_next_start(
    tmp_path: Path, database_settings: DatabaseSettings
) -> None:
    old = await fill(tmp_path, database_settings)
    await rotated(tmp_path, database_settings)
    new = (tmp_path / KEY_FILE).read_bytes()
    (tmp_path / KEY_FILE).rename(tmp_path / f"{KEY_FILE}.next")
    (tmp_path / KEY_FILE).write_bytes(old)
    for _ in range(2):
        async with open_database(tmp_path, database_settings) as database:
            await check_everything_is_readable(database)
        assert (tmp_path / KEY_FILE).read_bytes() == new
        assert not (tmp_path / f"{KEY_FILE}.next").exists()


async def test_a_rotation_that_was_killed_before_that_has_changed_nothing(
    tmp_path: Path, database_settings: DatabaseSettings
) -> None:
    old = await fill(tmp_path, database_settings)
    SecretBox.open(tmp_path / f"{KEY_FILE}.next")
    async with open_database(tmp_path, database_settings) as database:
        await check_everything_is_readable(database)
    assert (tmp_path / KEY_FILE).read_bytes() == old
    assert not (tmp_path / f"{KEY_FILE}.next").exists()


async def test_what_the_old_key_cannot_read_is_left_for_the_key_that_can(
    tmp_path: Path, database_settings: DatabaseSettings
) -> None:
    lost = await fill(tmp_path, database_settings)
    (tmp_path / KEY_FILE).unlink()
    async with open_database(tmp_path, database_settings) as database:
        await database.user_secrets.create("OTHER", "seven", "")
    assert await rotated(tmp_path, database_settings) == Rotation(sealed=1, unreadable=13)
    async with open_database(tmp_path, database_settings) as database:
        assert (await database.user_secrets.values())["OTHER"].secret == SecretStr("seven")
    (tmp_path / KEY_FILE).write_bytes(lost)
    async with open_database(tmp_path, database_settings) as database:
        await check_everything_is_readable(database)


async def test_a_server_that_runs_keeps_its_key(tmp_path: Path) -> None:
    old = await fill(tmp_path)
    async with open_database(tmp_path):
        with pytest.raises(InstanceRunningError):
            await asyncio.to_thread(rotate_key, Settings(data_dir=tmp_path), io.StringIO())
    assert (tmp_path / KEY_FILE).read_bytes() == old


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    SecretBox.open(tmp_path / KEY_FILE)
    out = io.StringIO()
    assert rotate_key(Settings(data_dir=tmp_path), out) == 0
    first, second = out.getvalue().splitlines()
    assert first == f"A new key is in {tmp_path / KEY_FILE}; secrets that are encrypted with it: 0."
    assert second.startswith("Keep a copy of the new key.")


def test_a_folder_without_a_key_is_named_and_nothing_is_made_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rotate-key", "--data-dir", str(tmp_path / "none")]) == 2
    assert f"there is no key file {tmp_path / 'none' / KEY_FILE}" in capsys.readouterr().err
    assert not (tmp_path / "none" / DATABASE_FILE).exists()
