"""Replay: recorded answers stand for the model's, their results are new."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from agent_core.agent.agent import outcome_of
from agent_core.agent.step import StepInput, StepOutcome
from agent_core.events.branches import active_branch
from agent_core.events.control import Recorded, Trajectory
from agent_core.events.event import UNSTORED, Event
from agent_core.events.llm_events import ActionEvent, MessageEvent, TokenUsage
from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.events.schema import Action
from agent_core.events.serialization import AnyEvent, from_data
from agent_core.llm.response import LLMResponse
from agent_core.tools.builtin import FinishTool

_ROUND = re.compile(r"replay-(\d+)-(\d+)-")


class ReplayManager:
    """Replays what is still to be done again; `observe` takes the events of the branch in order."""

    def __init__(self) -> None:
        self._source = -1
        self._rounds: list[list[Message]] = []
        self._done = 0

    @staticmethod
    def get_replay_events(trajectory: Any) -> list[AnyEvent]:
        """The repeatable events of a recorded conversation or of its data; raises `ValueError`."""
        if not isinstance(trajectory, list):
            raise ValueError(f"trajectory: is a {type(trajectory).__name__}; give a list of events")
        events = [_event_of(one, place) for place, one in enumerate(trajectory)]
        branch: list[AnyEvent] = active_branch(events)  # type: ignore[arg-type] # all of them are of the union
        stored = [one for event in branch for one in (event.told if isinstance(event, Recorded) else [event])]
        return [
            event.model_copy(update={"id": UNSTORED})
            for event in stored
            if event.source in ("user", "agent") and isinstance(event, MessageEvent | ActionEvent)
        ]

    def observe(self, event: AnyEvent) -> None:
        if isinstance(event, Trajectory):
            self._source, self._rounds, self._done = event.id, rounds_of(event.turns), 0
        elif isinstance(event, MessageEvent | ActionEvent):
            found = _ROUND.match(event.llm_response_id or "")
            if found is not None and int(found[1]) == self._source:
                self._done = max(self._done, int(found[2]) + 1)

    def should_replay(self) -> bool:
        return self._done < len(self._rounds)

    def step(self, step: StepInput) -> StepOutcome:
        events: list[AnyEvent] = []
        errors: dict[int, str] = {}
        is_last_round = self._done + 1 == len(self._rounds)
        messages = self._rounds[self._done]
        response = _response(Message.assistant(""), "")
        for place, message in enumerate(messages):
            name = f"replay-{self._source}-{self._done}-{place}"
            if message.role == "user":
                events.append(MessageEvent(source="user", llm_message=message, llm_response_id=name))
                continue
            response = _response(message, name)
            outcome = outcome_of(response, step)
            errors.update((len(events) + at, text) for at, text in outcome.errors.items())
            waits = is_last_round and place + 1 == len(messages)
            for event in outcome.events:
                is_message = isinstance(event, MessageEvent) and event.source == "agent"
                events.append(event.model_copy(update={"wait_for_response": waits}) if is_message else event)
        return StepOutcome(events, response, errors)


class ReplayedTurns:
    """Gathers what a user said and an agent answered; the calls of one answer stay together."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._latest = ""

    def say(self, message: Message) -> None:
        self.messages.append(message)
        self._latest = ""

    def call(self, call: MessageToolCall, thought: Sequence[TextContent], response_id: str) -> None:
        if response_id and response_id == self._latest:
            calls = [*(self.messages[-1].tool_calls or []), call]
            self.messages[-1] = self.messages[-1].model_copy(update={"tool_calls": calls})
        else:
            self.messages.append(Message(role="assistant", content=list(thought), tool_calls=[call]))
        self._latest = response_id


def turns_of(events: Iterable[AnyEvent]) -> list[Message]:
    """The turns of a conversation; the user's direct commands count as the agent's, so that their effects happen."""
    turns = ReplayedTurns()
    for event in events:
        if isinstance(event, MessageEvent):
            turns.say(event.llm_message)
        elif isinstance(event, ActionEvent) and event.action is not None:
            call_id = event.tool_call_id or f"call_{len(turns.messages)}"
            call = event.tool_call or call_of(call_id, event.tool_name, event.action)
            turns.call(call, event.thought, event.llm_response_id)
    return turns.messages


def call_of(call_id: str, tool_name: str, action: Action) -> MessageToolCall:
    """The call with which a model asks for this action."""
    arguments = json.dumps(action.model_dump(mode="json", exclude={"kind"}), ensure_ascii=False)
    return MessageToolCall(id=call_id, name=tool_name, arguments=arguments)


def rounds_of(turns: Sequence[Message]) -> list[list[Message]]:
    """The turns that are written together, because nothing would lead from one to the next by itself.

    Results lead on from calls, and the user's words from the agent's; what the user said after a finish comes with it.
    """
    rounds: list[list[Message]] = []
    is_open = False
    for turn in turns:
        if is_open:
            rounds[-1].append(turn)
        else:
            rounds.append([turn])
        finishes = any(call.name == FinishTool.tool_name for call in turn.tool_calls or ())
        is_open = turn.role != "user" and (finishes or not turn.tool_calls)
    return rounds


def _response(message: Message, name: str) -> LLMResponse:
    return LLMResponse(message, name, TokenUsage(), None, 0.0, "stop", "replay")


def beginning_of(turns: Sequence[Message]) -> list[AnyEvent]:
    """What begins a conversation that repeats these turns: the user's first message, and the rest to be repeated.

    Raises `ValueError` where the first turn is none of the user's.
    """
    if not turns or turns[0].role != "user":
        raise ValueError("trajectory: does not begin with a message of the user; give it from its beginning")
    rest: list[AnyEvent] = [Trajectory(turns=list(turns[1:]))] if len(turns) > 1 else []
    return [*rest, MessageEvent(source="user", llm_message=turns[0])]


def _event_of(one: Any, place: int) -> Event:
    if isinstance(one, Event):
        return one
    try:
        return from_data(one)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in problem["loc"][1:])
        what = f"its {field}: {problem['msg']}" if field else f"it is {type(one).__name__}, or has no known kind"
        raise ValueError(f"trajectory: entry {place} is no event ({what}); give events, or their data") from None
