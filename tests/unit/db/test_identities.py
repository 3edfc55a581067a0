"""Who is who at others, over both databases."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from server.auth.identity import FIRST, Identity, Role
from server.db.database import Database
from server.db.repositories import identities
from server.db.repositories.credentials import OF_PROXY
from server.db.repositories.identities import BY_PROXY
from server.db.repositories.users import UserError

ISSUER = "https://sign-in.example.com"
MINUTE = timedelta(minutes=1)


async def test_a_user_is_found_by_issuer_and_subject_alone_letter_by_letter(database: Database) -> None:
    ann = await database.identities.add(ISSUER, "Ann", ["ann"], Role.USER, "ann@example.com")
    assert await database.identities.find(ISSUER, "Ann") == ann
    assert ann.email == "ann@example.com"
    others = [(ISSUER, "ann"), (ISSUER + "/", "Ann"), ("", "Ann"), (BY_PROXY, "Ann"), (ISSUER, "ann@example.com")]
    for issuer, subject in others:
        assert await database.identities.find(issuer, subject) is None
    assert await database.identities.add(ISSUER, "Ann", ["other"], Role.VIEWER, None) == ann  # the one there is


async def test_a_name_or_an_address_of_another_user_is_not_taken_over(database: Database) -> None:
    local = await database.users.add("ann", Role.ADMINISTRATOR, email="ann@example.com")
    other = await database.identities.add(ISSUER, "1", ["Ann", "A.n.n", "ann-2"], Role.USER, "ann@example.com")
    assert (other.name, other.email, other.id != local.id) == ("ann-2", None, True)
    called = await database.users.add("boss@example.com", Role.USER)
    boss = await database.identities.add(ISSUER, "boss", ["boss"], Role.USER, "boss@example.com")
    assert (boss.name, boss.email, boss.id != called.id) == ("boss", None, True)
    with pytest.raises(UserError, match="are taken"):
        await database.identities.add(ISSUER, "2", ["ann", "ANN-2"], Role.USER, None)
    assert await database.identities.find(ISSUER, "2") is None


async def test_the_first_administrator_may_come_from_a_provider(database: Database) -> None:
    assert (await database.identities.add(ISSUER, "1", ["ann"], Role.ADMINISTRATOR, None)).id == FIRST


async def test_who_comes_twice_at_once_is_one_user(database: Database) -> None:
    names = ["ann", *(f"ann-{number}" for number in range(2, 9))]
    subjects = ["1"] * 8 + ["2", "3", "4", "5"]
    made = await asyncio.gather(
        *(database.identities.add(ISSUER, subject, names, Role.USER, None) for subject in subjects)
    )
    assert len({user.id for user in made[:8]}) == 1
    assert len({user.name for user in made}) == len({user.id for user in made}) == 5


async def test_a_state_counts_once_and_is_forgotten(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = await asyncio.gather(*(database.identities.take("state", MINUTE) for _ in range(8)))
    assert sorted(taken) == [False] * 7 + [True]
    assert await database.identities.take("over at once", -MINUTE)
    monkeypatch.setattr(identities, "MAX_USED_STATES", 2)
    assert await database.identities.take("other", MINUTE)  # what is over makes room
    assert not await database.identities.take("one too many", MINUTE)


async def test_what_a_proxys_word_has_opened_counts_while_the_user_does(database: Database) -> None:
    await database.users.add("root", Role.ADMINISTRATOR)
    ann = await database.identities.add(BY_PROXY, "Ann", ["ann"], Role.USER, None)
    await database.identities.add(ISSUER, "Bob", ["bob"], Role.USER, None)
    name = OF_PROXY + "Ann"
    asked = {name, OF_PROXY + "Bob", OF_PROXY + "nobody"}
    assert await database.credentials.still(asked) == {name: Identity(ann.id, "ann", Role.USER, credential=name)}
    await database.users.change("ann", disabled=True)
    assert await database.credentials.still(asked) == {}
