"""The prompt: a view's messages as the model's wire form, rendered once and kept (architecture section 7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_core.events.messages import Message
from agent_core.memory.view import View, join_user_messages


class PromptCache:
    """Renders what a view has settled exactly once; each step pays only for what is new.

    It belongs to one view and one `render` function (one model). Neighbouring messages of the user are joined.
    """

    def __init__(self, render: Callable[[Message], dict[str, Any]]) -> None:
        self._render = render
        self._rendered: list[dict[str, Any]] = []
        self._last: Message | None = None
        self._seen = 0

    def prompt(self, view: View) -> list[dict[str, Any]]:
        """All messages of `view` in wire form. The list is the caller's own; the messages in it are shared."""
        for message in view.settled[self._seen :]:
            self._take(message)
        self._seen = len(view.settled)
        prompt = list(self._rendered)
        if view.held:
            tail = list(view.held)
            if self._last is not None and self._last.role == "user":
                tail.insert(0, self._last)
                prompt.pop()
            prompt.extend(self._render(message) for message in join_user_messages(tail))
        return prompt

    def _take(self, message: Message) -> None:
        if message.role == "user" and self._last is not None and self._last.role == "user":
            self._rendered.pop()
            (message,) = join_user_messages([self._last, message])
        self._rendered.append(self._render(message))
        self._last = message
