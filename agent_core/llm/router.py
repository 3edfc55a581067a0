"""Models that hand each call to one of several others."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, overload

from pydantic import Field, PrivateAttr, model_validator

from agent_core.events.messages import ImageContent, Message, MessageToolCall, TextContent
from agent_core.llm.features import ModelFeatures
from agent_core.llm.llm import LLM, AnyLLM, Schema
from agent_core.llm.render import WireMessage, has_images, render_message
from agent_core.llm.response import LLMResponse


class ReadBack(Sequence[Message]):
    """The messages of a prompt (`wire`), each made when it is looked at: most of a long prompt is of no interest."""

    def __init__(self, wire: Sequence[WireMessage]) -> None:
        self.wire = wire

    def __len__(self) -> int:
        return len(self.wire)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return ReadBack(self.wire[index])
        return message_of(self.wire[index])


def message_of(wire: WireMessage) -> Message:
    """The message that was rendered so, as far as its wire form tells."""
    content = wire.get("content") or []
    parts: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return Message(
        role=wire["role"],
        content=[
            ImageContent(image_urls=[part["image_url"]["url"]])
            if part.get("type") == "image_url"
            else TextContent(text=part.get("text") or "", cache_prompt="cache_control" in part)
            for part in parts
        ],
        tool_calls=[
            MessageToolCall(
                id=call["id"],
                name=call["function"]["name"],
                arguments=call["function"]["arguments"],
                responses_item_id=call.get("item_id"),
            )
            for call in wire.get("tool_calls") or ()
        ]
        or None,
        tool_call_id=wire.get("tool_call_id"),
        name=wire.get("name"),
        reasoning_content=wire.get("reasoning_content"),
        thinking_blocks=wire.get("thinking_blocks") or [],
    )


_EVERYTHING = ModelFeatures(prompt_cache_marks=True, echo_reasoning=True, thinking_blocks=True)

_RENDERED = _EVERYTHING.changed({"responses": True})


class RouterLLM(LLM):
    """Chooses a model for each call, for which what it rendered is put right then.

    Each model counts its own calls under its own usage id; `metrics` of the router counts all of them.
    """

    router_name: ClassVar[str] = ""
    """Under which `LLMRegistry.get_router` finds it; empty: it does not."""

    llms_for_routing: dict[str, AnyLLM] = Field(min_length=1)

    _active: LLM | None = PrivateAttr(default=None)

    @abstractmethod
    def select_llm(self, messages: Sequence[Message]) -> str:
        """The key of the model for these messages. Looking at one of them costs something, at their number nothing."""

    @property
    def active_llm(self) -> LLM:
        """The model that was chosen last; before the first call the first one."""
        return self._active or next(iter(self.llms_for_routing.values()))

    @property
    def features(self) -> ModelFeatures:
        """Anything, for one of the models may take it."""
        return _EVERYTHING

    def render(self, message: Message) -> WireMessage:
        wire = render_message(message, _RENDERED, vision=True, cache_marks=True)
        return {**wire, "thinking_blocks": list(message.thinking_blocks)} if message.thinking_blocks else wire

    async def warm_up(self) -> None:
        for llm in self.llms_for_routing.values():
            await llm.warm_up()

    async def acompletion(
        self, messages: Sequence[Message | WireMessage], tools: Sequence[Schema] | None = None, **options: Any
    ) -> LLMResponse:
        """Ask the model that `select_llm` names (`KeyError` if there is none such); see `LLM.acompletion`."""
        wire = self._wire(messages)
        key = self.select_llm(ReadBack(wire))
        if key not in self.llms_for_routing:
            raise KeyError(f"{type(self).__name__} chose {key!r}, which is none of {sorted(self.llms_for_routing)}")
        llm = self._active = self.llms_for_routing[key]
        before = llm.metrics.deep_copy()
        try:
            return await llm.acompletion(llm.adapted(wire), tools, **options)
        finally:
            self.metrics.merge(llm.metrics.diff(before))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattr__(name)  # type: ignore[misc] # pydantic's own, for private attributes
        return getattr(self.active_llm, name)


class MultimodalRouter(RouterLLM):
    """``secondary``, a cheap model, for what it can take; ``primary`` for images and for what is too long for it."""

    router_name: ClassVar[str] = "multimodal_router"

    @model_validator(mode="after")
    def _both_are_there(self) -> MultimodalRouter:
        if missing := sorted({"primary", "secondary"} - self.llms_for_routing.keys()):
            raise ValueError(
                f"{self.router_name} needs models by the keys 'primary' and 'secondary'; missing: {missing}"
            )
        return self

    def select_llm(self, messages: Sequence[Message]) -> str:
        wire = messages.wire if isinstance(messages, ReadBack) else self._wire(messages)
        if any(has_images(message) for message in wire):
            return "primary"
        secondary = self.llms_for_routing["secondary"]
        limit = secondary.effective_max_input_tokens
        return "primary" if limit is not None and secondary.get_token_count(wire) > limit else "secondary"


class RandomRouter(RouterLLM):
    """Any of its models, by chance."""

    router_name: ClassVar[str] = "random_router"

    def select_llm(self, messages: Sequence[Message]) -> str:
        return random.choice(tuple(self.llms_for_routing))  # noqa: S311 - chance is all that is wanted
