"""Images for models that do not see: told of in words, and looked at by another model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import Final

from agent_core.errors import LLMError, ToolError
from agent_core.events.branches import Rewind
from agent_core.events.llm_events import ActionEvent, MessageEvent
from agent_core.events.messages import Content, ImageContent, Message, MessageToolCall, TextContent
from agent_core.events.stream import EventStream
from agent_core.llm.llm import LLM, CallContext
from agent_core.llm.registry import StoredModels
from agent_core.llm.render import WireMessage
from agent_core.tools.context import Sight, ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.vision_inspect import VisionInspectTool

USAGE_PREFIX: Final = "vision-profile"
ORDER: Final = "Answer the question about the image, in plain words. Say so where the image does not show the answer."
PAGE: Final = 100


def is_blind(llm: LLM) -> bool:
    """Whether no image reaches this model. A router chooses one that sees them."""
    return type(llm) is LLM and not llm.features.vision


def seeing(models: StoredModels) -> dict[str, LLM]:
    """Those of the stored models that see images, by their sorted names. Loads each."""
    found = {}
    for name in models.list():
        try:
            llm = models.load(name)
        except (OSError, ValueError):
            continue  # whoever wants to use it is told what is wrong with it
        if type(llm) is LLM and llm.features.vision:  # a router may choose one that does not
            found[name] = llm
    return found


def vision_tools(llm: LLM, taken: Collection[str], models: StoredModels) -> dict[str, ToolDefinition]:
    """The tool to have images looked at, for a model that does not see where one of `models` does."""
    # First what costs least: many have no stored models, and what this one can do may have to be looked up.
    if VisionInspectTool.tool_name in taken or not models.list() or not is_blind(llm):
        return {}
    profiles = list(seeing(models))
    return {tool.name: tool for tool in VisionInspectTool.create(profiles=profiles)} if profiles else {}


def renderer(llm: LLM, tools: Collection[str]) -> Callable[[Message], WireMessage]:
    """How messages are put for this model, which has the tools of these names."""
    if VisionInspectTool.tool_name not in tools or not is_blind(llm):
        return llm.render
    return lambda message: llm.render(with_references(message))


def with_references(message: Message) -> Message:
    """A user's message with a text in place of each image, by whose number the model can ask about it."""
    if message.role != "user" or not any(isinstance(part, ImageContent) for part in message.content):
        return message
    content: list[Content] = []
    number = 0
    for part in message.content:
        if isinstance(part, TextContent):
            content.append(part)
            continue
        for _ in part.image_urls:
            text = f"[Image {number}: you do not see it; ask about it with {VisionInspectTool.tool_name}]"
            content.append(TextContent(text=text))
            number += 1
    return message.model_copy(update={"content": content})


async def newest_images(log: EventStream, before: int) -> list[str]:
    """The images, in order, of the user's newest messages with any before this event; neighbours count as one."""
    images: list[str] = []
    while before > 0:
        for event in await log.page_before(before=before, limit=PAGE):
            before = event.id
            if isinstance(event, Rewind):
                before = min(event.to + 1, event.id)  # what comes before it on this branch
                break
            match event:
                case MessageEvent(source="user"):
                    parts = [part for part in event.llm_message.content if isinstance(part, ImageContent)]
                    images = [*chain.from_iterable(part.image_urls for part in parts), *images]
                case MessageEvent(source="agent", is_blank=False) | ActionEvent(tool_call=MessageToolCall()) if images:
                    return images
    return images


class ImageQuestions:
    """Has `models` look at the images of one conversation; fulfils `agent_core.tools.context.Vision`.

    `context` counts what that costs, `hide` gets the keys of the models.
    """

    def __init__(
        self, log: EventStream, models: StoredModels, context: CallContext, hide: Callable[[Iterable[str]], None]
    ) -> None:
        self._log = log
        self._models = models
        self._context = context
        self._hide = hide

    async def look(self, call: ToolContext, image_index: int, question: str, profile_name: str | None) -> Sight:
        images = await newest_images(self._log, await self._shown_before(call.action_id))
        if image_index >= len(images):
            there = f"there are {len(images)}, counted from 0" if images else "the user has attached none"
            raise ToolError(f"image_index is {image_index}, but there is no such image: {there}")
        name, llm = self._chosen(profile_name)
        message = Message.user(f"{ORDER}\n\n{question}", image_urls=[images[image_index]])
        try:
            answer = (await llm.acompletion([message], context=self._context)).message.text.strip()
        except LLMError as error:
            raise ToolError(f"the model of {name!r} could not be asked: {error}") from None
        if not answer:
            raise ToolError(f"the model of {name!r} gave no answer; ask in other words")
        return Sight(answer, name, llm.model)

    async def _shown_before(self, action_id: int) -> int:
        made = await self._log.page(after=action_id - 1, limit=1) if action_id >= 0 else []
        if made and isinstance(made[0], ActionEvent) and made[0].seen is not None:
            return made[0].seen + 1
        return action_id if action_id >= 0 else self._log.last_id + 1

    def _chosen(self, profile_name: str | None) -> tuple[str, LLM]:
        known = seeing(self._models)
        name = profile_name or next(iter(known), "")
        if name not in known:
            listed = ", ".join(known) or "none"
            raise ToolError(
                f"profile_name is {name[:80]!r}, which is no stored model that sees images; there are: {listed}"
            )
        llm = known[name].model_copy(update={"usage_id": f"{USAGE_PREFIX}:{name}"})
        self._hide(llm.secrets)
        return name, llm
