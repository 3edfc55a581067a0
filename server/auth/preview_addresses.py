"""`PreviewAddresses`: a host name for each conversation and port, or a path where there can be none.

Both keep what a sandbox serves away from Drydock's own origin: a host name is another origin, and a document under a
path is sandboxed by its header.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

LOCAL_DOMAIN = "localhost"
PATH_PREFIX = "/preview/"
TICKET = "drydock_ticket"
_LABEL_BYTES = 16
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]]+)(?P<port>:\d{1,5})?", re.ASCII)
_LABEL = re.compile(r"(?P<port>[1-9]\d{0,4})-(?P<mark>[a-z2-7]{26})", re.ASCII)

Mode = Literal["origin", "path"]


class PreviewHost(NamedTuple):
    """What the name of a preview's host says."""

    port: int
    mark: str


def mark_of(conversation_id: str) -> str:
    """The part of a host's name that stands for a conversation. Gives no access: see `server.doors.preview.access`."""
    digest = hashlib.sha256(b"drydock preview " + conversation_id.encode()).digest()
    return base64.b32encode(digest[:_LABEL_BYTES]).decode().rstrip("=").lower()


@dataclass(frozen=True, slots=True)
class PreviewAddresses:
    """The addresses of previews below `domain` (`LOCAL_DOMAIN`: each browser's own machine); None: all are paths."""

    domain: str | None

    @classmethod
    def from_setting(cls, preview_domain: str) -> PreviewAddresses:
        return cls(None if preview_domain == "none" else preview_domain)

    def mode(self, host: str) -> Mode:
        """How previews are served for a page under this ``Host``."""
        if self.domain is None or (self.domain == LOCAL_DOMAIN and _name_and_port(host)[0] not in _LOOPBACK_HOSTS):
            return "path"
        return "origin"

    def origin(self, scheme: str, host: str, conversation_id: str, port: int) -> str:
        """The origin of a preview, for a page under this ``Host``."""
        return f"{scheme}://{port}-{mark_of(conversation_id)}.{self.domain}{_name_and_port(host)[1]}"

    def parse(self, host: str) -> PreviewHost | None:
        name, _ = _name_and_port(host)
        if self.domain is None or not name.endswith(f".{self.domain}"):
            return None
        label = _LABEL.fullmatch(name.removesuffix(f".{self.domain}"))
        return None if label is None or int(label["port"]) > 65535 else PreviewHost(int(label["port"]), label["mark"])

    def is_preview_origin(self, origin: str) -> bool:
        _, _, host = origin.lower().partition("://")
        return self.parse(host) is not None

    def frame_sources(self, host: str) -> str:
        """What the page may show in a frame, as sources of its content security policy."""
        if self.mode(host) == "path":
            return "'self'"
        served_at = _name_and_port(host)[1]
        return f"http://*.{self.domain}{served_at} https://*.{self.domain}{served_at}"


NO_PREVIEWS = PreviewAddresses(None)


def ticket_url(origin: str, ticket: str) -> str:
    """The address that lets a browser in, once, to the preview of this origin."""
    return f"{origin}/?{TICKET}={quote(ticket, safe='')}"


def ticket_in(query: str) -> str | None:
    """The ticket in a query; a path that was put behind it is none of it."""
    return next((value.partition("/")[0] for name, value in parse_qsl(query) if name == TICKET), None)


def without_ticket(path: str, query: str) -> str:
    """The address that a request means, without its ticket; a slash and path put behind that are the path."""
    if TICKET not in query:
        return f"{path}?{query}" if query else path
    pairs: list[tuple[str, str]] = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != TICKET:
            pairs.append((name, value))
            continue
        _, _, behind = value.partition("/")
        more_path, _, more_query = behind.partition("?")
        path = f"{path.rstrip('/')}/{quote(more_path.lstrip('/'))}" if more_path else path
        pairs += parse_qsl(more_query, keep_blank_values=True)
    return f"{path}?{urlencode(pairs)}" if pairs else path


def path_url(server: str, pass_: str) -> str:
    """The address of a preview under a path of the server at this address."""
    return f"{server}{PATH_PREFIX}{quote(pass_, safe='')}/"


def _name_and_port(host: str) -> tuple[str, str]:
    """The port with its colon; both are empty where it can be no host."""
    match = _HOST.fullmatch(host.lower())
    return (match["name"], match["port"] or "") if match is not None else ("", "")
