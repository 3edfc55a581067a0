"""Going back, forking and repeating with real parts: a model over HTTP, and folders of this host."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_core import Agent, Conversation, ExecutionStatus, Tool
from agent_core.errors import NoSuchEventError, NotStuckError
from agent_core.events.branches import FilesRestored, Rewind
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent, SystemPromptEvent
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish, say
from tests.integration.library.conftest import StartModel, model

pytestmark = pytest.mark.bubblewrap


def agent(server: ModelServer, *tools: str) -> Agent:
    return Agent(llm=model(server), tools=[Tool(name=name) for name in tools or ("TerminalTool", "FileEditorTool")])


def results(conversation: Conversation) -> list[int]:
    return [event.id for event in conversation.state.log if isinstance(event, ObservationEvent)]


def status(conversation: Conversation) -> ExecutionStatus:
    return conversation.state.execution_status


def prompt(server: ModelServer) -> str:
    return str(server.requests[-1].messages)


@pytest.fixture
def checkout(project: Path) -> Path:
    """The project as a repository of Git."""
    (project / ".git").mkdir()
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return project


def test_a_conversation_goes_back_and_runs_on_from_there(start_model: StartModel, project: Path) -> None:
    server = start_model(
        [
            call("terminal", {"command": "echo first"}),
            call("terminal", {"command": "echo second"}),
            finish("Done."),
            finish("Done again."),
            finish("And again."),
        ]
    )
    with Conversation(agent(server), workspace=project) as conversation:
        conversation.send_message("Go.")
        conversation.run()
        end = len(conversation.state.log) - 1
        first = results(conversation)[0]
        conversation.navigate_to(first)
        assert status(conversation) is ExecutionStatus.IDLE
        assert conversation.state.leaf_event_id == first
        seen = [event.id for event in conversation.state.active_branch() if isinstance(event, ObservationEvent)]
        assert max(seen) == first
        assert "second" not in str(conversation.state.view.messages())
        conversation.run()
        assert status(conversation) is ExecutionStatus.FINISHED
        assert "echo first" in prompt(server)
        assert "echo second" not in prompt(server)
        conversation.navigate_to(end)
        assert "second" in str(conversation.state.view.messages())
        conversation.rewind(None)
        assert conversation.state.head_is_empty
        conversation.send_message("Anew.")
        conversation.run()
        assert "Go." not in prompt(server)
        assert "Anew." in prompt(server)
        with pytest.raises(NoSuchEventError):
            conversation.navigate_to(10_000)


def test_a_fork_has_the_same_beginning_and_a_life_of_its_own(
    start_model: StartModel, project: Path, tmp_path: Path
) -> None:
    server = start_model(
        [call("terminal", {"command": "echo first"}), say("Which?"), finish("Forked."), finish("Old.")]
    )
    with Conversation(agent(server), workspace=project, persistence_dir=tmp_path / "logs") as conversation:
        conversation.send_message("Go.")
        conversation.run()
        place = results(conversation)[0]
        before = list(conversation.state.log)
        with conversation.fork(place) as fork:
            assert list(fork.state.log)[: place + 1] == before[: place + 1]
            assert status(fork) is ExecutionStatus.IDLE
            assert fork.stats.snapshot().accumulated_cost == 0
            fork.run()
            assert "first" in prompt(server)
            assert "Which?" not in prompt(server)
            assert status(fork) is ExecutionStatus.FINISHED
        assert list(conversation.state.log) == before
        assert fork.id != conversation.id
        again = Conversation(
            agent(server), workspace=project, persistence_dir=tmp_path / "logs", conversation_id=fork.id
        )
        with again:
            assert status(again) is ExecutionStatus.FINISHED


def test_a_fork_for_other_tools_is_told_of_them_in_its_one_system_prompt(
    start_model: StartModel, project: Path
) -> None:
    server = start_model([call("terminal", {"command": "echo first"}), say("Which?"), finish("Forked.")])
    with Conversation(agent(server), workspace=project) as conversation:
        conversation.send_message("Go.")
        conversation.run()
        with conversation.fork(agent=agent(server, "FileEditorTool")) as fork:
            fork.send_message("Go on.")
            fork.run()
            prompts = [event for event in fork.state.log if isinstance(event, SystemPromptEvent)]
            assert len(prompts) == 1
            names = {tool["function"]["name"] for tool in prompts[0].tools}
            assert names == {"file_editor", "finish", "think"}
            assert {tool["function"]["name"] for tool in server.requests[-1].json["tools"]} == names
            assert any(isinstance(event, ActionEvent) and event.tool_name == "terminal" for event in fork.state.log)


def test_a_fork_of_nothing_is_a_new_conversation(start_model: StartModel, project: Path) -> None:
    server = start_model([finish("Done.")])
    with Conversation(agent(server), workspace=project) as conversation, conversation.fork() as fork:
        fork.send_message("Go.")
        fork.run()
        assert any(isinstance(event, MessageEvent) for event in fork.state.log)
        assert len(conversation.state.log) == 0


def test_the_files_go_back_with_the_conversation_and_come_again(start_model: StartModel, checkout: Path) -> None:
    server = start_model(
        [
            call("terminal", {"command": "echo one > a.txt; rm boat.py"}),
            call("terminal", {"command": "echo two > a.txt; mkdir -p deep/er; echo x > deep/er/b.txt"}),
            finish("Done."),
            call("terminal", {"command": "cat a.txt"}),
            finish("Seen."),
        ]
    )
    with Conversation(agent(server), workspace=checkout) as conversation:
        conversation.send_message("Go.")
        conversation.run()
        end = len(conversation.state.log) - 1
        message = conversation.state.last_user_message_id
        first = results(conversation)[0]
        (checkout / ".git" / "HEAD").write_text("ref: refs/heads/other\n")
        conversation.navigate_to(first)
        assert (checkout / "a.txt").read_text() == "one\n"
        assert not (checkout / "deep").exists()
        assert not (checkout / "boat.py").exists()
        assert (checkout / ".git" / "HEAD").read_text() == "ref: refs/heads/other\n"
        conversation.navigate_to(message)
        assert not (checkout / "a.txt").exists()
        assert (checkout / "boat.py").read_text() == "class Boat:\n    pass\n"
        conversation.navigate_to(end)
        assert (checkout / "deep" / "er" / "b.txt").read_text() == "x\n"
        assert (checkout / "a.txt").read_text() == "two\n"
        conversation.navigate_to(first)
        conversation.send_message("Look.")
        conversation.run()
        assert "one" in str(server.last_request.messages[-1])
        log = list(conversation.state.log)
        rewinds = [event.id for event in log if isinstance(event, Rewind)]
        files = [event for event in log if isinstance(event, FilesRestored)]
        assert [event.cause for event in files] == rewinds
        assert [event.note for event in files] == [""] * 4
        assert all(event.files_of is not None for event in files)


def test_a_fork_gets_the_files_as_they_were_then_in_a_folder_of_its_own(
    start_model: StartModel, checkout: Path
) -> None:
    server = start_model(
        [
            call("terminal", {"command": "echo one > a.txt"}),
            call("terminal", {"command": "echo two > a.txt; rm boat.py"}),
            finish("Done."),
            call("terminal", {"command": "cat a.txt; echo fork > a.txt; ls"}),
            finish("Seen."),
        ]
    )
    with Conversation(agent(server), workspace=checkout) as conversation:
        conversation.send_message("Go.")
        conversation.run()
        with conversation.fork(results(conversation)[0]) as fork:
            folder = Path(fork.workspace.working_dir)
            assert folder.parent == checkout.parent
            assert folder != checkout
            assert (folder / "a.txt").read_text() == "one\n"
            assert (folder / "boat.py").exists()
            assert (folder / ".git" / "HEAD").exists()
            fork.send_message("Look.")
            fork.run()
            assert "one" in str(server.last_request.messages[-1])
            assert (folder / "a.txt").read_text() == "fork\n"
        assert (checkout / "a.txt").read_text() == "two\n"
        with conversation.fork(copy_files=False) as bare:
            bare.send_message("Hm.")
            assert not Path(bare.workspace.working_dir, "a.txt").exists()


def test_what_another_conversation_did_is_done_again_in_another_folder(start_model: StartModel, project: Path) -> None:
    server = start_model(
        [
            call("terminal", {"command": "echo one > a.txt"}),
            say("What next?"),
            call("terminal", {"command": "echo two >> a.txt"}),
            finish("Done."),
            finish("And now."),
        ]
    )
    with Conversation(agent(server), workspace=project) as conversation:
        conversation.send_message("Go.")
        conversation.run()
        conversation.send_message("More.")
        conversation.run()
        recorded = list(conversation.state.log)
    asked = server.request_count
    other = project.parent / "other"
    with Conversation(agent(server), workspace=other) as again:
        again.replay(recorded)
        again.run()
        assert (other / "a.txt").read_text() == "one\ntwo\n"
        assert status(again) is ExecutionStatus.FINISHED
        assert server.request_count == asked
        again.send_message("Go on.")
        again.run()
        assert server.request_count == asked + 1
        assert "echo two" in prompt(server)


def test_a_stuck_agent_is_taken_back_and_tries_again(start_model: StartModel, project: Path) -> None:
    same = call("terminal", {"command": "echo same"})
    server = start_model([same, same, same, same, finish("Understood.")])
    with Conversation(agent(server), workspace=project) as conversation:
        conversation.send_message("Go.")
        with pytest.raises(NotStuckError):
            conversation.recover_from_loop(1)
        conversation.run()
        assert status(conversation) is ExecutionStatus.STUCK
        conversation.recover_from_loop(2)
        assert status(conversation) is ExecutionStatus.IDLE
        conversation.run()
        assert status(conversation) is ExecutionStatus.FINISHED
        assert prompt(server).count("Go.") == 2
        assert "echo same" not in prompt(server)
