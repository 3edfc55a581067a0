"""`Conversation` with real parts: a model over HTTP, and a folder of this host in a local sandbox."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from agent_core import Agent, Conversation, ConversationRunError, Event, ExecutionStatus, LocalWorkspace, Message, Tool
from agent_core.events.llm_events import MessageEvent, ObservationEvent
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, fail, finish, say
from agent_core.tools import TerminalAction, TerminalExecutor
from tests.integration.library.conftest import StartModel, model

pytestmark = pytest.mark.bubblewrap


def agent(server: ModelServer) -> Agent:
    return Agent(llm=model(server), tools=[Tool(name="TerminalTool"), Tool(name="FileEditorTool")])


def status(conversation: Conversation) -> ExecutionStatus:
    return conversation.state.execution_status


def test_a_conversation_works_in_the_folder_and_remembers(start_model: StartModel, project: Path) -> None:
    server = start_model([call("terminal", {"command": "pwd; cat boat.py > copy.py"}), say("Copied."), finish("Bye.")])
    seen: list[Event] = []
    threads: set[threading.Thread] = set()

    def callback(event: Event) -> None:
        seen.append(event)
        threads.add(threading.current_thread())

    with Conversation(agent=agent(server), workspace=project, callbacks=[callback]) as conversation:
        assert conversation.state.workspace.working_dir == str(project)
        conversation.send_message("Copy it.")
        assert status(conversation) is ExecutionStatus.IDLE
        last = conversation.state.events[-1]
        assert isinstance(last, MessageEvent)
        assert last.llm_message.text == "Copy it."
        assert server.request_count == 0
        conversation.run()
        assert status(conversation) is ExecutionStatus.FINISHED
        assert (project / "copy.py").read_text() == (project / "boat.py").read_text()
        conversation.run()
        assert server.request_count == 2, "a run without anything to do asks nobody"
        conversation.send_message("Thanks.", sender="someone")
        conversation.run()
        events = conversation.state.log
        assert [event.id for event in seen] == list(range(len(events))) == [event.id for event in events]
        assert events[-3:] == [events[i] for i in range(len(events) - 3, len(events))]
        assert threads != {threading.current_thread()}
        shown = next(event.observation for event in events if isinstance(event, ObservationEvent))
        assert shown.text.strip() == str(project)


async def test_arun_works_beside_the_callers_loop(start_model: StartModel, project: Path) -> None:
    server = start_model([call("terminal", {"command": "sleep 0.3"}), finish("Done.")])
    conversation = Conversation(agent=agent(server), workspace=project)
    await asyncio.to_thread(conversation.send_message, "Wait.")
    turns = 0
    run = asyncio.create_task(conversation.arun())
    while not run.done():
        await asyncio.sleep(0.01)
        turns += 1
    await run
    assert turns > 10, "the caller's loop goes on meanwhile"
    assert await asyncio.to_thread(lambda: conversation.state.execution_status) is ExecutionStatus.FINISHED
    await asyncio.to_thread(conversation.close)


async def test_a_cancelled_arun_leaves_the_agent_paused_and_returns(start_model: StartModel, project: Path) -> None:
    server = start_model([call("terminal", {"command": "sleep 60"}), finish("Done.")])
    begun = threading.Event()
    conversation = Conversation(
        agent=agent(server),
        workspace=project,
        callbacks=[lambda event: begun.set() if event.kind == "ActionEvent" else None],
    )
    await asyncio.to_thread(conversation.send_message, "Wait.")
    run = asyncio.create_task(conversation.arun())
    assert await asyncio.to_thread(begun.wait, 30)
    run.cancel()
    await run
    assert not run.cancelled()
    assert await asyncio.to_thread(status, conversation) is ExecutionStatus.PAUSED
    await conversation.arun()
    assert await asyncio.to_thread(status, conversation) is ExecutionStatus.FINISHED, "it goes on at once"
    await conversation.aclose()


async def test_run_may_be_called_where_a_loop_runs(start_model: StartModel, project: Path) -> None:
    server = start_model([finish("Done.")])
    with Conversation(agent=agent(server), workspace=project) as conversation:
        conversation.send_message("Do nothing.")
        conversation.run()
        assert status(conversation) is ExecutionStatus.FINISHED


def test_a_paused_conversation_goes_on_where_it_was(start_model: StartModel, project: Path) -> None:
    server = start_model([call("terminal", {"command": "touch begun; sleep 60"}), finish("Done.")])
    with Conversation(agent=agent(server), workspace=project) as conversation:
        conversation.send_message("Sleep.")
        runner = threading.Thread(target=conversation.run)
        begun = threading.Event()
        conversation.add_callback(lambda event: begun.set() if event.kind == "ActionEvent" else None)
        runner.start()
        assert begun.wait(30)
        conversation.pause()
        runner.join(30)
        assert not runner.is_alive()
        assert status(conversation) is ExecutionStatus.PAUSED
        conversation.run()
        assert status(conversation) is ExecutionStatus.FINISHED


def test_a_failed_run_raises_with_the_conversations_id(start_model: StartModel, project: Path) -> None:
    server = start_model([fail(401, "no such key"), finish("Done.")])
    with Conversation(agent=agent(server), workspace=project, conversation_id="mine") as conversation:
        conversation.send_message("Go.")
        with pytest.raises(ConversationRunError, match=r"mine.*key") as caught:
            conversation.run()
        assert caught.value.conversation_id == "mine"
        assert status(conversation) is ExecutionStatus.ERROR
        conversation.run()
        assert status(conversation) is ExecutionStatus.FINISHED


def test_the_limit_of_iterations_ends_a_run_with_an_error_status(start_model: StartModel, project: Path) -> None:
    server = start_model(call("terminal", {"command": f"echo {i}"}) for i in range(9))
    with Conversation(agent=agent(server), workspace=project, max_iteration_per_run=2) as conversation:
        conversation.send_message("Go on and on.")
        conversation.run()
        assert status(conversation) is ExecutionStatus.ERROR
        assert server.request_count == 2


def test_a_kept_conversation_goes_on_in_another_program(start_model: StartModel, project: Path, tmp_path: Path) -> None:
    server = start_model([say("Hello, Ann."), say("Ann.")])
    arguments: dict[str, Any] = {"workspace": project, "persistence_dir": tmp_path / "kept", "conversation_id": "ann"}
    with Conversation(agent=agent(server), **arguments) as first:
        first.send_message("I am Ann.")
        first.run()
        count = len(first.state.events)
    with Conversation(agent=agent(server), **arguments) as second:
        assert len(second.state.events) == count
        assert status(second) is ExecutionStatus.FINISHED
        second.send_message("Who am I?")
        second.run()
    told = [message["role"] for message in server.last_request.messages]
    assert told == ["system", "user", "assistant", "user"]


def test_secrets_are_hidden_in_the_log(start_model: StartModel, project: Path) -> None:
    server = start_model([call("terminal", {"command": "echo swordfish-1234"}), finish("swordfish-1234")])
    secrets = {"PASSWORD": "swordfish-1234"}
    with Conversation(agent=agent(server), workspace=project, secrets=secrets) as conversation:
        conversation.send_message("Say swordfish-1234.")
        conversation.run()
        assert "swordfish-1234" not in "".join(event.model_dump_json() for event in conversation.state.events)


def test_only_the_folder_is_there_and_it_ends_with_the_conversation(start_model: StartModel, project: Path) -> None:
    (project.parent / "private").write_text("private")
    look = f"cat {project.parent}/private; find /proc/sys -writable -type f -user root; ls {Path.home()}"
    server = start_model([call("terminal", {"command": look}), finish("Done.")])
    with Conversation(agent=agent(server), workspace=LocalWorkspace(project)) as conversation:
        conversation.send_message("Look.")
        conversation.run()
        shown = next(one.observation.text for one in conversation.state.events if isinstance(one, ObservationEvent))
        assert shown.count("No such file") == 2
        assert "/proc/sys" not in shown
    assert project.is_dir()
    with pytest.raises(RuntimeError, match="closed"):
        conversation.run()


def test_only_the_user_can_send_messages(project: Path, start_model: StartModel) -> None:
    conversation = Conversation(agent=agent(start_model([])), workspace=project)
    with pytest.raises(ValueError, match="role is 'assistant'"):
        conversation.send_message(Message.assistant("I did not say that."))


def test_an_executor_works_without_a_conversation(project: Path) -> None:
    terminal = TerminalExecutor(working_dir=str(project))
    try:
        first = terminal(TerminalAction(command="pwd; cd /tmp; export X=1"))
        assert first.text.strip() == str(project)
        assert terminal(TerminalAction(command="pwd; echo $X; false")).text.split() == ["/tmp", "1"]
        assert terminal(TerminalAction(command="exit 3 || true; false")).exit_code != 0
    finally:
        terminal.close()
