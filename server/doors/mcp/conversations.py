"""Conversations of a running server as the MCP door offers them, through its client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, Field

from agent_core.errors import DrydockError
from agent_core.tools.truncation import maybe_truncate
from drydock_client import (
    RESTING,
    Action,
    AgentState,
    BusyError,
    ClientError,
    Conversation,
    DrydockClient,
    Event,
    Following,
    Live,
    Observation,
    State,
    Status,
    Unknown,
    UnreachableError,
)
from server.settings.running_server import words_of

MAX_ANSWER: Final = 30_000
BEAT_SECONDS: Final = 10.0
"""How often whoever waits is told that the agent is still at work; an agent that rests for so long does rest."""

_PASSING: Final = (UnreachableError, BusyError)

AT_WORK: Final = "the agent is at work"
STOPPED: Final = "STOPPED"

Tell = Callable[[str], Awaitable[None]]


_LEFT_OUT: Final = frozenset({"system", "recall", "change_agent_state", "null", "condensation_request"})
_MAIN: Final = {
    "run": ("command",),
    "run_ipython": ("code",),
    "read": ("path",),
    "write": ("path", "content"),
    "edit": ("command", "path"),
    "browse": ("url",),
    "browse_interactive": ("browser_actions",),
    "think": ("thought",),
    "delegate": ("agent", "inputs"),
    "call_tool_mcp": ("name", "arguments"),
    "task_tracking": ("task_list",),
    "condensation": ("summary",),
    "reject": ("outputs",),
}
SUMMARY_CHARS: Final = 300
MAX_EVENTS: Final = 500
"""How far the user's last message is looked for; an agent with more behind it has certainly set to work."""
_NOT_YET: Final = frozenset({AgentState.LOADING, AgentState.AWAITING_USER_INPUT, AgentState.FINISHED})
_DECISIONS: Final = frozenset({"user_confirmed", "user_rejected"})
_NO_WORK: Final = frozenset({"system", "recall", "change_agent_state"})


class LogEntry(BaseModel):
    """One entry of a conversation's log."""

    id: int = Field(description="Its place in the log")
    time: datetime | None = Field(None, description="When, in UTC")
    source: str = Field(description="user, agent or environment")
    kind: str = Field(description="What it is: message, run, edit, state, error, …")
    text: str = Field(description="What was said, done, or came of it; a long text is cut in the middle")
    result_of: int | None = Field(None, description="For a result, the id of the action")


def entry_of(event: Event | Unknown, max_chars: int) -> LogEntry | None:
    """The entry for an event; None for those that tell a reader nothing."""
    match event:
        case State(id=int(ident)):
            text = ": ".join(part for part in (str(event.state), event.detail or event.reason) if part)
            return LogEntry(id=ident, time=event.timestamp, source="environment", kind="state", text=text)
        case Action() if event.action not in _LEFT_OUT:
            text, kind, cause = text_of(event), event.action, None
        case Observation() if event.observation not in _LEFT_OUT:
            text, kind, cause = event.content or event.message, f"{event.observation} result", event.cause
            kind = event.observation if event.observation in {"error", "user_rejected"} else kind
        case _:
            return None
    shown = maybe_truncate(text, max_chars)
    return LogEntry(id=event.id, time=event.timestamp, source=event.source, kind=kind, text=shown, result_of=cause)


def text_of(action: Action) -> str:
    """What an action says or does."""
    args = action.args
    if action.action in {"message", "finish"}:
        return str(args.get("final_thought") or args.get("content") or action.message)
    names = _MAIN.get(action.action, ())
    values = [args[name] for name in names if args.get(name) not in (None, "", [], {})]
    done = "\n".join(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in values)
    thought = str(args.get("thought") or "") if action.action != "think" else ""
    return "\n".join(part for part in (thought, done or action.message) if part)


def summary_of(action: Action) -> str:
    """The same in one line."""
    line = " ".join(f"{action.action}: {text_of(action)}".split())
    return line if len(line) <= SUMMARY_CHARS else f"{line[: SUMMARY_CHARS - 1]}…"


class TurnStatus:
    """A fold over the log: how the turn since the user's last message stands, ignoring older states of rest."""

    def __init__(self) -> None:
        self.last_event_id = -1
        self.state: State | None = None
        self.replies: list[str] = []
        self.pending: dict[int, str] = {}
        self._calls = 1
        self._is_received = self._is_at_work = False

    @property
    def is_at_rest(self) -> bool:
        if self.state is None or self.state.state not in RESTING:
            return False
        if self.state.state == AgentState.AWAITING_USER_CONFIRMATION and len(self.pending) < self._calls:
            return False  # what it asks about comes behind the state
        return self._is_at_work or not self._is_received

    def settle(self) -> None:
        """Nothing has happened for a while: a state of rest counts, as in a log that was recorded elsewhere."""
        self._is_at_work = True

    def take(self, event: Event) -> None:
        if event.id is not None:
            self.last_event_id = max(self.last_event_id, event.id)
        match event:
            case State():
                self.state = event
                self._is_at_work = self._is_at_work or event.state not in _NOT_YET
            case Observation():
                self.pending.pop(-1 if event.cause is None else event.cause, None)
            case Action(source="user", action="message"):
                self.replies.clear()
                self.pending.clear()
                self._is_received, self._is_at_work = True, False
            case Action(source="user", action="change_agent_state"):
                if event.args.get("agent_state") in _DECISIONS:
                    self.pending.clear()  # what was approved comes again, under another id
                    self._is_received, self._is_at_work = True, False
            case Action(source="agent", action="message" | "finish"):
                self._is_at_work = True
                self.replies.append(text_of(event))
            case Action(source="agent") if event.action not in _NO_WORK:
                self._is_at_work = True
                self.pending[event.id] = summary_of(event)
                if event.tool_call_metadata is not None:
                    self._calls = max(1, event.tool_call_metadata.total_calls_in_response)


async def turn_status_of(client: DrydockClient, conversation_id: str) -> TurnStatus:
    """How it stands now, by its log; starts nothing."""
    found: list[Event] = []
    async for event in client.events(conversation_id, limit=MAX_EVENTS, reverse=True):
        if not isinstance(event, Unknown):
            found.append(event)
        if isinstance(event, Action) and event.source == "user" and event.action == "message":
            break
    status = TurnStatus()
    for event in reversed(found):
        status.take(event)
    return status


class DoorError(DrydockError):
    """The server could not be asked, or refused; the message says why and what to do."""


class Outcome(BaseModel):
    """How a conversation stands."""

    conversation_id: str
    state: str = Field(description="loading, running, awaiting_user_input, awaiting_user_confirmation, finished, …")
    at_rest: bool = Field(description="True: nothing happens until you act. False: the agent is at work, wait again")
    detail: str = Field("", description="Why it is in this state, where that is not obvious")
    answer: str = Field("", description="What the agent has said since the last message")
    asks: list[str] = Field(default_factory=list, description="Actions that wait for answer_confirmation")
    last_event_id: int = Field(-1, description="The end of the log")


class Listed(BaseModel):
    """A conversation in a list."""

    conversation_id: str
    title: str
    status: str = Field(description="RUNNING, STARTING or STOPPED: whether it is loaded, not what its agent does")
    repository: str | None = None
    branch: str | None = None
    pr_number: list[int] = Field(default_factory=list)
    created_at: datetime | None = None
    last_updated_at: datetime | None = None

    @classmethod
    def of(cls, one: Conversation) -> Listed:
        return cls(
            conversation_id=one.id,
            title=one.title,
            status=one.status,
            repository=one.selected_repository,
            branch=one.selected_branch,
            pr_number=list(one.pr_number),
            created_at=one.created_at,
            last_updated_at=one.last_updated_at,
        )


class ListPage(BaseModel):
    """Some conversations, newest first."""

    conversations: list[Listed]
    next_cursor: str | None = Field(None, description="Give it as cursor for the next page; null: there is none")


class ReadPage(BaseModel):
    """A part of a log, oldest first."""

    conversation_id: str
    entries: list[LogEntry]
    next_after: int = Field(description="Give it as after to read on")
    has_more: bool = Field(description="Whether there is more behind it now")
    has_earlier: bool = Field(False, description="With latest: whether entries before these were left out")


class DoorConversations:
    """Conversations of the server that `client` is connected to. Every method raises `DoorError`."""

    def __init__(self, client: DrydockClient) -> None:
        self._client = client

    async def start(self, message: str, **options: Any) -> str:
        async with _door_errors():
            return (await self._client.create_conversation(message=message, **options)).id

    async def send(self, conversation_id: str, message: str) -> None:
        async with _door_errors():
            await self._client.send(conversation_id, message)

    async def confirm(self, conversation_id: str, *, accept: bool, feedback: str) -> None:
        async with _door_errors():
            status = await turn_status_of(self._client, conversation_id)
            state = str(status.state.state) if status.state is not None else "loading"
            if state != AgentState.AWAITING_USER_CONFIRMATION:
                raise DoorError(f"Its agent asks nothing: its state is {state}. Use send_message to talk to it.")
            await self._client.confirm(conversation_id, accept=accept, feedback="" if accept else feedback)

    async def pause(self, conversation_id: str) -> None:
        """Have the agent stop what it does; one that is stopped would only be started to hear of it."""
        async with _door_errors():
            conversation = await self._client.conversation(conversation_id)
            if conversation.status != STOPPED or not (await turn_status_of(self._client, conversation_id)).is_at_rest:
                await self._client.pause(conversation_id)

    async def stop(self, conversation_id: str) -> None:
        async with _door_errors():
            await self._client.stop(conversation_id)

    async def page(self, limit: int, cursor: str | None, repository: str | None) -> ListPage:
        async with _door_errors():
            page = await self._client.conversation_page(limit=limit, page_id=cursor, repository=repository)
            return ListPage(conversations=[Listed.of(one) for one in page.results], next_cursor=page.next_page_id)

    async def outcome(self, conversation_id: str) -> Outcome:
        async with _door_errors():
            conversation = await self._client.conversation(conversation_id)  # the log of one that is not there is empty
            return _outcome(conversation_id, await turn_status_of(self._client, conversation_id), conversation)

    async def wait(self, conversation_id: str, seconds: float, tell: Tell) -> Outcome:
        """Wait until its agent is at rest, for so long; what it is doing, and then what it does, is told."""
        found = await self.outcome(conversation_id)
        if found.at_rest or seconds <= 0:
            return found
        try:
            async with asyncio.timeout(seconds) as limit, _door_errors():
                return await self._follow(found, tell)
        except TimeoutError:
            if not limit.expired():
                raise
            return await self.outcome(conversation_id)

    async def _turn_status(self, conversation_id: str) -> TurnStatus:
        await self._client.conversation(conversation_id)  # the log of one that is not there is an empty one
        return await turn_status_of(self._client, conversation_id)

    async def _follow(self, found: Outcome, tell: Tell) -> Outcome:
        """The log is what says how it stands; the live connection says when to look."""
        ident = found.conversation_id
        async with self._client.follow(ident, after=found.last_event_id, live=True) as items:
            status = await self._turn_status(ident)  # what happened before it was connected
            await tell(next(reversed(status.pending.values()), found.detail or AT_WORK))
            while not status.is_at_rest:
                item = await _next(items)
                if news := _news(item):
                    await tell(news)
                if item is None or _may_be_rest(item, status):
                    with suppress(*_PASSING):  # the connection is made again, or says that it cannot be
                        status = await self._turn_status(ident)
                        if item is None:
                            status.settle()
        return _outcome(ident, status)

    async def read(
        self,
        conversation_id: str,
        *,
        after: int = -1,
        latest: bool = False,
        limit: int,
        max_chars: int,
        entry_chars: int,
    ) -> ReadPage:
        """Entries behind the event `after`, or the `latest`: at most so many, and so many characters (one at least)."""
        entries: list[LogEntry] = []
        room, position, is_full = max_chars, -1 if latest else after, False
        async with _door_errors():
            await self._client.conversation(conversation_id)
            async for event in self._client.events(conversation_id, after=position, reverse=latest):
                entry = entry_of(event, min(entry_chars, max_chars))
                if entry is not None:
                    is_full = bool(entries) and (len(entries) >= limit or len(entry.text) > room)
                    if is_full:
                        break
                    entries.append(entry)
                    room -= len(entry.text)
                position = position if event.id is None else max(position, event.id)
        return ReadPage(
            conversation_id=conversation_id,
            entries=entries[::-1] if latest else entries,
            next_after=position,
            has_more=is_full and not latest,
            has_earlier=is_full and latest,
        )


def _outcome(conversation_id: str, status: TurnStatus, conversation: Conversation | None = None) -> Outcome:
    why = "" if conversation is None or status.is_at_rest else conversation.why_it_waits
    state = status.state
    is_asking = state is not None and state.state == AgentState.AWAITING_USER_CONFIRMATION
    return Outcome(
        conversation_id=conversation_id,
        state=str(state.state) if state is not None else "loading",
        at_rest=status.is_at_rest,
        detail=((state.detail or state.reason) if state is not None else "") or why,
        answer=maybe_truncate("\n\n".join(status.replies), MAX_ANSWER),
        asks=list(status.pending.values()) if is_asking else [],
        last_event_id=status.last_event_id,
    )


async def _next(items: Following) -> Live | None:
    try:
        async with asyncio.timeout(BEAT_SECONDS) as beat:
            while True:
                if isinstance(item := await anext(items), Action | Observation | State | Status):
                    return item
    except TimeoutError:
        if not beat.expired():
            raise
        return None


def _may_be_rest(item: Live, status: TurnStatus) -> bool:
    if isinstance(item, State):
        return item.state in RESTING
    state = status.state.state if status.state is not None else None
    return isinstance(item, Action) and state == AgentState.AWAITING_USER_CONFIRMATION


def _news(item: Live | None) -> str:
    match item:
        case None:
            return AT_WORK
        case Action(source="agent"):
            return summary_of(item)
        case State():
            return f"the agent's state: {item.state}"
        case Status(tells_trouble=True):
            return item.message
    return ""


@asynccontextmanager
async def _door_errors() -> AsyncIterator[None]:
    try:
        yield
    except ClientError as error:
        raise DoorError(words_of(error)) from error
