"""`Inbox`: what clients send by way of a server that does not run their conversation is taken by the one that does."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final
from weakref import WeakValueDictionary

from agent_core.errors import (
    ClientToolError,
    DrydockError,
    EventStoreError,
    NoSuchEventError,
    NotStuckError,
    StaleOwnerError,
)
from agent_core.events.serialization import AnyEvent, from_payload, to_payload
from agent_core.events.store import EventStore
from server.conversation_manager.conversation_manager import Deliver, find_sent
from server.db.repositories.inbox import InboxRepository, Letter
from server.errors import ConversationNotFoundError, EndingError, SentButKeptError
from server.session.images import ImagesRefusedError

ANSWER_SECONDS: Final = 0.5
"""How often it is looked for an answer that nobody has told of."""
SENDING_SECONDS: Final = 20.0
"""How long a client waits for what it has sent by way of another server; it is kept, and taken when that can be."""


class Inbox:
    """Sends (`post`) to the server that runs a conversation, or the next one that does, and takes what was sent here.

    `mine` are the conversations that this server runs by now. `running` is held while it is looked whether this one
    runs a conversation, which it does from then on where none did; `deliver` has that take an event; `notify` tells the
    other servers, whose news of that kind come to `answered`. The same (by its `client_key`) may come in several ways
    at once: its client has asked another server that then stood still.
    """

    def __init__(
        self,
        letters: InboxRepository,
        events: EventStore,
        *,
        mine: Set[str],
        running: Callable[[str], AbstractAsyncContextManager[bool]],
        deliver: Deliver,
        notify: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._letters = letters
        self._events = events
        self._mine = mine
        self._running = running
        self._deliver = deliver
        self._notify = notify
        self._turns = WeakValueDictionary[str, asyncio.Lock]()
        self._to_serve = set[str]()
        self._answers: dict[str, asyncio.Event] = {}

    async def deliver_once(self, conversation_id: str, event: AnyEvent, after: int) -> AnyEvent:
        """Have it taken here, where the conversation runs, unless it was; then it is behind the event `after`."""
        async with self._turn(conversation_id):
            known = await find_sent(self._events, conversation_id, event.client_key, after=after)
            if known is None:
                return await self._deliver(conversation_id, event)
        return await self._stored(conversation_id, known)

    async def post(self, conversation_id: str, event: AnyEvent, after: int | None = None) -> AnyEvent:
        """Have this taken; returns it as stored, or raises what the server that has it said."""
        if event.client_key is None:
            event = event.model_copy(update={"client_key": f"by-way-{secrets.token_hex(8)}"})
        if after is None:
            after = await self._events.last_id(conversation_id)
        letter = await self._letters.put(conversation_id, to_payload(event), after=after)
        told = self._answers[letter] = asyncio.Event()
        self._notify({"letter": conversation_id})
        try:
            async with asyncio.timeout(SENDING_SECONDS):
                answer = await self._answer_to(letter, conversation_id, told)
        except (TimeoutError, EndingError):
            raise SentButKeptError from None
        finally:
            del self._answers[letter]
        if "error" in answer:
            raise _error_of(answer, conversation_id)
        return await self._stored(conversation_id, answer["id"])

    def answered(self, letter: str) -> None:
        if letter in self._answers:
            self._answers[letter].set()

    def is_to_serve(self, conversation_id: str) -> bool:
        """Whether nobody is just about to look what waits for it; whoever asks is, then."""
        is_first = conversation_id not in self._to_serve
        self._to_serve.add(conversation_id)
        return is_first

    async def serve(self, conversation_id: str) -> None:
        """Take what waits for a conversation that runs here, in its order.

        Where nothing can be stored, or this server ends, it waits for the next look, or for whoever goes on.
        """
        with suppress(EndingError, EventStoreError):
            async with self._turn(conversation_id):
                self._to_serve.discard(conversation_id)
                while conversation_id in self._mine and (letters := await self._letters.waiting(conversation_id)):
                    for letter in letters:
                        await self._letters.answer(letter.id, await self._taken(letter))
                        self._notify({"answered": letter.id})

    async def _answer_to(self, letter: str, conversation_id: str, told: asyncio.Event) -> Mapping[str, Any]:
        while True:
            with suppress(EventStoreError):  # it is kept: who cannot look for its answer now looks again
                if (answer := await self._letters.answer_to(letter)) is not None:
                    return answer
                async with self._running(conversation_id) as is_here:
                    if is_here:
                        await self.serve(conversation_id)
            told.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await told.wait()

    async def _taken(self, letter: Letter) -> dict[str, Any]:
        log = letter.conversation_id
        try:
            event = from_payload(letter.event.encode(), -1, log)
            # The server before may have taken it, and then ended.
            known = await find_sent(self._events, log, event.client_key, after=letter.after)
            return {"id": known if known is not None else (await self._deliver(log, event)).id}
        except DrydockError as error:
            if _passes(error):
                raise
            return {"error": type(error).__name__, "text": str(error), "code": getattr(error, "code", "")}

    async def _stored(self, conversation_id: str, event_id: int) -> AnyEvent:
        (stored,) = await self._events.read(conversation_id, after=event_id - 1, limit=1)
        return from_payload(stored.payload, stored.id, conversation_id)

    @asynccontextmanager
    async def _turn(self, conversation_id: str) -> AsyncIterator[None]:
        """Of those who deliver to it here what may come in several ways, one at a time."""
        turn = self._turns.setdefault(conversation_id, asyncio.Lock())
        async with self._running(conversation_id), turn:
            yield


def _passes(error: DrydockError) -> bool:
    """Whether it can be delivered later, here or elsewhere."""
    is_away = isinstance(error, EventStoreError) and bool(error.code)
    return is_away or isinstance(error, EndingError | StaleOwnerError)


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
