"""Turns of chats: what the user says goes into the conversation, and the answer comes out in pieces."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncGenerator
from typing import Literal, NamedTuple
from weakref import WeakValueDictionary

from anyio import CancelScope

from agent_core.errors import DrydockError
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState
from agent_core.events.llm_events import ActionEvent, MessageEvent, TokenUsage
from agent_core.events.serialization import AnyEvent
from agent_core.events.transient import StatusNotice, TextDelta, TextDiscarded, Transient
from agent_core.tools.builtin import FinishAction
from server.auth.identity import Identity
from server.conversation_manager.conversation_manager import ConversationManager

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 10.0

_WAITING = frozenset({AgentState.LOADING, AgentState.AWAITING_USER_INPUT, AgentState.FINISHED})
_INTERRUPTED = frozenset({AgentState.PAUSED, AgentState.STOPPED, AgentState.REJECTED})
"""What an agent is brought to from elsewhere: what it has said by then is no answer."""
_AT_REST = _INTERRUPTED | {AgentState.AWAITING_USER_INPUT, AgentState.FINISHED, AgentState.ERROR}

APPROVE, REJECT = "approve", "reject"
"""With these words the user answers the question whether an action may run."""
REJECTED = "Rejected: nothing of it was done. What shall I do instead?"


class ChatFailedError(DrydockError):
    """The agent could not answer; the message is for the user."""


class ServerEndingError(ChatFailedError):
    """The server ends before the agent has answered; the agent is paused, and goes on when it is told to."""


class Piece(NamedTuple):
    """A piece of an answer: of what the agent says, or of what it thinks and does on the way."""

    channel: Literal["content", "reasoning"]
    text: str


class TurnRun:
    """One turn in one conversation, to be `run` once. `usage` is the whole conversation's; None: no model was asked."""

    def __init__(self, manager: ConversationManager, identity: Identity, conversation_id: str) -> None:
        self.text = ""
        self.last_event_id = -1
        self.usage: TokenUsage | None = None
        self._manager = manager
        self._identity = identity
        self.conversation_id = conversation_id
        self._streamed: dict[str, str] = {}
        self._pending: list[str] = []
        self._speaker = self._told = ""
        self._is_sent = self._is_received = self._is_at_work = self._is_over = False
        self._awaits_confirmation = self._is_rejected = False

    async def run(self, event: AnyEvent) -> AsyncGenerator[Piece, None]:
        """Say it, and yield the answer as it comes; leaving early pauses the agent. Raises `ChatFailedError`."""
        connection = f"chat-{uuid.uuid4().hex}"
        joined = await self._manager.join(self.conversation_id, connection, self._identity)
        try:
            stream = await joined.next_stream(None)
            after = stream.last_id if stream is not None else -1
            await self._manager.send(self.conversation_id, event)
            self._is_sent = True
            while stream is not None:
                async with stream.subscribe(after=after, transients=True) as items:
                    async for item in items:
                        for piece in self._pieces(item):
                            yield piece
                        if self._is_over:
                            return
                        after = items.position
                stream = await joined.next_stream(stream)
            raise ChatFailedError("the conversation has ended")
        finally:
            if self._is_sent and not self._is_over:
                await self._pause()
            await self._manager.leave(connection)

    async def _pause(self) -> None:
        pausing = asyncio.ensure_future(
            self._manager.send(self.conversation_id, ChangeAgentState(agent_state=AgentState.PAUSED, source="user"))
        )
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([pausing], timeout=PAUSE_SECONDS)
        if pausing.done() and not pausing.cancelled() and (error := pausing.exception()) is not None:
            logger.warning("conversation %s could not be paused: %s", self.conversation_id, error)

    def _pieces(self, item: AnyEvent | Transient) -> list[Piece]:
        self._follow(item)
        match item:
            case TextDelta(channel="message"):
                self._streamed[item.response_id] = self._streamed.get(item.response_id, "") + item.text
                return self._content(item.response_id, item.text)
            case TextDelta():
                return [Piece("reasoning", item.text)]
            case TextDiscarded():
                self._streamed.pop(item.response_id, None)  # what was sent cannot be taken back; what follows is said
                return []
            case StatusNotice(start_failed=True):
                self._is_over = True
                raise ChatFailedError(item.message)
            case StatusNotice() if item.tells_trouble and item.message != self._told:
                self._told = item.message
                return [Piece("reasoning", f"{item.message}\n")]
            case MessageEvent(source="agent"):
                return self._rest_of(item.llm_response_id or "", item.llm_message.text)
            case ActionEvent(source="agent"):
                return self._action(item)
            case AgentStateChanged(agent_state=AgentState.AWAITING_USER_CONFIRMATION):
                self._awaits_confirmation = True  # the actions come behind it
                return []
            case AgentStateChanged() if self._is_at_work and item.agent_state in _AT_REST:
                self._is_over, self.last_event_id = True, item.id
                return self._rest(item)
            case AgentStateChanged(agent_state=AgentState.USER_REJECTED):
                self._is_rejected = True
                return []
            case _:
                return []

    def _rest(self, item: AgentStateChanged) -> list[Piece]:
        if item.agent_state is AgentState.ERROR:
            raise ChatFailedError(item.detail or item.reason or "the agent failed")
        if item.agent_state in _INTERRUPTED:
            raise ChatFailedError(f"the agent was {item.agent_state} from elsewhere; say something to let it go on")
        return self._content("rejected", REJECTED) if self._is_rejected and not self.text else []

    def _follow(self, item: AnyEvent | Transient) -> None:
        match item:
            case MessageEvent(source="user") | ChangeAgentState(source="user"):
                self._is_received = True
            case AgentStateChanged(agent_state=state):
                self._is_at_work = self._is_at_work or (self._is_received and state not in _WAITING)
            case ActionEvent(source="agent") | MessageEvent(source="agent"):
                self._is_at_work = self._is_received
                if item.metrics is not None:
                    self.usage = item.metrics.usage

    def _action(self, event: ActionEvent) -> list[Piece]:
        pieces = self._rest_of(event.llm_response_id, event.thought_text)
        if isinstance(event.action, FinishAction):
            return [*pieces, *self._content(f"{event.llm_response_id}:finish", event.action.message)]
        pieces.append(Piece("reasoning", f"\n[{event.summary}]\n"))
        if self._awaits_confirmation:
            self._pending.append(f"- {event.summary}")
            if len(self._pending) >= event.calls_in_response:
                self._is_over, self.last_event_id = True, event.id
                question = "\n".join(["May I do this?", *self._pending, f"Answer “{APPROVE}” or “{REJECT}”."])
                pieces += self._content("question", question)
        return pieces

    def _rest_of(self, response_id: str, text: str) -> list[Piece]:
        streamed = self._streamed.pop(response_id, "")
        return self._content(response_id, text[len(streamed) :] if text.startswith(streamed) else "")

    def _content(self, speaker: str, text: str) -> list[Piece]:
        if not text:
            return []
        between = "\n\n" if self.text and speaker != self._speaker else ""
        self._speaker = speaker
        self.text += between + text
        return [Piece("content", between + text)]


async def paced(
    pieces: AsyncGenerator[Piece, None], ending: asyncio.Event, silence_seconds: float
) -> AsyncGenerator[Piece | None, None]:
    """The pieces, and None wherever nothing came for so long; `ServerEndingError` ends them."""

    async def following() -> Piece | None:
        return await anext(pieces, None)

    over = asyncio.create_task(ending.wait(), name="chat-server-ending")
    coming: asyncio.Task[Piece | None] | None = None
    async with contextlib.aclosing(pieces):
        try:
            while True:
                coming = coming or asyncio.create_task(following(), name="chat-next")
                await asyncio.wait({over, coming}, timeout=silence_seconds, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    piece, coming = coming.result(), None
                    if piece is None:
                        return
                    yield piece
                elif over.done():
                    raise ServerEndingError("the server is ending, and the agent is paused; go on when it is back")
                else:
                    yield None
        finally:
            tasks = [task for task in (over, coming) if task is not None]
            for task in tasks:
                task.cancel()
            with CancelScope(shield=True):  # who hangs up has the answer cancelled again and again, until it has ended
                await asyncio.wait(tasks)


class ChatClaim:
    """A conversation that belongs to one answer until it is `release`d, or nobody has this any more."""

    def __init__(self, conversation_id: str, claims: WeakValueDictionary[str, ChatClaim]) -> None:
        self._conversation_id = conversation_id
        self._claims = claims

    def release(self) -> None:
        if self._claims.get(self._conversation_id) is self:
            del self._claims[self._conversation_id]


class ChatClaims:
    """The conversations that are giving a chat its answer, by claims held weakly: an abandoned one frees itself."""

    def __init__(self) -> None:
        self._claims: WeakValueDictionary[str, ChatClaim] = WeakValueDictionary()

    def claim(self, conversation_id: str) -> ChatClaim | None:
        if conversation_id in self._claims:
            return None
        claim = self._claims[conversation_id] = ChatClaim(conversation_id, self._claims)
        return claim
