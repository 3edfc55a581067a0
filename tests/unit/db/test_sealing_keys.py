"""A key file that is not the one in use is told before anything is read or stored with it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pydantic import SecretStr

from server.auth.secrets import SecretBox, SecretKeyError, SecretUnreadableError
from server.db.database import KEY_FILE, open_database
from server.db.repositories.user_settings import StoredSettings
from tests.unit.db.another_program import another_program
from tests.unit.db.conftest import save_settings

SETTINGS = StoredSettings(llm_api_key=SecretStr("sk-very-secret"), language="de")


async def fill(data_dir: Path) -> bytes:
    """A data folder with secrets in it; returns its key file."""
    async with open_database(data_dir) as database:
        await save_settings(database, SETTINGS)
        await database.user_secrets.create("API_KEY", "very-secret", "of the shop")
    return (data_dir / KEY_FILE).read_bytes()


async def test_the_key_of_another_server_is_refused_with_the_file_and_the_fix(tmp_path: Path) -> None:
    await fill(tmp_path / "a")
    others = await fill(tmp_path / "b")
    (tmp_path / "a" / KEY_FILE).write_bytes(others)
    with pytest.raises(SecretKeyError) as caught:
        async with open_database(tmp_path / "a"):
            pytest.fail("it was opened")
    assert str(tmp_path / "a" / KEY_FILE) in str(caught.value)
    assert "restore that one from a backup, or remove this file to begin with a new key" in str(caught.value)
    assert others.decode().strip() not in str(caught.value)


async def test_with_the_right_key_back_everything_is_readable(tmp_path: Path) -> None:
    right = await fill(tmp_path)
    (tmp_path / KEY_FILE).write_bytes(await fill(tmp_path / "other"))
    with pytest.raises(SecretKeyError):
        async with open_database(tmp_path):
            pytest.fail("it was opened")
    (tmp_path / KEY_FILE).write_bytes(right)
    async with open_database(tmp_path) as database:
        assert await database.settings.get() == SETTINGS
        assert set(await database.user_secrets.values()) == {"API_KEY"}


async def test_without_the_key_a_new_one_is_made_and_what_is_stored_counts_as_not_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lost = await fill(tmp_path)
    (tmp_path / KEY_FILE).unlink()
    with caplog.at_level(logging.WARNING):
        async with open_database(tmp_path) as database:
            assert "was missing, so a new key was made" in caplog.text
            assert await database.settings.get() == StoredSettings(language="de")
            assert await database.user_secrets.values() == {}
            assert "the secret 'API_KEY' of user '' is left out" in caplog.text
            assert [one.name for one in await database.user_secrets.names()] == ["API_KEY"]
            with pytest.raises(SecretUnreadableError, match="enter the secret again"):
                await database.user_secrets.change("API_KEY", new_name="OTHER")
            assert await database.user_secrets.change("API_KEY", new_name="API_KEY", value="entered again")
            assert set(await database.user_secrets.values()) == {"API_KEY"}
    (tmp_path / KEY_FILE).write_bytes(lost)
    async with open_database(tmp_path) as database:
        assert await database.settings.get() == SETTINGS, "a key that was found again is taken"


async def test_a_database_from_before_keys_were_noted_takes_the_key_that_is_there(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with open_database(tmp_path) as database:
        with another_program(database) as other:
            other.execute("DELETE FROM sealing_keys")
    for _ in range(2):
        async with open_database(tmp_path) as database:
            key_id = SecretBox.open(tmp_path / KEY_FILE).key_id
            noted = await database.engines.fetch("SELECT key_id FROM sealing_keys")
            assert [tuple(row) for row in noted] == [(key_id,)]
            assert await database.settings.get() == SETTINGS


def test_the_id_of_a_key_tells_keys_apart_and_is_not_the_key() -> None:
    one, other = SecretBox(bytes(32)), SecretBox(bytes([1]) * 32)
    assert one.key_id == SecretBox(bytes(32)).key_id != other.key_id
    assert len(one.key_id) == 32
