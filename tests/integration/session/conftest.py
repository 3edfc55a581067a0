"""A whole session on real parts: a model over HTTP, a Docker sandbox, and the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import EventStore, InMemoryEventStore
from agent_core.llm.llm import LLM
from agent_core.llm.transport import client
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.sandbox import SandboxSpec
from agent_core.session.agent_session import AgentSession
from agent_core.session.settings import SessionSettings
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import Call, Turn

LIMIT_SECONDS = 90.0  # the first model loads its library, which takes a busy machine a while


def user(text: str) -> MessageEvent:
    return MessageEvent(source="user", llm_message=Message.user(text))


def run(command: str, **arguments: Any) -> Call:
    return Call("terminal", {"command": command, **arguments})


def finish(message: str = "done") -> Turn:
    return Turn(calls=(Call("finish", {"message": message}),))


def wants(state: AgentState) -> ChangeAgentState:
    return ChangeAgentState(agent_state=state)


@dataclass
class House:
    """Makes sessions of conversations that share one store and one Docker instance id."""

    stack: AsyncExitStack
    data_dir: Path
    provider: DockerProvider
    instance_id: str
    store: EventStore = field(default_factory=InMemoryEventStore)
    models: list[ModelServer] = field(default_factory=list)

    async def model(self, script: Iterable[Turn] | Callable[[Any], Turn]) -> ModelServer:
        server = await self.stack.enter_async_context(ModelServer(script))
        self.models.append(server)
        return server

    async def session(self, conversation_id: str, model: ModelServer | None, **settings: Any) -> AgentSession:
        llm = settings.pop("llm", None)
        if llm is None:
            assert model is not None
            quick = {"num_retries": 3, "retry_min_wait": 0.05, "retry_max_wait": 0.1, "retry_multiplier": 0.05}
            llm = LLM(model="openai/scripted", base_url=model.url, api_key="sk-test-key-000", timeout=30, **quick)
        spec = SandboxSpec(
            conversation_id=conversation_id,
            instance_id=self.instance_id,
            image="drydock/sandbox:base",
            data_dir=str(self.data_dir),
            network="none",
        )
        connection = SandboxConnection(self.provider.create(spec))
        return await AgentSession.open(
            conversation_id, store=self.store, settings=SessionSettings(llm=llm, **settings), sandbox=connection
        )

    @asynccontextmanager
    async def running(
        self,
        model: ModelServer | None,
        first: str | None = None,
        *,
        conversation_id: str | None = None,
        **settings: Any,
    ) -> AsyncIterator[AgentSession]:
        session = await self.session(conversation_id or uuid4().hex, model, **settings)
        try:
            await session.start(user(first) if first is not None else None)
            yield session
        finally:
            await session.close(stopped=False)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    provider = DockerProvider()
    instance_id = f"test-{uuid4().hex[:12]}"
    async with AsyncExitStack() as stack:
        yield House(stack, tmp_path, provider, instance_id)
    await provider.reap(instance_id, keep=())
    await provider.close()
    await client.aclose()


async def events_until(session: AgentSession, done: Callable[[AnyEvent], bool], *, after: int = -1) -> list[AnyEvent]:
    """All events after `after` up to the first for which `done` holds."""
    seen: list[AnyEvent] = []
    try:
        async with asyncio.timeout(LIMIT_SECONDS), session.stream.subscribe(after=after) as events:
            async for event in events:
                seen.append(event)  # type: ignore[arg-type]
                if done(event):  # type: ignore[arg-type]
                    return seen
    except TimeoutError:
        raise AssertionError(f"it never came; there were {[describe(event) for event in seen]}") from None
    raise AssertionError(f"the stream ended; there were {[describe(event) for event in seen]}")


def entered(*states: AgentState) -> Callable[[AnyEvent], bool]:
    return lambda event: isinstance(event, AgentStateChanged) and event.agent_state in states


async def until_state(session: AgentSession, *states: AgentState, after: int = -1) -> list[AnyEvent]:
    return await events_until(session, entered(*states), after=after)


def describe(event: AnyEvent) -> str:
    match event:
        case AgentStateChanged():
            return f"state {event.agent_state.value}"
        case ChangeAgentState():
            return f"wants {event.agent_state.value}"
    return f"{event.kind} ({event.source})"
