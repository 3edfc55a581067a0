"""Who guesses is slowed down and told of in the log; who knows the token is let in, whatever came before."""

from __future__ import annotations

import logging

import pytest

from server.auth.doorkeeper import MAX_TRACKED_CLIENTS, WRONG_AT_ONCE, WRONG_IN_ALL, Doorkeeper, NotLetIn, address_of
from server.auth.identity import Identity, OneTokenAuthenticator, PageSessions

TOKEN = "the-right-token-of-this-server"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keeper(clock: Clock) -> Doorkeeper:
    return Doorkeeper(OneTokenAuthenticator(TOKEN), now=clock)


def status(judged: Identity | NotLetIn) -> int:
    return judged.status if isinstance(judged, NotLetIn) else 200


async def test_after_so_many_wrong_tokens_an_address_has_to_wait_and_the_right_one_never_has(
    keeper: Doorkeeper, clock: Clock
) -> None:
    answers = [status(await keeper.by_token(f"guess {i}", "a", "x")) for i in range(WRONG_AT_ONCE + 5)]
    assert answers == [401] * WRONG_AT_ONCE + [429] * 5
    assert status(await keeper.by_token(TOKEN, "a", "x")) == 200
    assert status(await keeper.by_token("guess", "b", "x")) == 401
    refused = await keeper.by_token("another guess", "a", "x")
    assert isinstance(refused, NotLetIn)
    assert refused.retry_after is not None
    clock.now += refused.retry_after
    assert [status(await keeper.by_token(guess, "a", "x")) for guess in ("one", "two")] == [401, 429]


async def test_many_addresses_have_to_wait_together_and_what_is_kept_of_them_is_bounded(keeper: Doorkeeper) -> None:
    answers = [status(await keeper.by_token("guess", f"address {i}", "x")) for i in range(2 * MAX_TRACKED_CLIENTS)]
    assert answers == [401] * WRONG_IN_ALL + [429] * (2 * MAX_TRACKED_CLIENTS - WRONG_IN_ALL)
    assert status(await keeper.by_token(TOKEN, "address 5", "x")) == 200
    kept = [len(found) for found in vars(keeper).values() if isinstance(found, dict)]
    assert kept
    assert max(kept) <= MAX_TRACKED_CLIENTS


async def test_who_shows_nothing_does_not_guess(keeper: Doorkeeper) -> None:
    for headers in ({}, {"cookie": "other=1"}, {"authorization": "Basic abc"}):
        answers = {status(await keeper.by_headers(headers, "a", "x")) for _ in range(3 * WRONG_AT_ONCE)}
        assert answers == {401}


@pytest.mark.parametrize("name", ["x-session-api-key", "authorization"])
async def test_headers_and_bare_tokens_count_together(keeper: Doorkeeper, name: str) -> None:
    for number in range(WRONG_AT_ONCE):
        assert status(await keeper.by_headers({name: f"Bearer guess {number}"}, "a", "x")) == 401
    assert status(await keeper.by_token("guess", "a", "x")) == 429


async def test_a_made_up_session_is_a_guess_and_one_that_has_ended_is_none(clock: Clock) -> None:
    sessions = PageSessions(TOKEN, now=clock)
    ended = sessions.begin(is_safe=False).split(";")[0]
    name = ended.partition("=")[0]
    keeper = Doorkeeper(OneTokenAuthenticator(TOKEN, sessions=sessions), now=clock)
    assert status(await keeper.by_headers({"cookie": ended}, "a", "x")) == 200
    clock.now += 10**8
    assert {status(await keeper.by_headers({"cookie": ended}, "a", "x")) for _ in range(50)} == {401}
    forged = [status(await keeper.by_headers({"cookie": f"{name}=9999999999.{i:064x}"}, "a", "x")) for i in range(50)]
    assert forged.count(401) == WRONG_AT_ONCE


async def test_a_burst_is_two_lines_without_the_token(
    keeper: Doorkeeper, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for i in range(500):
            await keeper.by_token(f"guess {i}", "192.0.2.7", "a socket")
    assert [record.getMessage() for record in caplog.records if record.name == "server.auth.doorkeeper"] == [
        "a wrong access token from 192.0.2.7 at a socket",
        "too many wrong access tokens from 192.0.2.7, the last one at a socket; refused",
    ]
    caplog.clear()
    clock.now += 3600
    with caplog.at_level(logging.DEBUG):
        await keeper.by_token("open-sesame", "192.0.2.7", "api")
    assert [record.name for record in caplog.records] == ["server.auth.doorkeeper"]
    assert "open-sesame" not in caplog.text


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("192.0.2.7", 5), "192.0.2.7"),
        (("::ffff:192.0.2.7", 5), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 5), "2001:db8:1:2::/64"),
        (("2001:db8:1:2:ffff::1", 5), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5), "fe80::/64"),
        (("what a proxy says", 5), "an unknown address"),
        (None, "an unknown address"),
    ],
)
def test_an_address_is_what_one_client_may_have(client: object, address: str) -> None:
    assert address_of({"client": client}) == address


async def test_the_same_wrong_token_is_no_new_guess_and_may_still_not_come_without_end(keeper: Doorkeeper) -> None:
    answers = [status(await keeper.by_token("an old token", "a", "x")) for _ in range(1000)]
    assert answers[: 10 * WRONG_AT_ONCE] == [401] * 10 * WRONG_AT_ONCE
    assert answers[-1] == 429
