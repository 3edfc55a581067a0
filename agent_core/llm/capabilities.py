"""What a configured model can do and how much it takes: own settings over what is known of it."""

from __future__ import annotations

import os
from typing import Any

from agent_core.errors import LLMBadRequestError
from agent_core.llm.config import LLMConfig
from agent_core.llm.features import ModelFeatures, features_of, matches
from agent_core.llm.transport.served_models import SERVED

MIN_WINDOW = 16_384
SHORT_WINDOWS = "ALLOW_SHORT_CONTEXT_WINDOWS"
CUSTOM_OUTPUT = 16_384
"""Longest answer that is assumed of a model behind a base URL of one's own."""

_OUTPUTS = (
    (("claude-3-7", "claude-3.7", "claude-sonnet-4", "kimi-k2-thinking"), 64_000),
    (("o3", "!o3-mini"), 100_000),
)


def lookup_name(config: LLMConfig) -> str:
    """The name under which a model is looked up."""
    return config.model_canonical_name or config.model


def capabilities_of(config: LLMConfig) -> ModelFeatures:
    """The features of a configured model."""
    found = features_of(lookup_name(config), tuple(config.capability_overrides.items()))
    changes: dict[str, Any] = {}
    if not config.native_tool_calling:
        changes["function_calling"] = False
    if config.force_string_serializer is not None:
        changes["string_content"] = config.force_string_serializer
    if config.disable_vision is not None:
        changes["vision"] = not config.disable_vision
    if config.inline_image_urls is not None:
        changes["inline_images"] = config.inline_image_urls
    window = config.max_input_tokens or SERVED.limits_of(config).max_input_tokens
    if window is not None:
        changes["max_input_tokens"] = window
    if config.api_mode != "auto":
        changes["responses"] = config.api_mode == "responses"
    elif config.base_url is not None and "supports_responses_api" not in config.capability_overrides:
        changes["responses"] = False  # few servers besides OpenAI's own have it
    changes["max_output_tokens"] = _longest_answer(config, window or found.max_input_tokens)
    return found.changed(changes)


def _longest_answer(config: LLMConfig, window: int | None) -> int | None:
    """The configured limit; else what its server says, or its family's, or the published one, in reason."""
    if config.max_output_tokens is not None:
        return config.max_output_tokens
    name = lookup_name(config)
    family = (limit for patterns, limit in _OUTPUTS if matches(name.rpartition("/")[2], patterns, anchored=True))
    served = SERVED.limits_of(config).max_output_tokens
    limit = served or next(family, None) or features_of(name).max_output_tokens
    if limit is None:
        return None
    if window is not None and limit >= window:
        limit = window // 2
    return min(limit, CUSTOM_OUTPUT) if config.base_url else limit


def check_window(config: LLMConfig, window: int | None) -> None:
    """Refuse a model whose context window is too short for an agent's prompt; an unknown one is let pass.

    Raises:
        LLMBadRequestError: it is shorter than `MIN_WINDOW` tokens, and the environment does not allow that.
    """
    if (
        window is None
        or window >= MIN_WINDOW
        or os.environ.get(SHORT_WINDOWS, "").strip().lower() in ("1", "true", "yes")
    ):
        return
    raise LLMBadRequestError(
        f"Model {config.model} has a context window of {window} tokens, and an agent needs at least {MIN_WINDOW}: use "
        f"another model, correct `max_input_tokens`, or set {SHORT_WINDOWS}=1 to try it all the same."
    )
