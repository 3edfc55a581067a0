"""Models: configuration, calls, retries, costs. `agent_core.llm.llm.LLM` is where to start reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_core.lazy_names import LazyNames

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

_names = LazyNames(__name__, __file__)


def __getattr__(name: str) -> Any:
    return _names.listed if name == "__all__" else _names.load(name)
