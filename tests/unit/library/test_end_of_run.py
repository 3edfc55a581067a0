"""What happens in the last moment of a run is neither lost nor in its way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_core import Conversation, Event, ExecutionStatus, Observation, PauseEvent, UserRejectObservation
from agent_core.events.branches import Rewind
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.store import InMemoryEventStore, NewEvent
from agent_core.runtime.sandbox import Progress
from agent_core.security.confirmation import AlwaysConfirm, NeverConfirm
from agent_core.security.hooks import HookConfig
from agent_core.testing.fake_sandbox import FakeAnswer, FakeRequest, command_result
from agent_core.tools.terminal import TerminalAction
from tests.unit.library.playing import DONE, Said, Sandbox, Script, agent, conversation, nothing, run

FINISHED = ExecutionStatus.FINISHED
LIMIT = 60.0


def has_finished(event: Event) -> bool:
    return isinstance(event, AgentStateChanged) and event.agent_state is AgentState.FINISHED


class Meanwhile:
    """A callback that begins something in another thread when the agent has finished, and goes on once it is at it."""

    def __init__(self) -> None:
        self.work: Callable[[], object] = lambda: None
        self.is_at_it = threading.Event()
        self.may_end = threading.Event()
        self.failed: list[BaseException] = []
        self.told: list[int] = []
        self._thread = threading.Thread(target=self._do)

    def __call__(self, event: Event) -> None:
        self.told.append(event.id)
        if has_finished(event) and not self.has_begun:
            self._thread.start()
            assert self.is_at_it.wait(LIMIT)

    def _do(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - the test asks for it
            self.failed.append(error)

    @property
    def has_begun(self) -> bool:
        return self._thread.ident is not None

    def hold(self) -> None:
        """Called by what is begun."""
        self.is_at_it.set()
        assert self.may_end.wait(LIMIT)

    def let_go(self, running: threading.Thread) -> None:
        """Let it end only when the run has had time to end under it, or has waited for it."""
        running.join(0.5)
        self.may_end.set()
        running.join(LIMIT)
        self._thread.join(LIMIT)
        assert not running.is_alive()
        assert not self._thread.is_alive()
        assert self.failed == []


def begun(one: Conversation) -> threading.Thread:
    running = threading.Thread(target=one.run)
    running.start()
    return running


def test_a_message_that_is_stored_while_a_run_ends_is_told_of_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile, script = Meanwhile(), Script(DONE, DONE)
    append = InMemoryEventStore.append

    async def slowly(
        self: InMemoryEventStore, conversation_id: str, events: Sequence[NewEvent], *, epoch: int = 0
    ) -> int:
        if any(b"one thing more" in event.payload and event.kind == "MessageEvent" for event in events):
            await asyncio.to_thread(meanwhile.hold)
        return await append(self, conversation_id, events, epoch=epoch)

    monkeypatch.setattr(InMemoryEventStore, "append", slowly)
    with conversation(agent(script), callbacks=[meanwhile]) as one:
        meanwhile.work = lambda: one.send_message("And one thing more.")
        one.send_message("Go.")
        meanwhile.let_go(begun(one))
        if one.state.execution_status is ExecutionStatus.IDLE:
            one.run()
        assert one.state.execution_status is FINISHED
        assert "And one thing more." in script.prompt()
        assert meanwhile.told == [event.id for event in one.state.log]


def test_a_conversation_may_be_taken_back_while_its_run_ends() -> None:
    meanwhile, script = Meanwhile(), Script(DONE, DONE)

    async def snapshot(_call: FakeRequest) -> FakeAnswer:
        if meanwhile.has_begun:
            await asyncio.to_thread(meanwhile.hold)
        return {}

    sandbox = Sandbox({"workspace.snapshot": snapshot, "workspace.restore": nothing})
    with conversation(agent(script), workspace=sandbox, callbacks=[meanwhile]) as one:
        one.send_message("Go.")
        said = one.state.last_user_message_id
        meanwhile.work = lambda: one.navigate_to(said)
        meanwhile.let_go(begun(one))
        assert [event.to for event in one.state.log if isinstance(event, Rewind)] == [said]
        assert one.state.execution_status is ExecutionStatus.IDLE
        one.run()
        assert one.state.execution_status is FINISHED


def test_a_tool_that_a_program_calls_while_a_run_ends_is_carried_out() -> None:
    meanwhile = Meanwhile()

    async def held(call: FakeRequest) -> FakeAnswer:
        await asyncio.to_thread(meanwhile.hold)
        return command_result(call.args["command"])

    observations: list[Observation] = []
    with conversation(agent(Script(DONE)), workspace=Sandbox({"shell.run": held}), callbacks=[meanwhile]) as one:
        meanwhile.work = lambda: observations.append(one.execute_tool("terminal", TerminalAction(command="ls")))
        one.send_message("Go.")
        meanwhile.let_go(begun(one))
        assert [observation.is_error for observation in observations] == [False]
        assert one.state.execution_status is FINISHED


def test_who_is_told_of_the_end_finds_it_and_cannot_pause_what_has_finished() -> None:
    meanwhile = Meanwhile()
    with conversation(agent(Script(DONE)), callbacks=[meanwhile]) as one:

        def pauses() -> None:
            one.pause()
            meanwhile.hold()

        meanwhile.work = pauses
        one.send_message("Go.")
        running = begun(one)
        meanwhile.let_go(running)
        assert one.state.execution_status is FINISHED
        assert not any(isinstance(event, PauseEvent) for event in one.state.log)


class NeverUp(Sandbox):
    """Its start takes until it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.is_starting = threading.Event()

    async def start(self, progress: Progress) -> None:
        self.is_starting.set()
        await asyncio.Event().wait()


def test_a_run_whose_conversation_is_closed_just_ends_also_while_it_begins(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    kept: dict[str, Any] = {"persistence_dir": tmp_path, "conversation_id": "c"}
    sandbox, failed = NeverUp(), list[Exception]()
    one = conversation(agent(Script(DONE)), workspace=sandbox, **kept)
    one.send_message("Go.")

    def work() -> None:
        try:
            one.run()
        except Exception as error:  # noqa: BLE001 - the test asks for it
            failed.append(error)

    running = threading.Thread(target=work)
    running.start()
    assert sandbox.is_starting.wait(LIMIT)
    one.close()
    running.join(LIMIT)
    assert not running.is_alive()
    assert failed == []
    assert caplog.text == ""
    assert one.state.execution_status is ExecutionStatus.IDLE
    with conversation(agent(Script(DONE)), **kept) as again:
        again.run()
        assert again.state.execution_status is FINISHED


def test_a_second_run_at_the_same_time_is_refused_and_does_not_touch_the_first() -> None:
    sandbox = Sandbox()
    sandbox.held.clear()
    with conversation(agent(Script(run("ls"), DONE)), workspace=sandbox) as one:
        one.send_message("Go.")
        running = begun(one)
        with pytest.raises(RuntimeError, match="is running already"):
            one.run()
        sandbox.held.set()
        running.join(LIMIT)
        assert one.state.execution_status is FINISHED


# --- a refusal as the last thing that is done ---


def test_an_agent_whose_last_call_a_hook_refuses_hears_why_and_goes_on() -> None:
    hooks = HookConfig.model_validate(
        {"pre_tool_use": [{"matcher": "finish", "hooks": [{"type": "command", "command": "check"}]}]}
    )
    script = Script(DONE, ("I could not finish.", []))
    refuses = Sandbox()
    refuses.exit_code, refuses.answer = 2, lambda _command: "the tests were not run"
    with conversation(agent(script), workspace=refuses, hook_config=hooks) as one:
        one.send_message("Go.")
        one.run()
        refused = [event.rejection_source for event in one.state.events if isinstance(event, UserRejectObservation)]
        assert refused == ["hook"]
        assert "the tests were not run" in script.prompt()
        assert one.state.execution_status is FINISHED


@pytest.mark.parametrize("last", [DONE, run("rm x")])
def test_what_the_user_refused_as_the_last_act_is_told_by_the_next_run(last: Said) -> None:
    both: Said = ("", [*run("ls")[1], *last[1]])
    script = Script(both, DONE)
    with conversation(agent(script)) as one:
        one.set_confirmation_policy(AlwaysConfirm())
        one.send_message("Go.")
        one.run()
        one.reject_pending_actions("Not now.")
        assert one.state.execution_status is ExecutionStatus.IDLE
        one.set_confirmation_policy(NeverConfirm())
        one.run()
        assert one.state.execution_status is FINISHED
        assert script.prompt().count("Not now.") == 2
