"""`OriginPolicy`: which hosts and origins may ask, the guard against foreign pages and DNS rebinding."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import NamedTuple

from agent_core.destinations import is_loopback
from server.auth.preview_addresses import NO_PREVIEWS, PreviewAddresses
from server.errors import ConfigurationError
from server.settings.settings import Settings

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_MAX_SHOWN = 200
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_.-]+))(?::(?P<port>\d{1,5}))?", re.ASCII)


def check_bind(settings: Settings, token: str | None) -> None:
    """Raise `ConfigurationError` where a server would be open to others without a token."""
    if token is None and not is_loopback(settings.host):
        raise ConfigurationError(
            f"listening on {settings.host} lets others reach this server, and with it your sandboxes and model key: "
            "set a token (DRYDOCK_TOKEN=…, or DRYDOCK_TOKEN=auto to have one made), or listen on 127.0.0.1."
        )


class Refusal(NamedTuple):
    """Why a request is refused: the code with its page, and the sentence."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class OriginPolicy:
    """Decides on the ``Host`` and ``Origin`` of HTTP requests, polling and WebSockets alike."""

    hosts: frozenset[str]
    origins: frozenset[str]
    any_ip_address: bool = False
    previews: PreviewAddresses = NO_PREVIEWS

    @classmethod
    def from_settings(cls, settings: Settings) -> OriginPolicy:
        hosts = _LOOPBACK_NAMES | {settings.host.lower().strip("[]")} | {h.lower() for h in settings.allowed_hosts}
        return cls(
            hosts,
            frozenset(settings.allowed_origins),
            any_ip_address=settings.listens_on_all,
            previews=PreviewAddresses.from_setting(settings.preview_domain),
        )

    def refusal(self, host: str | None, origin: str | None) -> Refusal | None:
        """Why a request with these headers is refused; None lets it pass. Programs send no origin."""
        if host is None:
            return _wrong_host("The request has no Host header.")
        match = _HOST.fullmatch(host.lower())
        if match is None or not self._host_is_ours(match["v6"] or match["name"]):
            return _wrong_host(
                f"This server does not answer for the host {host[:_MAX_SHOWN]!r}. If that is its name, add it to the "
                "setting allowed_hosts (DRYDOCK_ALLOWED_HOSTS)."
            )
        if origin is not None and self.previews.is_preview_origin(origin):
            return wrong_origin("This page comes out of a sandbox: it may not use this server.")
        if origin is None or self._origin_is_ours(origin.lower(), host.lower()):
            return None
        return wrong_origin(
            f"Pages of {origin[:_MAX_SHOWN]!r} may not use this server. If they should, add that origin to the setting "
            "allowed_origins (DRYDOCK_ALLOWED_ORIGINS)."
        )

    def _host_is_ours(self, name: str) -> bool:
        if name in self.hosts or "*" in self.hosts:
            return True
        if not self.any_ip_address:
            return False
        # Rebinding needs a name that its owner can point elsewhere; a plain address is what it is.
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _origin_is_ours(self, origin: str, host: str) -> bool:
        if origin in self.origins or "*" in self.origins:
            return True
        scheme, separator, rest = origin.partition("://")
        default = ":443" if scheme == "https" else ":80"
        is_same_place = rest.removesuffix(default) == host.removesuffix(default)
        return bool(separator) and scheme in {"http", "https"} and is_same_place


def _wrong_host(text: str) -> Refusal:
    return Refusal(code="host_not_allowed", text=text)


def wrong_origin(text: str) -> Refusal:
    """The refusal of a page that is not this server's own."""
    return Refusal(code="origin_not_allowed", text=text)
