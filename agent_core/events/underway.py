"""What is under way in a conversation and not in its log yet, for readers that come in the middle of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeVar

from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, MessageEvent, ObservationEvent
from agent_core.events.serialization import AnyEvent
from agent_core.events.transient import ClientCall, OutputDelta, StatusNotice, TextDelta, TextDiscarded, Transient

MAX_TEXT: Final = 32 * 1024
"""Characters kept of each text: its end."""

MAX_ACTIONS: Final = 16
MAX_STEPS: Final = 32
READY: Final = "STATUS$READY"
STARTING: Final = "STATUS$STARTING_RUNTIME"
NETWORK_WARNING: Final = "STATUS$NETWORK_WARNING"
"""The network of the sandbox is not what was wished for: none, or one that leads to the host; true until it is
started again."""

Delta = TypeVar("Delta", OutputDelta, TextDelta)


class Underway:
    """Remembers the notices that still tell something new, within bounds, until the log tells it.

    Those are: the steps of a start-up that has not ended, a warning about the sandbox's network, the output so far of
    each running action, and the text so far of the answer that the model is giving. Of the calls that clients are to
    carry out, none is left out.
    """

    def __init__(self) -> None:
        self._steps: list[StatusNotice] = []
        self._is_starting = True
        self._warning: StatusNotice | None = None
        self._outputs: dict[int, OutputDelta] = {}
        self._texts: dict[str, TextDelta] = {}
        self._calls: dict[int, ClientCall] = {}

    def __iter__(self) -> Iterator[Transient]:
        yield from self._steps
        if self._warning is not None:
            yield self._warning
        yield from self._texts.values()
        yield from self._outputs.values()
        yield from self._calls.values()

    def note(self, notice: Transient) -> None:
        """This was published."""
        match notice:
            case StatusNotice():
                self._step(notice)
            case OutputDelta():
                self._output(notice)
            case TextDelta():
                self._text(notice)
            case TextDiscarded():
                self._texts.clear()
            case ClientCall(is_over=False):
                self._calls[notice.cause] = notice
            case ClientCall():
                self._calls.pop(notice.cause, None)

    def settle(self, event: AnyEvent) -> None:
        """This is in the log now."""
        match event:
            case ObservationEvent() | AgentErrorEvent() if event.cause is not None:
                self._outputs.pop(event.cause, None)
            case ActionEvent() | MessageEvent() if event.source == "agent":
                self._texts.clear()

    def _step(self, notice: StatusNotice) -> None:
        if notice.status_id == NETWORK_WARNING:
            self._warning = notice
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

    def _output(self, delta: OutputDelta) -> None:
        earlier = self._outputs.pop(delta.cause, None)
        self._outputs[delta.cause] = delta if earlier is None else _longer(earlier, delta)
        if len(self._outputs) > MAX_ACTIONS:
            del self._outputs[next(iter(self._outputs))]

    def _text(self, delta: TextDelta) -> None:
        earlier = self._texts.get(delta.channel)
        if earlier is None or earlier.response_id != delta.response_id:
            self._texts = {name: text for name, text in self._texts.items() if text.response_id == delta.response_id}
            self._texts[delta.channel] = delta
        else:
            self._texts[delta.channel] = _longer(earlier, delta)


def _longer(first: Delta, second: Delta) -> Delta:
    return replace(first, text=(first.text + second.text)[-MAX_TEXT:])
