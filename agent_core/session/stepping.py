"""A library's conversation step by step, for programs that have a loop of their own."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from agent_core.session.callbacks import Callback
from agent_core.session.conversation_loop import ConversationLoop

T = TypeVar("T")


class Stepping(ABC):
    """The part of a `Conversation` that takes single steps."""

    _work: ConversationLoop

    def step(self, on_event: Callback | None = None, on_token: Callback | None = None) -> None:
        """Let the agent take one step: what still waits is run, or the model is asked once and its calls are run.

        An agent that would go on is paused then; `step` or `run` goes on. With nothing to do it does nothing.

        Args:
            on_event: hears the events of this step, like a callback of the conversation.
            on_token: hears the model's text as it comes, like one of its token callbacks.

        Raises:
            ConversationRunError: the step failed.
            RuntimeError: the conversation is running already, or closed.
        """
        self._do(self._stepped(on_event, on_token))

    async def astep(self, on_event: Callback | None = None, on_token: Callback | None = None) -> None:
        """`step` for asynchronous programs."""
        await self._ado(self._stepped(on_event, on_token))

    async def _stepped(self, on_event: Callback | None, on_token: Callback | None) -> None:
        async with self._heard_by(on_event, on_token):
            await self._work.step()

    @contextlib.asynccontextmanager
    async def _heard_by(self, on_event: Callback | None, on_token: Callback | None) -> AsyncIterator[None]:
        callbacks = self._work.callbacks
        if on_token is not None:
            callbacks.add_for_tokens(on_token)
            if not self._work.is_running:
                await self._work.end_session()  # the next one hears of tokens
        if on_event is not None:
            callbacks.add(on_event)
        try:
            yield
        finally:
            for callback in (on_event, on_token):
                if callback is not None:
                    callbacks.remove(callback)

    @abstractmethod
    def _do(self, work: Coroutine[Any, Any, T]) -> T: ...

    @abstractmethod
    async def _ado(self, work: Coroutine[Any, Any, T]) -> T: ...
