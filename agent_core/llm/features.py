"""Features of models, looked up once: own settings, then the public table, then name patterns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent_core.llm.tool_schemas import ToolDialect

_FILE = "model_prices_and_context_window_backup.json"


@lru_cache(maxsize=256)
def model_entry(model: str) -> Mapping[str, Any] | None:
    """The public table's entry for a model by its configured name, else without its prefixes; None without one."""
    spec = find_spec("litellm")
    path = Path(spec.origin).with_name(_FILE) if spec is not None and spec.origin is not None else None
    if path is None or not path.is_file():
        return None
    table = path.read_bytes()
    parts = model.split("/")
    entries = (_cut(table, "/".join(parts[start:])) for start in range(len(parts)))
    return next((MappingProxyType(entry) for entry in entries if entry is not None), None)


def _cut(table: bytes, name: str) -> dict[str, Any] | None:
    start = table.find(b"\n    " + json.dumps(name).encode() + b": {")
    if start < 0:
        return None
    start = table.index(b"{", start)
    end = table.index(b"\n    }", start)
    entry: dict[str, Any] = json.loads(table[start : end + 6])
    return entry


def full_name(model: str) -> str:
    """The name with its provider, of whom it is asked where no address is given.

    Of a name without one that is the provider whose model the public table says it is; others stay as they are.
    """
    if "/" in model:
        return model
    known = str((model_entry(model) or {}).get("litellm_provider"))
    found = "anthropic" if model.startswith("claude") else "vertex_ai" if known.startswith("vertex_ai-") else known
    found = _FAMILIES.get(found, found)
    return f"{found}/{model}" if _PROVIDER.fullmatch(found) and found != "None" else model


def provider_of(model: str, *, at_address: bool = False) -> str:
    """Whose key a model takes: the name before its slash, else its provider.

    A name without one means OpenAI's interface `at_address`, and where nobody knows it.
    """
    prefix, slash, _ = (model if at_address else full_name(model)).partition("/")
    return prefix if slash else "openai"


_PROVIDER = re.compile(r"[a-z0-9_]+")
_FAMILIES = {"bedrock_converse": "bedrock", "cohere_chat": "cohere"}
_CACHE_MARKS = ("claude", "!gemini")
_STRING_CONTENT = ("deepseek", "glm", "groq/kimi-k2-instruct", "openrouter/minimax")
_ECHO_REASONING = (
    "kimi-k3",
    "kimi-k2-thinking",
    "kimi-k2.5",
    "kimi-k2.6",
    "openrouter/minimax-m2",
    "deepseek-reasoner",
    "deepseek-v4",
)
_THINKING_BLOCKS = ("claude",)
_RESPONSES = ("gpt-5", "codex-mini", "!gpt-5-chat")
_NO_STOP_WORDS = ("o1", "o3", "grok-4-0709", "grok-code-fast-1", "deepseek-r1-0528")
_NO_EXAMPLE = ("openhands-lm", "devstral", "nemotron")
_MANUAL_THINKING = (
    *("claude-sonnet-4-5", "claude-sonnet-4.5", "claude-sonnet-4-6", "claude-sonnet-4.6"),
    *("claude-haiku-4-5", "claude-haiku-4.5"),
)
_NO_THINKING = ("claude-opus-4-1", "claude-opus-4.1")
_CACHE_RETENTION = ("gpt-5", "gpt-4.1", "!mini", "gpt-5.1-codex-mini", "!azure")
_INLINE_IMAGES = ("kimi-k2.5", "kimi-k2.6", "kimi-k3", "moonshot")
_DIALECTS: tuple[tuple[tuple[str, ...], ToolDialect], ...] = (
    (("gemini",), "gemini"),
    (("claude",), "anthropic"),
    (("amazon.nova", "amazon/nova", "nova-pro", "nova-lite", "nova-micro", "nova-premier"), "nova"),
    (("mistral", "codestral", "devstral", "magistral", "ministral", "pixtral"), "mistral"),
)
_NO_SAMPLING = ("gpt-5", "o1", "o3", "o4", "claude-opus-4-7", "claude-opus-4-8", "!gpt-5-chat", "!gemini")


@dataclass(frozen=True, slots=True)
class ModelFeatures:
    """Abilities and limits of one model; None where nobody knows.

    `sampling` is whether it takes temperature, top_p and top_k (None: while it is not told how long to think);
    `reasoning` whether it can be told how long to think; `thinking_mode` how: ``adaptive`` by the effort, ``manual`` by
    a number of tokens, ``none`` not at all, ``unknown`` by the effort, if at all. `echo_reasoning` and
    `thinking_blocks`: it wants its reasoning text, or its signed blocks unchanged, back. `inline_images`: it takes
    images only within the request. `tools`: what may stand in the schema of a tool.
    """

    function_calling: bool = True
    vision: bool = True
    prompt_cache_marks: bool = False
    string_content: bool = False
    echo_reasoning: bool = False
    thinking_blocks: bool = False
    sampling: bool | None = None
    responses: bool = False
    reasoning: bool | None = None
    thinking_mode: str = "unknown"
    cache_retention: bool = False
    inline_images: bool = False
    response_schema: bool | None = None
    stop_words: bool = True
    text_example: bool = True
    tools: ToolDialect = "usual"
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None

    def changed(self, changes: Mapping[str, Any]) -> ModelFeatures:
        return replace(self, **changes) if changes else self


CAPABILITIES: Mapping[str, str] = MappingProxyType(
    {
        "supports_function_calling": "function_calling",
        "supports_vision": "vision",
        "supports_prompt_cache": "prompt_cache_marks",
        "supports_prompt_cache_retention": "cache_retention",
        "supports_sampling_params": "sampling",
        "supports_reasoning_effort": "reasoning",
        "thinking_mode": "thinking_mode",
        "supports_stop_words": "stop_words",
        "supports_response_schema": "response_schema",
        "supports_responses_api": "responses",
        "force_string_serializer": "string_content",
        "send_reasoning_content": "echo_reasoning",
        "requires_inline_image_data": "inline_images",
    }
)
"""The names under which a configuration may overrule what is known of a model."""

THINKING_MODES = ("adaptive", "manual", "none")


@lru_cache(maxsize=256)
def features_of(model: str, overrides: tuple[tuple[str, bool | str], ...] = ()) -> ModelFeatures:
    """The features of a model by its full name: `overrides` (see `CAPABILITIES`), public table, name patterns."""
    if overrides:
        return features_of(model).changed({CAPABILITIES[name]: value for name, value in overrides})
    entry = model_entry(model)
    base = model.rpartition("/")[2]
    known: Mapping[str, Any] = entry if entry is not None else {}
    endpoints = known.get("supported_endpoints") or ()
    only_responses = "/v1/responses" in endpoints and "/v1/chat/completions" not in endpoints
    sampling: bool | None = known.get("supports_sampling_params")
    if not isinstance(sampling, bool):
        sampling = False if matches(base, _NO_SAMPLING, anchored=True) else None
    reasoning = None if entry is None else bool(known.get("supports_reasoning"))
    if matches(model, _NO_THINKING):
        reasoning = False
    if matches(model, _MANUAL_THINKING):
        thinking_mode = "manual"
    elif matches(model, _NO_THINKING) or (known and reasoning is False):
        thinking_mode = "none"
    else:
        thinking_mode = "adaptive" if known.get("supports_adaptive_thinking") else "unknown"
    return ModelFeatures(
        function_calling=known.get("supports_function_calling") is not False,
        vision=entry is None or bool(known.get("supports_vision")),
        prompt_cache_marks=matches(model, _CACHE_MARKS),
        string_content=matches(model, _STRING_CONTENT),
        echo_reasoning=matches(model, _ECHO_REASONING),
        thinking_blocks=matches(model, _THINKING_BLOCKS),
        sampling=sampling,
        responses=model.startswith("openai/") and (matches(model, _RESPONSES) or only_responses),
        reasoning=reasoning,
        thinking_mode=thinking_mode,
        response_schema=None if entry is None else bool(known.get("supports_response_schema")),
        cache_retention=matches(model, _CACHE_RETENTION),
        inline_images=matches(model, _INLINE_IMAGES),
        stop_words=not matches(base, _NO_STOP_WORDS, anchored=True),
        text_example=not matches(model, _NO_EXAMPLE),
        tools=next((dialect for patterns, dialect in _DIALECTS if matches(model, patterns)), "usual"),
        max_input_tokens=_count(known, "max_input_tokens") or _count(known, "max_tokens"),
        max_output_tokens=_count(known, "max_output_tokens"),
    )


def matches(name: str, patterns: tuple[str, ...], *, anchored: bool = False) -> bool:
    """Whether a name contains (anchored: starts with) one of the patterns; ``!x`` excludes; the last match decides."""
    lower = name.lower()
    found = False
    for pattern in patterns:
        word = pattern.removeprefix("!")
        if lower.startswith(word) if anchored else word in lower:
            found = not pattern.startswith("!")
    return found


def _count(entry: Mapping[str, Any], key: str) -> int | None:
    value = entry.get(key)
    return int(value) if isinstance(value, int | float) and value > 0 else None
