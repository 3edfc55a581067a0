"""Servers that speak OpenAI's protocol: the requests to them, and one exchange over a given HTTP client."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit

import orjson

from agent_core.errors import (
    LLMAuthenticationError,
    LLMBadRequestError,
    LLMError,
    LLMInternalError,
    LLMTimeoutError,
    LLMUnavailableError,
)
from agent_core.llm.render import hoist_images
from agent_core.llm.transport.connections import HttpAnswer, HttpConnections
from agent_core.llm.transport.exchange import Chunk, CompletionRequest, Endpoint, encoded
from agent_core.llm.transport.failures import build, from_status
from agent_core.llm.transport.responses_api import ResponsesEvents, responses_body
from agent_core.llm.transport.routes import ModelRoute
from agent_core.llm.transport.sse import AnswerReader, chunk_of, money

OPENAI_OWN = frozenset({"prompt_cache_retention"})
"""Options that litellm does not know, and OpenAI does."""

_COMPLETIONS = "/chat/completions"
_RESPONSES = "/responses"
_CONNECT_SECONDS = 30.0
_MAX_ERROR_BYTES = 256 * 1024
_PIECE_BYTES = 256 * 1024
_DRAIN_SECONDS = 0.05
_COST_HEADER = "x-litellm-response-cost"
_ALIVE = [Chunk()]
_NOTHING_HERE = (404, 405)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A complete request; `timeout` bounds each silence (seconds), `secret` is hidden in error texts."""

    endpoint: Endpoint
    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    timeout: float
    secret: str = ""
    other_url: str | None = None
    api: Literal["chat", "responses"] = "chat"


def compatible_request(request: CompletionRequest, route: ModelRoute) -> HttpRequest:
    """The request to any OpenAI-compatible server: our messages are in its form already."""
    body = {
        "model": route.model,
        "messages": hoist_images(request.messages),
        **({"tools": request.tools} if request.tools else {}),
        **request.parameters,
    }
    return _request(request, route.base_url, _key_of(request.endpoint), body)


def responses_request(library: Any, request: CompletionRequest, route: ModelRoute) -> HttpRequest:
    """The request to the Responses API, of any server that has it, or of OpenAI itself, for which litellm is needed."""
    secret, base_url = _key_of(request.endpoint), route.base_url
    if route.kind == "openai":
        secret, base_url = _openai_key_and_url(library, request, route)
    return _request(request, base_url, secret, responses_body(request, route.model))


def openai_request(library: Any, request: CompletionRequest, route: ModelRoute) -> HttpRequest:
    """The request to OpenAI itself, whose model families differ in the options that they take."""
    secret, url = _openai_key_and_url(library, request, route)
    config = library.find_config(model=route.model, provider=library.openai)
    own = {name: value for name, value in request.parameters.items() if name in OPENAI_OWN}
    parameters = config.map_openai_params(
        non_default_params={name: value for name, value in request.parameters.items() if name not in own},
        optional_params={},
        model=route.model,
        drop_params=request.endpoint.drop_params,
    )
    if request.tools:
        parameters["tools"] = copied(request.tools)
    body = config.transform_request(
        model=route.model,
        messages=copied(request.messages),
        optional_params=parameters,
        litellm_params={"custom_llm_provider": "openai", "api_base": url},
        headers={},
    )
    if request.context.prompt_cache_key:
        body["prompt_cache_key"] = request.context.prompt_cache_key
    return _request(request, url, secret, {**body, **own})


def _key_of(endpoint: Endpoint) -> str:
    return endpoint.api_key.get_secret_value() if endpoint.api_key else ""


def _openai_key_and_url(library: Any, request: CompletionRequest, route: ModelRoute) -> tuple[str, str | None]:
    config = library.find_config(model=route.model, provider=library.openai)
    secret = config.get_api_key(_key_of(request.endpoint) or None) or ""
    if not secret:
        what = f"There is no API key for model {request.endpoint.label}"
        raise build(request.endpoint, LLMAuthenticationError, what)
    return secret, config.get_api_base(None)


def copied(values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages or tools of our own, for litellm, which changes what it is given."""
    copies: list[dict[str, Any]] = orjson.loads(encoded(list(values)))
    return copies


def _request(request: CompletionRequest, base_url: str | None, secret: str, body: Mapping[str, Any]) -> HttpRequest:
    endpoint, is_chat = request.endpoint, request.api == "chat"
    address = address_of(endpoint, base_url, _COMPLETIONS if is_chat else _RESPONSES)
    if not _is_sendable(secret):
        what = "The API key holds characters that no key has; was something else pasted with it"
        raise build(endpoint, LLMAuthenticationError, f"{what}?")
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    if secret or address.authorization:
        headers["authorization"] = f"Bearer {secret}" if secret else address.authorization
    for name, value in endpoint.headers:
        if not (_is_sendable(name) and _is_sendable(value)):
            what = f"The extra header {name!r} holds characters that cannot be sent (`extra_headers`)"
            raise build(endpoint, LLMBadRequestError, what)
        headers[name.lower()] = value
    counts: dict[str, Any] = {"stream_options": {"include_usage": True}} if is_chat else {}
    return HttpRequest(
        endpoint=endpoint,
        url=address.url,
        other_url=address.other_url,
        headers=headers,
        body={**body, "stream": True, **counts, **request.extra_body},
        timeout=request.timeout + 1.0,
        secret=secret,
        api=request.api,
    )


def _is_sendable(text: str) -> bool:
    return text.isascii() and (text.isprintable() or not text)


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a request; `authorization` is the header for the user and password of the base URL.

    `other_url` is to be tried where `url` is not found (many people leave ``/v1`` out); None when a path was given.
    """

    url: str
    other_url: str | None = None
    authorization: str = ""


def address_of(endpoint: Endpoint, base_url: str | None, route: str = _COMPLETIONS) -> Address:
    """The address of `route` behind a base URL, with or without ``/v1``, a path, a query, or a whole route.

    Raises `LLMBadRequestError` where it is no HTTP address.
    """
    parts = checked_url(endpoint, base_url or "")
    host = parts.netloc.rpartition("@")[2]
    path = parts.path.rstrip("/").removesuffix(_COMPLETIONS).removesuffix(_RESPONSES)
    is_whole = path != parts.path.rstrip("/")
    query = f"?{parts.query}" if parts.query else ""
    origin = f"{parts.scheme}://{host}"
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    other = None if path or is_whole else f"{origin}/v1{route}{query}"
    return Address(f"{origin}{path}{route}{query}", other, authorization)


def checked_url(endpoint: Endpoint, base_url: str) -> SplitResult:
    """The parts of a base URL; raises `LLMBadRequestError` for what is no HTTP address."""
    try:
        parts = urlsplit(base_url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if is_good and base_url.isprintable() and " " not in base_url:
        return parts
    what = f"The base URL {base_url!r} is not an address like http://localhost:8000/v1 (`base_url`, `LLM_BASE_URL`)"
    raise build(endpoint, LLMBadRequestError, what)


class CompatibleExchange:
    """Sends one request; `found` keeps at which address a server was found."""

    def __init__(self, http: HttpConnections, request: HttpRequest, found: dict[str, str]) -> None:
        self._http = http
        self._library = http.library
        self._request = request
        self._found = found

    async def stream(self) -> AsyncGenerator[Chunk, None]:
        request = self._request
        url = self._found.get(request.url, request.url)
        response = await self._send(url)
        if response.status in _NOTHING_HERE and request.other_url is not None and url != request.other_url:
            response = await self._send_elsewhere(response, request.other_url)
        try:
            if response.status != 200:
                raise await self._refusal(response)
            cost = response.headers.get(_COST_HEADER)
            if cost is not None:
                yield Chunk(cost=_money(cost))
            async with aclosing(self._read(response)) as pieces:
                async for chunks in pieces:
                    for chunk in chunks or _ALIVE:
                        yield chunk
        finally:
            await response.aclose()

    async def _send_elsewhere(self, response: HttpAnswer, url: str) -> HttpAnswer:
        """The response from the other address, where there is one; else the more telling refusal of the two."""
        async with aclosing(response):
            refusal = await self._refusal(response)
        response = await self._send(url)
        if response.status in _NOTHING_HERE:
            async with aclosing(response):
                other = await self._refusal(response)
            raise other if len(str(other)) > len(str(refusal)) else refusal
        self._found[self._request.url] = url
        return response

    async def _send(self, url: str) -> HttpAnswer:
        """The response, its body still to come; a kept connection may have been closed: worth a second try at once."""
        try:
            try:
                return await self._send_once(url)
            except self._library.disconnections:
                return await self._send_once(url)
        except self._library.errors as error:
            endpoint = self._request.endpoint
            where = endpoint.label if endpoint.base_url else f"{endpoint.label} at {self._request.url}"
            slow = f"The server of model {where} did not answer in time"
            lost = f"The server of model {where} cannot be reached"
            raise self._failed(error, slow, lost, LLMUnavailableError) from None

    async def _send_once(self, url: str) -> HttpAnswer:
        request = self._request
        body = encoded(request.body)
        headers = {**request.headers, "content-length": str(len(body))}
        content = body if len(body) <= _PIECE_BYTES else _pieces(body)
        return await self._http.send(
            "POST",
            url,
            headers=headers,
            content=content,
            limit_seconds=request.timeout,
            connect_seconds=min(request.timeout, _CONNECT_SECONDS),
        )

    async def _read(self, response: HttpAnswer) -> AsyncGenerator[list[Chunk], None]:
        request = self._request
        is_page = "html" in response.headers.get("content-type", "").lower()
        is_chat = request.api == "chat"
        read = chunk_of if is_chat else ResponsesEvents(request.endpoint, secret=request.secret).chunk
        reader = AnswerReader(request.endpoint, is_page=is_page, secret=request.secret, read=read)
        async with aclosing(response.pieces()) as body:
            while not reader.is_done:
                try:
                    data = await anext(body, b"")
                except self._library.errors as error:
                    if reader.has_finished:
                        return
                    answer = f"The answer of model {request.endpoint.label}"
                    halt, broken = f"{answer} came to a halt", f"{answer} broke off"
                    raise self._failed(error, halt, broken, LLMInternalError) from None
                if not data:
                    yield reader.end()
                    return
                yield reader.feed(data)
            # Read the little that may follow the end of the stream, so that the connection can be used again.
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_SECONDS):
                    async for _ in body:
                        pass

    async def _refusal(self, response: HttpAnswer) -> LLMError:
        text = b""
        try:
            async with aclosing(response.pieces()) as body:
                async for data in body:
                    text += data
                    if len(text) > _MAX_ERROR_BYTES:
                        break
        except self._library.errors:
            text = text or b"(its text could not be read)"
        endpoint, secret = self._request.endpoint, self._request.secret
        return from_status(endpoint, response.status, _error_text(text), dict(response.headers), secret=secret)

    def _failed(self, error: Exception, slow: str, lost: str, kind: type[LLMError]) -> LLMError:
        """The error for a failure of the HTTP client: `slow` when it was a timeout, else `lost`, of this kind."""
        endpoint, secret = self._request.endpoint, self._request.secret
        if isinstance(error, self._library.timeouts):
            return build(endpoint, LLMTimeoutError, slow, secret=secret)
        reason = re.sub(r" ssl:(default|<.*?>)", "", " ".join(str(error).split()))
        return build(endpoint, kind, f"{lost} ({reason[:200] or type(error).__name__})", secret=secret)


async def _pieces(body: bytes) -> AsyncGenerator[bytes, None]:
    """A long body piece by piece: written at once it would hold up the event loop."""
    for start in range(0, len(body), _PIECE_BYTES):
        yield body[start : start + _PIECE_BYTES]


def _error_text(text: bytes) -> str:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text.decode(errors="replace")
    error = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return str(error)
    message = error.get("message") or error.get("detail") or error.get("msg")
    if not isinstance(message, str):
        return text.decode(errors="replace")
    names = [str(error[key]) for key in ("type", "code") if isinstance(error.get(key), str)]
    return f"{message} ({', '.join(names)})" if names else message


def _money(text: str) -> float | None:
    try:
        return money(float(text))
    except ValueError:
        return None
