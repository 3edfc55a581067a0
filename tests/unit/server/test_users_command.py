"""``drydock users``, on the database of a server."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path

import pytest

from server.accounts import LINK_PATH
from server.auth import passwords
from server.auth.identity import FIRST, Permission, Role
from server.auth.passwords import PasswordCost
from server.cli import main
from server.db.database import open_database


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(passwords, "COST", PasswordCost(memory_kib=64, iterations=1))
    monkeypatch.setenv("DRYDOCK_USERS", "accounts")

    async def make() -> None:
        async with open_database(tmp_path):
            pass

    asyncio.run(make())
    return tmp_path


def users(data_dir: Path, *words: str) -> int:
    return main(["users", *words, "--data-dir", str(data_dir)])


def test_users_are_added_changed_and_listed(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert users(data_dir, "list") == 0
    assert "drydock users link" in capsys.readouterr().out
    assert users(data_dir, "link") == 0
    link = re.search(rf"http://127.0.0.1:3000{re.escape(LINK_PATH)}(\S{{43}})\n", capsys.readouterr().out)
    assert link is not None
    assert users(data_dir, "add", "ann", "--role", "administrator", "--email", "Ann@example.com") == 0
    assert LINK_PATH in capsys.readouterr().out
    for words, problem in (
        (("link",), "there is an administrator already"),
        (("disable", "ann"), "ann is the only administrator"),
        (("role", "ANN@example.com", "viewer"), "ann is the only administrator"),
        (("add", "ANN"), "name: there is a user ann already"),
        (("add", "a b"), "name: it holds U+0020"),
        (("token", "bob"), "there is no user 'bob'"),
        (("revoke", "ann"), "ann has no token 'command line'"),
    ):
        assert users(data_dir, *words) == 2
        assert problem in capsys.readouterr().err
    assert users(data_dir, "add", "bob") == 0
    for words in (("role", "bob", "viewer"), ("disable", "bob"), ("invite", "--role", "viewer")):
        assert users(data_dir, *words) == 0
    capsys.readouterr()
    assert users(data_dir, "reset", "bob") == 2
    assert "bob is disabled; enable the account first" in capsys.readouterr().err
    assert users(data_dir, "list") == 0
    assert capsys.readouterr().out.splitlines() == [
        "ann  administrator  invited     ann@example.com",
        "bob  viewer         disabled",
    ]
    assert users(data_dir, "enable", "bob") == users(data_dir, "reset", "bob") == 0

    async def use() -> None:
        async with open_database(data_dir) as database:
            ann = await database.users.named("ann")
            assert ann is not None
            assert (ann.id, ann.role) == (FIRST, Role.ADMINISTRATOR)

    asyncio.run(use())


def test_a_token_is_all_that_is_printed_and_a_password_may_be_a_line_of_input(
    data_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("four unusual words\n"))
    assert users(data_dir, "add", "ann", "--password") == 0
    capsys.readouterr()
    assert users(data_dir, "token", "ann", "--scopes", "read", "--days", "30") == 0
    token = capsys.readouterr().out
    assert re.fullmatch(r"drydock_\S{43}\n", token)

    async def shown() -> object:
        async with open_database(data_dir) as database:
            return await database.credentials.by_token(token.strip())

    identity = asyncio.run(shown())
    assert getattr(identity, "scopes", None) == {Permission.READ}
    assert users(data_dir, "revoke", "ann") == 0
    assert asyncio.run(shown()) is None
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    assert users(data_dir, "add", "bob", "--password") == 2
    assert "choose one of at least 12" in capsys.readouterr().err


def test_a_server_with_one_user_is_told_that_it_has_no_effect_yet(
    data_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRYDOCK_USERS")
    assert users(data_dir, "list") == 0
    assert 'set users = "accounts"' in capsys.readouterr().err
    assert users(data_dir / "elsewhere", "list") == 2
    assert "start the server once" in capsys.readouterr().err
