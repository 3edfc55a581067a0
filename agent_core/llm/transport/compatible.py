"""One exchange with an OpenAI-compatible server, over an HTTP client that is handed in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from agent_core.errors import LLMError, LLMInternalError, LLMTimeoutError, LLMUnavailableError
from agent_core.llm.transport.exchange import Chunk, Endpoint
from agent_core.llm.transport.failures import build, from_status
from agent_core.llm.transport.json_text import encoded
from agent_core.llm.transport.responses_events import ResponsesEvents
from agent_core.llm.transport.sse import AnswerReader
from agent_core.llm.transport.wire_chunks import chunk_of, money

_MAX_ERROR_BYTES = 256 * 1024
_PIECE_BYTES = 256 * 1024
_DRAIN_SECONDS = 0.05
_COST_HEADER = "x-litellm-response-cost"
_ALIVE = [Chunk()]
_NOTHING_HERE = (404, 405)


@dataclass(frozen=True, slots=True)
class HttpFailures:
    """The exceptions of the HTTP client, so that this module need not import it."""

    disconnected: tuple[type[Exception], ...]
    timeout: tuple[type[Exception], ...]
    any: tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request, complete. `timeout` is in the HTTP client's own form; `secret` is a key to hide in error texts.

    `other_url` is where to look when there is nothing at `url`.
    """

    endpoint: Endpoint
    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    timeout: Any
    secret: str = ""
    other_url: str | None = None
    api: Literal["chat", "responses"] = "chat"


class CompatibleExchange:
    """Sends one request through `http` (an ``httpx.AsyncClient``) and reads its answer.

    `found` remembers, for the calls to come, at which of its two addresses a server was found.
    """

    def __init__(self, http: Any, failures: HttpFailures, request: HttpRequest, found: dict[str, str]) -> None:
        self._http = http
        self._failures = failures
        self._request = request
        self._found = found

    async def stream(self) -> AsyncGenerator[Chunk, None]:
        """The answer's chunks; see `Transport.stream`."""
        request = self._request
        url = self._found.get(request.url, request.url)
        response = await self._send(url)
        if response.status_code in _NOTHING_HERE and request.other_url is not None and url != request.other_url:
            response = await self._send_elsewhere(response, request.other_url)
        try:
            if response.status_code != 200:
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

    async def _send_elsewhere(self, response: Any, url: str) -> Any:
        """The response from the other address, where there is one; else the first again."""
        async with aclosing(response):
            refusal = await self._refusal(response)
        response = await self._send(url)
        if response.status_code in _NOTHING_HERE:
            async with aclosing(response):
                other = await self._refusal(response)
            raise other if len(str(other)) > len(str(refusal)) else refusal
        self._found[self._request.url] = url
        return response

    async def _send(self, url: str) -> Any:
        """The response, with its body still to come.

        A connection kept from an earlier call may turn out to be closed by the server. That is worth a second try at
        once, on another connection, without the waits of a retry.
        """
        try:
            try:
                return await self._send_once(url)
            except self._failures.disconnected:
                return await self._send_once(url)
        except self._failures.any as error:
            raise self._failed(error) from None

    async def _send_once(self, url: str) -> Any:
        request = self._request
        body = encoded(request.body)
        headers = {**request.headers, "content-length": str(len(body))}
        content = body if len(body) <= _PIECE_BYTES else _pieces(body)
        message = self._http.build_request("POST", url, content=content, headers=headers, timeout=request.timeout)
        return await self._http.send(message, stream=True, follow_redirects=False)

    async def _read(self, response: Any) -> AsyncGenerator[list[Chunk], None]:
        request = self._request
        is_page = "html" in response.headers.get("content-type", "").lower()
        is_chat = request.api == "chat"
        read = chunk_of if is_chat else ResponsesEvents(request.endpoint, secret=request.secret).chunk
        reader = AnswerReader(request.endpoint, is_page=is_page, secret=request.secret, read=read)
        async with aclosing(response.aiter_bytes()) as body:
            while not reader.is_done:
                try:
                    data = await anext(body, b"")
                except self._failures.any as error:
                    if reader.has_finished:
                        return
                    raise self._broken(error) from None
                if not data:
                    yield reader.end()
                    return
                yield reader.feed(data)
            await _drain(body)

    async def _refusal(self, response: Any) -> LLMError:
        """The error that an answer with another status than 200 means."""
        text = b""
        try:
            async with aclosing(response.aiter_bytes()) as body:
                async for data in body:
                    text += data
                    if len(text) > _MAX_ERROR_BYTES:
                        break
        except self._failures.any:
            text = text or b"(its text could not be read)"
        request = self._request
        said = _said(text)
        headers = dict(response.headers)
        return from_status(request.endpoint, response.status_code, said, headers, secret=request.secret)

    def _failed(self, error: Exception) -> LLMError:
        """The error for a request that got no answer."""
        endpoint = self._request.endpoint
        where = f"{endpoint.label}" if endpoint.base_url else f"{endpoint.label} at {self._request.url}"
        if isinstance(error, self._failures.timeout):
            what = f"The server of model {where} did not answer in time"
            return build(endpoint, LLMTimeoutError, what, secret=self._request.secret)
        what = f"The server of model {where} cannot be reached ({_cause(error)})"
        return build(endpoint, LLMUnavailableError, what, secret=self._request.secret)

    def _broken(self, error: Exception) -> LLMError:
        """The error for an answer that broke off."""
        endpoint = self._request.endpoint
        if isinstance(error, self._failures.timeout):
            what = f"The answer of model {endpoint.label} came to a halt"
            return build(endpoint, LLMTimeoutError, what, secret=self._request.secret)
        what = f"The answer of model {endpoint.label} broke off ({_cause(error)})"
        return build(endpoint, LLMInternalError, what, secret=self._request.secret)


async def _pieces(body: bytes) -> AsyncGenerator[bytes, None]:
    """A long body piece by piece: written at once it would hold up the event loop."""
    for start in range(0, len(body), _PIECE_BYTES):
        yield body[start : start + _PIECE_BYTES]


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read the little that may follow the end of the stream, so that the connection can be used again."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in body:
                pass
    except TimeoutError:
        return


def _said(text: bytes) -> str:
    """What an error answer says: the message, type and code of OpenAI's error object, or the text itself."""
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


def _cause(error: BaseException) -> str:
    said = re.sub(r" ssl:(default|<.*?>)", "", " ".join(str(error).split()))
    return said[:200] or type(error).__name__


def _money(text: str) -> float | None:
    try:
        return money(float(text))
    except ValueError:
        return None
