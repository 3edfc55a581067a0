"""Sessions of browsers whose page knows of no access token: a cookie that stands for having shown it once."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Final

SESSION_SECONDS: Final = 30 * 24 * 3600
COOKIE_PREFIX: Final = "drydock_page_"
"""How the cookie's name begins; the rest tells servers on one host apart, to which a browser sends each other's."""


class PageSessions:
    """Makes the cookie and knows it again; nothing is kept, and with another access token all sessions end.

    Args:
        token: the access token that the cookie stands for.
        now: seconds since the epoch.
    """

    def __init__(self, token: str, *, now: Callable[[], float] = time.time) -> None:
        self._key = token.encode()
        self._now = now
        self._name = COOKIE_PREFIX + self._seal("name")[:12]

    def begin(self, *, is_safe: bool) -> str:
        """The ``Set-Cookie`` value of a session of `SESSION_SECONDS`; safe: the browser came over TLS.

        Requests that another site causes come without it (``SameSite``), except that a link leads to a page.
        """
        ends = str(int(self._now()) + SESSION_SECONDS)
        return self._cookie(f"{ends}.{self._seal(ends)}", SESSION_SECONDS, is_safe=is_safe)

    def end(self, *, is_safe: bool) -> str:
        """The ``Set-Cookie`` value that ends it in this browser."""
        return self._cookie("", 0, is_safe=is_safe)

    def holds(self, header: str) -> bool:
        """Whether a ``Cookie`` header has a session that has not ended."""
        return any(self._is_sealed(value) and self._now() < int(value.partition(".")[0]) for value in self._in(header))

    def is_forged(self, header: str) -> bool:
        """Whether a ``Cookie`` header has something in a session's place that was never one."""
        return any(value and not self._is_sealed(value) for value in self._in(header))

    def _in(self, header: str) -> list[str]:
        pairs = (part.strip().partition("=") for part in header.split(";"))
        return [value for name, _, value in pairs if name == self._name]

    def _is_sealed(self, value: str) -> bool:
        ends, _, seal = value.partition(".")
        return hmac.compare_digest(seal.encode("utf-8", "surrogateescape"), self._seal(ends).encode())

    def _seal(self, text: str) -> str:
        # "ignore": what a client sends may be no text at all, and is then no end of ours either.
        return hmac.new(self._key, f"page session {text}".encode("utf-8", "ignore"), hashlib.sha256).hexdigest()

    def _cookie(self, value: str, seconds: int, *, is_safe: bool) -> str:
        secure = "; Secure" if is_safe else ""
        return f"{self._name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}"
