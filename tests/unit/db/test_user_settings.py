from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import select

from server.db.database import DATABASE_FILE, KEY_FILE, Database, open_database
from server.db.repositories.user_settings import StoredSettings
from server.db.tables import settings as table
from tests.unit.db.another_program import another_program
from tests.unit.db.conftest import save_settings

SECRETS = {
    "llm_api_key": "sk-very-secret-llm",
    "search_api_key": "sk-very-secret-search",
    "sandbox_api_key": "sk-very-secret-sandbox",
}
MCP = {
    "sse_servers": [{"url": "https://example.com", "api_key": "sk-very-secret-mcp"}],
    "stdio_servers": [{"name": "n", "command": "c", "args": [], "env": {"KEY": "sk-very-secret-env"}}],
    "shttp_servers": [],
}
SETTINGS = StoredSettings.model_validate(
    {**SECRETS, "mcp_config": MCP, "language": "de", "llm_model": "openai/x", "condenser_max_size": 40}
)


def everything_on_disk(data_dir: Path) -> bytes:
    return b"".join(path.read_bytes() for path in data_dir.rglob(f"{DATABASE_FILE}*"))


def overwrite(database: Database, user_id: str, document: dict[str, object]) -> None:
    """What somebody might do who can write the database file."""
    with another_program(database) as other:
        other.execute("UPDATE settings SET document = ? WHERE user_id = ?", (json.dumps(document), user_id))


async def test_settings_that_were_never_saved_are_none(database: Database) -> None:
    assert await database.settings.get() is None


async def test_settings_come_back_as_they_were_saved(database: Database) -> None:
    await save_settings(database, SETTINGS)
    stored = await database.settings.get()
    assert stored == SETTINGS
    assert stored is not None
    assert stored.llm_api_key == SecretStr(SECRETS["llm_api_key"])


async def test_each_user_has_settings_of_their_own(database: Database) -> None:
    await save_settings(database, SETTINGS, "ann")
    await save_settings(database, StoredSettings(language="fr"), "bob")
    assert await database.settings.get("ann") == SETTINGS
    assert await database.settings.get("bob") == StoredSettings(language="fr")
    assert await database.settings.get() is None


async def test_saving_replaces_the_whole_document(database: Database) -> None:
    await save_settings(database, SETTINGS)
    await save_settings(database, StoredSettings(language="fr"))
    assert await database.settings.get() == StoredSettings(language="fr")


async def test_settings_saved_at_the_same_time_leave_one_of_them_whole(database: Database) -> None:
    candidates = [StoredSettings(language=f"l{n}", agent=f"a{n}") for n in range(10)]
    await asyncio.gather(*(save_settings(database, one) for one in candidates))
    assert await database.settings.get() in candidates


async def test_no_secret_is_readable_on_the_disk(tmp_path: Path) -> None:
    async with open_database(tmp_path) as database:
        await save_settings(database, SETTINGS)
        written = everything_on_disk(tmp_path)
        assert b"openai/x" in written
        assert b"very-secret" not in written
    assert b"very-secret" not in everything_on_disk(tmp_path)


async def test_an_empty_secret_is_not_the_same_as_none(database: Database) -> None:
    await save_settings(database, StoredSettings(search_api_key=SecretStr("")))
    stored = await database.settings.get()
    assert stored == StoredSettings(search_api_key=SecretStr(""))


async def test_secrets_of_a_lost_key_count_as_not_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_database(tmp_path) as database:
        await save_settings(database, SETTINGS)
    (tmp_path / KEY_FILE).unlink()
    async with open_database(tmp_path) as database:
        with caplog.at_level(logging.WARNING):
            stored = await database.settings.get()
    assert stored == StoredSettings(language="de", llm_model="openai/x", condenser_max_size=40)
    assert "llm_api_key" in caplog.text
    assert "very-secret" not in caplog.text


async def test_a_secret_cannot_be_moved_to_another_field_or_user(database: Database) -> None:
    await save_settings(database, SETTINGS, "ann")
    [[document]] = await database.engines.select(select(table.c.document))
    moved = dict(document)
    moved["search_api_key"] = moved["llm_api_key"]
    await save_settings(database, StoredSettings(), "eve")
    overwrite(database, "ann", moved)
    overwrite(database, "eve", document)
    anns, eves = await database.settings.get("ann"), await database.settings.get("eve")
    assert anns is not None
    assert (anns.llm_api_key, anns.search_api_key) == (SETTINGS.llm_api_key, None)
    assert eves is not None
    assert (eves.llm_api_key, eves.mcp_config) == (None, None)


async def test_a_field_of_a_newer_version_is_left_out(database: Database) -> None:
    await save_settings(database, SETTINGS)
    [[document]] = await database.engines.select(select(table.c.document))
    overwrite(database, "", document | {"newer": 1})
    assert await database.settings.get() == SETTINGS
