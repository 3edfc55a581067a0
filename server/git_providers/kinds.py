"""Kinds of providers: their addresses, and how git is given a token for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from pydantic import SecretStr

from server.db.repositories.user_settings import ProviderToken, StoredSettings
from server.settings.git_hosts import Provider, with_scheme


class _Kind(NamedTuple):
    host: str
    username: str
    variable: str


KINDS: Final[dict[Provider, _Kind]] = {
    "github": _Kind("https://github.com", "x-access-token", "GITHUB_TOKEN"),
    "gitlab": _Kind("https://gitlab.com", "oauth2", "GITLAB_TOKEN"),
    "bitbucket": _Kind("https://bitbucket.org", "x-token-auth", "BITBUCKET_TOKEN"),
    "enterprise_sso": _Kind("https://github.com", "x-access-token", "ENTERPRISE_SSO_TOKEN"),
    "azure_devops": _Kind("https://dev.azure.com", "pat", "AZURE_DEVOPS_TOKEN"),
    "forgejo": _Kind("https://codeberg.org", "oauth2", "FORGEJO_TOKEN"),
}
SHARED: Final = ".openhands"
SHARED_CONFIG: Final = "openhands-config"
"""Names of an owner's repository for all others; the second one at GitLab and Azure DevOps."""

_BITBUCKET_API_TOKEN = "x-bitbucket-api-token-auth"  # noqa: S105 - a name that git sends, no secret


class Credentials(NamedTuple):
    """A user's name and a token, as git sends them."""

    username: str
    token: SecretStr | None


def base_url(provider: Provider, host: str | None) -> str:
    """Where the provider's repositories are, without a slash at the end; the public one however it is written."""
    public = KINDS[provider].host
    if not host:
        return public
    split = urlsplit(with_scheme(host))
    name = (split.hostname or "").removeprefix("www.").removeprefix("api.")
    if split.port in {None, 443} and f"https://{name}" == public:
        return public + split.path.rstrip("/") if provider == "azure_devops" else public
    return with_scheme(host).rstrip("/")


def organization(base: str) -> str:
    """The organisation (or collection) of Azure DevOps that its address names; empty: it names none."""
    split = urlsplit(base)
    name = split.path.strip("/").rpartition("/")[2]
    old_name, _, domain = (split.hostname or "").partition(".")
    return unquote(name) or (old_name if domain == "visualstudio.com" else "")


def host_lacks(provider: Provider, host: str | None) -> str | None:
    """What has to be added to the host before the provider can be asked; None: nothing."""
    if provider == "azure_devops" and not organization(base_url(provider, host)):
        return "must name the organisation, such as dev.azure.com/acme"
    return None


def clone_url(provider: Provider, host: str | None, repository: str) -> str:
    """The address of a repository, for git."""
    base, name = base_url(provider, host), repository.strip("/").removesuffix(".git")
    if provider == "azure_devops":
        *owner, project, last = ["", "", *name.split("/")][-3:]
        of_base = organization(base)
        folder = [project or last] if of_base or not owner[0] else [owner[0], project or last]
        return "/".join([base, *(quote(part) for part in [*folder, "_git", last])])
    return f"{base}/{quote(name)}.git"


def repository_in(provider: Provider, base: str, address: str) -> str | None:
    """The full name of the repository that a web page of the provider at `base` is about; None: it is about none."""
    if not address.startswith(f"{base}/"):
        return None
    parts = [unquote(part) for part in urlsplit(address[len(base) + 1 :]).path.split("/") if part]
    if provider == "azure_devops":
        if "_git" not in parts[:-1]:
            return None
        place = parts.index("_git")
        parts = [organization(base), *parts[max(0, place - 1) : place], parts[place + 1]]
        parts = parts if len(parts) == 3 else [parts[0], parts[1], parts[1]]
    elif provider == "gitlab":
        parts = parts[: parts.index("-")] if "-" in parts else parts
    else:
        parts = parts[:2]
    return "/".join(parts).removesuffix(".git") if len(parts) > 1 else None


def shared_repository(provider: Provider, repository: str) -> str:
    """The full name of the repository that the owner of this one has for all of theirs, if there is one."""
    owner = repository.partition("/")[0]
    if provider == "azure_devops":
        return f"{owner}/{SHARED_CONFIG}/{SHARED_CONFIG}"
    return f"{owner}/{SHARED_CONFIG if provider == 'gitlab' else SHARED}"


def credentials(provider: Provider, token: SecretStr | None) -> Credentials:
    """What git sends. Where a token is a name and a password with a colon between them, it is sent as these."""
    text = token.get_secret_value() if token is not None else ""
    if provider == "bitbucket" and ":" in text:
        name, _, password = text.partition(":")
        return Credentials(_BITBUCKET_API_TOKEN if "@" in name else name, SecretStr(password))
    return Credentials(KINDS[provider].username if text else "", token if text else None)


def token_values(settings: StoredSettings) -> list[str]:
    """What is to be hidden: the tokens, also in the parts that git sends."""
    values = {token.token.get_secret_value() for token in settings.provider_tokens.values()}
    for name, kind in known_tokens(settings.provider_tokens).items():
        sent = credentials(name, kind.token).token
        values |= {sent.get_secret_value()} if sent is not None else set()
    return sorted(values)


def known_tokens(tokens: Mapping[str, ProviderToken]) -> dict[Provider, ProviderToken]:
    """The tokens for providers that this version knows, in the order of `KINDS`."""
    return {name: tokens[name] for name in KINDS if name in tokens}


def chosen_provider(requested: str | None, tokens: Mapping[str, ProviderToken]) -> Provider:
    """The provider of a repository: the one that was named, else the first for which there is a token, else GitHub."""
    return next((name for name in KINDS if name == requested or (requested is None and name in tokens)), "github")
