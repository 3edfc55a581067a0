"""`FollowedLog`: the log of a conversation that another server runs, as clients of this one follow it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Final

from agent_core.errors import EventStoreError
from agent_core.events.store import EventStore
from agent_core.events.stream import EventStream
from agent_core.events.transient import ClientCall, OutputDelta, StatusNotice, TextDelta, TextDiscarded, Transient
from server.conversation_manager.standalone import to_its_end

LOOK_SECONDS: Final = 0.5
"""How often it is looked for what was stored where nobody says that there is something."""
MAX_CHARS: Final = 1_200
"""Characters of a text in one message: in the worst case six bytes each."""

_KINDS: Final = {kind.__name__: kind for kind in (ClientCall, OutputDelta, StatusNotice, TextDelta, TextDiscarded)}
logger = logging.getLogger(__name__)


class FollowedLog:
    """Follows the log from its end on, until it is closed; `owner` is the server that runs the conversation."""

    def __init__(self, stream: EventStream, owner: str) -> None:
        self.stream = stream
        self.owner = owner
        self._news = asyncio.Event()
        name = f"followed:{stream.conversation_id}"
        self._task = asyncio.create_task(to_its_end(self._follow, name), name=name)

    @classmethod
    async def open(cls, conversation_id: str, owner: str, store: EventStore) -> FollowedLog:
        return cls(await EventStream.follow(conversation_id, store), owner)

    def look(self) -> None:
        """Something may have been stored."""
        self._news.set()

    def show(self, message: Mapping[str, Any]) -> None:
        """Show the notice that its owner sends; see `messages_of`."""
        with suppress(KeyError, TypeError, ValueError):
            self.stream.publish(_notice_of(message))

    async def close(self) -> None:
        """End, when all that is stored was shown."""
        self._task.cancel()
        await asyncio.wait([self._task])
        with suppress(EventStoreError):
            await self.stream.catch_up()
        self.stream.close()

    async def _follow(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            self._news.clear()
            try:
                await self.stream.catch_up()
            except EventStoreError as error:
                logger.info(
                    "the log of conversation %s cannot be followed for now: %s", self.stream.conversation_id, error
                )
                await asyncio.sleep(LOOK_SECONDS)


def messages_of(notice: Transient) -> list[dict[str, Any]]:
    """What tells another server of this notice, in pieces that are short."""
    if isinstance(notice, OutputDelta | TextDelta):
        pieces = [notice.text[start : start + MAX_CHARS] for start in range(0, len(notice.text), MAX_CHARS)]
        return [_message_of(replace(notice, text=piece)) for piece in pieces]
    return [_message_of(notice)]


def _message_of(notice: Transient) -> dict[str, Any]:
    facts = asdict(notice)
    if isinstance(notice, ClientCall) and notice.deadline is not None:
        facts["deadline"] = notice.deadline.isoformat()
    return {"kind": type(notice).__name__, **facts}


def _notice_of(message: Mapping[str, Any]) -> Transient:
    facts = dict(message)
    kind = _KINDS[facts.pop("kind")]
    if facts.get("deadline") is not None:
        facts["deadline"] = datetime.fromisoformat(facts["deadline"])
    notice: Transient = kind(**facts)
    return notice
