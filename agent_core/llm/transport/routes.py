"""Endpoints and routes of configured models: addresses, keys, and the way there (HTTP, or through litellm)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from pydantic import SecretStr

from agent_core.llm.config import LLMConfig
from agent_core.llm.features import full_name
from agent_core.llm.transport.exchange import Endpoint

AZURE_VERSION = "2024-12-01-preview"
_AWS = ("bedrock/", "sagemaker/")
HOST_CREDENTIALS = (*_AWS, "sagemaker_chat/", "vertex_ai/", "vertex_ai_beta/")
"""Models that are asked with credentials of the host, which are no keys, where they are given none of their own."""

_COMPATIBLE = frozenset(
    {"openai", "hosted_vllm", "vllm", "openai_like", "custom_openai", "lm_studio", "llamafile", "openhands"}
    | {"litellm_proxy"}
)
_OLLAMA = frozenset({"ollama", "ollama_chat"})
_DEFAULT_URLS = {
    "ollama": "http://localhost:11434",
    "ollama_chat": "http://localhost:11434",
    "lm_studio": "http://localhost:1234/v1",
    "llamafile": "http://localhost:8080/v1",
    "openhands": "https://llm-proxy.app.all-hands.dev",  # what the prefix stands for
}


def endpoint_of(config: LLMConfig) -> Endpoint:
    """The endpoint of a configured model. Keys and addresses are often pasted with the end of a line: it is cut off."""
    key = config.api_key.get_secret_value().strip() if config.api_key else ""
    usual_url = config.ollama_base_url if config.model.startswith("ollama") else None
    base_url = (config.base_url or usual_url or "").strip() or None
    model = config.model if base_url else full_name(config.model)
    headers: dict[str, str] = {}
    if model.startswith("openrouter/"):
        named = {"HTTP-Referer": config.openrouter_site_url, "X-Title": config.openrouter_app_name}
        headers = {name: value for name, value in named.items() if value}
    options: list[tuple[str, str | SecretStr]] = []
    if model.startswith(_AWS):
        names = [name for name in type(config).model_fields if name.startswith("aws_")]
        options = [(name, value) for name in names if (value := getattr(config, name))]
    return Endpoint(
        model=model,
        base_url=base_url,
        api_key=SecretStr(key) if key else None,
        api_version=config.api_version or (AZURE_VERSION if model.startswith("azure/") else None),
        headers=tuple({**headers, **(config.extra_headers or {})}.items()),
        drop_params=config.drop_params,
        modify_params=config.modify_params,
        options=tuple(options),
    )


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """The way to a model.

    `kind` is ``compatible`` (OpenAI's chat completions at `base_url`), ``openai`` (OpenAI itself), or ``provider``:
    what litellm knows under the model's full name, its `base_url` too where there is none.
    """

    kind: Literal["compatible", "openai", "provider"]
    model: str
    base_url: str | None


def route_of(endpoint: Endpoint, providers: Container[str]) -> ModelRoute:
    """The way to an endpoint's model; `providers` are the prefixes that name a provider and not a model's owner.

    With a `base_url`, ``openai/x``, local servers, proxies and names without a provider's prefix mean a compatible
    server.
    """
    if (found := http_route(endpoint)) is not None:
        return found
    prefix, _, _ = endpoint.model.partition("/")
    base_url = endpoint.base_url.rstrip("/") if endpoint.base_url else None
    if prefix == "anthropic" and base_url:
        return ModelRoute("provider", endpoint.model, base_url.removesuffix("/v1"))  # litellm adds it
    return ModelRoute("compatible" if base_url and prefix not in providers else "provider", endpoint.model, base_url)


def http_route(endpoint: Endpoint) -> ModelRoute | None:
    """The same, as far as it can be told without knowing the providers: to servers with OpenAI's protocol."""
    prefix, separator, rest = endpoint.model.partition("/")
    base_url = endpoint.base_url.rstrip("/") if endpoint.base_url else None
    if separator and prefix in _OLLAMA:
        origin = (base_url or _DEFAULT_URLS[prefix]).removesuffix("/api/chat").removesuffix("/api/generate")
        return ModelRoute("compatible", rest, origin if origin.endswith("/v1") else f"{origin}/v1")
    if separator and prefix in _COMPATIBLE:
        base_url = base_url or _DEFAULT_URLS.get(prefix)
        if base_url:
            return ModelRoute("compatible", rest, base_url)
        return ModelRoute("openai", rest, None) if prefix == "openai" else None
    return ModelRoute("compatible", endpoint.model, base_url) if base_url and not separator else None
