"""Where a configured model is reached, and with which keys."""

from __future__ import annotations

from pydantic import SecretStr

from agent_core.llm.config import LLMConfig
from agent_core.llm.transport.exchange import Endpoint

AZURE_VERSION = "2024-12-01-preview"
_AWS = ("bedrock/", "sagemaker/")


def endpoint_of(config: LLMConfig) -> Endpoint:
    """The endpoint of a configured model. Keys and addresses are often pasted with the end of a line: it is cut off."""
    key = config.api_key.get_secret_value().strip() if config.api_key else ""
    usual_url = config.ollama_base_url if config.model.startswith("ollama") else None
    return Endpoint(
        model=config.model,
        base_url=(config.base_url or usual_url or "").strip() or None,
        api_key=SecretStr(key) if key else None,
        api_version=config.api_version or (AZURE_VERSION if config.model.startswith("azure/") else None),
        headers=tuple({**_own_headers(config), **(config.extra_headers or {})}.items()),
        drop_params=config.drop_params,
        modify_params=config.modify_params,
        options=_aws_options(config) if config.model.startswith(_AWS) else (),
    )


def _own_headers(config: LLMConfig) -> dict[str, str]:
    if not config.model.startswith("openrouter/"):
        return {}
    headers = {"HTTP-Referer": config.openrouter_site_url, "X-Title": config.openrouter_app_name}
    return {name: value for name, value in headers.items() if value}


def _aws_options(config: LLMConfig) -> tuple[tuple[str, str | SecretStr], ...]:
    given = ((name, getattr(config, name)) for name in type(config).model_fields if name.startswith("aws_"))
    return tuple((name, value) for name, value in given if value)
