"""The secrets of a conversation: given to commands that name them, and hidden everywhere."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException, HTTPMessage
from typing import IO, Protocol
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import AliasChoices, Field, SecretStr, field_validator

from agent_core.events.messages import Frozen
from agent_core.spelling import spelled
from agent_core.tools.execution import called

logger = logging.getLogger(__name__)

LOOKUP_SECONDS = 30.0
RETRY_SECONDS = 60.0
MAX_VALUE_BYTES = 64 * 1024

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_lookups = ThreadPoolExecutor(max_workers=8, thread_name_prefix="secret")


def http_address(value: str) -> str:
    """`value`, if it is the address of an HTTP server. Raises ValueError: it is not."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("url must be a complete http or https address, for example https://host/path")
    return value


def fetch(request: Request, *, limit_seconds: float, limit_bytes: int) -> bytes:
    """The body of the answer; blocks. Redirects are not followed.

    Raises OSError or HTTPException (no answer in time, a redirect, an error) or ValueError (over `limit_bytes`).
    """
    with build_opener(_NoRedirects).open(request, timeout=limit_seconds) as answer:
        data: bytes = answer.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise ValueError(f"the answer is longer than {limit_bytes} bytes")
    return data


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        raise HTTPException("redirects are not followed")


class SecretSource(Protocol):
    """Where a secret's value comes from; the model is told the `description`, never the value.

    A program's own source may leave that out, and have a ``get_value()`` for `value`; neither has to be asynchronous.
    """

    @property
    def description(self) -> str: ...

    async def value(self) -> str | None:
        """The value as it is now; None, or any exception: it cannot be had."""


class StaticSecret(Frozen):
    """A value that is known from the start; it is left out when this is stored as JSON."""

    secret: SecretStr = Field(exclude=True, validation_alias=AliasChoices("secret", "value"))
    description: str = ""

    async def value(self) -> str | None:
        return self.secret.get_secret_value()


class LookupSecret(Frozen):
    """The body of a server's answer to GET `url`, stripped. Redirects are not followed: the headers are secret."""

    url: str
    headers: dict[str, SecretStr] = Field(default_factory=dict, exclude=True)
    description: str = ""

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        return http_address(value)

    async def value(self) -> str | None:
        return await asyncio.get_running_loop().run_in_executor(_lookups, self._fetched)

    def _fetched(self) -> str:
        headers = {name: secret.get_secret_value() for name, secret in self.headers.items()}
        request = Request(self.url, headers=headers)  # noqa: S310 - the validator takes http and https only
        data = fetch(request, limit_seconds=LOOKUP_SECONDS, limit_bytes=MAX_VALUE_BYTES)
        return data.decode("utf-8").strip()


@spelled
class CallableSecret:
    """A value that a function gives whenever it is needed; one that is not asynchronous runs in a thread."""

    def __init__(
        self, function: Callable[[], str | None] | Callable[[], Awaitable[str | None]], description: str = ""
    ) -> None:
        self._function = function
        self.description = description

    async def value(self) -> str | None:
        if inspect.iscoroutinefunction(self._function):
            result: object = await self._function()
        else:
            result = await asyncio.get_running_loop().run_in_executor(_lookups, called, self._function)
            if inspect.isawaitable(result):
                result = await result
        if result is not None and not isinstance(result, str):
            raise TypeError(f"a secret's function must return a text or None, not {type(result).__name__}")
        return result


SecretValue = SecretSource | SecretStr | str | Callable[[], str | None] | Callable[[], Awaitable[str | None]]


@spelled
class SecretRegistry:
    """A conversation's secrets by name; `hide` is told each value before it can show, and replaced ones stay hidden."""

    def __init__(self, hide: Callable[[Iterable[str]], None]) -> None:
        self._hide = hide
        self._sources: dict[str, SecretSource] = {}
        self._seen: set[str] = set()
        self._failed: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._sources)

    def update(self, secrets: Mapping[str, SecretValue]) -> None:
        """Add these secrets; one of a known name replaces it. Empty values are left out: they were not given again."""
        for name, secret in secrets.items():
            source = _source(secret)
            if isinstance(source, StaticSecret):
                value = source.secret.get_secret_value()
                if not value:
                    continue
                self._hide([value])
                self._seen.add(name)
            else:
                self._seen.discard(name)
            self._failed.pop(name, None)
            self._sources[name] = source

    def remove(self, names: Iterable[str]) -> None:
        """Give these secrets to no command any more; their values stay hidden."""
        for name in names:
            self._sources.pop(name, None)
            self._failed.pop(name, None)

    def descriptions(self) -> dict[str, str]:
        """What may be told of the secrets: descriptions by name."""
        return {name: source.description for name, source in self._sources.items()}

    async def environment_for(self, command: str) -> dict[str, str]:
        """The values of the secrets that `command` names, in any case, as variables for it.

        Those that cannot be had, or whose name is no variable's, are left out. All others are looked up too, so that
        nothing it prints can show them; one that failed is not tried again for a minute unless it is named.
        """
        lowered = command.lower()
        named = [name for name in self._sources if name.lower() in lowered]
        now = time.monotonic()
        unseen = [
            name
            for name in self._sources
            if name not in self._seen and name not in named and now >= self._failed.get(name, now)
        ]
        found = await asyncio.gather(*(self._value(name) for name in (*named, *unseen)))
        values = dict(zip(named, found, strict=False))
        return {name: value for name, value in values.items() if value and _can_be_variable(name, value)}

    async def _value(self, name: str) -> str | None:
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                value = await self._sources[name].value()
        except Exception as error:  # noqa: BLE001 - whatever a source does, it is no secret then
            # Its text is not logged: it may hold the address with a password, or the value itself.
            logger.warning("the secret %r cannot be had: %s", name, type(error).__name__)
            value = None
        if value is None:
            self._failed[name] = time.monotonic() + RETRY_SECONDS
            return None
        self._failed.pop(name, None)
        self._seen.add(name)
        if value:
            self._hide([value])
        return value


def _can_be_variable(name: str, value: str) -> bool:
    is_text = value == value.encode("utf-8", "replace").decode("utf-8")  # no half of a surrogate pair
    return _VARIABLE_NAME.fullmatch(name) is not None and is_text and "\0" not in value


def check_secrets(secrets: object) -> None:
    """Raise `TypeError`, which names the one that is no secret and shows no value."""
    if not isinstance(secrets, Mapping):
        raise TypeError(f"secrets is a {type(secrets).__name__}: give values by their names, in a dictionary")
    for name, secret in secrets.items():
        if not isinstance(name, str):
            raise TypeError(f"secrets: a name is a {type(name).__name__}; give texts")
        try:
            _source(secret)
        except TypeError as error:
            raise TypeError(f"secrets.{name}: {error}") from None


def _source(secret: SecretValue) -> SecretSource:
    if isinstance(secret, str):
        return StaticSecret(secret=SecretStr(secret))
    if isinstance(secret, SecretStr):
        return StaticSecret(secret=secret)
    if isinstance(secret, StaticSecret | LookupSecret | CallableSecret):
        return secret
    own = getattr(secret, "get_value", None) or getattr(secret, "value", None)
    if callable(own):
        described = getattr(secret, "description", None)
        return CallableSecret(own, described if isinstance(described, str) else "")
    if callable(secret):
        return CallableSecret(secret)
    raise TypeError(f"a secret is a {type(secret).__name__}: give a text, a function, or a source of secrets")
