"""The models of one conversation, by usage id (agent-core 9.11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent_core.llm.llm import LLM
from agent_core.llm.metrics import ConversationStats
from agent_core.llm.response import RetryNotice

RetryListener = Callable[[LLM, RetryNotice], None]
Subscriber = Callable[[LLM], None]


class LLMRegistry:
    """Models by usage id, and who hears of their retries.

    Pass `listener_for(llm)` as `on_retry` of a call. Nothing can be replaced: a conversation that changes its model
    registers it under another id, or builds another registry. With `stats`, a model that is registered and has not
    counted anything yet goes on counting from what was restored for its id.
    """

    def __init__(self, retry_listener: RetryListener | None = None, *, stats: ConversationStats | None = None) -> None:
        self._retry_listener = retry_listener
        self._stats = stats
        self._subscriber: Subscriber | None = None
        self._models: dict[str, LLM] = {}

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tell `subscriber` of every model, those already registered first; it takes the place of an earlier one."""
        self._subscriber = subscriber
        for llm in self:
            subscriber(llm)

    def add(self, llm: LLM) -> None:
        """Register a model under its usage id.

        Models of different ids are counted apart: one that still counts together with a registered one, because it was
        copied from it, gets a counter of its own.

        Raises:
            ValueError: the id is taken.
        """
        if llm.usage_id in self._models:
            raise ValueError(f"usage_id {llm.usage_id!r} is already registered: give each model its own usage_id")
        if any(llm.metrics is other.metrics for other in self):
            llm.reset_metrics()
        restored = self._stats.take_restored(llm.usage_id) if self._stats is not None else None
        if restored is not None and not llm.metrics.calls:
            llm.restore_metrics(restored)
        self._models[llm.usage_id] = llm
        if self._subscriber is not None:
            self._subscriber(llm)

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
