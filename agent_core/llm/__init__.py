"""Models: configuration, calls, retries, costs. `agent_core.llm.llm.LLM` is where to start reading."""

from __future__ import annotations

from typing import Any

from agent_core.lazy_names import LazyNames

_names = LazyNames(__name__, __file__)


def __getattr__(name: str) -> Any:
    return _names.listed if name == "__all__" else _names.load(name)
