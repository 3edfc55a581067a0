"""One program in every place that a conversation can have: a folder, a container, a server. It sees the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agent_core import (
    LLM,
    Action,
    Agent,
    AlwaysConfirm,
    ConfirmRisky,
    Conversation,
    ConversationRunError,
    DockerWorkspace,
    Event,
    LLMSummarizingCondenser,
    MessageEvent,
    Observation,
    ObservationEvent,
    PatternSecurityAnalyzer,
    Tool,
    ToolDefinition,
    ToolError,
    ToolExecutor,
    register_tool,
)
from agent_core.errors import NoSuchEventError, SandboxError
from agent_core.library.workspace import Workspace
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.loop_thread import library_loop
from agent_core.runtime.sandbox import Sandbox
from agent_core.testing.model_turns import call, finish, say
from agent_core.tools import registry
from agent_core.tools.task_tracker import TaskTrackerAction
from agent_core.tools.terminal import TerminalAction
from tests.integration.library.conftest import RunningServer, StartModel, model

TERMINAL = [Tool(name="terminal")]
LINES = "Say hello.\u2028To \N{GRINNING FACE}\x85and\r\nall\ndata: {}\n\n."
DOCKER = DockerWorkspace("drydock/sandbox:base")
PLACES = [
    pytest.param("folder", marks=pytest.mark.bubblewrap),
    pytest.param("docker", marks=pytest.mark.docker),
    pytest.param("server", marks=pytest.mark.bubblewrap),
]


MakePlace = Callable[[], Workspace | Sandbox | Path]


@pytest.fixture(params=PLACES)
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> MakePlace:
    if request.param == "folder":
        return lambda: tmp_path / f"folder-{uuid4().hex[:6]}"
    if request.param == "docker":
        return lambda: DOCKER
    server: RunningServer = request.getfixturevalue("running_server")
    return lambda: server.workspace


@pytest.fixture
def place(new_place: MakePlace, request: pytest.FixtureRequest) -> Iterator[MakePlace]:
    """As `new_place`, but with one container for all tests, each of which finds it empty: most of their time is its."""
    if new_place() is not DOCKER:
        yield new_place
        return
    container: Sandbox = request.getfixturevalue("container")
    yield lambda: container
    library_loop().run(_emptied(container))


@pytest.fixture(scope="module")
def container() -> Iterator[Sandbox]:
    opened = library_loop().run(DOCKER.opened_for("places", ""))
    yield opened.sandbox
    library_loop().run(opened.close())


async def _emptied(container: Sandbox) -> None:
    connection = SandboxConnection(container)
    try:
        await connection.start()
        empty = {"command": "find /workspace -mindepth 1 -delete", "fresh": True, "timeout": 30}
        assert (await connection.request("shell.run", empty)).result["exit_code"] == 0
    finally:
        await connection.close()


def status(conversation: Conversation) -> str:
    return conversation.state.execution_status.value


def last(conversation: Conversation) -> Any:
    return conversation.state.events[-1]


def kinds(events: Any) -> list[str]:
    return [event.kind for event in events]


def test_a_run_has_the_same_events_and_states_and_callbacks(start_model: StartModel, new_place: MakePlace) -> None:
    command = call("terminal", {"command": "echo hello > said.txt && cat said.txt"}, text="I look.")
    server = start_model([command, finish("Said."), say("Nothing more.")])
    told: list[Event] = []
    pieces: list[str] = []
    llm = model(server)
    with Conversation(
        Agent(llm=llm, tools=TERMINAL),
        new_place(),
        callbacks=[told.append],
        token_callbacks=[lambda piece: pieces.append(piece.text)],
        visualizer=None,
    ) as conversation:
        assert status(conversation) == "idle"
        conversation.send_message(LINES)
        assert server.requests is not None
        assert not server.requests
        conversation.run()
        assert status(conversation) == "finished"
        seen = kinds(conversation.state.events)
        assert seen == [
            "SystemPromptEvent",
            "MessageEvent",
            "RecallObservation",
            "ActionEvent",
            "ObservationEvent",
            "ActionEvent",
            "ObservationEvent",
        ]
        answer = conversation.state.events[4]
        assert isinstance(answer, ObservationEvent)
        assert answer.observation.text.startswith("hello")
        assert [event.id for event in told] == [event.id for event in conversation.state.log]
        assert "".join(pieces) == "I look."
        conversation.send_message("And?")
        conversation.run()
        assert kinds(conversation.state.events)[len(seen) :] == ["MessageEvent", "MessageEvent"]
        assert [event.id for event in told] == [event.id for event in conversation.state.log]
        spent = conversation.stats.get_combined_metrics().accumulated_token_usage.prompt_tokens
        assert llm.metrics.accumulated_token_usage.prompt_tokens == spent > 0
        first = conversation.state.events[1]
        assert isinstance(first, MessageEvent)
        assert first.llm_message.text == LINES
        offered = [tool["function"]["name"] for tool in server.requests[0].json["tools"]]
        assert offered == ["terminal", "finish", "think"]


def test_files_go_in_and_out_and_tools_are_called_beside_the_agent(
    start_model: StartModel, place: MakePlace, tmp_path: Path
) -> None:
    server = start_model([finish("Done.")])
    (tmp_path / "given.bin").write_bytes(bytes(range(256)) * 5000)
    with Conversation(Agent(llm=model(server), tools=TERMINAL), place(), visualizer=None) as conversation:
        conversation.upload(tmp_path / "given.bin", "sub")
        counted = conversation.execute_tool("terminal", TerminalAction(command="wc -c < sub/given.bin"))
        assert "1280000" in counted.text
        assert conversation.read_file("sub/given.bin") == (tmp_path / "given.bin").read_bytes()
        with pytest.raises(SandboxError, match="max_bytes"):
            conversation.read_file("sub/given.bin", max_bytes=10)
        with pytest.raises(SandboxError, match="is a folder"):
            conversation.read_file("sub")
        with pytest.raises(ToolError):
            conversation.read_file("none")
        ran = conversation.execute_command("ls sub; exit_with() { return 3; }; exit_with")
        assert (ran.exit_code, "given.bin" in ran.text) == (3, True)
        back = conversation.download("sub/given.bin", tmp_path / "back.bin")
        assert back.read_bytes() == (tmp_path / "given.bin").read_bytes()
        assert kinds(conversation.state.events) in ([], ["SystemPromptEvent"])


def test_confirmation_is_asked_for_granted_and_refused(start_model: StartModel, place: MakePlace) -> None:
    risky = {"command": "echo done >> marks.txt"}
    server = start_model([call("terminal", risky), call("terminal", risky), finish("Done."), finish("Then not.")])
    with Conversation(Agent(llm=model(server), tools=TERMINAL), place(), visualizer=None) as conversation:
        conversation.set_confirmation_policy(AlwaysConfirm())
        conversation.send_message("Go.")
        conversation.run()
        assert status(conversation) == "waiting_for_confirmation"
        conversation.run()
        assert status(conversation) == "waiting_for_confirmation"
        conversation.reject_pending_actions("Once is enough.")
        assert status(conversation) == "idle"
        assert "Once is enough." in last(conversation).rejection_reason
        conversation.run()
        assert status(conversation) == "finished"
        marks = conversation.execute_tool("terminal", TerminalAction(command="cat marks.txt"))
        assert marks.text.splitlines()[0] == "done"
        assert "Once is enough." in str(server.requests[2].messages[-1])


def test_a_fork_goes_on_from_there_with_the_files_of_then(start_model: StartModel, new_place: MakePlace) -> None:
    write = [call("terminal", {"command": f"echo {word} > word.txt"}) for word in ("one", "two")]
    server = start_model([write[0], finish("One."), write[1], finish("Two."), finish("Forked.")])
    with Conversation(Agent(llm=model(server), tools=TERMINAL), new_place(), visualizer=None) as conversation:
        conversation.send_message("One.")
        conversation.run()
        until = last(conversation).id
        conversation.send_message("Two.")
        conversation.run()
        with conversation.fork(until) as fork:
            word = fork.execute_tool("terminal", TerminalAction(command="cat word.txt"))
            assert word.text.splitlines()[0] == "one"
            fork.send_message("Go on.")
            fork.run()
            assert status(fork) == "finished"
            assert "Two." not in str(server.requests[-1].messages)
        word = conversation.execute_tool("terminal", TerminalAction(command="cat word.txt"))
        assert word.text.splitlines()[0] == "two"


def test_a_pause_ends_what_runs_and_the_next_run_goes_on(start_model: StartModel, place: MakePlace) -> None:
    server = start_model([call("terminal", {"command": "echo begun; sleep 60"}), finish("Later.")])
    with Conversation(Agent(llm=model(server), tools=TERMINAL), place(), visualizer=None) as conversation:
        begun = threading.Event()
        conversation.add_callback(lambda event: begun.set() if event.kind == "ActionEvent" else None)
        conversation.send_message("Go.")
        running = threading.Thread(target=conversation.run)
        running.start()
        assert begun.wait(90)
        conversation.pause()
        running.join(60)
        assert status(conversation) == "paused"
        assert "PauseEvent" in kinds(conversation.state.events)
        conversation.run()
        assert status(conversation) == "finished"


def test_secrets_are_in_the_commands_that_name_them_and_hidden(start_model: StartModel, place: MakePlace) -> None:
    server = start_model(
        [call("terminal", {"command": "echo $SHOP_TOKEN | tr a-z A-Z; echo $SHOP_TOKEN"}), finish("Done.")]
    )
    agent = Agent(llm=model(server), tools=TERMINAL)
    secrets = {"SHOP_TOKEN": "secret-of-the-shop"}
    with Conversation(agent, place(), secrets=secrets, visualizer=None) as conversation:
        conversation.send_message("Go.")
        conversation.run()
        shown = str([event.model_dump() for event in conversation.state.log])
        assert "SECRET-OF-THE-SHOP" in shown
        assert "secret-of-the-shop" not in shown


def test_a_step_is_one_answer(start_model: StartModel, place: MakePlace) -> None:
    server = start_model([call("terminal", {"command": "true"}), finish("Done.")])
    with Conversation(Agent(llm=model(server), tools=TERMINAL), place(), visualizer=None) as conversation:
        conversation.send_message("Go.")
        conversation.step()
        assert (len(server.requests), status(conversation)) == (1, "paused")
        conversation.run()
        assert status(conversation) == "finished"


def test_a_model_that_refuses_is_an_error_of_the_run(start_model: StartModel, place: MakePlace) -> None:
    server = start_model([])
    with Conversation(Agent(llm=model(server), tools=TERMINAL), place(), visualizer=None) as conversation:
        conversation.send_message("Go.")
        with pytest.raises(ConversationRunError):
            conversation.run()
        assert status(conversation) == "error"


class CountAction(Action):
    """Which letter."""

    letter: str


class CountObservation(Observation):
    """How often it stands in the file."""

    count: int = 0


class CountExecutor(ToolExecutor[CountAction, CountObservation]):
    """Counts in this process, in the text that the conversation's terminal shows."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def __call__(self, action: CountAction, conversation: Any = None) -> CountObservation:
        self.threads.append(threading.current_thread().name)
        count = action.letter.count("a")
        return CountObservation.from_text(f"{count} times", count=count)


class CountTool(ToolDefinition[CountAction, CountObservation]):
    """A tool that only this program has."""

    description: str = "Counts letters."

    @classmethod
    def make_executor(cls) -> CountExecutor:
        return CountExecutor()


def test_a_program_s_own_tool_is_called_in_the_program(
    start_model: StartModel, place: MakePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_registered", dict(registry.registered_tools()))
    register_tool("CountTool", CountTool)
    server = start_model([call("count", {"letter": "aaa"}), finish("Three.")])
    agent = Agent(llm=model(server), tools=[Tool(name="CountTool")])
    with Conversation(agent, place(), visualizer=None) as conversation:
        conversation.send_message("Count.")
        conversation.run()
        calls: list[Any] = [event for event in conversation.state.events if getattr(event, "tool_name", "") == "count"]
        assert kinds(calls) == ["ActionEvent", "ObservationEvent"]
        assert (calls[0].action, calls[1].observation.count) == (CountAction(letter="aaa"), 3)
        assert "3 times" in str(server.requests[1].messages[-1])


def test_what_shows_a_run_is_closed_with_its_conversation(place: MakePlace) -> None:
    class View:
        def __init__(self) -> None:
            self.is_closed = threading.Event()

        def on_event(self, event: Event) -> None:
            pass

        def close(self) -> None:
            self.is_closed.set()

    view = View()
    Conversation(Agent(llm=LLM(model="openai/scripted"), tools=[]), place(), visualizer=view).close()
    assert view.is_closed.wait(30)


def test_going_back_takes_the_log_and_the_files_along(start_model: StartModel, new_place: MakePlace) -> None:
    write = [call("terminal", {"command": f"echo {word} > word.txt"}) for word in ("one", "two")]
    server = start_model([write[0], finish("One."), write[1], finish("Two."), finish("Again.")])
    with Conversation(Agent(llm=model(server), tools=TERMINAL), new_place(), visualizer=None) as conversation:
        conversation.send_message("One.")
        conversation.run()
        until = last(conversation).id
        conversation.send_message("Two.")
        conversation.run()
        with pytest.raises(NoSuchEventError):
            conversation.navigate_to(4000)
        conversation.navigate_to(until)
        assert conversation.state.leaf_event_id == until
        conversation.send_message("Another way.")
        conversation.run()
        assert "Two." not in str(server.requests[-1].messages)
        word = conversation.execute_tool("terminal", TerminalAction(command="cat word.txt"))
        assert word.text.splitlines()[0] == "one"


def test_what_is_asked_beside_the_task_leaves_the_log_as_it_is(start_model: StartModel, place: MakePlace) -> None:
    server = start_model([finish("Done."), say("Forty-two."), say("\N{GEAR} The answer")])
    with Conversation(Agent(llm=model(server), tools=TERMINAL), place(), visualizer=None) as conversation:
        conversation.send_message("Think.")
        conversation.run()
        before = len(conversation.state.log)
        assert conversation.ask_agent("What is it?") == "Forty-two."
        assert conversation.generate_title() == "\N{GEAR} The answer"
        assert len(conversation.state.log) == before


def test_a_tool_whose_state_is_in_the_log_is_called_as_the_user(start_model: StartModel, place: MakePlace) -> None:
    server = start_model([finish("Done.")])
    tools = [*TERMINAL, Tool(name="task_tracker")]
    with Conversation(Agent(llm=model(server), tools=tools), place(), visualizer=None) as conversation:
        conversation.send_message("Go.")
        conversation.run()
        plan = TaskTrackerAction(command="plan", task_list=[{"title": "Sail"}])
        conversation.execute_tool("task_tracker", plan)
        seen = conversation.execute_tool("task_tracker", TaskTrackerAction(command="view"))
        assert "Sail" in seen.text
        users = [event for event in conversation.state.events if event.source == "user" and event.kind == "ActionEvent"]
        assert len(users) == 2


def test_another_model_and_other_secrets_count_from_the_next_run_on(start_model: StartModel, place: MakePlace) -> None:
    first = start_model([finish("One.")])
    second = start_model([call("terminal", {"command": "echo $LATE | tr a-z A-Z"}), finish("Two.")])
    with Conversation(Agent(llm=model(first), tools=TERMINAL), place(), visualizer=None) as conversation:
        conversation.send_message("One.")
        conversation.run()
        conversation.switch_llm(model(second))
        conversation.update_secrets({"LATE": "a-late-secret"})
        conversation.send_message("Two.")
        conversation.run()
        assert len(second.requests) == 2
        assert "A-LATE-SECRET" in str([event.model_dump() for event in conversation.state.log])


def test_a_plugin_and_an_analyzer_count_from_the_next_run_on(
    start_model: StartModel, place: MakePlace, tmp_path: Path
) -> None:
    skill = tmp_path / "boats/skills/knots/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: knots\ndescription: How to tie knots.\n---\nTie a bowline.\n")
    risky = call("terminal", {"command": "rm -rf / --no-preserve-root"})
    server = start_model([call("terminal", {"command": "true"}), finish("One."), risky])
    refused: list[str] = []

    def plug_in(event: Any) -> None:
        if event.kind == "ActionEvent" and not refused:
            with pytest.raises(RuntimeError) as caught:
                conversation.load_plugin(tmp_path / "boats")
            refused.append(str(caught.value))

    with Conversation(
        Agent(llm=model(server), tools=TERMINAL), place(), callbacks=[plug_in], visualizer=None
    ) as conversation:
        conversation.send_message("One.")
        conversation.run()
        assert refused == [f"conversation {conversation.id} is running; pause it first"]
        assert "knots" not in server.requests[-1].content.decode()
        conversation.set_confirmation_policy(ConfirmRisky())
        conversation.set_security_analyzer(PatternSecurityAnalyzer())
        conversation.load_plugin(tmp_path / "boats")
        assert (status(conversation), last(conversation).source) == ("finished", "environment")
        conversation.run()
        assert len(server.requests) == 2, "a plugin is no word of the user's"
        conversation.send_message("Two.")
        conversation.run()
        assert "How to tie knots." in server.requests[-1].content.decode()
        assert status(conversation) == "waiting_for_confirmation"


def test_the_history_is_condensed_when_the_program_says_so(start_model: StartModel, place: MakePlace) -> None:
    steps = [call("terminal", {"command": f"echo {number}"}) for number in range(6)]
    server = start_model([*steps, finish("Done."), say("They counted."), finish("More.")])
    llm = model(server)
    agent = Agent(llm=llm, tools=TERMINAL, condenser=LLMSummarizingCondenser(llm=llm, max_size=100, keep_first=2))
    with Conversation(agent, place(), visualizer=None) as conversation:
        conversation.send_message("Count.")
        conversation.run()
        conversation.condense()
        assert last(conversation).summary == "They counted."
        assert status(conversation) == "finished"
        conversation.send_message("Go on.")
        conversation.run()
        assert "They counted." in str(server.requests[-1].messages)


async def test_an_asynchronous_run_is_cancelled_as_an_interrupt(start_model: StartModel, place: MakePlace) -> None:
    server = start_model([call("terminal", {"command": "sleep 60"}), finish("Later.")])
    begun = threading.Event()
    async with Conversation(
        Agent(llm=model(server), tools=TERMINAL),
        place(),
        callbacks=[lambda event: begun.set() if event.kind == "ActionEvent" else None],
        visualizer=None,
    ) as conversation:
        await conversation.asend_message("Sleep.")
        running = asyncio.create_task(conversation.arun())
        await asyncio.to_thread(begun.wait, 90)
        running.cancel()
        await running
        assert await asyncio.to_thread(status, conversation) == "paused"
        assert "InterruptEvent" in await asyncio.to_thread(lambda: kinds(conversation.state.events))
