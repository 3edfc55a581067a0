"""Headers on their way through a preview: what belongs to one connection stays there, what is Drydock's stays here.

The program in the sandbox sees requests as if it had been asked under ``localhost`` and its own port; addresses of
that form in its answers are turned into those of the preview.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from server.auth.identity import TOKEN_HEADER
from server.doors.preview.access import sets_pass, without_cookie

Headers = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
    | {b"proxy-authenticate", b"proxy-authorization", b"http2-settings"}
)
_NOT_FOR_SANDBOX = frozenset(
    {TOKEN_HEADER.encode(), b"host", b"expect", b"forwarded", b"x-real-ip", b"x-forwarded-for", b"x-forwarded-host"}
    | {b"x-forwarded-proto", b"x-forwarded-port", b"x-forwarded-server", b"content-length"}
)
_NOT_FOR_BROWSER = frozenset(
    # These reach beyond the preview's own host: to other ports, other names or the whole domain.
    {b"strict-transport-security", b"alt-svc", b"clear-site-data", b"public-key-pins", b"expect-ct", b"nel"}
    | {b"report-to", b"reporting-endpoints", b"x-frame-options"}
    | {b"date"}  # the server adds its own
)
_NOT_UNDER_A_PATH = frozenset({b"set-cookie", b"service-worker-allowed", b"referrer-policy"})
_OWN_ADDRESS = re.compile(rb"https?://(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\])(?::(\d{1,5}))?(?=/|\?|#|$)", re.I)
_REFRESH = re.compile(rb"\s*[\d.]*\s*[;,]\s*(?:url\s*=\s*)?[\"']?", re.I)

SANDBOXED = b"sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"


@dataclass(frozen=True, slots=True)
class PreviewPlace:
    """A preview as a request finds it: its paths' `prefix`, the `page` that may frame it, `is_open` to any origin."""

    port: int
    origin: str
    prefix: str = ""
    page: str = ""
    is_open: bool = False


def for_sandbox(
    headers: Iterable[tuple[bytes, bytes]], place: PreviewPlace, keys: Collection[bytes], hidden: Collection[bytes] = ()
) -> Headers:
    """A request's headers for the program, without those that are `hidden`.

    There are no body lengths, and no ``Authorization`` that is one of Drydock's `keys`.
    """
    received = [(name.lower(), value) for name, value in headers]
    dropped = _HOP_BY_HOP | _NOT_FOR_SANDBOX | _nominated(received) | frozenset(hidden)
    passed: Headers = [(b"host", b"localhost:%d" % place.port)]
    for name, value in received:
        if name in dropped or name.startswith(b"sec-websocket-") or (name == b"authorization" and value in keys):
            continue
        if name == b"cookie":
            value = without_cookie(value.decode("latin-1")).encode("latin-1")
            if not value:
                continue
        elif name in (b"origin", b"referer"):
            value = _inward(value, place)
        passed.append((name, value))
    return passed


def for_browser(headers: Iterable[tuple[bytes, bytes]], place: PreviewPlace) -> Headers:
    """The headers of an answer, as they are passed on, with what keeps the preview in its place."""
    received = [(name.lower(), value) for name, value in headers]
    dropped = _HOP_BY_HOP | _NOT_FOR_BROWSER | _nominated(received)
    if place.prefix:
        dropped |= _NOT_UNDER_A_PATH
    if any(name == b"transfer-encoding" for name, _ in received):
        dropped |= {b"content-length"}
    passed: Headers = []
    for name, value in received:
        if name in dropped or (name.startswith(b"access-control-") and place.is_open):
            continue
        if name == b"set-cookie":
            text = value.decode("latin-1")
            if sets_pass(text):
                continue
            parts = (part for part in text.split(";") if part.partition("=")[0].strip().lower() != "domain")
            value = ";".join(parts).encode("latin-1")  # for this host only
        elif name in (b"location", b"content-location"):
            value = _outward(value, place)
        elif name == b"refresh" and (match := _REFRESH.match(value)) is not None:
            value = match[0] + _outward(value[match.end() :], place)
        passed.append((name, value))
    return passed + guards(place)


def path_of_this_host(path: bytes) -> bytes:
    """The path, written so that it is one where an address is expected: two slashes would name another host."""
    return b"/." + path if path[1:2] in (b"/", b"\\") else path


def guards(place: PreviewPlace) -> Headers:
    """The headers that every answer of a preview has."""
    # To a sandboxed document its own scripts and data are those of another origin.
    opened = [(b"access-control-allow-origin", b"*")] if place.is_open else []
    if place.prefix:
        return [(b"content-security-policy", SANDBOXED), (b"referrer-policy", b"no-referrer"), *opened]
    page = f" {place.page}" if place.page else ""
    return [(b"content-security-policy", f"frame-ancestors 'self'{page}".encode("latin-1")), *opened]


def _nominated(headers: Headers) -> frozenset[bytes]:
    values = b",".join(value for name, value in headers if name == b"connection")
    return frozenset(word.strip().lower() for word in values.split(b","))


def _inward(value: bytes, place: PreviewPlace) -> bytes:
    outer = place.origin.encode("latin-1")
    if value == outer or value.startswith(outer + b"/"):
        rest = value[len(outer) :]
        prefix = place.prefix.encode("latin-1")
        return b"http://localhost:%d%s" % (place.port, rest.removeprefix(prefix))
    return value


def _outward(value: bytes, place: PreviewPlace) -> bytes:
    own = _OWN_ADDRESS.match(value)
    if own is not None and int(own[1] or 80) == place.port:
        rest = value[own.end() :]
        value = path_of_this_host(rest if rest.startswith(b"/") else b"/" + rest)
    is_path = value.startswith(b"/") and not value.startswith(b"//")
    return place.prefix.encode("latin-1") + value if is_path else value
