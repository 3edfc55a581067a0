"""Access to previews: sealed passes, which nobody else can make or change, and links with them.

The page gets a *ticket* in the address of a preview; the preview's own host exchanges it for a *cookie* that counts for
that host alone. Under a path, where a sandboxed document has no cookies, the address holds the pass itself.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final, Literal, NamedTuple

from server.auth.identity import COOKIE_PREFIX
from server.auth.preview_addresses import PreviewAddresses, path_url, ticket_url
from server.auth.secrets import SecretBox, SecretUnreadableError

TICKET_SECONDS: Final = 600
PASS_SECONDS: Final = 12 * 3600
COOKIE_NAMES: Final = ("__Host-drydock_preview", "drydock_preview")
"""The cookie's name where the browser counts the connection as safe, and elsewhere."""

AccessKind = Literal["ticket", "cookie", "path"]
_LASTING_LIMIT: Final = 1000


class PreviewPass(NamedTuple):
    """A right to look at a preview: which one, by whom, and from where."""

    conversation_id: str
    port: int
    user_id: str
    page: str


class Passes:
    """Makes passes and reads them; with another key of `box`, or another access `token`, all of them end."""

    def __init__(self, box: SecretBox, token: str | None, *, now: Callable[[], float] = time.time) -> None:
        self.box = box
        self._purpose = f"preview {hashlib.sha256((token or '').encode()).hexdigest()}"
        self._now = now
        self._lasting: OrderedDict[tuple[AccessKind, PreviewPass], tuple[str, float]] = OrderedDict()

    def make(self, kind: AccessKind, grant: PreviewPass, *, seconds: float) -> str:
        text = json.dumps([*grant, int(self._now() + seconds)])
        return self.box.encrypt(text, purpose=f"{self._purpose} {kind}").replace("=", "").removeprefix("v1:")

    def lasting(self, kind: AccessKind, grant: PreviewPass) -> str:
        """A pass that counts for hours, and the same one for whoever asks again within the first half of them."""
        sealed, ends = self._lasting.pop((kind, grant), ("", 0.0))
        if ends - self._now() < PASS_SECONDS / 2:
            sealed, ends = self.make(kind, grant, seconds=PASS_SECONDS), self._now() + PASS_SECONDS
        self._lasting[kind, grant] = (sealed, ends)
        if len(self._lasting) > _LASTING_LIMIT:
            self._lasting.popitem(last=False)
        return sealed

    def read(self, kind: AccessKind, sealed: str) -> PreviewPass | None:
        opened = self._opened(kind, sealed)
        return opened[0] if opened is not None and self._now() < opened[1] else None

    def is_forged(self, kind: AccessKind, sealed: str) -> bool:
        """Whether it is none of this kind, and never was one under this key and token."""
        return self._opened(kind, sealed) is None

    def _opened(self, kind: AccessKind, sealed: str) -> tuple[PreviewPass, float] | None:
        padded = f"v1:{sealed}{'=' * (-len(sealed) % 4)}"
        try:
            *fields, ends = json.loads(self.box.decrypt(padded, purpose=f"{self._purpose} {kind}"))
        except (SecretUnreadableError, UnicodeEncodeError):
            return None
        return PreviewPass(*fields), ends

    def cookie(self, sealed: str, *, is_safe: bool) -> str:
        """The header value that sets the cookie. Safe: over TLS, or on names that lead to the browser's own machine.

        It is sent to this host only. A safe one cannot be set from another host either (``__Host-``), and is also sent
        where the preview stands in a frame of the page that it was made for (``Partitioned``).
        """
        name, rest = (COOKIE_NAMES[0], "; Secure; SameSite=None; Partitioned") if is_safe else (COOKIE_NAMES[1], "")
        return f"{name}={sealed}; Path=/; HttpOnly; Max-Age={PASS_SECONDS}{rest or '; SameSite=Lax'}"


def cookies_in(header: str) -> list[str]:
    """The values of pass cookies, first what no other host can have set; other previews' pages may add plain ones."""
    found = _pairs(header)
    return [value for known in COOKIE_NAMES for name, value in found if name == known]


def without_cookie(header: str) -> str:
    """A ``Cookie`` header without the pass and without the server's own session: they are not the sandbox's to see."""
    pairs = [pair for pair in _pairs(header) if pair[0] not in COOKIE_NAMES and not pair[0].startswith(COOKIE_PREFIX)]
    return "; ".join(f"{name}={value}" if value else name for name, value in pairs)


def sets_pass(set_cookie: str) -> bool:
    """Whether a ``Set-Cookie`` header would change the pass."""
    try:
        parsed = SimpleCookie(set_cookie)
    except CookieError:
        parsed = SimpleCookie()
    name = set_cookie.partition("=")[0].strip()
    return name in COOKIE_NAMES or any(known in parsed for known in COOKIE_NAMES)


def _pairs(header: str) -> list[tuple[str, str]]:
    found = []
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name or value:
            found.append((name.strip(), value.strip()))
    return found


@dataclass(frozen=True, slots=True)
class PreviewLinks:
    """Makes links to previews. Whoever has one may look into that one port for as long as it counts."""

    addresses: PreviewAddresses
    passes: Passes
    base_path: str = ""

    def link(
        self, scheme: str, host: str, conversation_id: str, port: int, user_id: str, *, lasting: bool = False
    ) -> str:
        """The address of a preview for a page at this scheme and ``Host``; `lasting`: stable, and valid for hours."""
        grant = PreviewPass(conversation_id, port, user_id, f"{scheme}://{host}")
        is_path = self.addresses.mode(host) == "path"
        kind: AccessKind = "path" if is_path else "ticket"
        seconds = PASS_SECONDS if is_path else TICKET_SECONDS
        sealed = self.passes.lasting(kind, grant) if lasting else self.passes.make(kind, grant, seconds=seconds)
        if is_path:
            return path_url(f"{scheme}://{host}{self.base_path}", sealed)
        return ticket_url(self.addresses.origin(scheme, host, conversation_id, port), sealed)
