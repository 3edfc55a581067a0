"""One agent's steps: what we add around the model's answer, and the whole step over HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise

from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM
from agent_core.llm.transport.exchange import CallDelta, Chunk, CompletionRequest, Endpoint
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.sandbox import SandboxSpec
from agent_core.session.agent_session import AgentSession
from agent_core.session.settings import SessionSettings
from bench.client import Client, following, is_command, timestamp
from bench.equipped import equipped
from bench.figures import Figure, p50
from bench.machine import processor_seconds
from bench.processes import Server
from bench.stage import QUICK_STEPS, Stage
from server.cli import spare_collector
from server.db.database import open_database

FIRST_STEPS = 50
LATE_STEP = 400
AROUND = 20
IMAGE = "drydock/sandbox:base"
LIMIT_SECONDS = 120.0


class InstantModel:
    """A way to a model that answers without any delay, and notes when it was asked and when it was done."""

    def __init__(self, steps: int, command: str = "echo step {}") -> None:
        self._steps = steps
        self._command = command
        self.asked: list[float] = []
        self.answered: list[float] = []

    async def prepare(self, endpoint: Endpoint) -> None:
        """Nothing takes long here."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        """A command, or after the last step the end."""
        del request
        self.asked.append(time.perf_counter())
        number = len(self.asked)
        if number <= self._steps:
            name, arguments = "terminal", {"command": self._command.format(number), "security_risk": "LOW"}
        else:
            name, arguments = "finish", {"message": "done"}
        call = CallDelta(index=0, id=f"call_{number}", name=name, arguments=json.dumps(arguments))
        yield Chunk(calls=(call,), has_choice=True)
        yield Chunk(finish_reason="tool_calls", has_choice=True, usage={"prompt_tokens": 100, "completion_tokens": 10})
        self.answered.append(time.perf_counter())

    @property
    def between(self) -> list[float]:
        """Seconds from each answer to the next request."""
        return [after - before for before, after in zip(self.answered, self.asked[1:], strict=False)]


async def measure(stage: Stage) -> list[Figure]:
    """The overhead of a step in this process, bare and with everything on, then whole steps in a server process."""
    return [
        *await _overhead(stage, "step overhead without the LLM client", _bare),
        *await _overhead(stage, "– with condensers, analyzers and skills on", equipped),
        *await _whole(stage),
    ]


def _bare(llm: LLM) -> SessionSettings:
    return SessionSettings(llm=llm)


async def _overhead(stage: Stage, name: str, settings: Callable[[LLM], SessionSettings]) -> list[Figure]:
    stage.say(f"steps with a model in the same process: {name}")
    steps = stage.few(LATE_STEP + AROUND, 12)
    model = InstantModel(steps)
    data_dir = stage.data_dir()
    async with open_database(data_dir) as database, stage.provider(data_dir) as provider:
        await database.make_room()  # this and the next as a server does when it has started
        spare_collector()
        try:
            spec = SandboxSpec("overhead", database.instance_id, image=IMAGE, data_dir=str(data_dir), network="none")
            session = await AgentSession.open(
                "overhead",
                store=database.events,
                settings=settings(LLM(model="openai/instant").using(model)),
                sandbox=SandboxConnection(provider.create(spec)),
            )
            before = time.process_time()
            executed = await _run(session)
            used = (time.process_time() - before) / steps * 1000
        finally:
            await stage.remove_sandboxes(data_dir, database.instance_id)
    between = [seconds * 1000 for seconds in model.between]
    figures = [
        Figure(name, p50(between[1:FIRST_STEPS]), "ms", 4),
        Figure("  of it: action stored → observation made", p50(executed[1:FIRST_STEPS]) * 1000, "ms"),
        Figure("  processor time of a step", used, "ms"),
    ]
    if len(between) > LATE_STEP:
        late = between[LATE_STEP - AROUND : LATE_STEP + AROUND]
        figures.append(Figure(f"  the same at step {LATE_STEP}", p50(late), "ms"))
    return figures


async def _run(session: AgentSession) -> list[float]:
    """Let the agent work to its end; returns the seconds from each action's time to its observation's."""
    try:
        return await until_finished(session)
    finally:
        await session.close(stopped=False, sandbox="destroy")


async def until_finished(session: AgentSession) -> list[float]:
    """Let an opened session's agent work to its end, which leaves it loaded; returns what `_run` does."""
    actions: dict[int, ActionEvent] = {}
    executed: list[float] = []
    await session.start(MessageEvent(source="user", llm_message=Message.user("go")))
    async with asyncio.timeout(LIMIT_SECONDS), session.stream.subscribe() as events:
        async for event in events:
            match event:
                case ActionEvent():
                    actions[event.id] = event
                case ObservationEvent() if event.cause in actions:
                    executed.append((event.timestamp - actions[event.cause].timestamp).total_seconds())
                case AgentStateChanged(agent_state=AgentState.FINISHED):
                    return executed
                case AgentStateChanged(agent_state=AgentState.ERROR):
                    raise RuntimeError(f"the agent failed: {event.reason} {event.detail}")
    raise RuntimeError("the log ended before the agent was done")


async def _whole(stage: Stage) -> list[Figure]:
    late_to = LATE_STEP + AROUND
    rounds = stage.few(3, 1)
    early: list[float] = []
    late: list[float] = []
    used: list[float] = []
    async with stage.playing(late_to) as server:
        await _steps(server, stage.few(FIRST_STEPS, QUICK_STEPS))  # loads the client library
        for number in range(rounds):
            before = processor_seconds(server.pid)
            seconds = await _steps(server, stage.few(late_to, QUICK_STEPS))
            used.append((processor_seconds(server.pid) - before) / len(seconds) * 1000)
            early += seconds[:FIRST_STEPS]
            late += seconds[LATE_STEP - AROUND :]
            stage.say(f"whole steps, conversation {number + 1} of {rounds}: {p50(seconds[:FIRST_STEPS]) * 1000:.1f} ms")
    figures = [Figure(f"whole step, model over HTTP, first {FIRST_STEPS}", p50(early) * 1000, "ms", 10)]
    if late:
        figures.append(Figure(f"whole step at step {LATE_STEP}", p50(late) * 1000, "ms", 16))
    return [*figures, Figure("  processor time of the server, per step", p50(used), "ms")]


async def _steps(server: Server, count: int) -> list[float]:
    """Seconds from each action to the next in a new conversation, while a client looks on."""
    conversation_id = await server.create(initial_user_msg="go")
    try:
        async with following(server.url, conversation_id) as client:
            await _until_commands(client, count)
    finally:
        await server.delete(conversation_id)
    times = [timestamp(arrival.frame) for arrival in client.arrivals if is_command(arrival.frame)]
    return [after - before for before, after in pairwise(times)]


async def _until_commands(client: Client, count: int) -> None:
    seen = 0
    while seen < count:
        await client.until(is_command)
        seen += 1
