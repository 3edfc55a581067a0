"""Puts the pieces of a streamed answer together, forgiving what servers get wrong about tool calls."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.llm.transport.exchange import CallDelta, Chunk, whole_characters

MAX_ANSWER_CHARS: Final = 8 * 1024 * 1024
"""Of one answer's text, reasoning and arguments together; the longest that models give have a tenth of that."""

MAX_CALLS: Final = 10_000
"""Of one answer."""

_MAX_LOOKS: Final = 1_000
_MAX_LOOKED_AT: Final = 256 * 1024
"""How often, and up to which length, the arguments of a call are read to see whether they are whole."""


@dataclass(slots=True)
class _Call:
    index: int | None
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    item_id: str | None = None
    size: int = 0
    looks: int = 0

    @property
    def is_complete(self) -> bool:
        if not self.arguments or not self.arguments[-1].endswith("}") or self.size > _MAX_LOOKED_AT:
            return False
        self.looks += 1
        if self.looks > _MAX_LOOKS:
            return False
        try:
            return isinstance(json.loads("".join(self.arguments)), dict)
        except (ValueError, RecursionError):
            return False


class Assembly:
    """Collects chunks; `message` is the whole answer once the stream has ended.

    `began_at` is for whoever adds them: when (`time.monotonic`) the first came that says something.

    Pieces of tool calls belong together by index, else by id, else to the call that came last. Two calls with one index
    and two ids are two, and so is a name after another call's arguments. A missing or repeated id is replaced.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._thinking: list[dict[str, Any]] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._size = 0
        self.finish_reason: str | None = None
        self.has_choice = False
        self.began_at: float | None = None
        self.usage: Mapping[str, Any] | None = None
        self.cost: float | None = None

    def add(self, chunk: Chunk) -> None:
        self._size += len(chunk.text) + len(chunk.reasoning) + sum(len(call.arguments) for call in chunk.calls)
        if chunk.text:
            self._text.append(chunk.text)
        if chunk.reasoning:
            self._reasoning.append(chunk.reasoning)
        self._thinking.extend(chunk.thinking_blocks)
        for delta in chunk.calls:
            self._add_call(delta)
        self.has_choice = self.has_choice or chunk.has_choice
        self.finish_reason = chunk.finish_reason or self.finish_reason
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.cost is not None:
            self.cost = chunk.cost

    def _add_call(self, delta: CallDelta) -> None:
        call = self._call_of(delta)
        if delta.id and not call.id:
            call.id = delta.id
            self._by_id[delta.id] = call
        if delta.name and delta.name != call.name and not (call.name and call.arguments):
            call.name += delta.name
        if delta.arguments:
            if call.arguments == ["{}"]:
                call.arguments.clear()  # only held the place
            call.arguments.append(delta.arguments)
            call.size += len(delta.arguments)
        call.item_id = delta.item_id or call.item_id

    def _call_of(self, delta: CallDelta) -> _Call:
        if delta.index is not None:
            known = self._by_index.get(delta.index)
            return self._begin(delta.index) if known is None or _is_another(known, delta) else known
        if delta.id:
            same = self._by_id.get(delta.id)
            return self._begin(None) if same is None or _is_next(same, delta) else same
        last = self._calls[-1] if self._calls else None
        if last is None or (delta.name and last.name):
            return self._begin(None)
        return last

    def _begin(self, index: int | None) -> _Call:
        call = _Call(index)
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    @property
    def size(self) -> int:
        """Characters of text, reasoning and arguments."""
        return self._size

    @property
    def excess(self) -> str:
        """What there is too much of; "": nothing."""
        if self._size > MAX_ANSWER_CHARS:
            return f"more than {MAX_ANSWER_CHARS // 2**20} million characters"
        return f"more than {MAX_CALLS} calls" if len(self._calls) > MAX_CALLS else ""

    @property
    def message(self) -> Message:
        text = whole_characters("".join(self._text))
        return Message(
            role="assistant",
            content=[TextContent(text=text)] if text else [],
            tool_calls=self._tool_calls() or None,
            reasoning_content=whole_characters("".join(self._reasoning)) or None,
            thinking_blocks=_joined(self._thinking),
        )

    def _tool_calls(self) -> list[MessageToolCall]:
        calls = [call for call in self._calls if call.name or call.arguments]
        if len({call.index for call in calls}) == len(calls) and all(call.index is not None for call in calls):
            calls.sort(key=lambda call: call.index or 0)
        finished: list[MessageToolCall] = []
        used: set[str] = set()
        for call in calls:
            call_id = whole_characters(call.id)
            if not call_id or call_id in used:
                call_id = f"call_{uuid.uuid4().hex[:24]}"
            used.add(call_id)
            item_id = call.item_id
            finished.append(
                MessageToolCall(
                    id=call_id,
                    name=whole_characters(call.name),
                    arguments=whole_characters("".join(call.arguments)) or "{}",
                    origin="responses" if item_id else "completion",
                    responses_item_id=whole_characters(item_id) if item_id else None,
                )
            )
        return finished


def _is_another(known: _Call, delta: CallDelta) -> bool:
    """Whether a piece under the index of a known call begins a call of its own: some servers number all calls 0."""
    if not delta.name:
        return False
    if delta.id and known.id:
        return delta.id != known.id
    if not (known.name and known.arguments):
        return False
    return delta.name != known.name or (bool(delta.arguments) and known.is_complete)


def _is_next(known: _Call, delta: CallDelta) -> bool:
    """Whether a piece without an index begins another call under the id of a whole one, and does not repeat that."""
    if not (delta.name and delta.arguments and known.is_complete):
        return False
    return (delta.name, delta.arguments) != (known.name, "".join(known.arguments))


def _joined(pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Thinking blocks whole again: their text comes in pieces, the signature at the end of each block."""
    blocks: list[dict[str, Any]] = []
    parts: dict[str, list[str]] | None = None  # of the block that is open
    for piece in pieces:
        if piece.get("type", "thinking") != "thinking":
            blocks.append(piece)
            parts = None
            continue
        if parts is None:
            parts = {"thinking": [], "signature": []}
            blocks.append({"type": "thinking", **parts})
        for name, texts in parts.items():
            texts.append(piece.get(name) or "")
        if parts["signature"][-1]:
            parts = None
    return [
        {name: "".join(value) if isinstance(value, list) else value for name, value in block.items()}
        if block.get("type") == "thinking"
        else block
        for block in blocks
    ]
