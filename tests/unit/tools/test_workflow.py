"""The workflow tool: scripts run as programs of this host, their sub-agents are fakes with the real interface."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import ValidationError

from agent_core.errors import SandboxError
from agent_core.testing.answering_sandbox import AnsweringSandbox, FakeCall
from agent_core.tools.registry import resolve_tool
from agent_core.tools.spec import Tool, ToolContext
from agent_core.tools.subagents import SpawnedAgent, SubAgentError, TaskReport, TaskRun
from agent_core.tools.workflow import WorkflowAction, WorkflowObservation
from agent_core.tools.workflow_run import MAX_ASKS, PRINTED_CHARS, Printed, driver_text

LIMIT_SECONDS = 30.0


class HostProgram:
    """A program of this host (`agent_core.tools.programs.SpokenProgram`)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.last_words = ""
        self.process = process

    async def read(self) -> bytes:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        data = await self.process.stdout.read(65_536)
        if not data:
            self.last_words = (await self.process.stderr.read()).decode()
        return data

    async def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        with contextlib.suppress(OSError):
            await self.process.stdin.drain()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def ended(self) -> int:
        """How it has ended, once it has."""
        async with asyncio.timeout(LIMIT_SECONDS):
            await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode


@dataclass
class HostSandbox(AnsweringSandbox):
    """Programs run on this host; `command` in place of the one that is ordered, if it is given."""

    command: Sequence[str] = ()
    error: SandboxError | None = None
    started: list[HostProgram] = field(default_factory=list)

    async def start_program(self, order: Mapping[str, Any]) -> HostProgram:
        if self.error is not None:
            raise self.error
        pipe = asyncio.subprocess.PIPE
        command = self.command or order["command"]
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        self.started.append(HostProgram(process))
        return self.started[-1]


@dataclass
class Helpers:
    """Sub-agents (`agent_core.tools.subagents.SubAgents`) that say their prompt back; see `run`."""

    asked: list[tuple[int, str, str]] = field(default_factory=list)
    most: int = 0
    cancelled: list[str] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    together: int = 0
    """None ends before so many are at work."""
    _met: asyncio.Event = field(default_factory=asyncio.Event)
    _now: int = 0

    async def run(self, call: ToolContext, number: int, prompt: str, agent_type: str) -> TaskReport:
        self.asked.append((number, prompt, agent_type))
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            if self._now >= self.together:
                self._met.set()
            await self._met.wait()
            await asyncio.sleep(0)
            if prompt == "wait":
                self.begun.set()
                await asyncio.Event().wait()
            if prompt == "break":
                raise RuntimeError("a bug")
            if agent_type == "nonesuch":
                raise SubAgentError("there is no kind of sub-agent called 'nonesuch' here")
            return TaskReport("half of it", "It is stuck.") if prompt == "fail" else TaskReport(f"did {prompt}")
        except asyncio.CancelledError:
            self.cancelled.append(prompt)
            raise
        finally:
            self._now -= 1

    async def spawn(self, call: ToolContext, ids: Sequence[str], types: Sequence[str]) -> dict[str, SpawnedAgent]:
        raise AssertionError(ids)

    async def delegate(self, call: ToolContext, tasks: Mapping[str, str]) -> list[TaskReport]:
        raise AssertionError(tasks)

    async def task(self, call: ToolContext, prompt: str, agent_type: str, *, resume: str | None) -> TaskRun:
        raise AssertionError(prompt)

    async def ask(self, call: ToolContext, agent: str, task: str) -> TaskReport:
        raise AssertionError(agent)

    def stopped_by(self, action_id: int) -> str:
        return ""


@dataclass
class Scene:
    """A call of the tool."""

    helpers: Helpers = field(default_factory=Helpers)
    sandbox: HostSandbox = field(default_factory=HostSandbox)
    limit_seconds: float = LIMIT_SECONDS

    def __post_init__(self) -> None:
        self.call = FakeCall(self.sandbox, subagents=self.helpers)

    async def run(self, body: str, *, concurrency: int = 8, whole: bool = False) -> WorkflowObservation:
        """What comes of a script, or of the body of its function."""
        indented = "\n".join(f"    {line}" for line in body.splitlines())
        script = body if whole else f"async def workflow(agent):\n{indented}"
        (tool,) = resolve_tool(Tool(name="workflow", params={"limit_seconds": self.limit_seconds}))
        made = await tool.acall(WorkflowAction(script=script, concurrency=concurrency), self.call)
        assert isinstance(made, WorkflowObservation)
        for program in self.sandbox.started:
            await program.ended()
        return made


async def test_a_script_has_the_last_words_of_its_sub_agents_and_its_result_is_told() -> None:
    scene = Scene()
    made = await scene.run(
        "one, two = await asyncio.gather(agent('one'), agent('two', 'bash'))\nprint('both')\nreturn {'all': [one, two]}"
    )
    assert not made.is_error
    assert json.loads(made.result) == {"all": ["did one", "did two"]}
    assert made.printed == "both"
    assert scene.call.shown == ["both\n"]
    assert sorted(scene.helpers.asked) == [(1, "one", "general-purpose"), (2, "two", "bash")]
    assert [(run.agent_type, run.prompt, run.status) for run in made.runs] == [
        ("general-purpose", "one", "completed"),
        ("bash", "two", "completed"),
    ]
    assert made.text.startswith(
        'Result: {"all": ["did one", "did two"]}\n\nPrinted:\nboth\n\nSub-agents: 2 (2 completed)'
    )


async def test_a_failure_of_a_sub_agent_can_be_caught_and_is_listed() -> None:
    body = """said = []
for prompt, kind in [('fail', 'bash'), ('x', 'nonesuch'), ('break', 'bash')]:
    try:
        await agent(prompt, kind)
    except AgentError as error:
        said.append(str(error))
return said"""
    made = await Scene().run(body)
    assert json.loads(made.result) == [
        "It is stuck.\nIts last word before that: half of it",
        "there is no kind of sub-agent called 'nonesuch' here",
        "It failed: unexpected RuntimeError.",
    ]
    assert not made.is_error
    assert [run.status for run in made.runs] == ["error"] * 3


async def test_no_more_work_at_a_time_than_is_wanted() -> None:
    scene = Scene()
    scene.helpers.together = 3
    made = await scene.run("return len(await asyncio.gather(*(agent(str(n)) for n in range(20))))", concurrency=3)
    assert made.result == "20"
    assert scene.helpers.most == 3


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("async def workflow(agent)\n    pass", "SyntaxError"),
        ("def workflow(agent):\n    pass", "must define `async def workflow(agent)`"),
        ("async def workflow(agent):\n    raise ValueError('so')", "raise ValueError('so')\nValueError: so"),
        ("async def workflow(agent):\n    await agent('fail')", "It is stuck."),
        ("async def workflow(agent):\n    await agent(7)", "both must be text"),
        ("async def workflow(agent):\n    await agent('x' * 100_001)", "at most 100000 are allowed"),
        ("async def workflow(agent):\n    return agent", "is no JSON"),
        ("async def workflow(agent):\n    return float('nan')", "is no JSON"),
        ("async def workflow(agent):\n    return 'x' * 200_000", "at most 200000 are allowed"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        (
            "import os, sys\nprint('last', file=sys.stderr)\nos._exit(3)",
            "ended before it was done. It said last:\nlast",
        ),
        ("while True:\n    print('x' * 100_000)", "longer than 0.5 seconds"),
        ("import time\ntime.sleep(1000)", "longer than 0.5 seconds"),
    ],
)
async def test_what_goes_wrong_is_an_error_that_says_why(script: str, error: str) -> None:
    is_endless = "longer" in error
    made = await Scene(limit_seconds=0.5 if is_endless else LIMIT_SECONDS).run(script, whole=True)
    assert made.is_error
    assert error in made.text
    assert "workflow_driver" not in made.text
    assert len(made.text) < 25_000


async def test_a_script_can_neither_disturb_the_connection_nor_read_from_it() -> None:
    body = """import subprocess, sys
subprocess.run(['echo', 'from a child'])
child = subprocess.run([sys.executable, '-c', 'import sys; print(repr(sys.stdin.read()))'], stdout=subprocess.PIPE)
sys.__stdout__.write('from the first output')
sys.__stdout__.flush()
try:
    input()
except EOFError:
    return [child.stdout.decode().strip(), await agent('it')]"""
    made = await Scene().run(body)
    assert json.loads(made.result) == ["''", "did it"]


@pytest.mark.parametrize(
    "said",
    [
        "echo no JSON",
        "echo '[1]'",
        'echo \'{"ask": "1"}\'',
        "head -c 9000000 /dev/zero",
        "printf '[%.0s' $(seq 99999); echo",
    ],
)
async def test_a_program_that_does_not_keep_to_the_form_is_ended(said: str) -> None:
    scene = Scene(sandbox=HostSandbox(command=["sh", "-c", f"{said}; exec sleep 1000"]))
    made = await scene.run("pass")
    assert made.is_error
    assert "wrote into the connection" in made.text


async def test_a_sub_agent_whose_answer_is_awaited_no_more_is_stopped() -> None:
    body = """waiting = asyncio.ensure_future(agent('wait'))
await agent('first')
waiting.cancel()
return await agent('second')"""
    scene = Scene()
    made = await scene.run(body, concurrency=1)  # so that the second waits for the end of the one before it
    assert made.result == '"did second"'
    assert [run.status for run in made.runs] == ["completed", "stopped", "completed"]


async def test_sub_agents_end_with_their_script() -> None:
    scene = Scene()
    made = await scene.run("asyncio.ensure_future(agent('wait'))\nawait asyncio.sleep(0)\nreturn await agent('first')")
    assert made.result == '"did first"'
    assert scene.helpers.cancelled == ["wait"]
    assert [run.status for run in made.runs] == ["stopped", "completed"]


async def test_a_cancelled_call_ends_the_program_and_its_sub_agents() -> None:
    scene = Scene()
    calling = asyncio.create_task(scene.run("await asyncio.gather(agent('wait'), agent('wait'))"))
    async with asyncio.timeout(LIMIT_SECONDS):
        await scene.helpers.begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    (program,) = scene.sandbox.started
    assert await program.ended() < 0
    assert set(scene.helpers.cancelled) <= {"wait"}
    assert scene.helpers._now == 0


async def test_a_script_may_ask_so_often_and_no_more() -> None:
    body = f"""for n in range({MAX_ASKS}):
    await agent('x')
try:
    await agent('x')
except AgentError as error:
    return str(error)"""
    made = await Scene().run(body)
    assert "at most 1000 sub-agents" in made.result
    assert len(made.runs) == MAX_ASKS
    assert made.text.endswith("... and 950 more")


async def test_without_a_python_a_sandbox_or_a_conversation_the_error_says_so() -> None:
    gone = SandboxError("there is no program 'python3' in the sandbox", code="not_found")
    assert "no python3 in the sandbox" in (await Scene(sandbox=HostSandbox(error=gone)).run("pass")).text
    (tool,) = resolve_tool(Tool(name="workflow"))
    action = WorkflowAction(script="x")
    assert "inside a conversation only" in (await tool.acall(action, FakeCall(HostSandbox()))).text
    plain = FakeCall(AnsweringSandbox(), subagents=Helpers())
    assert "no programs can be started" in (await tool.acall(action, plain)).text
    with pytest.raises(SandboxError, match="no engine"):
        await Scene(sandbox=HostSandbox(error=SandboxError("no engine"))).run("pass")


@pytest.mark.parametrize(
    "make",
    [
        lambda: WorkflowAction(script="x" * 20_001),
        lambda: WorkflowAction(script=""),
        lambda: WorkflowAction(script="x", concurrency=0),
        lambda: WorkflowAction(script="x", concurrency=65),
    ],
)
def test_the_limits_of_a_call_are_those_of_the_tool(make: Callable[[], object]) -> None:
    assert WorkflowAction(script="x" * 20_000, concurrency=64).concurrency == 64
    assert WorkflowAction(script="x").concurrency == 8
    with pytest.raises(ValidationError):
        make()


@pytest.mark.parametrize("seconds", [0, -1, 3_601])
def test_a_script_has_an_hour_at_most(seconds: float) -> None:
    with pytest.raises(ValueError, match="limit_seconds"):
        resolve_tool(Tool(name="workflow", params={"limit_seconds": seconds}))


def test_the_program_in_the_sandbox_needs_no_newer_python_than_the_runner() -> None:
    tree = ast.parse(driver_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported < sys.stdlib_module_names


def test_of_what_is_printed_both_ends_are_kept() -> None:
    printed = Printed()
    for number in range(10_000):
        printed.add(f"{number}\n")
    assert printed.text.startswith("0\n1\n")
    assert printed.text.endswith("\n9999")
    assert "characters were left out here" in printed.text
    assert len(printed.text) < PRINTED_CHARS + 100
