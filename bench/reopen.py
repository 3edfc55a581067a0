"""A long conversation opened again: when its first event is at the client, and when all are."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from agent_core.events.control import AgentState, AgentStateChanged, RecallAction, RecallObservation
from agent_core.events.llm_events import (
    ActionEvent,
    MessageEvent,
    MetricsSnapshot,
    ObservationEvent,
    SystemPromptEvent,
    TokenUsage,
)
from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.tools.terminal import TerminalAction, TerminalObservation
from bench.client import following, state_of
from bench.figures import Figure, p50
from bench.processes import Server
from bench.stage import Stage
from server.db.database import Database, open_database
from server.db.repositories.conversations import ConversationRecord

EVENTS = 10_000
BATCH = 500
OUTPUT = "".join(f"src/package/module_{n}.py: 12 functions, {n * 7} lines\n" for n in range(8))


async def measure(stage: Stage) -> list[Figure]:
    """Conversations that nobody has opened since the server started, then one that is loaded already."""
    rounds, length = stage.few(5, 1), stage.few(EVENTS, 1000)
    data_dir = stage.data_dir()
    names = [f"long{n}" for n in range(rounds + 1)]
    stage.say(f"making {len(names)} conversations of {length:,} events")
    async with open_database(data_dir) as database:
        await make_logs(database, names, length)
    first, everything, again_first, again_all = [], [], [], []
    async with stage.server(data_dir=data_dir, resume_on_start="false") as server:
        await _open(server, names.pop(), length)  # what is loaded once in a process's life
        for number, name in enumerate(names):
            to_first, to_all = await _open(server, name, length)
            first.append(to_first * 1000)
            everything.append(to_all)
            stage.say(f"reopened {number + 1} of {rounds}: first {first[-1]:.0f} ms, all {to_all:.2f} s")
        for _ in names:
            to_first, to_all = await _open(server, names[0], length)
            again_first.append(to_first * 1000)
            again_all.append(to_all)
    return [
        Figure(f"{length:,}-event conversation reopened: first event at the client", p50(first), "ms", 100),
        Figure(f"{length:,}-event conversation reopened: all events at the client", p50(everything), "s", 1.5),
        Figure("  already loaded: first event", p50(again_first), "ms", 100),
        Figure("  already loaded: all events", p50(again_all), "s", 1.5),
    ]


async def _open(server: Server, conversation_id: str, length: int) -> tuple[float, float]:
    """Seconds from the first byte of the connection to the first event and to the last of the history."""
    began, now = time.perf_counter(), time.time()
    async with following(server.url, conversation_id) as client:
        # The state ends the history; all the rest stands before it.
        await client.until(lambda frame: state_of(frame) is not None)
        to_all = time.perf_counter() - began
    history = [arrival.frame for arrival in client.arrivals if state_of(arrival.frame) is None]
    assert len(history) >= length - 10, f"only {len(history)} events came"
    return client.arrivals[0].at - now, to_all


async def make_logs(database: Database, names: list[str], length: int) -> None:
    """Conversations of these ids that are done, with so many events each."""
    for name in names:
        await database.conversations.create(ConversationRecord(id=name, title=name, trigger="gui"))
        stream = await EventStream.open(name, database.events)
        events = list(_log(length))
        for start in range(0, length, BATCH):
            await stream.add_events(events[start : start + BATCH])
        stream.close()


def _log(length: int) -> Iterator[AnyEvent]:
    """A conversation that is done: what the agent was told, a user's message, and steps until it finished."""
    events: list[AnyEvent] = [
        AgentStateChanged(agent_state=AgentState.LOADING),
        SystemPromptEvent(system_prompt=TextContent(text="You look through code.")),
        AgentStateChanged(agent_state=AgentState.AWAITING_USER_INPUT),
        MessageEvent(source="user", llm_message=Message.user("Look through all modules.")),
        RecallAction(recall_type="workspace_context", query="Look through all modules.", cause=3),
        AgentStateChanged(agent_state=AgentState.RUNNING),
        RecallObservation(cause=4, recall_type="workspace_context", working_dir="/workspace"),
    ]
    yield from events
    last = length - 2
    for number in range(len(events), last - 1, 2):
        yield from _step(number)
    yield MessageEvent(
        source="agent",
        llm_message=Message.assistant("All modules have functions."),
        llm_response_id="resp_last",
        wait_for_response=True,
        seen=last - 1,
    )
    yield AgentStateChanged(agent_state=AgentState.AWAITING_USER_INPUT)


def _step(number: int) -> Iterator[AnyEvent]:
    """The command that is event `number`, and its result."""
    command = f"grep -c def src/package/module_{number}.py"
    call_id = f"call_{number}"
    yield ActionEvent(
        thought=[TextContent(text="The next module has to be looked at as well.")],
        action=TerminalAction(command=command),
        tool_name="terminal",
        tool_call_id=call_id,
        tool_call=MessageToolCall(id=call_id, name="terminal", arguments=json.dumps({"command": command})),
        llm_response_id=f"resp_{number}",
        seen=number - 1,
        metrics=MetricsSnapshot(usage=TokenUsage(model="scripted", prompt_tokens=number * 100)),
    )
    yield ObservationEvent(
        source="agent",
        cause=number,
        observation=TerminalObservation.from_text(OUTPUT, command=command, exit_code=0, working_dir="/workspace"),
        tool_name="terminal",
        tool_call_id=call_id,
    )
