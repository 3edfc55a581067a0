"""A library's conversation without processes: a scripted model, and a sandbox that says what it was asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from agent_core import LLM, Agent, Conversation, Tool
from agent_core.agent.base import AgentBase
from agent_core.errors import LLMBadRequestError
from agent_core.llm.transport.exchange import CallDelta, Chunk, CompletionRequest, Endpoint
from agent_core.runtime.sandbox import SandboxSpec
from agent_core.testing.fake_sandbox import FakeAnswer, FakeHandler, FakeRequest, FakeSandbox, command_result

Said = tuple[str, Sequence[tuple[str, str]]]
"""Text, and calls with their arguments as the model writes them."""

DONE: Said = ("", [("finish", '{"message": "done"}')])


def run(command: str, risk: str = "LOW") -> Said:
    return "", [("terminal", f'{{"command": "{command}", "security_risk": "{risk}"}}')]


class Script:
    """A transport that answers with one thing after another; an error among them is raised."""

    def __init__(self, *answers: Said | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[CompletionRequest] = []
        self.asked = threading.Event()
        self.gate: threading.Event | None = None

    async def prepare(self, endpoint: Endpoint) -> None:
        """Nothing to prepare."""

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        self.asked.set()
        if not self.answers:
            raise LLMBadRequestError("the script is at its end")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        text, calls = answer
        yield Chunk(text=text, has_choice=True)
        for index, (name, arguments) in enumerate(calls):
            call_id = f"call-{len(self.requests)}-{index}"
            yield Chunk(calls=(CallDelta(index, call_id, name, arguments),), has_choice=True)
        yield Chunk(finish_reason="stop", has_choice=True, usage={"prompt_tokens": 10, "completion_tokens": 5})

    def prompt(self, index: int = -1) -> str:
        """All that the model was told in a request."""
        return str(list(self.requests[index].messages))


def model(script: Script, **fields: Any) -> LLM:
    prices = {"input_cost_per_token": 0.01, "output_cost_per_token": 0.01}
    given = {"model": "openai/script", "usage_id": "agent", "native_tool_calling": True, "num_retries": 1, **prices}
    return LLM(**{**given, **fields}).using(script)


def agent(script: Script, **fields: Any) -> Agent:
    return Agent(llm=model(script), tools=[Tool(name="terminal")], **fields)


class Sandbox(FakeSandbox):
    """Runs no command; `ran` says which it was asked for, `env` with which variables. Commands wait for `held`."""

    def __init__(self, handlers: Mapping[str, FakeHandler] | None = None) -> None:
        spec = SandboxSpec("c", instance_id="i", image="none", data_dir="/nonexistent")
        own = {"shell.run": self._run, "workspace.facts": _facts, "file.write": nothing, "shell.kill": nothing}
        super().__init__(spec, {**own, **(handlers or {})})
        self.ran: list[str] = []
        self.env: dict[str, str] = {}
        self.exit_code = 0
        self.held = threading.Event()
        self.held.set()
        self.answer: Callable[[str], str] = lambda command: f"ran {command}\n"

    async def _run(self, call: FakeRequest) -> FakeAnswer:
        self.ran.append(call.args["command"])
        await asyncio.to_thread(self.held.wait, 20)
        self.env.update(call.args.get("env") or {})
        return command_result(self.answer(call.args["command"]), self.exit_code)


async def nothing(call: FakeRequest) -> FakeAnswer:
    return {}


async def _facts(call: FakeRequest) -> FakeAnswer:
    return {"working_dir": "/workspace", "user": "agent", "os": "Linux", "python": "3.12.1", "git": None}


def conversation(who: AgentBase, **arguments: Any) -> Conversation:
    return Conversation(agent=who, **{"workspace": Sandbox(), **arguments})
