"""Passwords are hashed a few at a time, whatever is shown for them."""

from __future__ import annotations

import asyncio

import pytest

from server.auth import passwords
from server.auth.passwords import PasswordCost, PasswordRefusedError, Passwords, PasswordsBusyError, check_password

CHEAP = PasswordCost(memory_kib=64, iterations=1)


async def test_what_is_stored_opens_for_the_same_text_alone() -> None:
    kept = Passwords(CHEAP)
    stored = await kept.hash("Überaus geheime Wörter")
    assert stored.startswith("$argon2id$v=19$m=64,t=1,p=1$")
    assert await kept.matches("U\u0308beraus geheime Wo\u0308rter", stored), "as another keyboard makes them"
    assert stored != await kept.hash("Überaus geheime Wörter")
    for wrong in ("", "überaus geheime Wörter", "\udc80" * 20, "x" * 100_000):
        assert not await kept.matches(wrong, stored)
    for nothing in (None, "", "$argon2id$v=19$m=64,t=1,p=1$x", "no hash"):
        assert not await kept.matches("Überaus geheime Wörter", nothing)
    assert Passwords().is_outdated(stored)
    assert not kept.is_outdated(stored)


async def test_of_a_crowd_those_who_cannot_be_looked_at_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "MAX_WAITING", 3)
    kept = Passwords(CHEAP)
    found = await asyncio.gather(*(kept.hash("x") for _ in range(10)), return_exceptions=True)
    assert [type(one) for one in found].count(PasswordsBusyError) == 7
    assert await kept.hash("x")


@pytest.mark.parametrize("weak", ["", "elevenchars", "abababababab", "x" * 1025, "the-name-of-ann"])
def test_what_is_easily_guessed_is_refused(weak: str) -> None:
    with pytest.raises(PasswordRefusedError, match=r"^password: "):
        check_password(weak, "The-Name-of-Ann")
    check_password("four unusual words", "ann")
