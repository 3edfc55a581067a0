"""Garbage from a model, over HTTP, through whole conversations: it is told what is wrong, and it ends."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core import LLM, Agent, Conversation, ExecutionStatus, Tool
from agent_core.agent.agent import MAX_CALLS_IN_RESPONSE
from agent_core.controller.guards import MAX_EMPTY_REPLIES, MAX_FRUITLESS_REPLIES
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, MessageEvent, ObservationEvent
from agent_core.events.serialization import AnyEvent
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Call, Turn, call, calls, fail, finish, raw, say
from tests.unit.library.playing import Sandbox

Answer = Callable[[ModelRequest], Turn]

ENDED = (ExecutionStatus.ERROR, ExecutionStatus.STUCK)
ATTEMPTS = 2


class Run:
    """A conversation with a model that says only garbage until its user has had enough."""

    def __init__(self, answer: Answer, **options: Any) -> None:
        self.answer = answer
        self.options = options
        self.sandbox = Sandbox()
        self.events: list[AnyEvent] = []
        self.requests = 0
        self.status = ExecutionStatus.IDLE
        self.shown = ""
        self._is_sane = False

    async def play(self) -> Run:
        """Run until it ends by itself, then once more with a model that has come to its senses."""
        async with ModelServer(lambda request: finish("sorry") if self._is_sane else self.answer(request)) as server:
            llm = LLM(
                model="openai/scripted",
                base_url=server.url,
                api_key=SecretStr("key-123456"),
                num_retries=ATTEMPTS,
                retry_min_wait=0,
                retry_max_wait=0,
                timeout=5,
            )
            agent = Agent(llm=llm, tools=[Tool(name="terminal"), Tool(name="file_editor")])
            conversation = await asyncio.to_thread(self._make, agent)
            try:
                await self._run(conversation, "Build a boat.")
                self.requests = server.request_count
                self.status = await asyncio.to_thread(lambda: conversation.state.execution_status)
                self.events = await asyncio.to_thread(lambda: list(conversation.state.events))
                if self.status is not ExecutionStatus.FINISHED:
                    self._is_sane = True
                    await self._run(conversation, "Come to your senses.")
                    ended = await asyncio.to_thread(lambda: conversation.state.execution_status)
                    assert ended is ExecutionStatus.FINISHED, (
                        f"it works again as soon as its model does: {self.shown[-600:]}"
                    )
                check_prompt(server.last_request.messages)
            finally:
                await asyncio.to_thread(conversation.close)
        for event in self.events:
            if isinstance(event, ActionEvent):
                answers = [one for one in self.events if one.cause == event.id and not isinstance(one, ActionEvent)]
                assert len(answers) == 1, "each call has one answer"
        return self

    def _make(self, agent: Agent) -> Conversation:
        return Conversation(agent=agent, workspace=self.sandbox, **self.options)

    async def _run(self, conversation: Conversation, message: str) -> None:
        await asyncio.to_thread(conversation.send_message, message)
        async with asyncio.timeout(60):
            try:
                await conversation.arun()
            except Exception as error:  # noqa: BLE001 - what the program is told; the tests look at it
                self.shown = str(error)

    @property
    def errors(self) -> list[str]:
        return [event.error for event in self.events if isinstance(event, AgentErrorEvent)]

    @property
    def told(self) -> list[str]:
        """What the environment told the model besides."""
        said = [event for event in self.events if isinstance(event, MessageEvent) and event.source == "environment"]
        return [event.llm_message.text for event in said]


def check_prompt(messages: list[dict[str, Any]]) -> None:
    """Each call has exactly one result, right after the message with its batch."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting
        waiting = [one["id"] for one in message.get("tool_calls") or ()]
    assert not waiting


def always(turn: Turn) -> Answer:
    return lambda request: turn


@pytest.mark.parametrize(
    ("turn", "at_most", "problem"),
    [
        (call("terminal", '{"command": "ls'), 5, "JSON"),
        (call("terminal", "[1, 2]"), 5, "object"),
        (call("terminal", "null"), 5, "no JSON object"),
        (call("terminal", '"ls"'), 5, "object"),
        (call("terminal", "[" * 100_000), 5, "JSON"),
        (call("terminal", '{"command": {"a": NaN}}'), 5, "command"),
        (call("terminal", {"command": "ls", "speed": "high"}), 5, "speed"),
        (call("terminal", {"command": 7e400}), 5, "command"),
        (call("launch_rocket", {"to": "moon"}), 5, "launch_rocket"),
        (call("", {"command": "ls"}), 5, "not found"),
        (call("x" * 10_000, {}), 5, "not found"),
        (call("terminal\n; rm -rf /", {}), 5, "command: Field required"),
        (call("rm -rf /", {}), 5, "not found"),
        (call("file_editor", {"command": "view"}), 5, "path"),
    ],
)
async def test_the_same_bad_call_again_and_again_is_told_what_is_wrong_then_warned_then_stopped(
    turn: Turn, at_most: int, problem: str
) -> None:
    run = await Run(always(turn)).play()
    assert run.status is ExecutionStatus.STUCK
    assert run.requests <= at_most
    assert run.errors
    assert all(problem in error for error in run.errors), run.errors[:1]
    assert max(map(len, run.errors)) < 5_000, "an error says what is wrong, not everything that was said"
    assert run.sandbox.ran == []
    assert any("Do not repeat it" in text for text in run.told)


@pytest.mark.parametrize(
    "turn",
    [say(""), say("  \n "), Turn(reasoning="Hm, hm."), Turn(calls=(), finish_reason="length"), raw({"choices": [{}]})],
)
async def test_replies_with_nothing_in_them_are_asked_again_a_few_times(turn: Turn) -> None:
    run = await Run(always(turn)).play()
    assert run.status is ExecutionStatus.ERROR
    assert run.requests == MAX_EMPTY_REPLIES
    assert "empty replies" in run.shown
    assert all("neither text nor a tool call" in text for text in run.told)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "terminal", "arguments": {"command": "ls"}}</tool_call>',
        "<function=terminal>\n<parameter=command>ls</parameter>\n</function>",
        '```json\n{"name": "terminal", "arguments": {"command": "ls"}}\n```',
    ],
)
async def test_calls_written_into_the_text_are_not_run_and_the_model_is_told_how_to_make_them(text: str) -> None:
    run = await Run(always(say(text))).play()
    assert run.status in ENDED
    assert run.requests <= 5
    assert run.sandbox.ran == []
    assert any("wrote a tool call as text" in told for told in run.told)


async def test_ever_new_garbage_that_is_no_repetition_ends_too() -> None:
    numbers: Iterator[int] = iter(range(10_000))
    run = await Run(lambda request: call(f"tool_{next(numbers)}", {})).play()
    assert run.status is ExecutionStatus.ERROR
    assert run.requests == MAX_FRUITLESS_REPLIES
    assert "held no tool call that could be run" in run.shown


async def test_garbage_between_good_calls_ends_with_the_limit_of_the_run() -> None:
    def answer(request: ModelRequest) -> Turn:
        number = len(request.messages)
        return call("terminal", {"command": f"echo {number}"}) if number % 4 else call(f"tool_{number}", "{")

    run = await Run(answer, max_iteration_per_run=20).play()
    assert run.status is ExecutionStatus.ERROR
    assert run.requests == 20
    assert "maximum iteration" in str(run.events[-1])


async def test_hundreds_of_calls_in_one_reply_all_run_and_of_far_more_it_is_told() -> None:
    def many(count: int) -> Answer:
        turn = calls(*(Call("terminal", {"command": f"echo {number}"}) for number in range(count)))
        return lambda request: turn if len(request.messages) < 3 else finish("done")

    run = await Run(many(200)).play()
    assert run.status is ExecutionStatus.FINISHED
    assert run.requests == 2
    assert Counter(run.sandbox.ran) == Counter(f"echo {number}" for number in range(200))
    run = await Run(many(MAX_CALLS_IN_RESPONSE + 500)).play()
    assert run.status is ExecutionStatus.FINISHED
    assert run.sandbox.ran == [f"echo {number}" for number in range(MAX_CALLS_IN_RESPONSE)]
    (error,) = run.errors
    assert f"held {MAX_CALLS_IN_RESPONSE + 500} calls, and only the first {MAX_CALLS_IN_RESPONSE}" in error


async def test_a_hundred_bad_calls_in_one_reply_are_each_answered() -> None:
    turn = calls(*(Call(f"tool_{number}", "{" * number, id="same") for number in range(100)))
    run = await Run(lambda request: turn if len(request.messages) < 3 else finish("done")).play()
    assert run.status is ExecutionStatus.FINISHED
    assert len(run.errors) == 100
    assert len({event.tool_call_id for event in run.events if isinstance(event, ActionEvent)}) == 101


@pytest.mark.parametrize("size", [1_000_000, 5_000_000])
async def test_arguments_of_megabytes_are_run_and_broken_ones_are_told_in_few_words(size: int) -> None:
    said = iter([call("think", {"thought": "x" * size}), call("think", '{"thought": "' + "x" * size), finish("done")])
    run = await Run(lambda request: next(said)).play()
    assert run.status is ExecutionStatus.FINISHED
    assert run.requests == 3
    (error,) = run.errors
    assert len(error) < 5_000
    assert any(isinstance(event, ObservationEvent) for event in run.events)


@pytest.mark.parametrize(
    ("turn", "at_most"),
    [
        (fail(500, "oops"), ATTEMPTS),
        (fail(429, "slow down"), ATTEMPTS),
        (fail(400, "I do not like this"), 1),
        (fail(401, "no"), 1),
        (say("half").then("cut"), ATTEMPTS),
        (say("half").then("invalid_json"), ATTEMPTS),
        (say("").then("no_choices"), ATTEMPTS),
        (Turn(fault="reset"), 2 * ATTEMPTS),
        (Turn(body="<html><title>Gate</title></html>", content_type="text/html"), ATTEMPTS),
        (Turn(body="", content_type="text/event-stream"), ATTEMPTS),
        (Turn(body="[]"), ATTEMPTS),
        (Turn(body='{"error": {"message": "overloaded", "code": 503}}'), ATTEMPTS),
    ],
)
async def test_answers_that_are_none_are_asked_for_as_often_as_configured(turn: Turn, at_most: int) -> None:
    run = await Run(always(turn)).play()
    assert run.status is ExecutionStatus.ERROR
    assert 1 <= run.requests <= at_most
    assert "openai/scripted" in run.shown
    assert "key-123456" not in run.shown


def random_turn(chance: random.Random) -> Turn:
    """Anything that a confused model may say."""
    words = ["terminal", "think", "finish", "no_such", "", "file_editor", "terminal;", "日本"]
    arguments: list[Any] = [
        *({}, {"command": "ls"}, {"message": 3}, {"thought": None}, {"command": "view", "path": 1}),
        *("{", "null", "[]", '{"a":', "x" * 50, '{"command": "ls"}}', "\ud83d", '{"security_risk": "EXTREME"}'),
    ]
    several = tuple(
        Call(chance.choice(words), chance.choice(arguments), id=chance.choice([None, "", "same"]))
        for _ in range(chance.choice([0, 1, 1, 2, 5]))
    )
    text = chance.choice(["", "", "Let me see.", "<tool_call>", "</think>", '{"name": "terminal"}', "\x00\x1b[2J"])
    return Turn(
        text=text,
        calls=several,
        reasoning=chance.choice(["", "Hm."]),
        finish_reason=chance.choice([None, None, "length", "stop", "strange"]),
        argument_pieces=chance.choice([1, 3, 4096]),
        usage=chance.choice(["auto", None, {"prompt_tokens": "many"}, {}]),
    )


@pytest.mark.parametrize("seed", range(12))
async def test_any_mixture_of_garbage_comes_to_an_end(seed: int) -> None:
    chance = random.Random(seed)
    run = await Run(lambda request: random_turn(chance), max_iteration_per_run=30).play()
    assert run.requests <= 30 * ATTEMPTS
    assert run.status in (*ENDED, ExecutionStatus.FINISHED)
    assert json.dumps(run.errors)
