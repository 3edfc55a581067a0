"""The prompt: a view's messages as the model's wire form, rendered once and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, overload

from agent_core.events.messages import Message
from agent_core.memory.transcript import Transcript, is_plain, join_user_messages
from agent_core.memory.view import View, shared_text


class Prefix(Sequence[dict[str, Any]]):
    """The first so many of `items`, a list that only grows: it stays the same, and costs nothing to make."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        self.items = items
        self._count = len(items)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return islice(self.items, self._count)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self.items[at] for at in range(*index.indices(self._count))]
        return self.items[range(self._count)[index]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # as a list's


class PromptCache:
    """Renders what a view has settled exactly once, for one `render` function (one model).

    After a condensation everything is rendered anew. Neighbouring messages of the user are joined.
    """

    def __init__(self, render: Callable[[Message], dict[str, Any]]) -> None:
        self._render = render
        self._transcript: Transcript | None = None
        self._forget()

    def _forget(self) -> None:
        self._rendered: list[dict[str, Any]] = []
        self._last: Message | None = None
        self._seen = 0

    def prompt(self, view: View) -> Sequence[dict[str, Any]]:
        """All messages of `view` in wire form; shared, so nobody may change them."""
        self.render_settled(view)
        transcript = view.transcript
        if not transcript.held:
            return Prefix(self._rendered)
        prompt, tail = list(self._rendered), list(transcript.held)
        if self._last is not None and is_plain(self._last):
            tail.insert(0, self._last)
            prompt.pop()
        prompt.extend(self._render(message) for message in join_user_messages(tail))
        return prompt

    def render_settled(self, view: View) -> None:
        """Render what `view` has settled since the last call: a long log is rendered piece by piece."""
        transcript = view.transcript
        if transcript is not self._transcript:
            self._transcript = transcript
            self._forget()
        for message in transcript.settled[self._seen :]:
            self._take(message)
        self._seen = len(transcript.settled)

    def _take(self, message: Message) -> None:
        if self._last is not None and is_plain(message) and is_plain(self._last):
            self._rendered = self._rendered[:-1]  # a list of its own: prompts that were given out stay as they are
            (message,) = join_user_messages([self._last, message])
        rendered = self._render(message)
        if message.role == "system" and isinstance(rendered.get("content"), str):
            rendered["content"] = shared_text(rendered["content"])
        self._rendered.append(rendered)
        self._last = message
