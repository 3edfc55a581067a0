"""Transient notices: seen live by whoever follows the stream, never stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeVar

from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, MessageEvent, ObservationEvent
from agent_core.events.serialization import AnyEvent
from agent_core.spelling import spelled


@spelled
@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the model's answer `response_id`; superseded by the event that carries that answer."""

    response_id: str
    text: str
    channel: Literal["message", "reasoning"] = "message"

    @property
    def content(self) -> str | None:
        return self.text if self.channel == "message" else None

    @property
    def reasoning_content(self) -> str | None:
        return self.text if self.channel == "reasoning" else None

    @property
    def choices(self) -> tuple[TextChoice, ...]:
        return (TextChoice(self),)


class TextChoice(NamedTuple):
    """A piece of text at the place where programs find it that know the chunks of a model's answer."""

    delta: TextDelta


@dataclass(frozen=True, slots=True)
class TextDiscarded:
    """The answer `response_id` broke off and is asked for again: its text so far is void."""

    response_id: str


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """More output of the running action `cause`; superseded by that action's observation."""

    cause: int
    text: str


@dataclass(frozen=True, slots=True)
class StatusNotice:
    """Progress or trouble to show to people: a status id of docs/protocol.md and a text.

    With `start_failed` there is no session: sandbox or agent could not be started.
    """

    status_id: str
    message: str
    level: Literal["info", "error"] = "info"
    start_failed: bool = False

    @property
    def tells_trouble(self) -> bool:
        """Whether work is wanted and waits, or has lost its sandbox; the message says why, and what becomes of it."""
        return self.status_id in (*_WAITS, DISK_RESERVE, HELD_BACK, SANDBOX_LOST, DISK_LIMIT)


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A client is to carry out the call `cause` of its tool until `deadline`; with `is_over` nobody waits any more."""

    cause: int
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    deadline: datetime | None = None
    is_over: bool = False


Transient = ClientCall | TextDelta | TextDiscarded | OutputDelta | StatusNotice

MAX_TEXT: Final = 32 * 1024
"""Characters kept of each text: its end."""

MAX_ACTIONS: Final = 16
MAX_STEPS: Final = 32
READY: Final = "STATUS$READY"
STARTING: Final = "STATUS$STARTING_RUNTIME"
WAITING_FOR_ENGINE: Final = "STATUS$WAITING_FOR_ENGINE"
"""A start waits for the Docker engine, which is away; true until another status."""
NETWORK_WARNING: Final = "STATUS$NETWORK_WARNING"
"""The sandbox's network is not what was wished for; true until it is started again."""
WAITING_FOR_TURN: Final = "STATUS$WAITING_FOR_TURN"
TOO_MANY_CONVERSATIONS: Final = "AGENT_ERROR$TOO_MANY_CONVERSATIONS"
"""The same, because as many of its user's conversations as may are at work; clients of the protocol know this one."""
STORAGE: Final = "STATUS$ERROR_STORAGE"
"""Nothing can be stored at present."""
DISK_RESERVE: Final = "STATUS$ERROR_DISK_RESERVE"
"""The sandbox is frozen, since the server's disk is nearly full; true until one is ready."""
HELD_BACK: Final = "STATUS$HELD_BACK"
"""It may be what ends the server again and again; true until it is taken up."""
SANDBOX_LOST: Final = "STATUS$ERROR_RUNTIME_DISCONNECTED"
"""It has gone, or does not answer."""
DISK_LIMIT: Final = "STATUS$ERROR_DISK_LIMIT"
"""Something in the sandbox was ended, or it was stopped, because of its disk."""
_WAITS: Final = (WAITING_FOR_TURN, TOO_MANY_CONVERSATIONS, WAITING_FOR_ENGINE, STORAGE)
"""A server's agent waits until others rest, or until the engine or storing works; true until another status."""

Delta = TypeVar("Delta", OutputDelta, TextDelta)


class CurrentNotices:
    """The notices that still tell something new, within bounds, until the log tells it.

    Steps of an unfinished start-up, a wait for its turn, that it is frozen, a warning about the network, output and
    text so far, and all calls for clients.
    """

    def __init__(self) -> None:
        self._steps: list[StatusNotice] = []
        self._is_starting = True
        self._warning: StatusNotice | None = None
        self._wait: StatusNotice | None = None
        self._frozen: StatusNotice | None = None
        self._outputs: dict[int, OutputDelta] = {}
        self._texts: dict[str, TextDelta] = {}
        self._calls: dict[int, ClientCall] = {}

    def __iter__(self) -> Iterator[Transient]:
        yield from self._steps
        if self._wait is not None:
            yield self._wait
        for lasting in (self._frozen, self._warning):
            if lasting is not None:
                yield lasting
        yield from self._texts.values()
        yield from self._outputs.values()
        yield from self._calls.values()

    def note(self, notice: Transient) -> None:
        match notice:
            case StatusNotice():
                self._step(notice)
            case OutputDelta():
                earlier = self._outputs.pop(notice.cause, None)
                self._outputs[notice.cause] = notice if earlier is None else joined(earlier, notice)
                if len(self._outputs) > MAX_ACTIONS:
                    del self._outputs[next(iter(self._outputs))]
            case TextDelta():
                earlier_text = self._texts.get(notice.channel)
                if earlier_text is None or earlier_text.response_id != notice.response_id:
                    same = {name: one for name, one in self._texts.items() if one.response_id == notice.response_id}
                    self._texts = {**same, notice.channel: notice}
                else:
                    self._texts[notice.channel] = joined(earlier_text, notice)
            case TextDiscarded():
                self._texts.clear()
            case ClientCall(is_over=False):
                self._calls[notice.cause] = notice
            case ClientCall():
                self._calls.pop(notice.cause, None)

    def settle(self, event: AnyEvent) -> None:
        match event:
            case ObservationEvent() | AgentErrorEvent() if event.cause is not None:
                self._outputs.pop(event.cause, None)
            case ActionEvent() | MessageEvent() if event.source == "agent":
                self._texts.clear()

    def _step(self, notice: StatusNotice) -> None:
        if notice.status_id == NETWORK_WARNING:
            self._warning = notice
            return
        if notice.status_id == DISK_RESERVE:
            self._frozen = notice
            return
        if notice.status_id in (READY, STARTING):
            self._frozen = None
        self._wait = notice if notice.status_id in _WAITS else None
        if self._wait is not None:
            return
        if notice.status_id == STARTING:
            self._warning = None
        if not self._is_starting:
            return
        if notice.level == "error" or notice.status_id == READY:
            # Ready is an old story then, and a failure is in the log.
            self._is_starting = False
            self._steps.clear()
        else:
            self._steps = [*self._steps, notice][-MAX_STEPS:]


def joined(first: Delta, second: Delta) -> Delta:
    """Both pieces of one text as one, within the limit."""
    return replace(first, text=(first.text + second.text)[-MAX_TEXT:])
