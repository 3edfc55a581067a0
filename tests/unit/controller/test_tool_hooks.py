"""Hooks around an agent's calls, with their commands run by a real shell."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from agent_core.events.control import AgentState, ChangeAgentState, ForeignEvent
from agent_core.events.llm_events import ActionEvent, ObservationEvent, UserRejectObservation
from agent_core.security.hooks import HookConfig
from agent_core.testing.fake_sandbox import FakeAnswer, FakeRequest, FakeRunnerError
from agent_core.tools.terminal import TerminalAction
from tests.unit.controller.stage import REPLIES, Stage
from tests.unit.controller.test_answers import is_in, until
from tests.unit.controller.test_confirmation_flow import FINISHED, calls

HANG = "hang for ever"


def hooks(event: str, command: str, matcher: str = "*", **more: Any) -> dict[str, Any]:
    return {event: [{"matcher": matcher, "hooks": [{"command": command, **more}]}]}


def store(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def load(path: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(path.read_text())
    return told


@asynccontextmanager
async def hooked(
    config: dict[str, Any],
    *,
    project: str = "",
    hanging: asyncio.Event | None = None,
    says: bool = True,
    **settings: Any,
) -> AsyncIterator[Stage]:
    """A stage whose sandbox runs hook commands in a real shell; `project` is the project's own configuration.

    The command `HANG` sets `hanging` and does not come to an end.
    """
    hanging = hanging or asyncio.Event()
    async with AsyncExitStack() as stack:
        stage = Stage(settings={"hooks": HookConfig.from_json(json.dumps(config)), **settings})
        shell = stage.sandbox.runner.handlers["shell.run"]

        async def run(call: FakeRequest) -> FakeAnswer:
            if not call.args.get("fresh"):
                return await shell(call)
            if HANG in call.args["command"]:
                hanging.set()
                await asyncio.Event().wait()
            process = await asyncio.create_subprocess_exec(
                "bash",
                "-c",
                call.args["command"],
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, **call.args["env"]},
            )
            output, _ = await process.communicate()
            return {"status": "completed", "exit_code": process.returncode, "output": output.decode()}

        async def write(call: FakeRequest) -> FakeAnswer:
            path = Path(call.args["path"])
            stack.callback(path.unlink, missing_ok=True)
            store(path, call.blob or b"")
            return {}

        async def read(call: FakeRequest) -> FakeAnswer:
            if not project:
                raise FakeRunnerError("not_found", "no such file")
            assert call.args["path"] == "/workspace/.openhands/hooks.json"
            return {}, project.encode()

        async def kill(call: FakeRequest) -> FakeAnswer:
            return {}

        handlers = {"shell.run": run, "file.write": write, "file.read": read, "shell.kill": kill}
        stage.sandbox.runner.handlers.update(handlers)
        await stage.begin()
        stack.push_async_callback(stage.end)
        if says:
            await stage.say()
        yield stage


async def answers(stage: Stage) -> list[Any]:
    events = await until(stage, FINISHED, [calls("ls"), REPLIES["finish"]])
    return [event for event in events if isinstance(event, ObservationEvent | UserRejectObservation)]


async def test_a_hook_before_a_call_is_told_about_it_and_may_block_it(tmp_path: Path) -> None:
    command = f'cat > {tmp_path}/"$OPENHANDS_SESSION_ID"; echo "not on $OPENHANDS_TOOL_NAME" >&2; exit 2'
    async with hooked(hooks("PreToolUse", command, "terminal")) as stage:
        first, *others = await answers(stage)
    told = load(tmp_path / "c")
    assert isinstance(first, UserRejectObservation)
    assert (first.rejection_reason, first.rejection_source) == ("not on terminal", "hook")
    assert all(isinstance(other, ObservationEvent) for other in others)
    assert (told["event_type"], told["tool_name"], told["tool_input"]["command"]) == ("PreToolUse", "terminal", "ls")
    assert (told["session_id"], told["working_dir"]) == ("c", "/workspace")
    prompt = str(stage.model.prompts[-1])
    assert "Action rejected: not on terminal" in prompt


async def test_a_hook_that_allows_or_fails_lets_the_call_run() -> None:
    for command in ('echo "{\\"decision\\": \\"allow\\"}"', "exit 1", "echo noise >&2; exit 0"):
        async with hooked(hooks("PreToolUse", command)) as stage:
            first, *_ = await answers(stage)
        assert isinstance(first, ObservationEvent)


async def test_a_hook_after_a_call_knows_its_result_and_adds_to_what_the_model_is_told() -> None:
    command = """python3 -c 'import json, sys
told = json.load(sys.stdin)
print(json.dumps({"additionalContext": "seen " + told["tool_response"]["content"][0]["text"][:6]}))'"""
    async with hooked(hooks("post_tool_use", command, "terminal")) as stage:
        first, *_ = await answers(stage)
    assert isinstance(first, ObservationEvent)
    assert first.observation.text.endswith("[A hook says] seen ran ls")
    assert "seen ran ls" in str(stage.model.prompts[-1])


async def test_the_hooks_of_the_project_come_after_the_given_ones() -> None:
    project = json.dumps({"hooks": hooks("PreToolUse", "echo the project says no; exit 2", "terminal")})
    async with hooked({}, project=project) as stage:
        first, *_ = await answers(stage)
    assert isinstance(first, UserRejectObservation)
    assert first.rejection_reason == "the project says no"
    given = hooks("PreToolUse", "echo given; exit 2", "terminal")
    async with hooked(given, project=project) as stage:
        first, *_ = await answers(stage)
    assert first.rejection_reason == "given"


async def test_a_project_with_nonsense_for_hooks_has_none() -> None:
    async with hooked({}, project="{") as stage:
        first, *_ = await answers(stage)
    assert isinstance(first, ObservationEvent)


async def test_a_project_whose_hooks_cannot_be_used_is_told_in_the_conversation() -> None:
    slow = json.dumps({"PreToolUse": [{"matcher": "/(a|aa)+$/", "hooks": [{"command": "exit 2"}]}]})
    async with hooked({}, project=slow) as stage:
        events = await until(stage, FINISHED, [calls("ls"), REPLIES["finish"]])
    (told,) = [event for event in events if isinstance(event, ForeignEvent) and event.name == "error"]
    assert str(told.payload["content"]).startswith(
        "The hooks in .openhands/hooks.json are not used: hooks are not valid"
    )
    assert "takes too long" in told.payload["content"]


async def test_what_the_user_runs_himself_is_no_hooks_business() -> None:
    async with hooked(hooks("PreToolUse", "exit 2")) as stage:
        await stage.session.send(ActionEvent(source="user", action=TerminalAction(command="pwd"), tool_name="terminal"))
        events = await until(stage, lambda log: any(isinstance(event, ObservationEvent) for event in log))
    assert not any(isinstance(event, UserRejectObservation) for event in events)


async def test_a_stop_ends_a_hook_that_hangs() -> None:
    hanging = asyncio.Event()
    async with hooked(hooks("PreToolUse", HANG), hanging=hanging) as stage:
        await until(stage, lambda _: stage.model.asking == 1)
        stage.model.gate.open(calls("ls"))
        async with asyncio.timeout(60):
            await hanging.wait()
        await stage.session.send(ChangeAgentState(agent_state=AgentState.STOPPED))
        async with asyncio.timeout(60):
            events = await until(stage, is_in(AgentState.STOPPED))
    assert not any(isinstance(event, ObservationEvent) for event in events)
