"""The addresses of git providers, as people write them."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator

from server.settings.text_fields import FromTable

Provider = Literal["github", "gitlab", "bitbucket", "enterprise_sso", "azure_devops", "forgejo"]
"""The providers that the protocol knows, and two that are additions to it."""

PROVIDERS: Final[tuple[Provider, ...]] = get_args(Provider)

_MAX_HOST = 500
_HOST = re.compile(r"(https?://)?(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:\d{1,5})?(/[\w.~/-]*)?", re.ASCII)


def host_problem(host: str) -> str | None:
    """Why this can be no provider's address; None when it can, or is empty and so the public one."""
    if not host:
        return None
    if len(host) > _MAX_HOST or _HOST.fullmatch(host) is None:
        return "must be a host name or an http(s) address without a user's name, such as git.example.com"
    try:
        split = urlsplit(with_scheme(host))
        is_one = bool(split.hostname) and (split.port is None or split.port > 0)
    except ValueError:
        is_one = False
    return None if is_one else "is no address"


def with_scheme(host: str) -> str:
    """The address as a whole one: https, where it does not say."""
    return host if host.startswith(("http://", "https://")) else f"https://{host}"


def _checked(value: dict[str, str]) -> dict[str, str]:
    for provider, host in value.items():
        if provider not in PROVIDERS:
            raise ValueError(f"{provider!r} is no provider; known are {', '.join(PROVIDERS)}")
        if (problem := host_problem(host)) is not None:
            raise ValueError(f"{provider} {problem}")
    return value


GitHosts = Annotated[dict[str, str], FromTable, AfterValidator(_checked)]
"""Addresses by the names of their providers."""
