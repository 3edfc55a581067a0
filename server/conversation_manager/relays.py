"""`Relays`: what is seen in conversations here and not stored, told to the servers whose clients follow them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import Any, Final

from agent_core.events.transient import Transient
from server.auth.identity import Identity
from server.conversation_manager.followed_log import messages_of
from server.conversation_manager.standalone import StandaloneConversationManager, to_its_end
from server.db.repositories.conversations import ConversationRepository

RELAY_SECONDS: Final = 15.0
"""So long notices are sent to a server that has not said that it follows still."""

_OTHER_SERVER: Final = "server:"
"""What connections of other servers are called here: they keep a conversation loaded, as clients do."""


class Relays:
    """One task for each conversation of `mine` and each server that follows it, until `close`; `tell` tells that one.

    A server that comes to follow it is told, too, what is just being said: what others were told is not for it.
    """

    def __init__(
        self,
        local: StandaloneConversationManager,
        conversations: ConversationRepository,
        *,
        mine: Set[str],
        tell: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._local = local
        self._conversations = conversations
        self._mine = mine
        self._tell = tell
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._until: dict[tuple[str, str], float] = {}

    def follows(self, conversation_id: str, server_id: str) -> None:
        """That server follows it, as it has to say again and again."""
        key = conversation_id, server_id
        self._until[key] = asyncio.get_running_loop().time() + RELAY_SECONDS
        if key not in self._tasks:
            work = partial(self._relay, conversation_id, server_id)
            task = self._tasks[key] = asyncio.create_task(to_its_end(work, "relay"), name=f"relay:{conversation_id}")
            task.add_done_callback(lambda _: self._tasks.pop(key, None))

    def end_unwanted(self) -> None:
        """End those of servers that have not said so for long, and of conversations that another server runs."""
        now = asyncio.get_running_loop().time()
        for key, until in list(self._until.items()):
            if until < now or key[0] not in self._mine:
                del self._until[key]
                if (task := self._tasks.get(key)) is not None:
                    task.cancel()

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _relay(self, conversation_id: str, server_id: str) -> None:
        record = await self._conversations.get(conversation_id)
        if record is None or conversation_id not in self._mine:
            return
        connection = f"{_OTHER_SERVER}{server_id}:{conversation_id}"
        here = await self._local.join(conversation_id, connection, Identity(record.user_id))
        try:
            stream = None
            while (stream := await here.next_stream(stream)) is not None:
                async with stream.subscribe(after=stream.last_id, transients=True) as news:
                    async for one in news:
                        if isinstance(one, Transient):
                            for message in messages_of(one):
                                self._tell(server_id, {"notice": message, "log": conversation_id})
                        else:
                            self._tell(server_id, {"stored": conversation_id})
        finally:
            await self._local.leave(connection)
