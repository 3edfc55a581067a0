"""The header by which a proxy says who asks: from that proxy, once, and from nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from server.http.user_header import HIDDEN_HEADERS, KnownPeer, UserHeader, header_text

NAMES = ("X-Forwarded-User", "X-Forwarded-Groups")
OTHER = (b"accept", b"*/*")


class Passed:
    """What is behind it."""

    def __init__(self) -> None:
        self.scope: Scope = {}
        self.problems: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope

    async def ask(self, peer: str | None, *headers: tuple[bytes, bytes], kind: str = "http") -> list[Any]:
        """What is left of the headers of a request from there."""
        guarded: Any = UserHeader(self, names=NAMES, proxies=["10.0.0.5", "fd00::/64"], refused=self.problems.append)
        behind: Any = ProxyHeadersMiddleware(guarded, trusted_hosts=["10.0.0.5", "10.0.0.6"])
        client = None if peer is None else (peer, 4000)
        await KnownPeer(behind)({"type": kind, "client": client, "headers": [OTHER, *headers]}, _receive, _send)
        return [pair for pair in self.scope["headers"] if pair != OTHER]


async def _receive() -> Message:
    raise AssertionError


async def _send(_: Message) -> None:
    raise AssertionError


USER = (b"x-forwarded-user", b"ann")


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("peer", ["10.0.0.5", "::ffff:10.0.0.5", "fd00::7", "fd00::7%eth0"])
async def test_the_proxys_word_counts(peer: str, kind: str) -> None:
    passed = Passed()
    groups = (b"x-forwarded-groups", b"admins")
    assert await passed.ask(peer, USER, groups, kind=kind) == [USER, groups]
    assert passed.problems == []
    assert passed.scope[HIDDEN_HEADERS] == {b"x-forwarded-user", b"x-forwarded-groups"}


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("peer", ["10.0.0.6", "10.0.0.50", "127.0.0.1", "::1", "fd00:0:0:1::7", "", "10.0.0.5,", None])
async def test_nobody_elses_does(peer: str | None, kind: str) -> None:
    passed = Passed()
    assert await passed.ask(peer, USER, (b"X-Forwarded-Groups", b"admins"), kind=kind) == []
    (problem,) = passed.problems
    assert "none of the proxies" in problem
    assert "ann" not in problem


async def test_it_is_who_is_connected_that_counts_and_not_for_whom_it_asks() -> None:
    passed = Passed()
    # Another proxy, which is believed for whom it asks, asks for the one that says who asks.
    assert USER not in await passed.ask("10.0.0.6", USER, (b"x-forwarded-for", b"10.0.0.5"))
    assert passed.scope["client"][0] == "10.0.0.5"
    assert USER in await passed.ask("10.0.0.5", USER, (b"x-forwarded-for", b"192.0.2.1"))
    assert passed.scope["client"][0] == "192.0.2.1"


@pytest.mark.parametrize("second", [b"x-forwarded-user", b"X-Forwarded-User", b"x_forwarded_user", b"x-forwarded_user"])
async def test_what_a_client_has_put_beside_it_takes_it_away(second: bytes) -> None:
    passed = Passed()
    assert await passed.ask("10.0.0.5", (second, b"admin"), USER) == []
    assert await passed.ask("10.0.0.5", USER, (second, b"admin")) == []
    assert "have the proxy replace what clients send" in passed.problems[0]


async def test_one_with_an_underscore_never_counts() -> None:
    passed = Passed()
    assert await passed.ask("10.0.0.5", (b"x_forwarded_user", b"admin")) == []
    assert await passed.ask("10.0.0.6", (b"x_forwarded_user", b"admin")) == []
    assert len(passed.problems) == 2


async def test_requests_without_it_pass_from_everywhere() -> None:
    passed = Passed()
    assert await passed.ask("192.0.2.1") == []
    assert passed.problems == []


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"ann", "ann"),
        (b" Ann@Example.com ", "Ann@Example.com"),
        ("Zoë".encode(), "Zoë"),
        ("Zoë".encode("latin-1"), None),
        (b"", None),
        (b"  ", None),
        (b"ann\x00", None),
        ("ann\u202e".encode(), None),
        (b"a" * 255, "a" * 255),
        (b"a" * 256, None),
    ],
)
def test_it_names_somebody_or_nobody(sent: bytes, text: str | None) -> None:
    assert header_text(sent.decode("latin-1")) == text
