"""``demo/tour``: the model that needs no key. It says what it is, and does one real piece of work in the sandbox."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

from agent_core.llm.demo.history import Intent, MadeCall, Result, Run, runs_of, text_of
from agent_core.llm.demo.tour import HOW_TO_GO_ON, OFFER, Demo, DemoCall, DemoTurn, Script
from agent_core.llm.transport.exchange import CallDelta, Chunk, CompletionRequest, Endpoint

TURN_SECONDS = 0.8
WORD_SECONDS = 0.05
CALL_SECONDS = 0.3

_EXTRAS = ("summary", "security_risk")


class DemoTransport:
    """The demo as a model. ``pace`` in the request's extra body stretches its waits; 0 leaves them out."""

    async def prepare(self, endpoint: Endpoint) -> None:
        """Nothing to prepare."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        """See `Transport.stream`; never fails."""
        pace = _pace(request.extra_body)
        tools = tool_properties(request.tools)
        turn = next_turn(request.messages, tools)
        await _wait(TURN_SECONDS * pace)
        for word in _words(turn.text):
            yield Chunk(text=word, has_choice=True)
            await _wait(WORD_SECONDS * pace)
        for index, call in enumerate(turn.calls):
            await _wait(CALL_SECONDS * pace)
            arguments = json.dumps(_arguments(call, tools.get(call.name, frozenset())))
            delta = CallDelta(index, f"call_{uuid.uuid4().hex[:24]}", call.name, arguments)
            yield Chunk(calls=(delta,), has_choice=True)
        yield Chunk(finish_reason="tool_calls" if turn.calls else "stop", has_choice=True)


def next_turn(messages: Sequence[Mapping[str, Any]], tools: Mapping[str, frozenset[str]]) -> DemoTurn:
    """What the demo says and does next, given the conversation so far."""
    if not tools:
        return _side_turn(messages)
    runs = runs_of(messages)
    if not runs:
        return DemoTurn(f"{OFFER} Say `tour` and I show it. {HOW_TO_GO_ON}")
    run = runs[-1]
    if run.interjection is Intent.STOP:
        return DemoTurn("Stopped. Say `tour` and I go on where I was.")
    if run.interjection is not None:
        return DemoTurn(f"{OFFER} Say `tour` and I go on with it. {HOW_TO_GO_ON}")
    demo = Demo(tools)
    turn = _replayed(demo.guarded(_script(demo, run, runs)), run.turns)
    return turn or DemoTurn(f"That was all. Say `tour` for another round. {HOW_TO_GO_ON}")


def _script(demo: Demo, run: Run, runs: Sequence[Run]) -> Script:
    folder = _folder(runs[:-1])
    if folder is None or run.wants is Intent.TOUR:
        return demo.tour(run.request)
    if run.wants is Intent.TESTS or _mentions(runs[:-1], "/test_from_roman.py"):
        return demo.tests(folder)
    return demo.feature(folder)


def _folder(runs: Sequence[Run]) -> str | None:
    texts = [text for run in reversed(runs) for text in reversed(_arguments_texts(run))]
    found = (re.search(r"(/[^\s'\"]*/drydock-tour(?:-\d+)?)/roman\.py", text) for text in texts)
    return next((match.group(1) for match in found if match), None)


def _mentions(runs: Sequence[Run], words: str) -> bool:
    return any(words in text for run in runs for text in _arguments_texts(run))


def _arguments_texts(run: Run) -> list[str]:
    return [str(value) for calls in run.turns for call in calls for value in call.arguments.values()]


def _replayed(script: Script, made: Sequence[tuple[MadeCall, ...]]) -> DemoTurn | None:
    """The first turn of the script that has not been made yet: turns of the history are fed to it in their order."""
    left = iter(made)
    try:
        turn = next(script)
        while turn.calls:
            results = next((results for calls in left if (results := _results(turn, calls)) is not None), None)
            if results is None:
                return turn
            turn = script.send(results)
    except StopIteration:
        return None
    return turn


def _results(turn: DemoTurn, made: tuple[MadeCall, ...]) -> tuple[Result, ...] | None:
    if len(turn.calls) != len(made):
        return None
    for wanted, call in zip(turn.calls, made, strict=True):
        said = {name: value for name, value in call.arguments.items() if name not in _EXTRAS}
        if wanted.name != call.name or dict(wanted.arguments) != said:
            return None
    return tuple(call.result for call in made)


def _side_turn(messages: Sequence[Mapping[str, Any]]) -> DemoTurn:
    asked = " ".join(text_of(message) for message in messages[-2:]).lower()
    return DemoTurn("A tour of Drydock" if "title" in asked else f"{OFFER} {HOW_TO_GO_ON}")


def tool_properties(tools: Sequence[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """The names of the tools, each with the names of its parameters."""
    functions = [tool.get("function", {}) for tool in tools]
    return {str(one.get("name")): frozenset(one.get("parameters", {}).get("properties", {})) for one in functions}


def _arguments(call: DemoCall, properties: frozenset[str]) -> dict[str, Any]:
    extras = {"summary": call.summary, "security_risk": "LOW"}
    wanted = {name: value for name, value in extras.items() if value and name in properties}
    return {**call.arguments, **wanted}


def _words(text: str) -> Iterator[str]:
    return iter(re.findall(r"\s*\S+\s*$|\s*\S+", text))


def _pace(options: Mapping[str, Any]) -> float:
    pace = options.get("pace", 1.0)
    return max(0.0, float(pace)) if isinstance(pace, int | float) else 1.0


async def _wait(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)
