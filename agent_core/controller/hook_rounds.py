"""What the controller asks the hooks: may the agent see a message, and may it come to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agent_core.controller.state import ConversationState
from agent_core.runtime.hook_calls import ConversationHooks
from agent_core.security.hooks import HookEvent

Decision = Callable[[], Awaitable[None]]
Guard = Callable[[Decision], Awaitable[None]]
"""Takes a decision; when it could not be stored, sees to it that it is taken again."""


class HookRounds:
    """Remembers what the hooks were asked by now; without hooks there is nothing to ask."""

    def __init__(self, conversation_id: str, hooks: ConversationHooks | None) -> None:
        self._conversation_id = conversation_id
        self._hooks = hooks
        self._reviewing: asyncio.Task[None] | None = None
        self._reviewed: set[int] = set()
        self._free_to_rest: tuple[int, ...] = ()

    def unreviewed(self, state: ConversationState) -> dict[int, str]:
        """Messages of the user, by their ids, that the hooks have to see before the agent does."""
        if self._hooks is None or not self._hooks.has(HookEvent.USER_PROMPT_SUBMIT):
            return {}
        return {place: text for place, text in state.unrecalled.items() if place not in self._reviewed}

    def begin_review(self, messages: dict[int, str], *, guarded: Guard, then: Decision) -> None:
        """Ask the hooks about these messages, in a task; the log says what they think. One round at a time."""

        async def review() -> None:
            for message_id, text in sorted(messages.items()):
                if self._hooks is not None:
                    await self._hooks.submitted(message_id, text)
                self._reviewed.add(message_id)
            self._reviewing = None
            await then()

        async def run() -> None:
            try:
                await guarded(review)
            finally:
                self._reviewing = None

        if self._reviewing is None:
            self._reviewing = asyncio.create_task(run(), name=f"review:{self._conversation_id}")

    def close(self) -> None:
        """Ask no more."""
        if self._reviewing is not None:
            self._reviewing.cancel()

    def may_rest(self, state: ConversationState) -> bool:
        """Whether the agent may come to rest here without a question to the hooks."""
        asks = self._hooks is not None and self._hooks.has(HookEvent.STOP)
        return not asks or state.is_blocked or self._free_to_rest == _place(state)

    async def ask_to_rest(self, state: ConversationState) -> None:
        """Ask the hooks whether it may; when they refuse, the log has a word to the agent that lets it go on.

        Raises:
            EventStoreError, StreamClosedError: it could not be stored.
        """
        place = _place(state)
        if self._hooks is None or not (await self._hooks.stopping(state.last_words)).blocked:
            self._free_to_rest = place


def _place(state: ConversationState) -> tuple[int, ...]:
    """Where the agent has come to; another answer or another message is another place."""
    return (state.iterations, state.user_messages)
