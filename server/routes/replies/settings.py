"""A user's settings as they are shown: no secret, but for each whether there is one."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class SecretsStore(BaseModel):
    """Always empty; the original has it."""

    provider_tokens: dict[str, Any]


class PublicSettings(BaseModel):
    """What is stored; null where the server's own default counts."""

    language: str | None
    agent: str | None
    max_iterations: int | None
    security_analyzer: str | None
    confirmation_mode: bool | None
    llm_model: str | None
    llm_api_key: None
    llm_base_url: str | None
    remote_runtime_resource_factor: int | None
    secrets_store: SecretsStore
    enable_default_condenser: bool
    enable_sound_notifications: bool
    enable_proactive_conversation_starters: bool
    enable_solvability_analysis: bool
    user_consents_to_analytics: bool | None
    sandbox_base_container_image: str | None
    sandbox_runtime_container_image: str | None
    mcp_config: dict[str, Any] | None = Field(
        description="Three lists: `sse_servers`, `stdio_servers`, `shttp_servers`."
    )
    search_api_key: None
    sandbox_api_key: None
    max_budget_per_task: float | None
    condenser_max_size: int | None
    email: str | None
    email_verified: bool | None
    git_user_name: str | None
    git_user_email: str | None
    agent_options: dict[str, Any] | None = Field(description="An addition to the protocol.")
    provider_tokens_set: dict[str, str | None] = Field(description="The providers with a token, each with its host.")
    llm_api_key_set: bool
    search_api_key_set: bool
    v1_enabled: bool = Field(description="Always false: clients are to use the first generation of the protocol.")


class SecretName(BaseModel):
    """A secret as it is shown: its value never is."""

    name: str
    description: str | None


class SecretNames(BaseModel):
    """A user's own secrets."""

    custom_secrets: list[SecretName]
