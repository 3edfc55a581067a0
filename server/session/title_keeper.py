"""Gives each conversation its first title, once, beside the agent's work, and tells the clients."""

from __future__ import annotations

import asyncio
import logging

from agent_core.errors import DrydockError
from agent_core.llm.llm import LLM, CallContext
from server.db.conversations import ConversationRepository
from server.session.announcements import Announcements
from server.session.titles import TitleWriter, default_title, title_from_message

logger = logging.getLogger(__name__)

MAX_REMEMBERED = 10_000


class TitleKeeper:
    """Watches what users say; a conversation that still has its default title gets one from it."""

    def __init__(
        self, conversations: ConversationRepository, writer: TitleWriter, announcements: Announcements
    ) -> None:
        self._conversations = conversations
        self._writer = writer
        self._announcements = announcements
        self._done: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def user_said(self, conversation_id: str, text: str, llm: LLM, context: CallContext) -> None:
        """The user's message in that conversation; never waits, and costs nothing from the second message on."""
        if conversation_id in self._done or conversation_id in self._tasks or not text.strip():
            return
        name = f"title:{conversation_id}"
        task = asyncio.create_task(self._give_title(conversation_id, text, llm, context), name=name)
        self._tasks[conversation_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(conversation_id, None))

    def forget(self, conversation_id: str) -> None:
        """The conversation is deleted."""
        self._done.discard(conversation_id)
        if task := self._tasks.get(conversation_id):
            task.cancel()

    async def close(self) -> None:
        """Give up the titles that are being written."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _give_title(self, conversation_id: str, text: str, llm: LLM, context: CallContext) -> None:
        try:
            first = title_from_message(text)
            if first is not None and await self._replace(conversation_id, None, first):
                better = await self._writer.write(llm, text, context)
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
        """Rename it if nobody else has done so meanwhile."""
        record = await self._conversations.get(conversation_id)
        if record is None or record.title not in (old, default_title(conversation_id) if old is None else old):
            return False
        if not await self._conversations.rename(conversation_id, new):
            return False
        await self._announcements.announce_title(conversation_id, new)
        return True
