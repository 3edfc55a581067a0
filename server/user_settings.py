"""What a user stores on the settings page (wire-protocol 7): shape, merging of partial changes, public form."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from server.db.user_settings import StoredSettings

SECRET_FIELDS = ("llm_api_key", "search_api_key", "sandbox_api_key")
KEPT_WHEN_NULL = frozenset({"llm_api_key", "llm_model", "llm_base_url", "search_api_key", "user_consents_to_analytics"})
"""A null for these means "as it is": the protocol's clients send null for what they do not know."""

KEPT_WHEN_EMPTY = frozenset({"search_api_key"})
"""The browser client sends "" for a key that it merely does not show; taking that for a wish would lose the key."""

_MAX_TEXT = 4096
_SCHEMES = ("http://", "https://", "ws://", "wss://")

Text = Annotated[str, Field(max_length=_MAX_TEXT)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _server_url(value: str) -> str:
    if not value.startswith(_SCHEMES):
        raise ValueError(f"a server's URL begins with one of {', '.join(_SCHEMES)}")
    return value


def _as_object(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


class SseServer(_Strict):
    """An MCP server reached by server-sent events."""

    url: Text
    api_key: Text | None = None

    _check_url = field_validator("url")(_server_url)


class ShttpServer(SseServer):
    """An MCP server reached by streamable HTTP."""

    timeout: int | None = Field(60, ge=1, le=3600)


class StdioServer(_Strict):
    """An MCP server started as a program."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=100)
    command: str = Field(pattern=r"^\S+$", max_length=_MAX_TEXT)
    args: list[Text] = Field(default_factory=list)
    env: dict[str, Text] = Field(default_factory=dict)


class McpConfig(_Strict):
    """The MCP servers of a user."""

    sse_servers: list[Annotated[SseServer, BeforeValidator(_as_object)]] = Field(default_factory=list)
    stdio_servers: list[StdioServer] = Field(default_factory=list)
    shttp_servers: list[Annotated[ShttpServer, BeforeValidator(_as_object)]] = Field(default_factory=list)


class SettingsChange(BaseModel):
    """The body of ``POST /api/settings``: only the fields that it names count, unknown ones are ignored."""

    model_config = ConfigDict(extra="ignore")

    language: Text | None = None
    agent: Text | None = None
    max_iterations: int | None = Field(None, ge=1, le=1_000_000)
    security_analyzer: Text | None = None
    confirmation_mode: bool | None = None
    llm_model: Text | None = None
    llm_api_key: Text | None = None
    llm_base_url: Text | None = None
    remote_runtime_resource_factor: int | None = Field(None, ge=0, le=1000)
    enable_default_condenser: bool = True
    enable_sound_notifications: bool = False
    enable_proactive_conversation_starters: bool = True
    enable_solvability_analysis: bool = True
    user_consents_to_analytics: bool | None = None
    sandbox_base_container_image: Text | None = None
    sandbox_runtime_container_image: Text | None = None
    mcp_config: McpConfig | None = None
    search_api_key: Text | None = None
    sandbox_api_key: Text | None = None
    max_budget_per_task: float | None = Field(None, gt=0, allow_inf_nan=False)
    condenser_max_size: int | None = Field(None, ge=20, le=1_000_000)
    email: Text | None = None
    email_verified: bool | None = None
    git_user_name: Text | None = None
    git_user_email: Text | None = None


def merged(stored: StoredSettings | None, change: SettingsChange) -> StoredSettings:
    """The stored settings with the named fields replaced; everything that `change` does not name stays."""
    values: dict[str, Any] = {} if stored is None else dict(stored)
    for name in change.model_fields_set:
        value = getattr(change, name)
        if (value is None and name in KEPT_WHEN_NULL) or (value == "" and name in KEPT_WHEN_EMPTY):
            continue
        values[name] = value.model_dump() if isinstance(value, BaseModel) else value
    return StoredSettings.model_validate(values)


def public_form(settings: StoredSettings) -> dict[str, Any]:
    """The reply of ``GET /api/settings``: no secret, but for each whether there is one (wire-protocol 7.2)."""
    data = settings.model_dump(mode="json") | dict.fromkeys(SECRET_FIELDS)
    return {
        **data,
        "secrets_store": {"provider_tokens": {}},
        "provider_tokens_set": {},
        "llm_api_key_set": bool(settings.llm_api_key),
        "search_api_key_set": bool(settings.search_api_key),
    }


def secret_values(settings: StoredSettings) -> list[str]:
    """Every stored secret, for masking."""
    values = (getattr(settings, name) for name in SECRET_FIELDS)
    return [value.get_secret_value() for value in values if value]
