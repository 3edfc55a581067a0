"""A run whose log takes nothing ends with an error that says why, and the next one goes on where it was."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from agent_core import Conversation, ConversationRunError, ExecutionStatus
from agent_core.errors import EventStoreError
from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.library import run_loop
from agent_core.llm.transport.exchange import Chunk, CompletionRequest
from tests.unit.library.playing import DONE, Said, Sandbox, Script, agent, conversation, run


class Folder:
    """The folder of a conversation, which can be put out of use: then a file stands in its place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._aside = path.with_name("aside")

    def fail(self) -> None:
        self._path.rename(self._aside)
        self._path.write_text("no folder")

    def mend(self) -> None:
        self._path.unlink()
        self._aside.rename(self._path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(run_loop, "STORE_PATIENCE_SECONDS", 0.3)
    return Folder(tmp_path / "c")


def kept(tmp_path: Path, script: Script, sandbox: Sandbox) -> Conversation:
    return conversation(agent(script), persistence_dir=tmp_path, conversation_id="c", workspace=sandbox)


def answers(opened: Conversation) -> list[tuple[int, int]]:
    """Each action with how often it was answered."""
    events = list(opened.state.log)
    answered = Counter(event.cause for event in events if isinstance(event, ObservationEvent))
    return [(event.id, answered[event.id]) for event in events if isinstance(event, ActionEvent) and event.action]


def while_running(opened: Conversation, script: Script, sandbox: Sandbox, breaks: Callable[[], None]) -> None:
    """Let a command be running when the store fails, and end after that."""
    sandbox.held.clear()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            opened.run()
        except BaseException as error:  # noqa: BLE001 - raised again below
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    until = time.monotonic() + 20
    while not sandbox.ran and time.monotonic() < until:
        time.sleep(0.01)
    breaks()
    sandbox.held.set()
    thread.join(60)
    assert not thread.is_alive(), "the run does not end"
    for problem in problems:
        raise problem


def test_a_run_ends_where_an_answer_cannot_be_stored_and_the_next_one_stores_it(tmp_path: Path, folder: Folder) -> None:
    script, sandbox = Script(run("date"), DONE), Sandbox()
    with kept(tmp_path, script, sandbox) as opened:
        opened.send_message("Go on.")
        with pytest.raises(ConversationRunError, match=r"cannot be used: (File exists|Not a directory)"):
            while_running(opened, script, sandbox, folder.fail)
        with pytest.raises(EventStoreError, match="cannot be used"):
            opened.send_message("More.")
        folder.mend()
        opened.run()
        assert opened.state.execution_status is ExecutionStatus.FINISHED
        assert [count for _, count in answers(opened)] == [1, 1]
        assert sandbox.ran.count("date") == 1
    with kept(tmp_path, Script(), Sandbox()) as again:
        assert again.state.execution_status is ExecutionStatus.FINISHED


class Breaking(Script):
    """Has something done each time before it answers."""

    def __init__(self, *answers: Said, does: Callable[[], None]) -> None:
        super().__init__(*answers)
        self.does = does

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        self.does()
        self.does = lambda: None
        async for chunk in super().stream(request):
            yield chunk


def test_a_step_that_cannot_be_stored_is_taken_again_by_the_next_run(tmp_path: Path, folder: Folder) -> None:
    with kept(tmp_path, Breaking(DONE, DONE, does=folder.fail), Sandbox()) as opened:
        opened.send_message("Go on.")
        with pytest.raises(ConversationRunError, match="cannot be used"):
            opened.run()
        folder.mend()
        opened.run()
        assert opened.state.execution_status is ExecutionStatus.FINISHED


def test_a_fault_that_passes_soon_is_waited_for(
    tmp_path: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_loop, "STORE_PATIENCE_SECONDS", 20)
    script, sandbox = Script(run("date"), DONE), Sandbox()

    def passing() -> None:
        folder.fail()
        threading.Timer(0.7, folder.mend).start()

    with kept(tmp_path, script, sandbox) as opened:
        opened.send_message("Go on.")
        while_running(opened, script, sandbox, passing)
        assert opened.state.execution_status is ExecutionStatus.FINISHED
        assert [count for _, count in answers(opened)] == [1, 1]


def test_a_run_ends_when_another_program_opens_the_conversation_and_may_go_on_after_that(tmp_path: Path) -> None:
    script, sandbox = Script(run("date"), DONE), Sandbox()
    with kept(tmp_path, script, sandbox) as opened, kept(tmp_path, Script(), Sandbox()) as other:
        opened.send_message("Go on.")
        with pytest.raises(ConversationRunError, match="was opened by another program meanwhile"):
            while_running(opened, script, sandbox, lambda: other.send_message("From elsewhere."))
        opened.run()
        assert opened.state.execution_status is ExecutionStatus.FINISHED
        assert [count for _, count in answers(opened)] == [1, 1]
        assert "From elsewhere." in script.prompt()
