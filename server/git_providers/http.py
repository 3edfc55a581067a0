"""Requests to providers: bounded in time, size and number of attempts; the only module here that knows httpx."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urljoin, urlsplit

import orjson
from pydantic import SecretStr, TypeAdapter, ValidationError

from agent_core.json_values import TooManyValuesError, check_values
from server.errors import GitProviderError
from server.git_providers.model import (
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
            client = await asyncio.to_thread(_new_client)  # beside the loop: it is slow, once
            self._client = self._client or client
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

    `base` is its address without a slash at the end; each request has `params`, but for those that it says are None.
    `secret` is taken out of what is shown of the provider's answers. `lacking`: what has to be added to the host before
    anything is sent. `signs_in`: it answers a refused token with its page for signing in.
    Methods raise GitProviderError.
    """

    def __init__(
        self,
        pool: HttpPool,
        provider: str,
        base: str,
        *,
        headers: Mapping[str, str],
        secret: SecretStr,
        params: Mapping[str, Any] | None = None,
        lacking: str | None = None,
        signs_in: bool = False,
    ) -> None:
        self.provider = provider
        self.base = base
        self._pool = pool
        self._headers = headers
        self._params = params or {}
        self._lacking = lacking
        self._signs_in = signs_in
        text = secret.get_secret_value()
        sent = headers.get("Authorization", "").rpartition(" ")[2]
        parts = {text, *text.split(":", 1), sent}
        self._hidden = sorted((part for part in parts if len(part) > 3), key=len, reverse=True)

    def check_host(self) -> None:
        """Raises GitProviderError where the host lacks something."""
        if self._lacking:
            raise GitProviderError(f"{self.provider}: the host {self._lacking}")

    async def get(self, path: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object at `path`; parameters that are None are left out."""
        return read(dict, (await self._answer("GET", self.base + path, params=params)).body, self.provider)

    async def get_list(self, path: str, params: Mapping[str, Any] | None = None, frame: str = "") -> ListReply:
        """The list at `path`, which is the field `frame` of an object where there is one."""
        reply = await self._answer("GET", self.base + path, params=params)
        if not frame:
            return ListReply(read(list, reply.body, self.provider), reply.headers, {})
        data = read(dict, reply.body, self.provider)
        return ListReply(list_at(data, frame, self.provider), reply.headers, data)

    async def post(self, path: str, body: Mapping[str, Any], reads: Callable[[Any], T]) -> T:
        """Make something; it is sent again only if it has certainly not arrived. UnknownOutcomeError: it may have."""
        reply = await self._answer("POST", self.base + path, makes=True, json=dict(body))
        try:
            return reads(read(object, reply.body, self.provider))
        except GitProviderError as error:
            raise UnknownOutcomeError(str(error)) from error

    async def query(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON object that answers a question which is put in a body and changes nothing."""
        return read(dict, (await self._answer("POST", self.base + path, json=dict(body))).body, self.provider)

    async def text(self, path: str, params: Mapping[str, Any] | None = None) -> str:
        return (await self._answer("GET", self.base + path, params=params)).body.decode("utf-8", "replace")

    async def graphql(self, address: str, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The ``data`` of a query that changes nothing; parts that the provider refuses are null."""
        answer = await self._answer("POST", address, json={"query": query, "variables": dict(variables)})
        reply = read(dict, answer.body, self.provider)
        data, errors = reply.get("data"), list_at(reply, "errors", self.provider)
        if not isinstance(data, dict) or (errors and not any(data.values())):
            kinds = [at(error, "type") for error in errors]
            if "NOT_FOUND" in kinds:
                raise MissingError(f"{self.provider}: not found")
            if "RATE_LIMITED" in kinds:
                raise RateLimitedError(self.provider, seconds_until_reset(answer.headers))
            problem = self._clean("; ".join(str(at(error, "message") or "") for error in errors) or "no data")
            raise GitProviderError(f"{self.provider} cannot answer: {problem}")
        return data

    async def _answer(
        self, method: str, address: str, *, makes: bool = False, params: Mapping[str, Any] | None = None, **content: Any
    ) -> ApiReply:
        self.check_host()
        merged = {**self._params, **(params or {})}
        content["params"] = {name: value for name, value in merged.items() if value is not None}
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                return await self._attempts(method, address, content, makes=makes)
        except TimeoutError as error:
            problem = f"{self.provider} did not answer within {LIMIT_SECONDS:g} seconds at {_origin(address)}"
            raise (UnknownOutcomeError(problem) if makes else GitProviderError(problem)) from error

    async def _attempts(self, method: str, address: str, content: dict[str, Any], *, makes: bool) -> ApiReply:
        pause = self._pool.pause_seconds
        for attempt in range(1, ATTEMPTS + 1):
            is_last = attempt == ATTEMPTS
            try:
                answer = await self._follow(method, address, content)
            except _LostError as error:
                problem = f"{self.provider} cannot be reached at {_origin(address)}: {error}"
                if makes and error.was_sent:
                    raise UnknownOutcomeError(problem) from error
                if is_last:
                    raise GitProviderError(problem) from error
                answer = None
            if answer is not None and (makes and answer.status in _PASSING):
                raise UnknownOutcomeError(f"{self.provider} answers {answer.status}")
            if answer is not None and (is_last or answer.status not in _PASSING):
                headers = answer.headers
                none_left = headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers
                if answer.status != 429 and not (answer.status == 403 and none_left):
                    self._check(answer)
                    return answer
                text = headers.get("retry-after", "")
                wait = float(text) if re.fullmatch(r"[0-9]{1,6}", text) else seconds_until_reset(headers)
                if is_last or wait is None or wait > _MAX_WAIT:
                    raise RateLimitedError(self.provider, wait)
                pause = max(pause, wait)
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("the last attempt returns or raises")

    async def _follow(self, method: str, address: str, content: dict[str, Any]) -> ApiReply:
        """The answer, also of a repository that was renamed; the token never goes to another origin."""
        for _ in range(_MAX_REDIRECTS):
            answer = await self._send(method, address, content)
            target = urljoin(address, answer.headers.get("location", ""))
            if answer.status not in {301, 302, 307, 308} or _origin(target) != _origin(address):
                return answer
            address, content = target, {key: value for key, value in content.items() if key != "params"}
        return answer

    async def _send(self, method: str, address: str, content: dict[str, Any]) -> ApiReply:
        try:
            client = await self._pool.client()
        except (OSError, ValueError) as error:
            problem = f"{self.provider} cannot be asked; SSL_CERT_FILE or a proxy of this server is no good: {error}"
            raise GitProviderError(problem) from error
        import httpx  # it is loaded by now

        try:
            async with client.stream(method, address, headers=self._headers, **content) as response:
                if "," in response.headers.get("content-encoding", ""):
                    # Packed twice, a piece of a few kilobytes may be gigabytes.
                    raise GitProviderError(f"{self.provider} answers with something that is packed more than once")
                body = bytearray()
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MAX_BYTES:
                        raise GitProviderError(f"{self.provider} answers with more than {MAX_BYTES} bytes")
                return ApiReply(response.status_code, {k.lower(): v for k, v in response.headers.items()}, bytes(body))
        except httpx.InvalidURL as error:
            raise GitProviderError(f"{self.provider}: its host is no address") from error
        except httpx.HTTPError as error:
            not_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            raise _LostError(self._clean(str(error)) or type(error).__name__, was_sent=not not_sent) from error
        finally:
            client.cookies.clear()

    def _check(self, answer: ApiReply) -> None:
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
            text = self._clean(message(answer.body))
            raise GitProviderError(f"{self.provider} answers {status}{f': {text}' if text else ''}", status=status)

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


def _origin(address: str) -> str:
    split = urlsplit(address)
    return f"{split.scheme}://{split.netloc}"


MAX_VALUES = 100_000
"""More would be parsed for so long that everybody else had to wait."""

_MAX_DEPTH = 3


class ApiReply(NamedTuple):
    """An answer as it came; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ListReply(NamedTuple):
    """A list, and what says how it goes on: the answer's headers, and the object that it is in, if it is in one."""

    items: list[Any]
    headers: Mapping[str, str]
    frame: Mapping[str, Any]

    @property
    def total(self) -> int | None:
        text = self.headers.get("x-total") or self.headers.get("x-total-count") or str(self.frame.get("size", ""))
        return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def read(kind: type[T], body: bytes, provider: str) -> T:
    """The JSON in `body`, null as no items; GitProviderError: none, no `kind`, or more than `MAX_VALUES` values."""
    try:
        check_values(body, most=MAX_VALUES)
        value = orjson.loads(body)
    except TooManyValuesError as error:
        raise GitProviderError(f"{provider} answers with {error}: ask for less at a time") from error
    except orjson.JSONDecodeError as error:
        raise GitProviderError(f"{provider} answers with something that is no JSON: is it its host?") from error
    value = [] if value is None and kind is list else value  # as Gitea writes an empty one
    if not isinstance(value, kind):
        raise unknown_form(provider, "", f"Input should be a valid {'list' if kind is list else 'dictionary'}")
    return value


def unknown_form(provider: str, place: str, problem: str) -> GitProviderError:
    """What is wrong at a place in an answer."""
    return GitProviderError(f"{provider} answers in an unknown form: {place}: {problem}")


def at(data: Any, place: str) -> Any:
    """What is at a place such as "commit.sha" or "nodes.0.name" ("": all of it); None: nothing, or null."""
    for part in place.split(".") if place else ():
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and part.isdecimal() and int(part) < len(data):
            data = data[int(part)]
        else:
            return None
    return data


def list_at(data: Any, place: str, provider: str) -> list[Any]:
    """The list at a place, empty where there is none; GitProviderError: it is something else."""
    found = at(data, place)
    if found is not None and not isinstance(found, list):
        raise unknown_form(provider, place, "Input should be a valid list")
    return found or []


def nodes_at(data: Any, place: str, provider: str) -> list[Any]:
    """A list of GraphQL's, without the nulls for what the account may not see."""
    return [node for node in list_at(data, place, provider) if node is not None]


def number_at(data: Any, place: str) -> int:
    """The number at a place; 0: there is none."""
    found = at(data, place)
    return found if isinstance(found, int) else 0


def text_at(data: Any, place: str, provider: str, default: str | None = None) -> str:
    """The text at a place, or `default`; GitProviderError: it is no text, or there is none and no `default`."""
    found = default if (value := at(data, place)) is None else value
    if not isinstance(found, str):
        raise unknown_form(provider, place, "Field required" if found is None else "Input should be a valid string")
    return found


class At:
    """Place of a value: the first of some places that is there and not empty; `to` turns it into the field's."""

    def __init__(self, *places: str, to: Callable[[Any], Any] = lambda value: value, default: Any = None) -> None:
        self.places = places
        self._to = to
        self._default = default

    def value(self, data: Any) -> Any:
        found = next((value for place in self.places if (value := at(data, place)) not in (None, "")), None)
        return self._default if found is None else self._to(found)


_OWN: Final = frozenset({"git_provider", "link_header", "note"})
"""Fields that no provider tells."""


class Form(Generic[T]):
    """A provider's form of a `kind`: the place of each of its fields; under its name where that is not said.

    Null is as good as absent.
    """

    def __init__(self, kind: type[T], **fields: str | At) -> None:
        self._kind = kind
        names = [name for name in kind.__annotations__ if name not in _OWN]
        self._fields = {name: fields.get(name, name) for name in names}

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        return TypeAdapter(self._kind)

    def read(self, data: Any, provider: str, place: str = "", **known: Any) -> T:
        """`data` as a `kind`, with `known` values; GitProviderError: it, at `place` in an answer, has another form."""
        if not isinstance(data, dict):
            raise unknown_form(provider, place, "Input should be a valid dictionary")
        if "git_provider" in self._kind.__annotations__:
            known["git_provider"] = provider
        for name, field in self._fields.items():
            if name not in known:
                value = at(data, field) if isinstance(field, str) else field.value(data)
                known |= {} if value is None else {name: value}
        try:
            return self._adapter.validate_python(known)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = self._fields[str(first["loc"][0])]
            where = field if isinstance(field, str) else (*field.places, "")[0]
            raise unknown_form(provider, f"{place}.{where}".lstrip("."), first["msg"]) from error


def seconds_until_reset(headers: Mapping[str, str]) -> float | None:
    """When the limit of requests begins anew, where the provider says so; None: it does not, or it already has."""
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


def _sentences(value: Any, depth: int = 0) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    if depth > _MAX_DEPTH:
        return []
    if isinstance(value, list):
        return [text for one in value for text in _sentences(one, depth + 1)]
    if isinstance(value, dict):
        if isinstance(value.get("message"), str):
            return [value["message"]]
        if isinstance(value.get("field"), str) and isinstance(value.get("code"), str):
            return [f"{value['field']}: {value['code']}"]
        return [f"{name}: {text}" for name, one in value.items() for text in _sentences(one, depth + 1)]
    return []
