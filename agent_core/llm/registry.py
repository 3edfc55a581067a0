"""The models of one conversation, by usage id (agent-core 9.11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent_core.llm.llm import LLM
from agent_core.llm.response import RetryNotice

RetryListener = Callable[[LLM, RetryNotice], None]


class LLMRegistry:
    """Models by usage id, and who hears of their retries.

    Pass `listener_for(llm)` as `on_retry` of a call. Nothing can be replaced: a conversation that changes its model
    registers it under another id, or builds another registry.
    """

    def __init__(self, retry_listener: RetryListener | None = None) -> None:
        self._retry_listener = retry_listener
        self._models: dict[str, LLM] = {}

    def add(self, llm: LLM) -> None:
        """Register a model under its usage id.

        Raises:
            ValueError: the id is taken.
        """
        if llm.usage_id in self._models:
            raise ValueError(f"usage_id {llm.usage_id!r} is already registered: give each model its own usage_id")
        self._models[llm.usage_id] = llm

    def get(self, usage_id: str) -> LLM:
        """The model of that id.

        Raises:
            KeyError: there is none.
        """
        if usage_id not in self._models:
            known = ", ".join(sorted(self._models)) or "none"
            raise KeyError(f"no model with usage_id {usage_id!r}; registered: {known}")
        return self._models[usage_id]

    def __contains__(self, usage_id: object) -> bool:
        return usage_id in self._models

    def __iter__(self) -> Iterator[LLM]:
        return iter(tuple(self._models.values()))

    def __len__(self) -> int:
        return len(self._models)

    def listener_for(self, llm: LLM) -> Callable[[RetryNotice], None]:
        """What to call on a retry of that model."""
        listener = self._retry_listener

        def tell(notice: RetryNotice) -> None:
            if listener is not None:
                listener(llm, notice)

        return tell
