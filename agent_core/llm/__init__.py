"""Models: configuration, calls, retries, costs. `agent_core.llm.llm.LLM` is where to start reading."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_core.events.llm_events import TokenUsage as TokenUsage
    from agent_core.events.messages import ImageContent as ImageContent
    from agent_core.events.messages import Message as Message
    from agent_core.events.messages import MessageToolCall as MessageToolCall
    from agent_core.events.messages import TextContent as TextContent
    from agent_core.events.messages import content_to_str as content_to_str
    from agent_core.llm.llm import LLM as LLM
    from agent_core.llm.llm import LLMResponse as LLMResponse
    from agent_core.llm.metrics import Metrics as Metrics
    from agent_core.llm.profiles import FallbackStrategy as FallbackStrategy
    from agent_core.llm.registry import LLMRegistry as LLMRegistry
    from agent_core.llm.registry import ProfileStore as ProfileStore
    from agent_core.llm.router import MultimodalRouter as MultimodalRouter
    from agent_core.llm.router import RandomRouter as RandomRouter
    from agent_core.llm.router import RouterLLM as RouterLLM
    from agent_core.llm.transport.exchange import CallContext as CallContext

_MODULES = {
    "events.llm_events": "TokenUsage",
    "events.messages": "ImageContent Message MessageToolCall TextContent content_to_str",
    "llm.transport.exchange": "CallContext",
    "llm.llm": "LLM LLMResponse",
    "llm.metrics": "Metrics",
    "llm.profiles": "FallbackStrategy",
    "llm.registry": "LLMRegistry ProfileStore",
    "llm.router": "MultimodalRouter RandomRouter RouterLLM",
}
_HOMES = {name: f"agent_core.{module}" for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_HOMES)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
