"""Which way a model is reached: over HTTP where the server speaks OpenAI's protocol, else through its provider."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from agent_core.llm.transport.exchange import Endpoint

_COMPATIBLE = frozenset(
    {"openai", "hosted_vllm", "vllm", "openai_like", "custom_openai", "lm_studio", "llamafile", "openhands"}
)
_OLLAMA = frozenset({"ollama", "ollama_chat"})
_DEFAULT_URLS = {
    "ollama": "http://localhost:11434",
    "ollama_chat": "http://localhost:11434",
    "lm_studio": "http://localhost:1234/v1",
    "llamafile": "http://localhost:8080/v1",
    "openhands": "https://llm-proxy.app.all-hands.dev",  # what the prefix stands for
}


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """The way to a model.

    Attributes:
        kind: ``compatible`` any server with OpenAI's chat completions at `base_url`; ``openai`` OpenAI itself;
            ``provider`` whatever the client library knows under the model's full name.
        model: the model's name as the server wants it (``provider``: as configured).
        base_url: where it is; None leaves it to the client library.
    """

    kind: Literal["compatible", "openai", "provider"]
    model: str
    base_url: str | None


def route_of(endpoint: Endpoint, providers: Container[str]) -> ModelRoute:
    """The way to an endpoint's model; `providers` are the prefixes that name a provider and not a model's owner.

    With a `base_url`, ``openai/x``, ``hosted_vllm/x``, the local servers and a name without any provider's prefix are
    taken to mean an OpenAI-compatible server there, and ``litellm_proxy/x`` too.
    """
    prefix, separator, rest = endpoint.model.partition("/")
    base_url = endpoint.base_url.rstrip("/") if endpoint.base_url else None
    if separator and prefix in _OLLAMA:
        origin = (base_url or _DEFAULT_URLS[prefix]).removesuffix("/api/chat").removesuffix("/api/generate")
        return ModelRoute("compatible", rest, origin if origin.endswith("/v1") else f"{origin}/v1")
    if separator and (prefix in _COMPATIBLE or prefix == "litellm_proxy"):
        base_url = base_url or _DEFAULT_URLS.get(prefix)
        if base_url:
            return ModelRoute("compatible", rest, base_url)
        return ModelRoute("openai", rest, None) if prefix == "openai" else ModelRoute("provider", endpoint.model, None)
    if prefix == "anthropic" and base_url:
        return ModelRoute("provider", endpoint.model, base_url.removesuffix("/v1"))  # the library adds it
    if base_url and not (separator and prefix in providers):
        return ModelRoute("compatible", endpoint.model, base_url)
    return ModelRoute("provider", endpoint.model, base_url)
