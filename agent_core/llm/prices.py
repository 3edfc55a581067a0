"""What a call cost and how many tokens it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_core.events.llm_events import TokenUsage
from agent_core.llm.features import model_entry

_LONG_PROMPT = 200_000
_IMPOSSIBLE_COUNT = 10**12
_LOCAL = frozenset({"ollama", "ollama_chat", "lm_studio", "llamafile", "hosted_vllm", "vllm", "demo", "replay"})
CHARS_PER_TOKEN = 4


def usage_of(
    reported: Mapping[str, Any] | None,
    *,
    model: str,
    response_id: str,
    window: int | None,
    estimate: Callable[[], tuple[int, int]],
) -> TokenUsage:
    """Tokens from the provider's usage object (chat or Responses shape).

    Where it sent none, they are taken from `estimate`: characters of the prompt and of the answer.
    """
    raw = reported or {}
    prompt = _count(raw, "prompt_tokens", "input_tokens")
    completion = _count(raw, "completion_tokens", "output_tokens")
    if not prompt:
        asked, answered = estimate()
        prompt = asked // CHARS_PER_TOKEN
        completion = completion or answered // CHARS_PER_TOKEN
    into = _part(raw, "prompt_tokens_details", "input_tokens_details")
    out = _part(raw, "completion_tokens_details", "output_tokens_details")
    return TokenUsage(
        model=model,
        prompt_tokens=prompt,
        completion_tokens=completion,
        cache_read_tokens=_count(into, "cached_tokens")
        or _count(raw, "cache_read_input_tokens", "prompt_cache_hit_tokens"),
        cache_write_tokens=_count(raw, "cache_creation_input_tokens") or _count(into, "cache_creation_tokens"),
        reasoning_tokens=_count(out, "reasoning_tokens"),
        context_window=window or 0,
        per_turn_token=prompt + completion,
        response_id=response_id,
    )


def cost_of(
    usage: TokenUsage, model: str, input_price: float | None = None, output_price: float | None = None
) -> float | None:
    """US dollars for these tokens; None when neither own prices (both) nor the public table know the model.

    Models on one's own machines have no price, whatever their name.
    """
    if input_price is not None and output_price is not None:
        return usage.prompt_tokens * input_price + usage.completion_tokens * output_price
    entry = None if model.partition("/")[0] in _LOCAL else model_entry(model)
    if entry is None:
        return None
    is_long = usage.prompt_tokens > _LONG_PROMPT
    into = _price(entry, "input_cost_per_token", is_long=is_long)
    out = _price(entry, "output_cost_per_token", is_long=is_long)
    if into is None or out is None:
        return None
    read = _price(entry, "cache_read_input_token_cost", is_long=is_long)
    write = _price(entry, "cache_creation_input_token_cost", is_long=is_long)
    fresh = max(0, usage.prompt_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    return (
        fresh * into
        + usage.cache_read_tokens * (into if read is None else read)
        + usage.cache_write_tokens * (into if write is None else write)
        + usage.completion_tokens * out
    )


def _price(entry: Mapping[str, Any], key: str, *, is_long: bool) -> float | None:
    value = entry.get(f"{key}_above_200k_tokens") if is_long else None
    value = entry.get(key) if value is None else value
    return float(value) if isinstance(value, int | float) else None


def _count(values: Mapping[str, Any], *names: str) -> int:
    """The first of these counts that is there, positive, and can be meant."""
    for name in names:
        value = values.get(name)
        if isinstance(value, int | float) and 0 < value < _IMPOSSIBLE_COUNT:
            return int(value)
    return 0


def _part(values: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        if isinstance(values.get(name), Mapping):
            part: Mapping[str, Any] = values[name]
            return part
    return {}
