"""A whole session on a stage: model, sandbox and store do nothing until the test lets them."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_core.errors import EventStoreError, LLMBadRequestError
from agent_core.events.control import AgentState, ChangeAgentState
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import InMemoryEventStore, NewEvent, StoredEvent
from agent_core.llm.llm import LLM
from agent_core.llm.transport.exchange import CallDelta, Chunk, CompletionRequest, Endpoint
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.sandbox import SandboxSpec
from agent_core.session.agent_session import AgentSession
from agent_core.session.settings import SessionSettings
from agent_core.testing.fake_sandbox import FakeAnswer, FakeBehaviour, FakeRequest, FakeSandbox

FACTS = {"working_dir": "/workspace", "user": "agent", "os": "Linux", "python": "3.12.1", "git": None}

Reply = tuple[str, Sequence[tuple[str, str]]]
"""Text, and the calls: name and arguments as the model writes them."""

REPLIES: dict[str, Reply] = {
    "text": ("Which one?", ()),
    "nothing": ("", ()),
    "one": ("I look.", [("terminal", '{"command": "ls", "security_risk": "LOW"}')]),
    "risky": ("", [("terminal", '{"command": "rm x", "security_risk": "HIGH"}')] * 2),
    "three": ("", [("terminal", '{"command": "a"}'), ("think", '{"thought": "b"}'), ("terminal", '{"command": "c"}')]),
    "garbage": ("", [("terminal", '{"comm'), ("nope", "{}"), ("", "[1]"), ("terminal", '{"command": "d"}')]),
    "bad": ("", [("nope", "null")]),
    "finish": ("", [("finish", '{"message": "done"}')]),
    "mixed": ("", [("nope", "{}"), ("finish", '{"message": "done"}'), ("terminal", '{"command": "late"}')]),
    "call in text": ('<tool_call>{"name": "terminal", "arguments": {"command": "ls"}}</tool_call>', ()),
}


class Gate:
    """Those who wait, let through one by one."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[Any]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def pass_through(self) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return await future

    def open(self, value: Any = None) -> bool:
        """Let the first of them through; whether there was one."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(value)
                return True
        return False


class StageModel:
    """A model that answers what the test says when the test says it."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.prompts: list[list[dict[str, Any]]] = []
        self.requests: list[CompletionRequest] = []
        self.asking = 0
        self.most_at_once = 0
        self.finish_reason = "stop"

    async def prepare(self, endpoint: Endpoint) -> None:
        """Nothing to prepare."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        self.prompts.append(list(request.messages))
        self.requests.append(request)
        self.asking += 1
        self.most_at_once = max(self.most_at_once, self.asking)
        try:
            yield Chunk(reasoning="Hm", has_choice=True)
            reply: Reply | None = await self.gate.pass_through()
            if reply is None:
                raise LLMBadRequestError("the model does not like this")
            text, calls = reply
            yield Chunk(text=text, has_choice=True)
            for index, (name, arguments) in enumerate(calls):
                yield Chunk(calls=(CallDelta(index, "same-id", name, arguments),), has_choice=True)
            yield Chunk(
                finish_reason=self.finish_reason, has_choice=True, usage={"prompt_tokens": 10, "completion_tokens": 5}
            )
        finally:
            self.asking -= 1


class LateStore(InMemoryEventStore):
    """Says only after a while that it has stored something, and not in the order of the appends.

    The next `failures` appends fail. With a gate in `reads` nothing is read before that lets it through.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self.failures = 0
        self.reads: Gate | None = None

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list[StoredEvent]:
        if self.reads is not None:
            await self.reads.pass_through()
        return await super().read(conversation_id, after=after, limit=limit)

    async def append(self, conversation_id: str, events: Sequence[NewEvent], *, epoch: int = 0) -> int:
        if self.failures:
            self.failures -= 1
            raise EventStoreError("the disk is full", code=self._random.choice(["", "disk_full"]))
        first = await super().append(conversation_id, events, epoch=epoch)
        for _ in range(self._random.randrange(6)):
            await asyncio.sleep(0)
        return first


@dataclass
class Stage:
    """One conversation; `begin` and `crash` as often as wanted."""

    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    model: StageModel = field(default_factory=StageModel)
    shell: Gate = field(default_factory=Gate)
    said: list[str] = field(default_factory=list)
    llm_fields: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = LateStore(self.seed)
        spec = SandboxSpec("c", instance_id="i", image="none", data_dir="/nonexistent")
        handlers = {"workspace.facts": _facts, "workspace.snapshot": _kept, "workspace.restore": _restored}
        self.sandbox = FakeSandbox(spec, {"shell.run": self._run, **handlers}, FakeBehaviour())

    async def begin(self, *, asking_for: AgentState | None = None) -> None:
        """Load the conversation; `asking_for` is what its user asks for while it does."""
        prices: dict[str, Any] = {"input_cost_per_token": 0.01, "output_cost_per_token": 0.01, **self.llm_fields}
        llm = LLM(model="openai/stage", native_tool_calling=True, num_retries=1, **prices).using(self.model)
        settings = SessionSettings(llm=llm, **self.settings)
        sandbox = SandboxConnection(self.sandbox)
        self.session = await AgentSession.open("c", store=self.store, settings=settings, sandbox=sandbox)
        if asking_for is not None:
            await self.session.send(ChangeAgentState(agent_state=asking_for))
        await self.session.start()

    async def crash(self) -> None:
        """End without a word in the log, as a killed server does."""
        await self.session.close(stopped=False)

    async def end(self) -> None:
        await self.session.close(stopped=False)
        await self.sandbox.destroy()

    async def say(self) -> None:
        text = f"message {len(self.said)}."
        await self.session.send(MessageEvent(source="user", llm_message=Message.user(text)))
        self.said.append(text)

    async def log(self) -> list[AnyEvent]:
        return [event async for event in self.session.stream.history()]

    async def _run(self, call: FakeRequest) -> FakeAnswer:
        await self.shell.pass_through()
        return {
            "status": "completed",
            "exit_code": 0,
            "output": f"ran {call.args['command']}\n",
            "omitted": 0,
            "working_dir": "/workspace",
            "pid": -1,
            "python": None,
            "username": "agent",
            "hostname": "stage",
            "notice": "",
        }


async def _facts(call: FakeRequest) -> FakeAnswer:
    del call
    await asyncio.sleep(0)
    return FACTS


async def _kept(call: FakeRequest) -> FakeAnswer:
    del call
    await asyncio.sleep(0)
    return {}


async def _restored(call: FakeRequest) -> FakeAnswer:
    await asyncio.sleep(0)
    return {"restored": next(iter(call.args["names"]), None)}
