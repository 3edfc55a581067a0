"""Users and what they show for who they are, over both databases; also where two servers change them at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from server.auth.identity import FIRST, Identity, Permission, Role
from server.auth.names import NameRefusedError
from server.db.database import Database, open_beside
from server.db.engine import DatabaseSettings
from server.db.errors import DatabaseError
from server.db.repositories import credentials, users
from server.db.repositories.users import (
    LinkOverError,
    NameTakenError,
    UnknownUserError,
    UserError,
    UserRecord,
    UserRepository,
)


@pytest.fixture
def database_settings(database_settings: DatabaseSettings) -> DatabaseSettings:
    """More patient than those of other tests: where two write at once, each waits for the other, on a slow disk too."""
    return database_settings.model_copy(update={"busy_timeout_seconds": 10})


@asynccontextmanager
async def another_process(data_dir: Path, settings: DatabaseSettings) -> AsyncIterator[UserRepository]:
    async with open_beside(data_dir, settings) as (engines, writer):
        yield UserRepository(engines, writer)


async def outcomes(*changes: object) -> list[object]:
    return await asyncio.gather(*changes, return_exceptions=True)  # type: ignore[call-overload,no-any-return]


async def test_the_first_administrator_is_whoever_used_the_server_before(database: Database) -> None:
    ann = await database.users.add("ann", Role.USER)
    bea = await database.users.add("bea", Role.ADMINISTRATOR)
    carl = await database.users.add("carl", Role.ADMINISTRATOR)
    assert bea.id == FIRST
    assert FIRST not in {ann.id, carl.id}
    assert await database.users.get(FIRST) == bea
    assert [user.name for user in await database.users.all()] == ["ann", "bea", "carl"]


@pytest.mark.parametrize("name", ["Bob", "BOB", "b0b", "bоb".replace("b", "в"), "b.ob", "ｂｏｂ"])
async def test_names_that_look_alike_are_one_name(database: Database, name: str) -> None:
    if name.startswith("в"):
        await database.users.add("вob".replace("ob", "ор"), Role.USER)
        name = "bop"
    else:
        await database.users.add("bob", Role.USER)
    with pytest.raises(NameTakenError):
        await database.users.add(name, Role.USER)


async def test_nobody_is_called_by_the_address_of_somebody_else(database: Database) -> None:
    await database.users.add("ann", Role.USER, email="ann@example.com")
    await database.users.add("bob@example.com", Role.USER, email="bob@example.com")
    with pytest.raises(NameTakenError, match="name: it is the address of another user"):
        await database.users.add("Ann@Example.com", Role.USER)
    with pytest.raises(NameTakenError, match="email: another user has the address"):
        await database.users.add("eve", Role.USER, email="bob@example.com")
    await database.users.add("carl@example.com", Role.USER)
    with pytest.raises(NameTakenError, match="email: another user has the address"):
        await database.users.add("eve", Role.USER, email="Carl@example.com")
    assert [one.name for one in await database.users.all()] == ["ann", "bob@example.com", "carl@example.com"]


@pytest.mark.parametrize(
    "name", ["", "  ", "a b", "аnn", "an\u200bn", "a\x00b", "x" * 65, "--", "\u0301a", "ann\u202e"]
)
async def test_what_can_be_no_name_is_refused(database: Database, name: str) -> None:
    with pytest.raises(NameRefusedError, match=r"^name: "):
        await database.users.add(name, Role.USER)
    assert await database.users.all() == []


async def test_addresses_are_compared_in_small_letters(database: Database) -> None:
    await database.users.add("ann", Role.USER, email="Ann@Example.COM")
    with pytest.raises(NameTakenError, match="address"):
        await database.users.add("bea", Role.USER, email="ann@example.com")
    for called in ("ANN", "ann@EXAMPLE.com", " ann "):
        found = await database.users.named(called)
        assert found is not None
        assert (found.name, found.email) == ("ann", "ann@example.com")
    with pytest.raises(NameRefusedError, match=r"^email: "):
        await database.users.add("carl", Role.USER, email="no address")


async def test_a_link_makes_one_user_also_where_two_servers_take_it_at_once(
    database: Database, tmp_path: Path, database_settings: DatabaseSettings
) -> None:
    async with another_process(tmp_path, database_settings) as other:
        link, _ = await database.users.make_link(role=Role.USER, made_by=FIRST)
        found = await outcomes(
            database.users.use_link(link, name="ann", email=None, password="a hash"),
            other.use_link(link, name="bea", email=None, password="a hash"),
        )
        assert sorted(type(one).__name__ for one in found) == ["LinkOverError", "UserRecord"]
        assert len(await database.users.all()) == 1
        with pytest.raises(LinkOverError):
            await database.users.link(link)


async def test_of_all_links_for_the_first_administrator_one_counts(
    database: Database, tmp_path: Path, database_settings: DatabaseSettings
) -> None:
    async with another_process(tmp_path, database_settings) as other:
        links = [(await people.make_link(role=Role.ADMINISTRATOR))[0] for people in (database.users, other)]
        found = await outcomes(
            database.users.use_link(links[0], name="ann", email=None, password="a hash"),
            other.use_link(links[1], name="bea", email=None, password="a hash"),
        )
        (made,) = [one for one in found if isinstance(one, UserRecord)]
        assert (made.id, made.role) == (FIRST, Role.ADMINISTRATOR)
        assert all(isinstance(one, UserRecord | UserError) for one in found)
        assert await database.users.all() == [made]


async def test_a_link_that_is_refused_for_its_name_counts_on_and_one_whose_time_is_over_does_not(
    database: Database,
) -> None:
    await database.users.add("ann", Role.USER)
    link, _ = await database.users.make_link(role=Role.VIEWER, made_by=FIRST)
    with pytest.raises(NameTakenError):
        await database.users.use_link(link, name="Ann", email=None, password="a hash")
    assert (await database.users.use_link(link, name="bea", email=None, password="a hash")).role is Role.VIEWER
    late, _ = await database.users.make_link(role=Role.USER, made_by=FIRST, lasts=timedelta(seconds=-1))
    with pytest.raises(LinkOverError):
        await database.users.use_link(late, name="carl", email=None, password="a hash")


async def test_a_new_password_ends_sign_ins_and_links_but_the_one_that_is_kept(database: Database) -> None:
    ann = await database.users.add("ann", Role.USER, password="a hash")
    secrets = [await database.credentials.begin(ann.id, address="192.0.2.1", browser="x") for _ in range(2)]
    former, _ = await database.users.make_link(name="ann", made_by=FIRST)
    link, _ = await database.users.make_link(name="ann", made_by=FIRST)
    with pytest.raises(LinkOverError):
        await database.users.link(former)
    kept = await database.credentials.by_sign_in(secrets[0])
    assert kept is not None
    await database.users.set_password(ann.id, "another hash", keeps=kept.credential.removeprefix("sign-in:"))
    assert await database.credentials.by_sign_in(secrets[0]) == kept
    assert await database.credentials.by_sign_in(secrets[1]) is None
    with pytest.raises(LinkOverError):
        await database.users.use_link(link, name="", email=None, password="a third")


async def test_two_administrators_cannot_end_each_other_at_once(
    database: Database, tmp_path: Path, database_settings: DatabaseSettings
) -> None:
    async with another_process(tmp_path, database_settings) as other:
        for name in ("ann", "bea"):
            await database.users.add(name, Role.ADMINISTRATOR)
        for changed in ({"role": Role.USER}, {"disabled": True}):
            found = await outcomes(
                database.users.change("ann", **changed),
                other.change("bea", **changed),
            )
            assert sorted(type(one).__name__ for one in found) == ["UserError", "UserRecord"]
            assert await database.users.has_administrator()
            (refused,) = [one for one in found if isinstance(one, UserError)]
            assert "is the only administrator" in str(refused)
            for name in ("ann", "bea"):
                await database.users.change(name, role=Role.ADMINISTRATOR, disabled=False)
    with pytest.raises(UnknownUserError):
        await database.users.change("nobody", disabled=True)


async def test_tokens_and_sign_ins_count_until_they_are_over(database: Database) -> None:
    ann, kept = await database.users.add("ann", Role.USER), database.credentials
    token, made = await kept.make_token(ann.id, "ci", [Permission.READ])
    late, _ = await kept.make_token(ann.id, "late", [Permission.READ], lasts=timedelta(seconds=-1))
    secret = await kept.begin(ann.id, address="192.0.2.1", browser="x")
    shown = Identity(ann.id, "ann", Role.USER, frozenset({Permission.READ}), f"token:{made.id}")
    assert await kept.by_token(token) == shown
    assert [await kept.by_token(one) for one in (late, "", made.id, secret, token + "x")] == [None] * 5
    signed_in = await kept.by_sign_in(secret)
    assert signed_in is not None
    assert signed_in.may(Permission.WRITE)
    assert await kept.by_sign_in(token) is None
    await kept.note_use({shown.credential, signed_in.credential})
    assert (await kept.tokens(ann.id))[0].used_at is not None
    both = {shown.credential, signed_in.credential, "token:none"}
    assert await kept.still(both) == {one.credential: one for one in (shown, signed_in)}
    assert not await kept.revoke("somebody else", made.id)
    assert await kept.revoke(ann.id, made.id)
    assert await kept.still(both) == {signed_in.credential: signed_in}
    await database.users.change("ann", disabled=True)
    assert await kept.still(both) == {}
    assert await kept.by_sign_in(secret) is None
    await database.users.change("ann", disabled=False)
    assert await kept.by_sign_in(secret) is None


async def test_nothing_that_is_shown_is_kept_as_it_is(database: Database) -> None:
    ann, kept = await database.users.add("ann", Role.USER), database.credentials
    link, _ = await database.users.make_link(name="ann", made_by=FIRST)
    shown = [(await kept.make_token(ann.id, "ci", [Permission.READ]))[0], link]
    shown.append(await kept.begin(ann.id, address="192.0.2.1", browser="x"))
    for table in ("users", "access_tokens", "sign_ins", "one_time_links"):
        rows = await database.engines.select(text(f"SELECT * FROM {table}"))  # noqa: S608 - our own names
        assert rows
        assert not any(secret in repr(row) for row in rows for secret in shown)


async def test_what_one_user_may_have_is_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "MAX_TOKENS", 2)
    monkeypatch.setattr(credentials, "MAX_SIGN_INS", 2)
    ann, kept = await database.users.add("ann", Role.USER), database.credentials
    for _ in range(2):
        await kept.make_token(ann.id, "ci", [Permission.READ])
    with pytest.raises(UserError, match="as many as one may have"):
        await kept.make_token(ann.id, "ci", [Permission.READ])
    secrets = [await kept.begin(ann.id, address="", browser=str(n)) for n in range(3)]
    assert await kept.by_sign_in(secrets[0]) is None
    assert {one.browser for one in await kept.sign_ins(ann.id)} == {"1", "2"}


async def test_the_command_line_says_where_there_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="start the server once"):
        async with open_beside(tmp_path, DatabaseSettings()):
            pass
    assert users.LINK_TIME > users.FIRST_LINK_TIME
