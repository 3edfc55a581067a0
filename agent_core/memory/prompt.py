"""The prompt: a view's messages as the model's wire form, rendered once and kept (architecture section 7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_core.events.messages import Message
from agent_core.memory.transcript import Transcript, join_user_messages
from agent_core.memory.view import View


class PromptCache:
    """Renders what a view has settled exactly once; each step pays only for what is new.

    It belongs to one `render` function (one model). After a condensation everything is rendered anew. Neighbouring
    messages of the user are joined.
    """

    def __init__(self, render: Callable[[Message], dict[str, Any]]) -> None:
        self._render = render
        self._transcript: Transcript | None = None
        self._forget()

    def _forget(self) -> None:
        self._rendered: list[dict[str, Any]] = []
        self._last: Message | None = None
        self._seen = 0

    def prompt(self, view: View) -> list[dict[str, Any]]:
        """All messages of `view` in wire form. The list is the caller's own; the messages in it are shared."""
        self.render_settled(view)
        transcript = view.transcript
        prompt = list(self._rendered)
        if transcript.held:
            tail = list(transcript.held)
            if self._last is not None and self._last.role == "user":
                tail.insert(0, self._last)
                prompt.pop()
            prompt.extend(self._render(message) for message in join_user_messages(tail))
        return prompt

    def render_settled(self, view: View) -> None:
        """Render what `view` has settled since the last call: so a long log is rendered piece by piece."""
        transcript = view.transcript
        if transcript is not self._transcript:
            self._transcript = transcript
            self._forget()
        for message in transcript.settled[self._seen :]:
            self._take(message)
        self._seen = len(transcript.settled)

    def _take(self, message: Message) -> None:
        if message.role == "user" and self._last is not None and self._last.role == "user":
            self._rendered.pop()
            (message,) = join_user_messages([self._last, message])
        self._rendered.append(self._render(message))
        self._last = message
