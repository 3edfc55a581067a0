"""Requests to providers: bounded in time, size and number of attempts; the only module here that knows httpx."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import time
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypeVar, cast, get_origin
from urllib.parse import quote, urljoin, urlsplit

import orjson
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SecretStr,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from agent_core.json_values import TooManyValuesError, check_values
from server.git_providers.model import (
    GitProviderError,
    MissingError,
    RateLimitedError,
    TokenRefusedError,
    UnknownOutcomeError,
)

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

LIMIT_SECONDS = 20.0
"""Bound on one request with all its attempts."""

ATTEMPTS = 3
MAX_BYTES = 8 * 1024 * 1024
_MAX_WAIT = 2.0
"""A provider that wants a longer pause than this is not waited for; its user is told."""
_MAX_REDIRECTS = 3
_MAX_CONNECTIONS = 20
_MAX_MESSAGE = 300
_PASSING = frozenset({502, 503, 504})


class HttpPool:
    """The connections to all providers; httpx is loaded with the first request."""

    def __init__(self, *, pause_seconds: float = 0.2) -> None:
        self.pause_seconds = pause_seconds
        """The pause before the second attempt; it doubles with each."""
        self._client: httpx.AsyncClient | None = None

    async def client(self) -> httpx.AsyncClient:
        """The client of httpx, which follows no redirect and keeps no cookie between users."""
        if self._client is None:
            made = await asyncio.to_thread(_new_client)  # beside the loop: it is slow, once
            self._client = self._client or made
        return self._client

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def _new_client() -> httpx.AsyncClient:
    import httpx  # a fifth of a second that a server without such accounts need not spend

    return httpx.AsyncClient(
        timeout=httpx.Timeout(10.0, connect=5.0),
        limits=httpx.Limits(max_connections=_MAX_CONNECTIONS, keepalive_expiry=30.0),
        headers={"User-Agent": "drydock"},
        follow_redirects=False,
    )


class Api:
    """The API of one provider with one token. What only reads is sent again where that may help; `post` is not.

    `base` is its address without a slash at the end. `secret` is taken out of what is shown of the provider's answers.
    `signs_in`: it answers a refused token with its page for signing in. Methods raise GitProviderError.
    """

    def __init__(
        self,
        pool: HttpPool,
        provider: str,
        base: str,
        *,
        headers: Mapping[str, str],
        secret: SecretStr,
        signs_in: bool = False,
    ) -> None:
        self.provider = provider
        self.base = base
        self._pool = pool
        self._headers = headers
        self._signs_in = signs_in
        text = secret.get_secret_value()
        sent = headers.get("Authorization", "").rpartition(" ")[2]
        parts = {text, *text.split(":", 1), sent}
        self._hidden = sorted((part for part in parts if len(part) > 3), key=len, reverse=True)

    async def get(self, path: str, kind: type[T], params: Mapping[str, Any] | None = None) -> ProviderReply[T]:
        """What is at `path`, as a `kind`; parameters that are None are left out."""
        answer = await self._answer("GET", self.base + path, params=_given(params))
        return ProviderReply(read(kind, answer.body, self.provider), answer.headers)

    async def post(
        self, path: str, body: Mapping[str, Any], kind: type[T], params: Mapping[str, Any] | None = None
    ) -> T:
        """Make something; it is sent again only if it has certainly not arrived. UnknownOutcomeError: it may have."""
        answer = await self._answer("POST", self.base + path, makes=True, params=_given(params), json=dict(body))
        try:
            return read(kind, answer.body, self.provider)
        except GitProviderError as error:
            raise UnknownOutcomeError(_unknown(str(error))) from error

    async def text(self, path: str, params: Mapping[str, Any] | None = None) -> str:
        return (await self._answer("GET", self.base + path, params=_given(params))).body.decode("utf-8", "replace")

    async def graphql(self, address: str, query: str, kind: type[T], variables: Mapping[str, Any]) -> T:
        """The ``data`` of a query that changes nothing; parts that the provider refuses are null."""
        answer = await self._answer("POST", address, json={"query": query, "variables": dict(variables)})
        reply = read(GraphQl, answer.body, self.provider)
        if reply.data is None or (reply.errors and not any(reply.data.values())):
            kinds = {error.type for error in reply.errors}
            if "NOT_FOUND" in kinds:
                raise MissingError(f"{self.provider}: not found")
            if "RATE_LIMITED" in kinds:
                raise RateLimitedError(self.provider, seconds_until_reset(answer))
            said = self._clean("; ".join(error.message for error in reply.errors) or "no data")
            raise GitProviderError(f"{self.provider} cannot answer: {said}")
        return validated(kind, reply.data, self.provider)

    async def _answer(self, method: str, address: str, *, makes: bool = False, **content: Any) -> RawResponse:
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                return await self._attempts(method, address, content, makes=makes)
        except TimeoutError as error:
            said = f"{self.provider} did not answer within {LIMIT_SECONDS:g} seconds"
            raise (UnknownOutcomeError(_unknown(said)) if makes else GitProviderError(said)) from error

    async def _attempts(self, method: str, address: str, content: dict[str, Any], *, makes: bool) -> RawResponse:
        pause = self._pool.pause_seconds
        for attempt in range(1, ATTEMPTS + 1):
            is_last = attempt == ATTEMPTS
            try:
                answer = await self._follow(method, address, content)
            except _LostError as error:
                said = f"{self.provider} cannot be reached at {_origin(address)}: {error}"
                if makes and error.was_sent:
                    raise UnknownOutcomeError(_unknown(said)) from error
                if is_last:
                    raise GitProviderError(said) from error
                answer = None
            if answer is not None and (makes and answer.status in _PASSING):
                raise UnknownOutcomeError(_unknown(f"{self.provider} answers {answer.status}"))
            if answer is not None and (is_last or answer.status not in _PASSING):
                wait = wished_wait(answer)
                if wait is None:
                    self._check(answer)
                    return answer
                if is_last or wait.seconds is None or wait.seconds > _MAX_WAIT:
                    raise RateLimitedError(self.provider, wait.seconds)
                pause = max(pause, wait.seconds)
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("the last attempt returns or raises")

    async def _follow(self, method: str, address: str, content: dict[str, Any]) -> RawResponse:
        """The answer, also of a repository that was renamed; the token never goes to another origin."""
        for _ in range(_MAX_REDIRECTS):
            answer = await self._send(method, address, content)
            target = urljoin(address, answer.headers.get("location", ""))
            if answer.status not in {301, 302, 307, 308} or _origin(target) != _origin(address):
                return answer
            address, content = target, {key: value for key, value in content.items() if key != "params"}
        return answer

    async def _send(self, method: str, address: str, content: dict[str, Any]) -> RawResponse:
        client = await self._pool.client()
        import httpx  # it is loaded by now

        try:
            async with client.stream(method, address, headers=self._headers, **content) as response:
                body = bytearray()
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MAX_BYTES:
                        raise GitProviderError(f"{self.provider} answers with more than {MAX_BYTES} bytes")
                return RawResponse(
                    response.status_code, {k.lower(): v for k, v in response.headers.items()}, bytes(body)
                )
        except httpx.InvalidURL as error:
            raise GitProviderError(f"{self.provider}: its host is no address") from error
        except httpx.HTTPError as error:
            not_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            raise _LostError(self._clean(str(error)) or type(error).__name__, was_sent=not not_sent) from error
        finally:
            client.cookies.clear()

    def _check(self, answer: RawResponse) -> None:
        status = answer.status
        if status == 401:
            raise TokenRefusedError(self.provider)
        if status in {404, 410}:
            raise MissingError(f"{self.provider} answers {status}: is {_origin(self.base)} its host, and is it there?")
        if self._signs_in and (status == 203 or 300 <= status < 400):
            raise TokenRefusedError(self.provider)
        if 300 <= status < 400:
            target = urlsplit(self._clean(answer.headers.get("location", "")))
            where = f", to {target.scheme}://{target.hostname}" if target.hostname else ", and nowhere in the end"
            raise GitProviderError(f"{self.provider} sends elsewhere{where}: is that its host?")
        if status >= 400:
            said = self._clean(message(answer.body))
            raise GitProviderError(f"{self.provider} answers {status}{f': {said}' if said else ''}", status=status)

    def _clean(self, text: str) -> str:
        for part in self._hidden:
            text = text.replace(part, "***")
        return " ".join(text.split())[:_MAX_MESSAGE]


def segments(path: str) -> str:
    """A path of a repository, folder or file for an address. Raises MissingError: there can be none of this name."""
    parts = path.strip("/").split("/")
    if any(part in {"", ".", ".."} or not part.isprintable() for part in parts):
        raise MissingError(f"not found: {path[:200]!r}")
    return "/".join(quote(part, safe="") for part in parts)


class _LostError(Exception):
    """The connection failed; another attempt may not. `was_sent`: the provider may have got the request."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


def _unknown(said: str) -> str:
    return f"{said}; it may have been made all the same: look before you try again"


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _origin(address: str) -> str:
    split = urlsplit(address)
    return f"{split.scheme}://{split.netloc}"


MAX_VALUES = 100_000
"""More would be parsed for so long that everybody else had to wait."""

_MAX_DEPTH = 3


class Shape(BaseModel):
    """Base of what a provider answers: what is not named is ignored, null is as good as absent."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


NullableText = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""A text further down in an answer, where null is as good as an empty one."""


class ProviderReply(NamedTuple, Generic[T]):
    """An answer and its headers, whose names are in lower case."""

    data: T
    headers: Mapping[str, str]

    @property
    def total(self) -> int | None:
        text = self.headers.get("x-total") or self.headers.get("x-total-count") or ""
        return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


class Nodes(Shape, Generic[T]):
    """A list as GraphQL gives it: null stands for what the account may not see."""

    nodes: tuple[T, ...] = ()

    @field_validator("nodes", mode="before")
    @classmethod
    def _seen(cls, nodes: Any) -> Any:
        return [node for node in nodes if node is not None] if isinstance(nodes, list) else nodes


class Values(Shape, Generic[T]):
    """A list in a frame of its own; which of these it has, and how it goes on, differs."""

    values: tuple[T, ...] = ()
    value: tuple[T, ...] = ()
    next: str | None = None
    size: int | None = None


class EncodedFile(Shape):
    """A file within JSON."""

    content: str

    def text(self, provider: str) -> str:
        try:
            return base64.b64decode(self.content).decode("utf-8", "replace")
        except (binascii.Error, ValueError) as error:
            raise GitProviderError(f"{provider} gives the file in an unknown form") from error


class RawResponse(NamedTuple):
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RetryWait(NamedTuple):
    """How long a provider wants to be left alone; None: it does not say."""

    seconds: float | None


class GraphQl(Shape):
    """The frame around every answer of GraphQL."""

    data: dict[str, Any] | None = None
    errors: tuple[GraphQlError, ...] = ()


class GraphQlError(Shape):
    """What GraphQL could not do."""

    message: str = ""
    type: str | None = None


def read(kind: type[T], body: bytes, provider: str) -> T:
    """The JSON in `body` as a `kind`; GitProviderError: none, more than `MAX_VALUES` values, or of another form."""
    try:
        check_values(body, most=MAX_VALUES)
        value = orjson.loads(body)
    except TooManyValuesError as error:
        raise GitProviderError(f"{provider} answers with {error}: ask for less at a time") from error
    except orjson.JSONDecodeError as error:
        raise GitProviderError(f"{provider} answers with something that is no JSON: is it its host?") from error
    return validated(kind, value, provider)


def validated(kind: type[T], value: Any, provider: str) -> T:
    """`value` as a `kind`. Raises GitProviderError: it has another form."""
    try:
        adapter: TypeAdapter[T] = _adapter(cast(Any, kind))
        is_no_list = value is None and get_origin(kind) is list  # an empty one, as Gitea writes it
        found = adapter.validate_python([] if is_no_list else value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise GitProviderError(f"{provider} answers in an unknown form: {place}: {first['msg']}") from error
    return found


def wished_wait(answer: RawResponse) -> RetryWait | None:
    """How long the provider wants to be left alone, where that is its answer."""
    headers = answer.headers
    none_left = headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers
    if answer.status != 429 and not (answer.status == 403 and none_left):
        return None
    text = headers.get("retry-after", "")
    return RetryWait(float(text) if re.fullmatch(r"[0-9]{1,6}", text) else seconds_until_reset(answer))


def seconds_until_reset(answer: RawResponse) -> float | None:
    """When the limit of requests begins anew, where the provider says so; None: it does not, or it already has."""
    headers = answer.headers
    text = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset") or ""
    left = float(text) - time.time() if re.fullmatch(r"[0-9]{9,11}", text) else 0.0
    return left if left > 0 else None


def message(body: bytes) -> str:
    """What the provider says about an error, in the usual places; what it finds wrong with which field comes last."""
    try:
        check_values(body, most=MAX_VALUES)
        value = orjson.loads(body)
    except ValueError:
        return ""
    if not isinstance(value, dict):
        return ""
    error = value.get("error")
    first = error.get("message") if isinstance(error, dict) else error
    details = error.get("fields") if isinstance(error, dict) else value.get("errors")
    return "; ".join(dict.fromkeys([*_sentences(first or value.get("message")), *_sentences(details)]))


def _sentences(said: Any, depth: int = 0) -> list[str]:
    if isinstance(said, str):
        return [said] if said else []
    if depth > _MAX_DEPTH:
        return []
    if isinstance(said, list):
        return [text for one in said for text in _sentences(one, depth + 1)]
    if isinstance(said, dict):
        if isinstance(said.get("message"), str):
            return [said["message"]]
        if isinstance(said.get("field"), str) and isinstance(said.get("code"), str):
            return [f"{said['field']}: {said['code']}"]
        return [f"{name}: {text}" for name, one in said.items() for text in _sentences(one, depth + 1)]
    return []


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
