from __future__ import annotations

import stat
from pathlib import Path

import pytest
from pydantic import SecretStr

from server.auth.identity import Identity, OneTokenAuthenticator, presented_token, resolve_token, token_matches
from server.errors import ConfigurationError
from server.settings.settings import Settings


async def test_without_a_token_everybody_is_let_in() -> None:
    open_door = OneTokenAuthenticator(None)
    assert not open_door.required
    assert await open_door.identify({}) == Identity()
    assert await open_door.identify_token("anything") == Identity()


@pytest.mark.parametrize(
    "headers",
    [
        {"x-session-api-key": "the-token"},
        {"authorization": "Bearer the-token"},
        {"authorization": "bearer  the-token "},
    ],
)
async def test_the_token_is_taken_from_either_header(headers: dict[str, str]) -> None:
    assert await OneTokenAuthenticator("the-token").identify(headers) == Identity()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-session-api-key": "the-toke"},
        {"x-session-api-key": ""},
        {"authorization": "Basic the-token"},
        {"authorization": "Bearer "},
        {"x-session-api-key": "ünïcode\udc80"},
    ],
)
async def test_anything_else_is_refused(headers: dict[str, str]) -> None:
    assert await OneTokenAuthenticator("the-token").identify(headers) is None


def test_tokens_of_any_characters_can_be_compared() -> None:
    assert token_matches("a" * 20, "a" * 20)
    assert not token_matches("a" * 20, None)
    assert presented_token({}) is None


def test_auto_makes_a_token_once_and_keeps_it_private(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "new" / "data", token=SecretStr("auto"))
    first = resolve_token(settings)
    assert first is not None
    assert len(first) >= 24
    assert resolve_token(settings) == first
    mode = (settings.data_dir / "token").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigurationError, match="file"):
        resolve_token(Settings(data_dir=blocked / "data", token=SecretStr("auto")))


def test_a_kept_token_that_could_be_guessed_is_refused_and_not_replaced(tmp_path: Path) -> None:
    kept = tmp_path / "token"
    kept.write_text("x" * 23 + "\n")
    with pytest.raises(ConfigurationError, match=r"has at least 24 printable .*remove the file"):
        resolve_token(Settings(data_dir=tmp_path, token=SecretStr("auto")))
    assert kept.read_text() == "x" * 23 + "\n"
