"""A sandbox for the demo's tests: a real shell and a plain editor in a folder, answering as the tools do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.llm.llm import LLM, LLMResponse

Tool = Callable[[Mapping[str, Any]], str]


def schema(name: str, *properties: str) -> dict[str, Any]:
    wanted = {key: {"type": "string"} for key in (*properties, "summary", "security_risk")}
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": wanted}}}


class Workshop:
    """A folder, the tools that work in it, and the conversation with the model about it."""

    def __init__(self, root: Path, llm: LLM, *, without: tuple[str, ...] = ()) -> None:
        self.root = root
        self.llm = llm
        self.messages: list[Message] = []
        self.responses: list[LLMResponse] = []
        self.commands: list[str] = []
        self.overrides: list[str | None] = []
        self.tools: dict[str, Tool] = {
            name: tool
            for name, tool in {
                "terminal": self.terminal,
                "file_editor": self.file_editor,
                "finish": lambda arguments: str(arguments["message"]),
            }.items()
            if name not in without
        }
        self.schemas = [schema(name) for name in self.tools]

    def say(self, text: str) -> None:
        self.messages.append(Message.user(text))

    async def step(self) -> LLMResponse:
        """One answer of the model, and the results of its calls."""
        wire = [self.llm.render(message) for message in self.messages]
        response = await self.llm.acompletion(wire, self.schemas)
        self.responses.append(response)
        self.messages.append(response.message)
        for call in response.message.tool_calls or ():
            text = self.overrides.pop(0) if self.overrides else None
            self.messages.append(self.result(call, self.execute(call) if text is None else text))
        return response

    async def run(self, limit: int = 30) -> LLMResponse:
        """Steps until the model finishes or waits."""
        for _ in range(limit):
            response = await self.step()
            calls = response.message.tool_calls
            if not calls or calls[0].name == "finish":
                return response
        raise AssertionError(f"no end after {limit} steps")

    def execute(self, call: MessageToolCall) -> str:
        return self.tools[call.name](json.loads(call.arguments))

    def result(self, call: MessageToolCall, text: str) -> Message:
        return Message(role="tool", content=[TextContent(text=text)], tool_call_id=call.id, name=call.name)

    def terminal(self, arguments: Mapping[str, Any]) -> str:
        self.commands.append(arguments["command"])
        done = subprocess.run(
            ["bash", "-c", arguments["command"]],
            cwd=self.root,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
        facts = f"[Current working directory: {self.root}]\n[Command finished with exit code {done.returncode}]"
        return f"{done.stdout.strip()}\n{facts}"

    def file_editor(self, arguments: Mapping[str, Any]) -> str:
        path = Path(arguments["path"])
        command = arguments["command"]
        if command == "create":
            if path.exists():
                return f"File already exists at {path}. Cannot overwrite files using command `create`."
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(arguments["file_text"])
            return f"File created successfully at: {path}"
        if not path.exists():
            return f"The path {path} does not exist."
        text = path.read_text()
        if command == "view":
            return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(text.splitlines(), start=1))
        if text.count(arguments["old_str"]) != 1:
            return f"No replacement was performed, old_str did not appear verbatim in {path}."
        path.write_text(text.replace(arguments["old_str"], arguments["new_str"]))
        return f"The file {path} has been edited."


def finish_text(response: LLMResponse) -> str:
    """What the model said at the end, through the tool or without it."""
    calls = response.message.tool_calls
    return json.loads(calls[0].arguments)["message"] if calls else response.message.text
