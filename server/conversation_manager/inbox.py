"""`Inbox`: what clients send by way of a server that does not run their conversation is taken by the one that does."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Set
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final

from agent_core.errors import ClientToolError, DrydockError, EventStoreError, NoSuchEventError, NotStuckError
from agent_core.events.serialization import AnyEvent, from_payload, to_payload
from agent_core.events.store import EventStore
from server.conversation_manager.conversation_manager import find_sent
from server.db.repositories.inbox import InboxRepository, Letter
from server.errors import ConversationNotFoundError
from server.session.images import ImagesRefusedError

ANSWER_SECONDS: Final = 0.5
"""How often it is looked for an answer that nobody has told of."""
SENDING_SECONDS: Final = 20.0
"""How long a client waits for what it has sent by way of another server; it is kept, and taken when that can be."""


class Inbox:
    """Sends (`post`) to the server that runs a conversation, or the next one that does, and takes what was sent here.

    `mine` are the conversations that this server runs by now. `running` is held while it is looked whether this one
    runs a conversation, which it does from then on where none did; `deliver` has that take an event; `notify` tells the
    other servers, whose news of that kind come to `answered`.
    """

    def __init__(
        self,
        letters: InboxRepository,
        events: EventStore,
        *,
        mine: Set[str],
        running: Callable[[str], AbstractAsyncContextManager[bool]],
        deliver: Callable[[str, AnyEvent], Awaitable[AnyEvent]],
        notify: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._letters = letters
        self._events = events
        self._mine = mine
        self._running = running
        self._deliver = deliver
        self._notify = notify
        self._serving: dict[str, asyncio.Lock] = {}
        self._answers: dict[str, asyncio.Event] = {}

    async def post(self, conversation_id: str, event: AnyEvent) -> AnyEvent:
        """Have this taken; returns it as stored, or raises what the server that has it said."""
        if event.client_key is None:
            event = event.model_copy(update={"client_key": f"by-way-{secrets.token_hex(8)}"})
        after = await self._events.last_id(conversation_id)
        letter = await self._letters.put(conversation_id, to_payload(event), after=after)
        told = self._answers[letter] = asyncio.Event()
        self._notify({"letter": conversation_id})
        try:
            async with asyncio.timeout(SENDING_SECONDS):
                answer = await self._answer_to(letter, conversation_id, told)
        except TimeoutError:
            raise DrydockError(
                "The server that runs this conversation does not answer. What you have sent is kept, and will be taken "
                "as soon as it does, or another one goes on with it: do not send it again."
            ) from None
        finally:
            del self._answers[letter]
        if "error" in answer:
            raise _error_of(answer, conversation_id)
        (stored,) = await self._events.read(conversation_id, after=answer["id"] - 1, limit=1)
        return from_payload(stored.payload, stored.id, conversation_id)

    def answered(self, letter: str) -> None:
        if letter in self._answers:
            self._answers[letter].set()

    def is_serving(self, conversation_id: str) -> bool:
        return conversation_id in self._serving

    async def serve(self, conversation_id: str) -> None:
        """Take what waits for a conversation that runs here, in its order."""
        lock = self._serving.setdefault(conversation_id, asyncio.Lock())
        try:
            async with lock, self._running(conversation_id):
                while conversation_id in self._mine and (letters := await self._letters.waiting(conversation_id)):
                    for letter in letters:
                        await self._letters.answer(letter.id, await self._taken(letter))
                        self._notify({"answered": letter.id})
        finally:
            if not lock.locked():
                self._serving.pop(conversation_id, None)

    async def _answer_to(self, letter: str, conversation_id: str, told: asyncio.Event) -> Mapping[str, Any]:
        while (answer := await self._letters.answer_to(letter)) is None:
            async with self._running(conversation_id) as is_here:
                if is_here:
                    await self.serve(conversation_id)
            told.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await told.wait()
        return answer

    async def _taken(self, letter: Letter) -> dict[str, Any]:
        log = letter.conversation_id
        try:
            event = from_payload(letter.event.encode(), -1, log)
            # The server before may have taken it, and then ended.
            known = await find_sent(self._events, log, event.client_key, after=letter.after)
            return {"id": known if known is not None else (await self._deliver(log, event)).id}
        except DrydockError as error:
            return {"error": type(error).__name__, "text": str(error), "code": getattr(error, "code", "")}


_ERRORS: Final[Mapping[str, Callable[[str, str], DrydockError]]] = {
    "ClientToolError": lambda text, code: ClientToolError(text, code=code),
    "EventStoreError": lambda text, code: EventStoreError(text, code=code),
    "ImagesRefusedError": lambda text, _: ImagesRefusedError(text),
    "NoSuchEventError": lambda text, _: NoSuchEventError(text),
    "NotStuckError": lambda text, _: NotStuckError(text),
}


def _error_of(answer: Mapping[str, Any], conversation_id: str) -> DrydockError:
    if answer["error"] == ConversationNotFoundError.__name__:
        return ConversationNotFoundError(conversation_id)
    make = _ERRORS.get(answer["error"])
    return DrydockError(answer["text"]) if make is None else make(answer["text"], answer.get("code", ""))
