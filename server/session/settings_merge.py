"""A user's settings over the server's over the demo: what one conversation runs with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import SecretStr

from agent_core.agent.base import AgentBase
from agent_core.memory.condensers.catalog import DEFAULT_MAX_SIZE
from agent_core.security.analyzer import SecurityAnalyzer
from agent_core.security.confirmation import ConfirmationPolicy, NeverConfirm
from agent_core.security.presets import analyzer_named, policy_with
from server.db.user_settings import StoredSettings
from server.settings.settings import DEMO_MODEL, Settings

DEMO_PREFIX = "demo/"
HOSTED_PREFIX = "openhands/"
"""Models of the original's own service: what the protocol's clients save where their user has chosen nothing."""

KEYLESS_PREFIXES = (
    DEMO_PREFIX,
    "bedrock/",
    "lemonade/",
    "ollama/",
    "ollama_chat/",
    "lm_studio/",
    "llamafile/",
    "vertex_ai/",
    "sagemaker/",
)
"""Models that are reached without a key, or with credentials of another kind."""


class ModelChoice(NamedTuple):
    """Which model, and how it is reached."""

    model: str
    api_key: str | None = None
    base_url: str | None = None

    @property
    def is_demo(self) -> bool:
        """Whether this is the built-in scripted model."""
        return self.model.startswith(DEMO_PREFIX)

    def lacks_key(self, environment: Mapping[str, str] = os.environ) -> bool:
        """Whether a call is bound to be refused: a hosted model and no key anywhere."""
        if self.api_key or self.base_url or self.model.startswith(KEYLESS_PREFIXES):
            return False
        provider = self.model.partition("/")[0] if "/" in self.model else "openai"
        names = {f"{provider.upper()}_API_KEY", "OPENAI_API_KEY" if "/" not in self.model else ""}
        names |= {"ANTHROPIC_API_KEY"} if self.model.startswith("claude") else set()
        return not any(environment.get(name) for name in names)


class ConversationOptions(NamedTuple):
    """What a conversation runs with."""

    model: ModelChoice
    agent_class: str
    max_iterations: int
    max_budget: float | None
    policy: ConfirmationPolicy
    security_analyzer: SecurityAnalyzer
    condenser_max_size: int | None
    """Events that a model is shown before the older ones are summed up; None never does."""


def choose_model(user: StoredSettings | None, server: Settings) -> ModelChoice:
    """The model of a user's conversations.

    Key and address go together: the server's key is never sent to an address that a user typed, nor a user's key to
    the server's address. The default of the protocol's clients, saved without either, means the server's own model.
    """
    key = _text(server.llm_api_key)
    if user is None:
        return ModelChoice(server.model_name, key, server.llm_base_url)
    model = user.llm_model or server.llm_model or DEMO_MODEL
    if user.llm_api_key or user.llm_base_url:
        return ModelChoice(model, _text(user.llm_api_key), user.llm_base_url or None)
    if model.startswith(HOSTED_PREFIX) and server.llm_model and not server.llm_model.startswith(HOSTED_PREFIX):
        model = server.llm_model
    return ModelChoice(model, key, server.llm_base_url)


def _text(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() or None if secret is not None else None


def merge_settings(user: StoredSettings | None, server: Settings) -> ConversationOptions:
    """What a conversation of this user runs with."""
    user_values = user or StoredSettings()
    asks = server.confirmation_mode if user_values.confirmation_mode is None else user_values.confirmation_mode
    model = choose_model(user, server)
    condenses = user_values.enable_default_condenser and not model.is_demo  # a script sums nothing up
    return ConversationOptions(
        model=model,
        agent_class=user_values.agent if user_values.agent in AgentBase.agents else server.agent_class,
        max_iterations=user_values.max_iterations or server.max_iterations,
        max_budget=user_values.max_budget_per_task or server.max_budget_per_task,
        policy=policy_with(user_values.security_analyzer) if asks else NeverConfirm(),
        security_analyzer=analyzer_named(user_values.security_analyzer),
        condenser_max_size=(user_values.condenser_max_size or DEFAULT_MAX_SIZE) if condenses else None,
    )
