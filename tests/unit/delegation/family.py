"""An agent with sub-agents: a model over HTTP, whose lines are given by conversation, and a sandbox of no programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from agent_core.agent.agent import Agent
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState
from agent_core.events.llm_events import MessageEvent, ObservationEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.events.store import EventStore, InMemoryEventStore, belongs_to
from agent_core.llm.llm import LLM
from agent_core.llm.transport import client
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.sandbox import SandboxSpec
from agent_core.session.agent_session import AgentSession
from agent_core.session.settings import SessionSettings
from agent_core.testing.fake_sandbox import FakeAnswer, FakeRequest, FakeSandbox, command_result
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Call, Turn, calls, fail
from agent_core.tools.spec import Tool

GO = "GO"
LIMIT_SECONDS = 60.0
PRICE = 0.001
"""US dollars for each token; an answer has at least 100 of the prompt."""

Lines = Mapping[str, Sequence[Turn]]
"""What the model says in the conversation whose first message is the key, answer by answer; the last one for ever."""


def spawn(*ids: str, **fields: Any) -> Call:
    return Call("delegate", {"command": "spawn", "ids": list(ids), **fields})


def hand_out(**tasks: str) -> Call:
    return Call("delegate", {"command": "delegate", "tasks": tasks})


def task(prompt: str, **fields: Any) -> Call:
    return Call("task", {"prompt": prompt, **fields})


def done(message: str = "done") -> Turn:
    return calls(Call("finish", {"message": message}))


def run(command: str) -> Turn:
    return calls(Call("terminal", {"command": command, "security_risk": "HIGH"}))


def first_message(request: ModelRequest) -> str:
    texts = [one["content"] for one in request.messages if one["role"] == "user"]
    text = texts[0] if isinstance(texts[0], str) else texts[0][0]["text"]
    return str(text).strip().partition("\n")[0]


@dataclass
class Family:
    """One conversation, `begin` and `crash` as often as wanted; `commands` are those that the sandbox was given."""

    server: ModelServer
    store: EventStore = field(default_factory=InMemoryEventStore)
    settings: dict[str, Any] = field(default_factory=dict)
    tools: Sequence[str] = ("terminal", "delegate", "task_tool_set")
    facts: dict[str, Any] = field(default_factory=dict)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    commands: list[tuple[str, str]] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    interrupted: list[str] = field(default_factory=list)
    on_command: Callable[[str], None] = field(default=lambda command: None)

    def __post_init__(self) -> None:
        spec = SandboxSpec("c", instance_id="i", image="none", data_dir="/nonexistent")
        handlers = {"shell.run": self._run, "shell.kill": self._kill, "workspace.facts": self._facts}
        self.sandbox = FakeSandbox(spec, handlers)

    async def begin(self) -> None:
        await self.load()
        await self.session.start()

    async def begin_with(self, state: AgentState) -> None:
        """Begin while the user asks for this state."""
        await self.load()
        await self.ask_for(state)
        await self.session.start()

    async def load(self) -> None:
        llm = LLM(
            model="openai/scripted",
            base_url=self.server.url,
            api_key=SecretStr("a-model-key"),
            num_retries=1,
            input_cost_per_token=PRICE,
            output_cost_per_token=PRICE,
        )
        agent = Agent(llm=llm, tools=[Tool(name=name) for name in self.tools])
        settings = SessionSettings(llm=llm, agent=agent, **self.settings)
        sandbox = SandboxConnection(self.sandbox)
        self.session = await AgentSession.open("c", store=self.store, settings=settings, sandbox=sandbox)

    async def say(self, text: str = GO) -> None:
        await self.session.send(MessageEvent(source="user", llm_message=Message.user(text)))

    async def ask_for(self, state: AgentState) -> None:
        await self.session.send(ChangeAgentState(agent_state=state))

    async def confirm_own(self) -> None:
        """Agree to what the agent itself wants, once it asks."""
        await self.until(lambda events: state_of(events) is AgentState.AWAITING_USER_CONFIRMATION)
        await self.ask_for(AgentState.USER_CONFIRMED)

    async def crash(self) -> None:
        """End without a word in the log, as a killed server does; what runs in the sandbox goes on."""
        await self.session.close(stopped=False)

    async def log(self, conversation_id: str = "c") -> list[AnyEvent]:
        events: list[AnyEvent] = []
        while page := await self.store.read(conversation_id, after=len(events) - 1):
            events.extend(from_payload(record.payload, record.id) for record in page)
        return events

    async def until(self, done: Callable[[list[AnyEvent]], bool], conversation_id: str = "c") -> list[AnyEvent]:
        """The log once `done` holds for it."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                if done(events := await self.log(conversation_id)):
                    return events
                await asyncio.sleep(0.005)

    async def at_rest(self) -> list[AnyEvent]:
        """The log once the agent has finished or failed."""
        return await self.until(lambda events: state_of(events) in (AgentState.FINISHED, AgentState.ERROR))

    async def began(self, *commands: str) -> None:
        """Wait until the sandbox was given these commands."""
        await self.until(lambda _: set(commands) <= {command for _, command in self.commands})

    def children(self) -> list[str]:
        """The ids of all sub-conversations that have a log."""
        assert isinstance(self.store, InMemoryEventStore)
        return sorted(log for log in self.store._logs if log != "c" and belongs_to(log, "c"))

    def requests_of(self, first: str) -> list[ModelRequest]:
        return [request for request in self.server.requests if first_message(request) == first]

    async def _run(self, call: FakeRequest) -> FakeAnswer:
        session, command = str(call.args["session"]), str(call.args["command"])
        self.commands.append((session, command))
        self.on_command(command)
        if command.startswith("wait"):
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.interrupted.append(command)
                raise
        return command_result(f"ran {command}\n")

    async def _kill(self, call: FakeRequest) -> FakeAnswer:
        self.killed.append(str(call.args["session"]))
        return {"killed": True}

    async def _facts(self, call: FakeRequest) -> FakeAnswer:
        return {"working_dir": "/workspace", "user": "agent", "os": "Linux", "python": "3", "git": None, **self.facts}


def state_of(events: Sequence[AnyEvent]) -> AgentState | None:
    changes = [event.agent_state for event in events if isinstance(event, AgentStateChanged)]
    return changes[-1] if changes else None


def results(events: Sequence[AnyEvent], *tools: str) -> list[str]:
    """The texts of the tools' results, in order."""
    wanted = tools or ("delegate", "task")
    found = [event for event in events if isinstance(event, ObservationEvent) and event.tool_name in wanted]
    return [event.observation.text for event in found]


@asynccontextmanager
async def family(lines: Lines, **fields: Any) -> AsyncIterator[Family]:
    """A family that has begun; `fields` are those of `Family`."""

    def script(request: ModelRequest) -> Turn:
        own: Sequence[Turn] = lines.get(first_message(request), [fail(400, f"no lines for {first_message(request)!r}")])
        said = sum(one["role"] == "assistant" for one in request.messages)
        turn: Turn = own[min(said, len(own) - 1)]
        return turn

    async with ModelServer(script) as server:
        made = Family(server, **fields)
        await made.begin()
        try:
            yield made
        finally:
            await made.session.close(stopped=False)
            await made.sandbox.destroy()
            await client.aclose()
