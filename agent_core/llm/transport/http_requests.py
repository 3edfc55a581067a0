"""The requests to servers that speak OpenAI's protocol: address, headers and body, checked before anything is sent."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from agent_core.errors import LLMAuthenticationError, LLMBadRequestError
from agent_core.llm.render import hoist_images
from agent_core.llm.transport.compatible import HttpRequest
from agent_core.llm.transport.exchange import CompletionRequest, Endpoint
from agent_core.llm.transport.failures import build
from agent_core.llm.transport.library_conversion import copied
from agent_core.llm.transport.responses_request import responses_body
from agent_core.llm.transport.routes import ModelRoute

_COMPLETIONS = "/chat/completions"
_RESPONSES = "/responses"
_CONNECT_SECONDS = 30.0
OPENAI_OWN = frozenset({"prompt_cache_retention"})
"""Options that the client library does not know, and OpenAI does."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where completions are asked for.

    Attributes:
        url: complete.
        other_url: to be tried where `url` is not found: many people leave ``/v1`` out. None when a path was given.
        authorization: header for the user and password of the base URL; empty without any.
    """

    url: str
    other_url: str | None = None
    authorization: str = ""


def address_of(endpoint: Endpoint, base_url: str | None, route: str = _COMPLETIONS) -> Address:
    """The address behind a base URL, with or without ``/v1``, a path, a query, or ``/chat/completions`` itself.

    `route` is what is asked there.

    Raises:
        LLMBadRequestError: it is no HTTP address.
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
    """The parts of a base URL.

    Raises:
        LLMBadRequestError: it is no HTTP address.
    """
    try:
        parts = urlsplit(base_url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if is_good and base_url.isprintable() and " " not in base_url:
        return parts
    what = f"The base URL {base_url!r} is not an address like http://localhost:8000/v1 (`base_url`, `LLM_BASE_URL`)"
    raise build(endpoint, LLMBadRequestError, what)


def compatible_request(library: Any, request: CompletionRequest, route: ModelRoute) -> HttpRequest:
    """The request to any OpenAI-compatible server: our messages are in its form already."""
    secret = request.endpoint.api_key.get_secret_value() if request.endpoint.api_key else ""
    body = {
        "model": route.model,
        "messages": hoist_images(request.messages),
        **({"tools": request.tools} if request.tools else {}),
        **request.parameters,
    }
    return _request(library, request, route.base_url, secret, body)


def responses_request(library: Any, request: CompletionRequest, route: ModelRoute) -> HttpRequest:
    """The request to the Responses API, of OpenAI itself or of any server that has it."""
    key = request.endpoint.api_key
    secret, base_url = key.get_secret_value() if key else "", route.base_url
    if route.kind == "openai":
        config = library.find_config(model=route.model, provider=library.openai)
        secret, base_url = config.get_api_key(secret or None) or "", config.get_api_base(None)
        if not secret:
            raise build(
                request.endpoint, LLMAuthenticationError, f"There is no API key for model {request.endpoint.label}"
            )
    return _request(library, request, base_url, secret, responses_body(request, route.model))


def openai_request(library: Any, request: CompletionRequest, route: ModelRoute) -> HttpRequest:
    """The request to OpenAI itself, whose model families differ in the options that they take."""
    config = library.find_config(model=route.model, provider=library.openai)
    key = request.endpoint.api_key
    secret = config.get_api_key(key.get_secret_value() if key else None) or ""
    if not secret:
        what = f"There is no API key for model {request.endpoint.label}"
        raise build(request.endpoint, LLMAuthenticationError, what)
    url = config.get_api_base(None)
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
    return _request(library, request, url, secret, {**body, **own})


def _request(
    library: Any, request: CompletionRequest, base_url: str | None, secret: str, body: Mapping[str, Any]
) -> HttpRequest:
    is_chat = request.api == "chat"
    address = address_of(request.endpoint, base_url, _COMPLETIONS if is_chat else _RESPONSES)
    counts: dict[str, Any] = {"stream_options": {"include_usage": True}} if is_chat else {}
    limit = request.timeout + 1.0
    return HttpRequest(
        endpoint=request.endpoint,
        url=address.url,
        other_url=address.other_url,
        headers=_headers(request.endpoint, secret, address),
        body={**body, "stream": True, **counts, **request.extra_body},
        timeout=library.make_timeout(limit, connect=min(limit, _CONNECT_SECONDS)),
        secret=secret,
        api=request.api,
    )


def _headers(endpoint: Endpoint, secret: str, address: Address) -> dict[str, str]:
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
    return headers


def _is_sendable(text: str) -> bool:
    return text.isascii() and (text.isprintable() or not text)
