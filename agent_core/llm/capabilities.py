"""Capabilities of a configured model, by its settings and what is known of it, and the options of its requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from agent_core.errors import LLMBadRequestError
from agent_core.llm.config import DEFAULT_EFFORT, LLMConfig, RequestFact
from agent_core.llm.features import ModelFeatures, features_of, full_name, matches
from agent_core.llm.transport.exchange import CallContext
from agent_core.llm.transport.served_models import SERVED
from agent_core.version import VERSION

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
    return config.model_canonical_name or full_name(config.model)


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
    """Refuse (`LLMBadRequestError`) a window known to be below `MIN_WINDOW`, unless the environment allows it."""
    is_short = window is not None and window < MIN_WINDOW
    if is_short and os.environ.get(SHORT_WINDOWS, "").strip().lower() not in ("1", "true", "yes"):
        raise LLMBadRequestError(
            f"Model {config.model} has a context window of {window} tokens, and an agent needs at least {MIN_WINDOW}: "
            f"use another model, correct `max_input_tokens`, or set {SHORT_WINDOWS}=1 to try it all the same."
        )


LEAST_THINKING = 1024
"""Fewer tokens of thinking than this are not taken."""

INTERLEAVED = ("anthropic-beta", "interleaved-thinking-2025-05-14")
"""The header with which a model thinks between its calls too."""

WINDOW_RESERVE = 256
LEAST_ANSWER = 1024
_SHORT_THINKING = 128


def parameters_of(config: LLMConfig, features: ModelFeatures, prompt_tokens: Callable[[], int]) -> dict[str, Any]:
    """Options by their OpenAI names, but those unset or not taken; `prompt_tokens` is asked only where it matters."""
    thinking, effort = _thinking(config, features), config.reasoning_effort
    may_take_effort = features.thinking_mode != "manual" and features.reasoning is not False
    is_sure = features.reasoning or features.thinking_mode == "adaptive"
    if thinking or not may_take_effort or (effort == DEFAULT_EFFORT and not is_sure):
        effort = None
    limit = features.max_output_tokens if thinking else config.max_output_tokens
    window = features.max_input_tokens
    if limit is not None and window is not None and config.model.startswith("bedrock/"):
        # There prompt and answer share the window, so the answer gets what the prompt leaves.
        limit = min(limit, max(LEAST_ANSWER, window - prompt_tokens() - WINDOW_RESERVE))
    options: dict[str, Any] = {
        **({} if thinking else _sampling(config, features, has_effort=effort is not None)),
        "seed": config.seed,
        "reasoning_effort": effort,
        "thinking": thinking,
        "max_tokens": limit,
    }
    if config.caching_prompt and features.cache_retention:
        options["prompt_cache_retention"] = config.prompt_cache_retention
    if features.responses:
        options["reasoning_summary"] = config.reasoning_summary
        options["encrypted_reasoning"] = config.enable_encrypted_reasoning and features.reasoning is not False
        if config.auth_type == "subscription":
            del options["max_tokens"]
    return {name: value for name, value in options.items() if value is not None}


def extra_body_of(config: LLMConfig, context: CallContext) -> Mapping[str, Any]:
    """The further members of a request; what is known of its conversation joins the metadata that is configured.

    What is configured counts where both say something; tags come together.
    """
    body = config.litellm_extra_body
    own = body.get("metadata")
    if not isinstance(own, Mapping):
        return body
    tags = [f"model:{config.model}", f"agent:{context.agent}" if context.agent else "", f"usage_id:{config.usage_id}"]
    facts: dict[RequestFact, Any] = {
        "session_id": context.session_id,
        "trace_user_id": context.user_id,
        "trace_version": VERSION,
        "tags": [*filter(None, tags), f"drydock_version:{VERSION}", *context.tags],
    }
    told: dict[str, Any] = {name: facts[name] for name in config.request_metadata if facts[name]}
    if isinstance(own_tags := own.get("tags"), list) and "tags" in told:
        told["tags"] = list(dict.fromkeys([*own_tags, *told["tags"]]))
        own = {**own, "tags": told["tags"]}
    return {**body, "metadata": {**told, **own}}


def headers_of(parameters: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The headers that belong to these options."""
    return (INTERLEAVED,) if parameters.get("thinking", {}).get("budget_tokens", 0) >= LEAST_THINKING else ()


def with_options(parameters: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """The options with those of a caller; None takes one away, and a forced tool or form takes the thinking away."""
    options = {**parameters, **overrides}
    if "max_completion_tokens" in overrides and "max_tokens" not in overrides:
        options.pop("max_tokens", None)
    if overrides.get("tool_choice") not in (None, "auto", "none"):
        options.pop("thinking", None)
    return {name: value for name, value in options.items() if value is not None}


def _sampling(config: LLMConfig, features: ModelFeatures, *, has_effort: bool) -> dict[str, Any]:
    name = lookup_name(config).lower()
    takes = features.sampling if features.sampling is not None else not has_effort or "gemini" in name
    if not takes:
        return {}
    top_p = 0.9 if name.startswith("huggingface/") and config.top_p == 1 else config.top_p
    if features.thinking_mode == "none" and "claude" in name and config.temperature is not None:
        top_p = None  # it takes one of the two
    return {"temperature": config.temperature, "top_p": top_p, "top_k": config.top_k}


def _thinking(config: LLMConfig, features: ModelFeatures) -> dict[str, Any] | None:
    if "gemini-2.5-pro" in config.model and config.reasoning_effort in ("none", "low"):
        return {"type": "enabled", "budget_tokens": _SHORT_THINKING}  # it cannot be told not to think
    budget = config.extended_thinking_budget
    if features.thinking_mode != "manual" or budget is None or config.reasoning_effort == "none":
        return None
    if features.max_output_tokens is not None:
        budget = min(budget, features.max_output_tokens - 1)
    return {"type": "enabled", "budget_tokens": budget} if budget >= LEAST_THINKING else None
