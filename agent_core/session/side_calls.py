"""What the calls of models between a conversation's runs cost, until it stands in the log."""

from __future__ import annotations

from agent_core.events.llm_events import MetricsSnapshot
from agent_core.llm.llm import CallContext
from agent_core.llm.metrics import ConversationStats
from agent_core.session.conversation_log import ConversationLog


class SideCalls:
    """Counts the calls that are made with its `context`; the next run, or the end, takes the figures into the log."""

    def __init__(self, log: ConversationLog) -> None:
        self._log = log
        self._counted = ConversationStats()
        self.context = CallContext(
            prompt_cache_key=log.conversation_id,
            session_id=log.conversation_id,
            on_response=lambda response, usage_id: self._counted.add(response, usage_id),
        )

    @property
    def is_settled(self) -> bool:
        """Whether all of it is in the log."""
        return self._counted.calls == 0

    async def stats(self) -> ConversationStats:
        """What the conversation's models have cost by now: what the log says, and what was counted here since."""
        stats = ConversationStats((await self._log.present()).core.metrics)
        stats.take_over(self._counted)
        return stats

    async def snapshot(self) -> MetricsSnapshot:
        """The same, for an event that is stored now."""
        figures = (await self.stats()).snapshot()
        self._counted = ConversationStats()
        return figures

    def taken(self) -> ConversationStats:
        """What was counted here, for somebody who stores it with what he counts himself."""
        counted, self._counted = self._counted, ConversationStats()
        return counted
