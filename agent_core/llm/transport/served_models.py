"""Limits that servers report of their models: context window and longest answer.

Only servers known to say it (proxies of litellm, vLLM, OpenRouter) are asked, once in a while; a call waits a moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import orjson

from agent_core.llm.config import LLMConfig
from agent_core.llm.transport.compatible import address_of
from agent_core.llm.transport.connections import HttpConnections
from agent_core.llm.transport.routes import endpoint_of, route_of

logger = logging.getLogger(__name__)

SECONDS: Final = 3.0
FRESH_SECONDS: Final = 300.0
"""After which a server is asked again."""
MAX_MODELS: Final = 256
"""Of how many models it is kept."""
MAX_BYTES: Final = 16 * 1024 * 1024
_ROUTES: Final[Mapping[str, str]] = {
    "litellm_proxy": "/model/info",
    "openhands": "/model/info",
    "hosted_vllm": "/models",
    "vllm": "/models",
    "openrouter": "/models",
}


@dataclass(frozen=True, slots=True)
class ServedLimits:
    """Limits that a server reports of a model; None where it reports none."""

    max_input_tokens: int | None = None
    max_output_tokens: int | None = None


@dataclass(slots=True)
class _Known:
    limits: ServedLimits
    until: float


_UNKNOWN = ServedLimits()
_Key = tuple[str, str]


class ServedModels:
    """The reported limits; `generation` changes with it."""

    def __init__(self) -> None:
        self.generation = 0
        self._known: dict[_Key, _Known] = {}

    def limits_of(self, config: LLMConfig) -> ServedLimits:
        known = self._known.get(key) if self._known and (key := _key(config)) is not None else None
        return _UNKNOWN if known is None else known.limits

    async def refresh(self, config: LLMConfig, http: Callable[[], Awaitable[HttpConnections]]) -> None:
        """Ask a server that says such things and was not asked lately; never raises, nor waits for another who asks."""
        key = _key(config)
        if key is None:
            return
        known = self._known.setdefault(key, _Known(_UNKNOWN, 0.0))
        if known.until > monotonic():
            return
        known.until = monotonic() + FRESH_SECONDS
        try:
            client = await http()
            async with asyncio.timeout(SECONDS):
                limits = await _fetch_limits(config, key, client)
        except asyncio.CancelledError:
            known.until = 0.0
            raise
        except Exception as error:  # noqa: BLE001 - whatever the client raises: it is not known then
            logger.info("the server of %s does not say what it takes: %s", config.model, type(error).__name__)
            return
        if limits != known.limits:
            known.limits = limits
            self.generation += 1
        while len(self._known) > MAX_MODELS:
            del self._known[next(iter(self._known))]


SERVED = ServedModels()


def _key(config: LLMConfig) -> _Key | None:
    prefix, _, name = config.model.partition("/")
    base_url = route_of(endpoint_of(config), ()).base_url if prefix in _ROUTES else None
    return None if base_url is None else (base_url, name)


async def _fetch_limits(config: LLMConfig, key: _Key, http: HttpConnections) -> ServedLimits:
    base_url, name = key
    endpoint = endpoint_of(config)
    address = address_of(endpoint, base_url, _ROUTES[config.model.partition("/")[0]])
    headers = {"accept": "application/json"}
    if endpoint.api_key is not None:
        headers["authorization"] = f"Bearer {endpoint.api_key.get_secret_value()}"
    elif address.authorization:
        headers["authorization"] = address.authorization
    headers |= dict(endpoint.headers)
    for url in (address.url, address.other_url):
        if url is not None and (body := await _body(http, url, headers)) is not None:
            return next((limits for named, limits in _listed_limits(orjson.loads(body)) if named == name), _UNKNOWN)
    return _UNKNOWN


async def _body(http: HttpConnections, url: str, headers: Mapping[str, str]) -> bytes | None:
    body = bytearray()
    response = await http.send("GET", url, headers=headers, limit_seconds=SECONDS, connect_seconds=SECONDS)
    async with aclosing(response), aclosing(response.pieces()) as pieces:
        if response.status != 200:
            return None
        async for piece in pieces:
            body += piece
            if len(body) > MAX_BYTES:
                return None
    return bytes(body)


def _listed_limits(value: Any) -> Iterator[tuple[str, ServedLimits]]:
    entries = value.get("data") if isinstance(value, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            continue
        name = entry.get("model_name") or entry.get("id")
        info, provider = entry.get("model_info"), entry.get("top_provider")
        facts = entry | (provider if isinstance(provider, dict) else {}) | (info if isinstance(info, dict) else {})
        window = _count(facts, "max_input_tokens", "max_model_len", "context_length")
        if isinstance(name, str):
            yield name, ServedLimits(window, _count(facts, "max_output_tokens", "max_completion_tokens"))


def _count(facts: Mapping[str, Any], *names: str) -> int | None:
    values = (facts.get(name) for name in names)
    return next((one for one in values if isinstance(one, int) and not isinstance(one, bool) and one > 0), None)
