"""A conversation manager with a real database, sandboxes in memory, and agents whose every step a test decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent_core.controller.agent_controller import TakeTurn
from agent_core.errors import DrydockError
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import EventStore
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice
from agent_core.llm.llm import LLM, CallContext
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.security.secrets import SecretValue
from agent_core.session.agent_session import AfterClose
from agent_core.session.settings import SessionSettings
from agent_core.skills.skill import Skill
from agent_core.testing.fake_sandbox import FakeProvider
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.spec import Tool
from server.conversation_manager.conversation_manager import ManagerParts
from server.conversation_manager.standalone import StandaloneConversationManager
from server.db.database import Database, open_database
from server.db.repositories.conversations import ConversationRecord
from server.session.agents.agent_sessions import UserSecrets
from server.session.recorder import BUSY_STATES
from server.session.sandboxes import Sandboxes, SandboxSelection
from server.session.titles import Announcements, TitleWriter
from server.settings.settings import Settings

WAIT_SECONDS = 60.0


class FakeAgent:
    """An agent session without an agent: a real stream, and states that the test sets."""

    def __init__(
        self, conversation_id: str, store: EventStore, factory: FakeAgents, sandbox: SandboxConnection
    ) -> None:
        self.conversation_id = conversation_id
        self.settings = SessionSettings(llm=LLM())
        self.call_context = CallContext()
        self.has_images_inspected = False
        self.sandbox = sandbox
        self.runtime_status = "STATUS$STARTING_RUNTIME"
        self.runtime_warning = ""
        self.is_ready = self.has_failed = self.is_broken = self.is_closing = False
        self.agent_state = AgentState.LOADING
        self.closed_with: tuple[bool, AfterClose] | None = None
        self.client_tools: list[Tool] = []
        self.tools: list[ToolDefinition] = []
        self.stream: EventStream
        self.take_turn: TakeTurn
        self.unbegun_since: int | None = None
        self._store = store
        self._factory = factory

    async def open(self) -> None:
        await asyncio.sleep(self._factory.open_seconds)
        if self._factory.open_error is not None:
            raise self._factory.open_error
        self.stream = await EventStream.open(self.conversation_id, self._store)

    @property
    def is_at_rest(self) -> bool:
        return self.is_ready and self.agent_state not in BUSY_STATES

    async def skills(self) -> list[Skill] | None:
        return [] if self.is_ready else None

    def set_client_tools(self, tools: Sequence[Tool]) -> None:
        self.client_tools = list(tools)

    def set_named_secrets(self, secrets: Mapping[str, SecretValue]) -> None:
        self.settings = replace(self.settings, named_secrets=dict(secrets))

    async def start(self, initial_message: MessageEvent | None = None) -> None:
        await asyncio.sleep(self._factory.start_seconds)
        if (error := self._factory.start_error) is not None:
            self.runtime_status, self.has_failed = "STATUS$ERROR", True
            self.stream.publish(StatusNotice("STATUS$ERROR", str(error), "error", start_failed=True))
            await self._factory.writing_failures.wait()
            await self.be(AgentState.ERROR)
            raise error
        self.runtime_status = "STATUS$READY"
        await self.be(AgentState.AWAITING_USER_INPUT)
        self.is_ready = True

    async def be(self, state: AgentState) -> None:
        self.agent_state = state
        await self.stream.add_event(AgentStateChanged(agent_state=state))

    async def send(self, event: AnyEvent) -> AnyEvent:
        return await self.stream.add_event(event, "user")

    async def close(self, *, stopped: bool, sandbox: AfterClose = "keep") -> None:
        self.is_closing = True
        await asyncio.sleep(self._factory.close_seconds)
        self.closed_with = (stopped, sandbox)
        if stopped and not self._factory.cannot_store:
            await self.be(AgentState.STOPPED)
        if hasattr(self, "stream"):
            self.stream.close()
        if (error := self._factory.close_errors.get(self.conversation_id)) is not None:
            raise error


def set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class FakeAgents:
    """Makes `FakeAgent`s and keeps them all."""

    store: EventStore
    sandboxes: Sandboxes
    open_seconds: float = 0.0
    start_seconds: float = 0.0
    close_seconds: float = 0.0
    open_error: Exception | None = None
    start_error: DrydockError | None = None
    cannot_store: bool = False
    close_errors: dict[str, DrydockError] = field(default_factory=dict)
    writing_failures: asyncio.Event = field(default_factory=set_event)
    made: list[FakeAgent] = field(default_factory=list)
    secrets: UserSecrets | Exception = field(default_factory=lambda: UserSecrets({}, ()))

    async def secrets_of(self, user_id: str) -> UserSecrets:
        if isinstance(self.secrets, Exception):
            raise self.secrets
        return self.secrets

    async def started(self, record: ConversationRecord) -> None:
        return

    async def make(
        self,
        record: ConversationRecord,
        client_count: Callable[[], int],
        take_turn: TakeTurn,
        unbegun_since: int | None = None,
    ) -> FakeAgent:
        del client_count
        sandbox = SandboxConnection(await self.sandboxes.sandbox(record))
        agent = FakeAgent(record.id, self.store, self, sandbox)
        agent.take_turn = take_turn
        agent.unbegun_since = unbegun_since
        self.made.append(agent)
        await agent.open()
        return agent

    def of(self, conversation_id: str) -> list[FakeAgent]:
        return [agent for agent in self.made if agent.conversation_id == conversation_id]


class Titles:
    """Hears the titles that are announced."""

    def __init__(self) -> None:
        self.announced: list[tuple[str, str]] = []

    async def announce_title(self, conversation_id: str, title: str) -> None:
        self.announced.append((conversation_id, title))


@dataclass
class House:
    """A running manager and what it was made from."""

    manager: StandaloneConversationManager
    database: Database
    agents: FakeAgents
    provider: FakeProvider
    titles: Titles

    async def new(self, conversation_id: str, **facts: Any) -> str:
        await self.database.conversations.create(ConversationRecord(id=conversation_id, **facts))
        return conversation_id

    async def start_sandbox(self, conversation_id: str) -> None:
        """Start its sandbox without a session; the server's first clearing of leftovers, which it is not, is over."""
        sandboxes = self.manager.parts.sandboxes
        provider = await sandboxes.provider()
        await provider.create(sandboxes.spec(ConversationRecord(id=conversation_id))).start(lambda *_: None)

    async def state_of(self, conversation_id: str) -> str | None:
        record = await self.database.conversations.get(conversation_id)
        return record.agent_state if record is not None else None


def hello(text: str = "hello") -> MessageEvent:
    return MessageEvent(source="user", llm_message=Message.user(text))


MakeHouse = Callable[..., Any]


@pytest.fixture
def make_house(tmp_path: Path) -> MakeHouse:
    """Opens a house on the same data folder, as often as wanted; keyword arguments are settings."""

    @asynccontextmanager
    async def make(provider: FakeProvider | None = None, **values: Any) -> AsyncIterator[House]:
        chosen = provider or FakeProvider()

        async def choose() -> SandboxSelection:
            return SandboxSelection(chosen, "fake")

        settings = Settings.model_validate({"data_dir": tmp_path / "data", "cull_interval_seconds": 0.01, **values})
        titles = Titles()
        announcements = Announcements()
        announcements.add(titles)
        async with (
            open_database(settings.data_dir) as database,
            Sandboxes(
                settings,
                instance_id=database.instance_id,
                choose=choose,
                known_ids=database.conversations.ids,
            ) as sandboxes,
        ):
            agents = FakeAgents(database.events, sandboxes)
            parts = ManagerParts(
                settings=settings,
                database=database,
                sandboxes=sandboxes,
                agents=agents,
                titles=TitleWriter(enabled=True),
                announcements=announcements,
            )
            manager = StandaloneConversationManager(parts)
            async with manager:
                yield House(manager, database, agents, chosen, titles)

    return make


@pytest.fixture
async def house(make_house: MakeHouse) -> AsyncIterator[House]:
    async with make_house() as running:
        yield running
