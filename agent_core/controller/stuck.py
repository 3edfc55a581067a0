"""Stuck agents: patterns of repetition that no model comes out of by itself."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

from pydantic import Field

from agent_core.events.control import Condensation
from agent_core.events.llm_events import (
    ActionEvent,
    AgentErrorEvent,
    AnswerEvent,
    MessageEvent,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.messages import Frozen, TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.llm.transport.exchange import canonical
from agent_core.spelling import spelled
from agent_core.tools.ipython import IPythonObservation

WINDOW = 20
CONDENSATIONS = 10
_SYNTAX_ERROR = re.compile(r"SyntaxError: (?:unterminated |invalid syntax|incomplete input).*")
_LAST_LINES = 3  # behind a cell's error stand the kernel's directory and interpreter


class Pattern(StrEnum):
    """A way of being stuck."""

    SAME_RESULT = "it repeats the same action and gets the same result"
    SAME_ERROR = "it repeats an action that fails"
    MONOLOGUE = "it talks to itself and does nothing"
    ALTERNATING = "it alternates between two actions"
    CONDENSATIONS = "its history does not fit however often it is condensed"


class StuckDetectionThresholds(Frozen):
    """How often something happens until it is a loop.

    Attributes:
        action_observation: the same action with the same result.
        action_error: an action that fails; this often the agent is warned, and once more is a loop.
        monologue: messages of the agent and nothing else.
        alternating_pattern: actions that take turns with the one before.
    """

    action_observation: int = Field(default=4, ge=1)
    action_error: int = Field(default=3, ge=1)
    monologue: int = Field(default=3, ge=1)
    alternating_pattern: int = Field(default=6, ge=3)

    @property
    def rounds(self) -> int:
        return max(self.action_observation, self.action_error + 1, self.alternating_pattern)


USUAL_THRESHOLDS = StuckDetectionThresholds()


@dataclass(slots=True)
class _Round:
    action_id: int
    action: bytes
    answer: bytes = b""
    error_id: int | None = None
    syntax_error: str = ""

    def is_like(self, other: _Round) -> bool:
        return (self.action, self.answer) == (other.action, other.answer)


@spelled
class StuckDetector:
    """Looks at the last twenty events since the user's last message; at more where a threshold needs them.

    It takes the events in the order of their ids, and keeps digests of the newest ones.
    """

    def __init__(self, thresholds: StuckDetectionThresholds = USUAL_THRESHOLDS) -> None:
        self._thresholds = thresholds
        self._rounds: deque[_Round] = deque(maxlen=max(WINDOW // 2, thresholds.rounds))
        self._messages: list[int] = []
        self._condensations: list[int] = []
        self._nudged: set[int] = set()

    def fold(self, event: AnyEvent) -> None:
        match event:
            case MessageEvent(source="user"):
                self._rounds.clear()
                self._nudged.clear()
                self._messages, self._condensations = [], []
            case MessageEvent(source="agent", is_blank=False):
                self._messages.append(event.id)
                self._condensations = []
            case MessageEvent(source="environment") if event.cause is not None:
                self._nudged.add(event.cause)
            case ActionEvent(source="agent"):
                self._messages, self._condensations = [], []
                action = event.action.model_dump(mode="json") if event.action is not None else None
                self._rounds.append(_Round(event.id, _digest([event.tool_name, action, event.thought_text])))
            case ObservationEvent() | UserRejectObservation() | AgentErrorEvent():
                self._answer(event)
            case Condensation():
                self._condensations.append(event.id)

    def pattern(self) -> Pattern | None:
        rounds, limits = [one for one in self._rounds if one.answer], self._thresholds
        if len(self._condensations) >= CONDENSATIONS:
            return Pattern.CONDENSATIONS
        if len(self._messages) >= limits.monologue:
            return Pattern.MONOLOGUE
        if _is_periodic(rounds[-limits.action_observation :], limits.action_observation, period=1):
            return Pattern.SAME_RESULT
        if _failing(rounds) > limits.action_error or _mistyped(rounds) >= limits.action_error:
            return Pattern.SAME_ERROR
        if _is_periodic(rounds[-limits.alternating_pattern :], limits.alternating_pattern, period=2):
            return Pattern.ALTERNATING
        return None

    def start_of(self, pattern: Pattern) -> int:
        """Id of the event with which the present loop of this pattern began."""
        if pattern is Pattern.CONDENSATIONS:
            return self._condensations[0]
        if pattern is Pattern.MONOLOGUE:
            return self._messages[0]
        rounds = [one for one in self._rounds if one.answer]
        if pattern is Pattern.SAME_ERROR:
            return rounds[-max(_failing(rounds), _mistyped(rounds))].action_id
        period = 2 if pattern is Pattern.ALTERNATING else 1
        first = len(rounds) - period
        while first > 0 and rounds[first - 1].is_like(rounds[first - 1 + period]):
            first -= 1
        return rounds[first].action_id

    def to_nudge(self) -> int | None:
        """Id of the error after which the agent deserves a word of warning, once."""
        rounds = [one for one in self._rounds if one.answer]
        if _failing(rounds) != self._thresholds.action_error:
            return None
        last = rounds[-1].error_id
        return last if last not in self._nudged else None

    def _answer(self, event: AnswerEvent) -> None:
        for one in reversed(self._rounds):
            if one.action_id == event.cause and not one.answer:
                one.error_id = event.id if isinstance(event, AgentErrorEvent) else None
                if not isinstance(event, ObservationEvent):
                    one.answer = _digest([event.kind, event.to_llm_message().text])
                    return
                seen = event.observation
                parts = seen.to_llm_content  # where it is put in words of its own
                content = [part.text if isinstance(part, TextContent) else part.image_urls for part in parts]
                one.answer = _digest([seen.kind, content])
                if isinstance(seen, IPythonObservation):
                    lines = seen.text.strip().split("\n")[-_LAST_LINES:]
                    one.syntax_error = next(filter(_SYNTAX_ERROR.match, lines), "")
                return


def _failing(rounds: Sequence[_Round]) -> int:
    tries = takewhile(lambda one: one.error_id is not None and one.action == rounds[-1].action, reversed(rounds))
    return sum(1 for _ in tries)


def _mistyped(rounds: Sequence[_Round]) -> int:
    """How often the last cell was run in a row with the same syntax error; only the numbers of the cells differ."""
    last = rounds[-1] if rounds else None
    tries = takewhile(
        lambda one: one.syntax_error and last and (one.action, one.syntax_error) == (last.action, last.syntax_error),
        reversed(rounds),
    )
    return sum(1 for _ in tries)


def _is_periodic(rounds: Sequence[_Round], count: int, *, period: int) -> bool:
    return len(rounds) == count and all(
        one.is_like(earlier) for earlier, one in zip(rounds, rounds[period:], strict=False)
    )


def _digest(value: object) -> bytes:
    return hashlib.blake2b(canonical(value), digest_size=16).digest()
