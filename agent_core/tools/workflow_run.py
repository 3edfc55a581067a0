"""One script that puts sub-agents to work: the program in the sandbox that runs it, and what it asks for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from agent_core.errors import SandboxError
from agent_core.events.messages import Frozen
from agent_core.tools.programs import ProgramStarter, SpokenProgram
from agent_core.tools.spec import ToolContext
from agent_core.tools.subagents import SubAgentError, SubAgents

logger = logging.getLogger(__name__)

MAX_ASKS: Final = 1_000
MAX_LINE_BYTES: Final = 4 * 1024 * 1024
MAX_RESULT_CHARS: Final = 200_000
MAX_REASON_CHARS: Final = 10_000
PRINTED_CHARS: Final = 10_000
"""What is kept of the output: half of it from the beginning, half from the end."""
MAX_LIVE_CHARS: Final = 1_000_000
SHOWN_PROMPT_CHARS: Final = 80

RunStatus = Literal["completed", "error", "stopped"]


class WorkflowRun(Frozen):
    """One sub-agent of a script: its kind, the beginning of its prompt, and how it went."""

    agent_type: str
    prompt: str
    status: RunStatus


class Printed:
    """What a script prints: kept from both ends."""

    def __init__(self) -> None:
        self.total = 0
        self._head = ""
        self._tail = ""

    def add(self, text: str) -> None:
        """Take the next piece."""
        self.total += len(text)
        room = PRINTED_CHARS // 2 - len(self._head)
        self._head += text[:room]
        self._tail = (self._tail + text[room:])[-PRINTED_CHARS // 2 :]

    @property
    def text(self) -> str:
        """All, or both ends with a notice between them."""
        omitted = self.total - len(self._head) - len(self._tail)
        notice = f"\n[... {omitted} characters were left out here ...]\n" if omitted else ""
        return f"{self._head}{notice}{self._tail}".strip("\n")


class ScriptRun:
    """Has one script run in the sandbox, and its sub-agents for it, so many at a time.

    The program is in the sandbox, so that it is not believed anything: what it says is bounded in length and number.

    Attributes:
        result: what the function returned, as JSON text.
        problem: why the script did not end well; empty when it did.
        printed: what it printed.
    """

    def __init__(self, call: ToolContext, subagents: SubAgents, concurrency: int) -> None:
        self.result = ""
        self.problem = ""
        self.printed = Printed()
        self._call = call
        self._subagents = subagents
        self._free = asyncio.Semaphore(concurrency)
        self._asked: list[tuple[str, str]] = []
        self._statuses: dict[int, RunStatus] = {}
        self._working: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()  # protects the program's input: one whole line after the other

    @property
    def runs(self) -> list[WorkflowRun]:
        """The sub-agents that it asked for, in the order in which it did."""
        return [
            WorkflowRun(agent_type=kind, prompt=prompt, status=self._statuses.get(number, "stopped"))
            for number, (kind, prompt) in enumerate(self._asked, 1)
        ]

    async def carry_out(self, sandbox: ProgramStarter, script: str, limit_seconds: float) -> None:
        """Run it to its end; the program and the sub-agents have ended then, also when this is cancelled.

        Raises:
            SandboxError: the sandbox cannot be had, or was lost.
        """
        try:
            async with asyncio.timeout(limit_seconds):
                program = await sandbox.start_program({"command": ["python3", "-I", "-c", driver_text()]})
                try:
                    await self._send(program, {"script": script})
                    await self._converse(program)
                finally:
                    program.close()
                    await self._stop_all()
        except TimeoutError:
            self.problem = f"It was stopped: it took longer than {limit_seconds:g} seconds."
        except SandboxError as error:
            if error.code != "not_found":
                raise
            self.problem = "There is no python3 in the sandbox; use an image that has it, or `task` for each sub-agent."

    async def _converse(self, program: SpokenProgram) -> None:
        rest = b""
        while data := await program.read():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if len(line) > MAX_LINE_BYTES or await self._take(program, line):
                    return
            if len(rest) > MAX_LINE_BYTES:
                self.problem = "It was stopped: it wrote into the connection to the server."
                return
        words = _clean(program.last_words).strip()
        self.problem = "Its program was ended before it was done." + (f" It said last:\n{words}" if words else "")

    async def _take(self, program: SpokenProgram, line: bytes) -> bool:
        """Take in what the program says; whether that was the last."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        match message:
            case {"print": str(text)}:
                if self.printed.total < MAX_LIVE_CHARS:
                    self._call.emit_output(_clean(text))
                self.printed.add(_clean(text))
            case {"ask": int(number), "prompt": str(prompt), "type": str(kind)} if number not in self._working:
                await self._ask(program, number, _clean(prompt), _clean(kind))
            case {"cancel": int(number)}:
                if (task := self._working.pop(number, None)) is not None:
                    task.cancel()
            case {"done": str(text)}:
                self.result = _clean(text)[:MAX_RESULT_CHARS]
                return True
            case {"failed": str(text)}:
                self.problem = f"The script failed:\n{_clean(text)[-MAX_REASON_CHARS:]}"
                return True
            case _:
                self.problem = "It was stopped: it wrote into the connection to the server."
                return True
        return False

    async def _ask(self, program: SpokenProgram, number: int, prompt: str, kind: str) -> None:
        if len(self._asked) >= MAX_ASKS:
            error = f"a script may ask for at most {MAX_ASKS} sub-agents, and has done so"
            await self._send(program, {"answer": number, "error": error})
            return
        self._asked.append((kind[:SHOWN_PROMPT_CHARS], " ".join(prompt[:1_000].split())[:SHOWN_PROMPT_CHARS]))
        place = len(self._asked)
        name = f"workflow:{self._call.idempotency_key}:{place}"
        task = asyncio.create_task(self._serve(program, number, place, prompt, kind), name=name)
        self._working[number] = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, program: SpokenProgram, number: int, place: int, prompt: str, kind: str) -> None:
        try:
            async with self._free:
                report = await self._subagents.run(self._call, place, prompt, kind)
            is_good, text = not report.problem, report.text
        except SubAgentError as error:
            is_good, text = False, str(error)
        except Exception as error:
            logger.exception("a sub-agent of a script failed in %s", self._call.idempotency_key)
            is_good, text = False, f"It failed: unexpected {type(error).__name__}."
        self._statuses[place] = "completed" if is_good else "error"
        if self._working.pop(number, None) is not None:
            with contextlib.suppress(SandboxError):  # whoever reads finds out
                await self._send(program, {"answer": number, "text" if is_good else "error": text})

    async def _send(self, program: SpokenProgram, message: Mapping[str, Any]) -> None:
        async with self._turn:
            await program.write(json.dumps(message).encode() + b"\n")

    async def _stop_all(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


@cache
def driver_text() -> str:
    """The source of the program that runs scripts in sandboxes."""
    return Path(__file__).with_name("workflow_driver.py").read_text(encoding="utf-8")


def _clean(text: str) -> str:
    """Without what cannot be stored as UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
