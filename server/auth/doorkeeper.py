"""`Doorkeeper`: lets in who shows the right token and slows down who guesses; one judge for all doors of the server."""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import math
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent_core.troubles import Trouble, coded
from server.auth.identity import Authenticator, Identity

BURST_SECONDS: Final = 4.0
MAX_TRACKED_CLIENTS: Final = 10_000
WRONG_AT_ONCE: Final = 20
"""So many wrong tokens of one address are answered as such, and as many in each further minute."""

WRONG_IN_ALL: Final = 200
"""The same for all addresses together."""

WRONG_FOR_NAME: Final = 10
"""So many wrong passwords for one name, from all addresses, and as many in each further minute."""

AGAIN: Final = 1 / 20
"""What the same wrong token costs of that when it comes again."""

_MARKS: Final = 8
_MINUTE: Final = 60.0
_V6_NETWORK_BITS: Final = 64

logger = logging.getLogger(__name__)


class RateLimiter:
    """A token bucket for each client address; the least recently seen addresses are forgotten first."""

    def __init__(self, per_second: float, *, at_once: float | None = None) -> None:
        self._rate = per_second
        self._size = max(per_second * BURST_SECONDS if at_once is None else at_once, 1.0)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, client: str, now: float, cost: float = 1.0) -> bool:
        """Whether one more request of `client` may pass at the monotonic time `now`; the cost is of one's share."""
        if self._rate == 0:
            return True
        filled, last = self._buckets.pop(client, (self._size, now))
        filled = min(self._size, filled + (now - last) * self._rate)
        allowed = filled >= cost
        self._buckets[client] = (filled - cost if allowed else filled, now)
        if len(self._buckets) > MAX_TRACKED_CLIENTS:
            self._buckets.popitem(last=False)
        return allowed

    def give_back(self, client: str, cost: float = 1.0) -> None:
        """Have what was allowed just now not count."""
        if client in self._buckets:
            filled, last = self._buckets[client]
            self._buckets[client] = (min(self._size, filled + cost), last)

    def seconds_until_next(self, client: str) -> int:
        """After how long, from when it was asked last, one more may pass."""
        filled, _ = self._buckets.get(client, (self._size, 0.0))
        return max(1, math.ceil((1.0 - filled) / self._rate)) if self._rate else 1


@dataclass(frozen=True, slots=True)
class NotLetIn:
    """A refusal: for having shown nothing, something wrong, or too much of it (seconds to wait)."""

    was_shown: bool
    retry_after: int | None = None
    what: str = "access tokens"

    @property
    def status(self) -> int:
        return 401 if self.retry_after is None else 429

    @property
    def code(self) -> str:
        """The one under which the refusal has its page."""
        return "invalid_api_key" if self.retry_after is None else Trouble.WRONG_TOKENS

    @property
    def body(self) -> dict[str, Any]:
        return {"detail": "Unauthorized"} if self.retry_after is None else {"detail": self.text, "message": self.text}

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        if self.retry_after is None:
            return [(b"www-authenticate", b"Bearer")]
        return [(b"retry-after", str(self.retry_after).encode())]

    @property
    def text(self) -> str:
        if self.retry_after is None:
            return "That is not this server's access token."
        return f"Too many wrong {self.what}; try again in {self.retry_after} s, with the right one."


class Doorkeeper:
    """Lets in whom the authenticator knows; too many wrong tokens, by address and in all, are told so.

    The right token is always let in, so nobody can lock its owner out. What is kept is bounded, and a burst of guesses
    is one log line without what was shown.
    """

    def __init__(self, authenticator: Authenticator, *, now: Callable[[], float] = time.monotonic) -> None:
        self.on_refused: Callable[[str, str], None] = lambda address, sentence: None
        """Told of refusals as the log is: once a minute for an address."""
        self._authenticator = authenticator
        self._now = now
        self._by_address = RateLimiter(WRONG_AT_ONCE / _MINUTE, at_once=WRONG_AT_ONCE)
        self._by_name = RateLimiter(WRONG_FOR_NAME / _MINUTE, at_once=WRONG_FOR_NAME)
        self._in_all = RateLimiter(WRONG_IN_ALL / _MINUTE, at_once=WRONG_IN_ALL)
        self._secret = secrets.token_bytes(16)
        self._marks: OrderedDict[str, deque[bytes]] = OrderedDict()
        self._logged: OrderedDict[tuple[str, bool], float] = OrderedDict()

    async def by_headers(self, headers: Mapping[str, str], address: str, door: str) -> Identity | NotLetIn:
        """Judge a request by its headers (names in lower case); `door` says for the log where it came to."""
        identity = await self._authenticator.identify(headers)
        if identity is not None:
            return identity
        shown = self._authenticator.shown(headers)
        return NotLetIn(was_shown=False) if shown is None else self.wrong(shown, address, door)

    async def by_token(self, token: str, address: str, door: str) -> Identity | NotLetIn:
        return await self._authenticator.identify_token(token) or self.wrong(token, address, door)

    def wrong(self, shown: str, address: str, door: str) -> NotLetIn:
        now = self._now()
        mark = hashlib.blake2b(shown.encode("utf-8", "surrogatepass"), key=self._secret, digest_size=8).digest()
        cost = AGAIN if mark in self._marks.get(address, ()) else 1.0
        if not self._by_address.allows(address, now, cost):
            self._tell(address, now, f"too many wrong access tokens from {address}, the last one at {door}; refused")
            return NotLetIn(was_shown=True, retry_after=self._by_address.seconds_until_next(address))
        if not self._in_all.allows("", now, cost):
            self._tell("", now, f"too many wrong access tokens from several addresses, the last one at {door}; refused")
            return NotLetIn(was_shown=True, retry_after=self._in_all.seconds_until_next(""))
        self._remember(mark, address)
        self._tell(address, now, f"a wrong access token from {address} at {door}", is_refused=False)
        return NotLetIn(was_shown=True)

    def try_password(self, name: str, address: str) -> NotLetIn | None:
        """Count one try before the password is looked at: a refusal says nothing of it. `was_right` takes it back.

        Passwords can be guessed, other than tokens: who has tried too many waits, also with the right one. Those for
        one name are counted together, wherever they come from, and whether or not there is such a user.
        """
        now = self._now()
        for limiter, key in ((self._by_address, address), (self._by_name, name), (self._in_all, "")):
            if not limiter.allows(key, now):
                self._tell(key, now, f"too many tries to sign in with a password, the last one from {address}; refused")
                return NotLetIn(was_shown=True, retry_after=limiter.seconds_until_next(key), what="passwords")
        return None

    def wrong_password(self, address: str) -> None:
        """Note for the log that one was looked at and is wrong."""
        self._tell(address, self._now(), f"a wrong name or password from {address}", is_refused=False)

    def was_right(self, name: str, address: str) -> None:
        for limiter, key in ((self._by_address, address), (self._by_name, name), (self._in_all, "")):
            limiter.give_back(key)

    def _remember(self, mark: bytes, address: str) -> None:
        """A page with an old token tries it again and again, and guesses nothing."""
        marks = self._marks.pop(address, deque(maxlen=_MARKS))
        self._marks[address] = marks
        if len(self._marks) > MAX_TRACKED_CLIENTS:
            self._marks.popitem(last=False)
        if mark not in marks:
            marks.append(mark)

    def _tell(self, address: str, now: float, text: str, *, is_refused: bool = True) -> None:
        last = self._logged.pop((address, is_refused), -math.inf)
        self._logged[address, is_refused] = now
        if len(self._logged) > MAX_TRACKED_CLIENTS:
            self._logged.popitem(last=False)
        if now - last >= _MINUTE:
            logger.warning("%s", text, extra=coded(Trouble.WRONG_TOKENS))
            self.on_refused(address, text)


def address_of(scope: Mapping[str, Any]) -> str:
    """By what a client is counted: its address, of IPv6 the network of 64 bits in which it may choose any other."""
    client = scope.get("client")
    try:
        found = ipaddress.ip_address(client[0].partition("%")[0] if client else "")
    except ValueError:
        return "an unknown address"
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, _V6_NETWORK_BITS), strict=False))
