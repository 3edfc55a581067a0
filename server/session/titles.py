"""Titles of conversations: the beginning of the first message at once, the model's a little later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from agent_core.errors import DrydockError
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM, CallContext
from server.db.repositories.conversations import ConversationRepository


class Announcer(Protocol):
    """Passes on news that belong to no event: the gateway, to its clients."""

    async def announce_title(self, conversation_id: str, title: str) -> None: ...


class Announcements:
    """News about conversations, passed on to the announcers that were added."""

    def __init__(self) -> None:
        self._announcers: list[Announcer] = []

    def add(self, announcer: Announcer) -> None:
        self._announcers.append(announcer)

    async def announce_title(self, conversation_id: str, title: str) -> None:
        for announcer in self._announcers:
            await announcer.announce_title(conversation_id, title)


logger = logging.getLogger(__name__)

FALLBACK_CHARS = 30
MAX_TITLE_CHARS = 50
MAX_PROMPT_CHARS = 2000
TITLE_SECONDS = 60.0

_PROMPT = (
    "Name the conversation that begins with the message below. Answer with the name alone: one line of at most "
    f"{MAX_TITLE_CHARS} characters, in the language of the message, no quotation marks, no full stop.\n\n"
)


def default_title(conversation_id: str) -> str:
    """The title of a conversation in which nothing was said yet."""
    return f"Conversation {conversation_id[:5]}"


def title_from_message(text: str) -> str | None:
    """The beginning of a message, on one line; None for a message without text."""
    line = " ".join(text.split())
    if not line:
        return None
    return line if len(line) <= FALLBACK_CHARS else line[:FALLBACK_CHARS].rstrip() + "..."


class TitleWriter:
    """Asks a model for titles."""

    def __init__(self, *, enabled: bool, timeout_seconds: float = TITLE_SECONDS) -> None:
        self._enabled = enabled
        self._timeout_seconds = timeout_seconds

    async def write(
        self, llm: LLM, message: str, context: CallContext | None = None, mask: Callable[[str], str] = str
    ) -> str | None:
        """The model's title for a conversation that begins with `message`; None when there is none to be had.

        Asks once; costs under the usage id `title`.
        """
        if not self._enabled or llm.model.startswith("demo/"):
            return None
        llm = llm.model_copy(update={"num_retries": 1, "usage_id": "title", "max_output_tokens": None})
        llm.reset_metrics()
        prompt = llm.render(Message.user(_PROMPT + message[:MAX_PROMPT_CHARS]))
        try:
            async with asyncio.timeout(self._timeout_seconds):
                response = await llm.acompletion([prompt], context=context)
        except (DrydockError, TimeoutError) as error:
            logger.info("no title from %s: %s", llm.model, error or "it took too long")
            return None
        return _cleaned(mask(response.message.text))


def _cleaned(text: str) -> str | None:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return None
    title = lines[0].strip("\"'“”„«»`*# ").rstrip(".").strip()
    return title[:MAX_TITLE_CHARS].rstrip() or None


MAX_REMEMBERED = 10_000


class TitleKeeper:
    """Gives each conversation with its default title one, once, beside the agent's work, and tells the clients."""

    def __init__(
        self, conversations: ConversationRepository, writer: TitleWriter, announcements: Announcements
    ) -> None:
        self._conversations = conversations
        self._writer = writer
        self._announcements = announcements
        self._done: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def take_message(
        self, conversation_id: str, text: str, llm: LLM, context: CallContext, mask: Callable[[str], str]
    ) -> None:
        """Take the user's message into account; never waits, and costs nothing from the second message on.

        `mask` hides in a title what nobody should see.
        """
        if conversation_id in self._done or conversation_id in self._tasks or not text.strip():
            return
        name = f"title:{conversation_id}"
        task = asyncio.create_task(self._give_title(conversation_id, text, llm, context, mask), name=name)
        self._tasks[conversation_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(conversation_id, None))

    def forget(self, conversation_id: str) -> None:
        self._done.discard(conversation_id)
        if task := self._tasks.get(conversation_id):
            task.cancel()

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _give_title(
        self, conversation_id: str, text: str, llm: LLM, context: CallContext, mask: Callable[[str], str]
    ) -> None:
        try:
            text = mask(text)
            first = title_from_message(text)
            if first is not None and await self._replace(conversation_id, None, first):
                better = await self._writer.write(llm, text, context, mask)
                if better is not None and better != first:
                    await self._replace(conversation_id, first, better)
        except DrydockError as error:
            logger.warning("conversation %s got no title: %s", conversation_id, error)
            return
        except Exception:
            logger.exception("conversation %s got no title", conversation_id)
            return
        if len(self._done) >= MAX_REMEMBERED:
            self._done.clear()
        self._done.add(conversation_id)

    async def _replace(self, conversation_id: str, old: str | None, new: str) -> bool:
        record = await self._conversations.get(conversation_id)
        if record is None or record.title not in (old, default_title(conversation_id) if old is None else old):
            return False
        if not await self._conversations.update(conversation_id, title=new):
            return False
        await self._announcements.announce_title(conversation_id, new)
        return True
