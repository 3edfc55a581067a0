"""Providers of git repositories: where they are, how a token is given to them, and whether they take it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import SecretStr

from server.db.user_settings import ProviderToken, StoredSettings
from server.git_hosts import with_scheme

CHECK_SECONDS = 5.0

_checks = ThreadPoolExecutor(max_workers=4, thread_name_prefix="git-provider")


class _Kind(NamedTuple):
    host: str
    username: str
    """What stands for a user's name beside a token."""
    variable: str
    """The variable that commands find the token in."""
    api: str
    """The address that tells whose token it is; relative to the host where it is not the public one's."""


KINDS: Final[dict[str, _Kind]] = {
    "github": _Kind("https://github.com", "x-access-token", "GITHUB_TOKEN", "/api/v3/user"),
    "gitlab": _Kind("https://gitlab.com", "oauth2", "GITLAB_TOKEN", "/api/v4/user"),
    "bitbucket": _Kind("https://bitbucket.org", "x-token-auth", "BITBUCKET_TOKEN", "/2.0/user"),
    "enterprise_sso": _Kind("https://github.com", "x-access-token", "ENTERPRISE_SSO_TOKEN", "/api/v3/user"),
}
_PUBLIC_API = {
    "https://github.com": "https://api.github.com/user",
    "https://bitbucket.org": "https://api.bitbucket.org/2.0/user",
}


class Credentials(NamedTuple):
    """A user's name and a token, as git sends them."""

    username: str
    token: SecretStr | None


def base_url(provider: str, host: str | None) -> str:
    """Where the provider's repositories are, without a slash at the end."""
    return with_scheme(host).rstrip("/") if host else KINDS[provider].host


def clone_url(provider: str, host: str | None, repository: str) -> str:
    """The address of a repository, for git."""
    return f"{base_url(provider, host)}/{quote(repository.strip('/').removesuffix('.git'))}.git"


def credentials(provider: str, token: SecretStr | None) -> Credentials:
    """What git sends. Where a token is a name and a password with a colon between them, it is sent as these."""
    text = token.get_secret_value() if token is not None else ""
    if provider == "bitbucket" and ":" in text:
        name, _, password = text.partition(":")
        return Credentials(name, SecretStr(password))
    return Credentials(KINDS[provider].username if text else "", token if text else None)


def token_values(settings: StoredSettings) -> list[str]:
    """What is to be hidden: the tokens, also in the parts that git sends."""
    values = {token.token.get_secret_value() for token in settings.provider_tokens.values()}
    for name, token in settings.provider_tokens.items():
        sent = credentials(name, token.token).token if name in KINDS else None
        values |= {sent.get_secret_value()} if sent is not None else set()
    return sorted(values)


def chosen_provider(wanted: str | None, tokens: Mapping[str, ProviderToken]) -> str:
    """The provider of a repository: the one that was named, else the first for which there is a token, else GitHub."""
    if wanted is not None:
        return wanted
    return next((name for name in KINDS if name in tokens), "github")


async def is_refused(provider: str, token: ProviderToken) -> bool:
    """Whether the provider says that the token is none of its own; one that cannot be asked refuses nothing."""
    return await asyncio.get_running_loop().run_in_executor(_checks, _refused, provider, token)


def _refused(provider: str, token: ProviderToken) -> bool:
    base = base_url(provider, token.host)
    address = _PUBLIC_API.get(base, base + KINDS[provider].api)
    text = token.token.get_secret_value()
    plain = base64.b64encode(text.encode()).decode() if provider == "bitbucket" and ":" in text else ""
    headers = {"Authorization": f"Basic {plain}" if plain else f"Bearer {text}", "User-Agent": "drydock"}
    request = Request(address, headers=headers)  # noqa: S310 - `host_problem` takes http and https only
    try:
        build_opener(_NoRedirects).open(request, timeout=CHECK_SECONDS).close()
    except HTTPError as error:
        error.close()
        return error.code == 401
    except (URLError, HTTPException, OSError, ValueError):
        return False
    return False


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """A token goes to the address that it is for, and to no other."""
