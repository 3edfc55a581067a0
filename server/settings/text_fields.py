"""Text fields of forms and settings: what is around a text is left out, and addresses are whole."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from agent_core.destinations import is_loopback
from agent_core.events.masking import secrets_in_address

WEB: Final = ("http", "https")
"""The schemes of addresses that are asked over HTTP."""

_MAX_TEXT: Final = 4096


def one_line(value: str) -> str:
    """A key as it is sent in a header, without the space around it; a validator."""
    key = value.strip()
    if not (key.isascii() and key.isprintable()):
        raise ValueError("a key is one line of ASCII characters; copy it once more, without anything around it")
    return key


def whole_address(value: str, schemes: Sequence[str], example: str) -> str:
    """An address without the space around it.

    Raises:
        ValueError: it lacks one of these schemes or a host, or nothing can be reached there; it says what to write, and
            not what was written, which may hold a password.
    """
    address = value.strip()
    try:
        parts = urlsplit(address)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host, port = address.partition(":")[0].lower(), None, None
    allowed = " or ".join(f"{one}://" for one in schemes)
    if scheme not in schemes or not address[len(scheme) :].startswith("://"):
        problem = f"the address begins with {allowed}"
    elif not address.isprintable() or any(character.isspace() for character in address):
        problem = "the address holds a space or a character that cannot be seen; leave it out"
    elif not host:
        problem = "the address names a host, and after it a port from 1 to 65535 or none"
    elif port == 0:
        problem = "the port is a number from 1 to 65535"
    else:
        return address
    raise ValueError(f"{problem}, such as {example}")


def shown_address(address: str) -> str:
    """The address without what may be secret in it."""
    try:
        parts = urlsplit(address)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return address.partition("?")[0].rpartition("@")[2]


SettingText = Annotated[str, Field(max_length=_MAX_TEXT)]
"""Kept as it was typed."""

LongText = Annotated[str, Field(max_length=20_000)]
"""A text of some paragraphs, kept as it was typed."""

TrimmedText = Annotated[SettingText, AfterValidator(str.strip)]
"""Without the space around it, so that what holds nothing else is empty."""

OneLine = Annotated[SettingText, AfterValidator(one_line)]

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MAX_VARIABLES: Final = 200
_MAX_VALUES: Final = 64 * 1024
_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|PRIVATE|DSN", re.IGNORECASE)
_SECRET_VALUE: Final = re.compile(r"sk-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|tvly-|eyJ|-----BEGIN")


def _variables(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    if len(value) > _MAX_VARIABLES:
        raise ValueError(f"there are {len(value)} variables; set {_MAX_VARIABLES} at most")
    for name, secret in value.items():
        if _VARIABLE.fullmatch(name) is None:
            raise ValueError(f"{name[:100]!r} is no name of a variable: use letters, digits and _, and no digit first")
        if "\0" in secret.get_secret_value():
            raise ValueError(f"{name} has a NUL character; leave it out")
    if (size := sum(len(one.get_secret_value().encode("utf-8", "replace")) for one in value.values())) > _MAX_VALUES:
        raise ValueError(f"the values have {size} bytes; {_MAX_VALUES} are the most")
    return value


EnvironmentVariables = Annotated[dict[str, SecretStr], AfterValidator(_variables)]
"""Variables of a sandbox by name."""


def is_secret_variable(name: str, value: str) -> bool:
    """Whether a variable of an environment looks like a secret, by its name or its value."""
    return bool(value) and bool(_SECRET_NAME.search(name) or _SECRET_VALUE.match(value) or secrets_in_address(value))


def secret_variables(variables: Mapping[str, SecretStr]) -> list[str]:
    """The values among them that nobody else should see."""
    found = {name: secret.get_secret_value() for name, secret in variables.items()}
    return [value for name, value in found.items() if is_secret_variable(name, value)]


def _split_words(value: object) -> object:
    """Environment variables carry a list as one text with commas."""
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


def from_json(value: object) -> object:
    """Environment variables carry a table as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.strip() else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON: {error}") from None


Words = Annotated[tuple[str, ...], BeforeValidator(_split_words)]
FromTable = BeforeValidator(lambda value: from_json(value) or {})


_BASE_PATH: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)+", re.ASCII)
_OWN_PATHS: Final = frozenset(
    {"alive", "api", "assets", "conversations", "docs", "feedback", "health", "integration", "mcp", "metrics", "oauth"}
    | {"openapi.json", "preview", "ready", "server_info", "settings", "sign-in", "sign-out", "socket.io", "v1"}
)
"""First parts of the server's own paths: what begins with one would not say whether a base path stands before it."""


def _base_path(value: str) -> str:
    path = value.strip().rstrip("/")
    if path and _BASE_PATH.fullmatch(path) is None:
        raise ValueError("write it as /drydock or /tools/drydock: letters, digits and . _ ~ - between slashes")
    if (first := path.split("/")[1] if path else "") in _OWN_PATHS:
        raise ValueError(f"/{first} is a path of the server itself; choose another one, such as /drydock")
    return path


BasePathField = Annotated[str, AfterValidator(_base_path)]


def none_if_blank(value: object) -> object:
    """An empty environment variable says nothing; a validator."""
    return None if isinstance(value, str) and not value.strip() else value


def _base_url(value: str | None) -> str | None:
    return whole_address(value, WEB, "http://127.0.0.1:11434/v1") if value is not None else None


OptionalText = Annotated[str | None, BeforeValidator(none_if_blank)]
OptionalName = Annotated[TrimmedText | None, BeforeValidator(none_if_blank)]
OptionalLine = Annotated[OptionalName, AfterValidator(lambda text: None if text is None else " ".join(text.split()))]
BaseUrl = Annotated[TrimmedText, AfterValidator(_base_url)]
OptionalBaseUrl = Annotated[OptionalName, AfterValidator(_base_url)]
FolderPath = Annotated[Path, AfterValidator(Path.expanduser)]
OptionalFolder = Annotated[FolderPath | None, BeforeValidator(none_if_blank)]
OptionalSecret = Annotated[SecretStr | None, BeforeValidator(none_if_blank)]
OptionalKey = Annotated[
    OptionalSecret, AfterValidator(lambda key: None if key is None else SecretStr(one_line(key.get_secret_value())))
]


def _redis_url(value: SecretStr | None) -> SecretStr | None:
    if value is None or value.get_secret_value().strip().startswith("unix:///"):
        return value
    example = "redis://:password@host:6379/0"
    return SecretStr(whole_address(value.get_secret_value(), ("redis", "rediss", "unix"), example))


def _database_url(value: str | None) -> str | None:
    try:
        urlsplit(value or "")
    except ValueError:
        raise ValueError("is no address; write it as postgresql://user:password@host/name") from None
    return value


OptionalDatabaseUrl = Annotated[OptionalText, AfterValidator(_database_url)]
OptionalRedisUrl = Annotated[OptionalKey, AfterValidator(_redis_url)]
"""It may hold a password."""

AUTO_TOKEN: Final = "auto"  # noqa: S105 - a word that asks for a token, not a token
MIN_TOKEN_LENGTH: Final = 24
SHORT_TOKEN: Final = f"a token has at least {MIN_TOKEN_LENGTH} printable ASCII characters; `auto` makes a good one"
"""What is told of one that could be guessed."""

_DOMAIN: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


def _long_enough(value: SecretStr | None) -> SecretStr | None:
    text = AUTO_TOKEN if value is None else value.get_secret_value()
    if text != AUTO_TOKEN and (len(text.strip()) < MIN_TOKEN_LENGTH or not text.isascii() or not text.isprintable()):
        raise ValueError(SHORT_TOKEN)
    return value


def _origins(value: tuple[str, ...]) -> tuple[str, ...]:
    for origin in value:
        if origin != "*" and not origin.startswith(("http://", "https://")):
            raise ValueError(f"{origin!r} is no origin: write it with its scheme, such as https://{origin}")
    return tuple(origin.rstrip("/").lower() for origin in value)


def _networks(value: tuple[str, ...]) -> tuple[str, ...]:
    for network in value:
        try:
            ipaddress.ip_network(network)
        except ValueError:
            raise ValueError(f"{network!r} is no address and no network, such as 127.0.0.1 or 10.0.0.0/8") from None
    return value


def _pinned(value: tuple[str, ...]) -> tuple[str, ...]:
    for network in _networks(value):
        if ipaddress.ip_network(network).prefixlen == 0:
            raise ValueError(f"{network} is everybody; write the addresses of the proxy alone")
    return value


_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,100}", re.ASCII)
_OTHER_HEADERS: Final = re.compile(
    "authorization|connection|content-.*|cookie|expect|forwarded|host|origin|referer|sec-.*|te|transfer-encoding"
    "|upgrade|x-forwarded-(for|host|port|proto)|x-session-api-key",
    re.IGNORECASE,
)


def _user_header(value: str | None) -> str | None:
    if value is None:
        return None
    if _HEADER.fullmatch(value) is None:
        raise ValueError(f"{value[:100]!r} is no name of a header: letters, digits and -, such as Remote-User")
    if _OTHER_HEADERS.fullmatch(value) is not None:
        raise ValueError(f"{value} means something else already; have the proxy use another one, such as Remote-User")
    return value


def _issuer(value: str | None) -> str | None:
    if value is None:
        return None
    address = whole_address(value, WEB, "https://sign-in.example.com")
    parts = urlsplit(address)
    if "@" in parts.netloc or parts.query or parts.fragment or "/.well-known/" in parts.path:
        raise ValueError("an issuer is an address without a password, a query or /.well-known/openid-configuration")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ValueError("people sign in over https alone, except at a provider on this machine")
    return address


def _node_labels(value: tuple[str, ...]) -> tuple[str, ...]:
    for label in value:
        if not all(label.partition("=")):
            raise ValueError(f"{label!r} is no label of a node, such as pool=sandboxes")
    return value


def _domain(value: str) -> str:
    name = value.strip().lower().removeprefix("*.")
    if not _DOMAIN.fullmatch(name) or len(name) > 200:
        raise ValueError(f"{value!r} is no domain: write a name such as preview.example.com, or none")
    return name


AccessToken = Annotated[OptionalSecret, AfterValidator(_long_enough)]
Origins = Annotated[Words, AfterValidator(_origins)]
"""Origins of pages with their schemes, or `*`."""
Networks = Annotated[Words, AfterValidator(_networks)]
"""Addresses and networks of hosts."""
ProxyAddresses = Annotated[Words, AfterValidator(_pinned)]
UserHeaderName = Annotated[OptionalName, AfterValidator(_user_header)]
"""A header by which a proxy says who asks."""
Issuer = Annotated[OptionalName, AfterValidator(_issuer)]
"""The address of an OpenID provider, as it writes it itself."""
NodeLabels = Annotated[Words, AfterValidator(_node_labels)]
DomainName = Annotated[str, AfterValidator(_domain)]
