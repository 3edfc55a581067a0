"""What only a conversation that a server carries out can meet: other programs, restarts, wrong addresses."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core import (
    LLM,
    Agent,
    Conversation,
    Event,
    FallbackStrategy,
    GitSetup,
    ObservationEvent,
    ProfileStore,
    RemoteError,
    RemoteWorkspace,
    Tool,
    ToolError,
    register_tool,
)
from agent_core.library.remote.run import RemoteRun
from agent_core.testing.model_turns import call, fail, finish
from agent_core.tools import registry
from drydock_client import NotFoundError, SyncDrydockClient, UnreachableError
from drydock_client.programs import LogPage, ProgramsApi
from drydock_client.results import Sent
from tests.integration.library.conftest import RunningServer, StartModel, model
from tests.integration.library.test_places import CountTool

pytestmark = pytest.mark.bubblewrap

TERMINAL = [Tool(name="terminal")]


def status(conversation: Conversation) -> str:
    return conversation.state.execution_status.value


def test_a_conversation_goes_on_in_another_program(start_model: StartModel, running_server: RunningServer) -> None:
    server = start_model([finish("First."), finish("Second.")])
    agent = Agent(llm=model(server), tools=TERMINAL)
    with Conversation(agent, running_server.workspace, visualizer=None) as first:
        first.send_message("First.")
        first.run()
        log = [event.id for event in first.state.log]
    told: list[Event] = []
    with Conversation(
        agent, running_server.workspace, conversation_id=first.id, callbacks=[told.append], visualizer=None
    ) as second:
        assert status(second) == "finished"
        assert [event.id for event in second.state.log][: len(log)] == log
        second.send_message("Second.")
        second.run()
        assert min(event.id for event in told) >= len(log), "what was there before is no news"


def test_the_answer_of_a_program_s_own_tool_is_sent_until_the_server_has_it_and_counts_once(
    start_model: StartModel, running_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_registered", dict(registry.registered_tools()))
    register_tool("CountTool", CountTool)
    add, keys = ProgramsApi.add, []

    async def losing(api: ProgramsApi, conversation_id: str, event: Any, *, key: str | None = None) -> Sent:
        """The first answer does not arrive, of the second nobody hears that it did."""
        if event["kind"] != "ClientToolResult":
            return await add(api, conversation_id, event, key=key)
        keys.append(key)
        if len(keys) > 1:
            sent = await add(api, conversation_id, event, key=key)
        if len(keys) < 3:
            raise UnreachableError("the connection broke")
        return sent

    monkeypatch.setattr(ProgramsApi, "add", losing)
    server = start_model([call("count", {"letter": "aaa"}), finish("Three.")])
    agent = Agent(llm=model(server), tools=[Tool(name="CountTool")])
    with Conversation(agent, running_server.workspace, visualizer=None) as conversation:
        conversation.send_message("Count.")
        conversation.run()
        assert status(conversation) == "finished"
        calls = [event for event in conversation.state.events if getattr(event, "tool_name", "") == "count"]
        assert [event.kind for event in calls] == ["ActionEvent", "ObservationEvent"]
        with pytest.raises(ToolError, match="in the background"):
            conversation.execute_command("true", limit_seconds=3600)
    assert len(set(keys)) == 1


def test_a_log_whose_first_reading_broke_off_is_read_on(
    start_model: StartModel, running_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(llm=model(start_model([finish("First.")])), tools=TERMINAL)
    with Conversation(agent, running_server.workspace, visualizer=None) as first:
        first.send_message("First.")
        first.run()
        log = [(event.id, event.kind) for event in first.state.log]
    page, asked = ProgramsApi.page, []

    async def breaking(api: ProgramsApi, conversation_id: str, *, after: int = -1, limit: int = 200) -> LogPage:
        asked.append(after)
        if len(asked) == 2:
            raise UnreachableError("the connection broke")
        return await page(api, conversation_id, after=after, limit=limit)

    monkeypatch.setattr(ProgramsApi, "page", breaking)
    with Conversation(agent, running_server.workspace, conversation_id=first.id, visualizer=None) as second:
        with pytest.raises(RemoteError, match="the connection broke"):
            len(second.state.log)
        assert [(event.id, event.kind) for event in second.state.log][: len(log)] == log
        assert asked == [-1, log[-1][0], log[-1][0]]


def test_a_run_is_asked_for_once_the_session_there_is_in_its_first_state(
    start_model: StartModel, running_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That state tells how the last run has ended. Behind the request for the next one it would look like its end.
    add, states = ProgramsApi.add, []

    async def noting(api: ProgramsApi, conversation_id: str, event: Mapping[str, Any], **options: Any) -> Sent:
        if event["kind"] == "ChangeAgentState":
            log = (await api.page(conversation_id)).events
            states.append([one["agent_state"] for one in log if one["kind"] == "AgentStateChanged"][-1])
        return await add(api, conversation_id, event, **options)

    monkeypatch.setattr(ProgramsApi, "add", noting)
    first, second = start_model([finish("One.")]), start_model([finish("Two.")])
    with Conversation(Agent(llm=model(first), tools=TERMINAL), running_server.workspace, visualizer=None) as one:
        one.send_message("One.")
        one.run()
        one.switch_llm(model(second))
        one.send_message("Two.")
        one.run()
        assert len(second.requests) == 1
    assert states == ["awaiting_user_input", "finished"]


def test_a_run_goes_on_when_the_server_is_restarted_in_its_middle(start_model: StartModel, tmp_path: Path) -> None:
    server = RunningServer(tmp_path / "data")
    try:
        server.do(server.process.start())
        port = server.process.url.rpartition(":")[2]
        server.process.options = (*server.process.options, "--port", port)
        (alarm := tmp_path / "alarm.txt").touch()
        wait = "while [ ! -e alarm.txt ]; do sleep 0.05; done; echo woken"
        script = start_model([call("terminal", {"command": wait}), finish("Done.")])
        told: list[Event] = []
        agent = Agent(llm=model(script), tools=TERMINAL)
        with Conversation(agent, server.workspace, callbacks=[told.append], visualizer=None) as conversation:
            begun = threading.Event()
            conversation.add_callback(lambda event: begun.set() if event.kind == "ActionEvent" else None)
            conversation.send_message("Sleep.")
            running = threading.Thread(target=conversation.run)
            running.start()
            assert begun.wait(90)
            server.do(server.process.kill())
            server.do(server.process.start())
            conversation.upload(alarm)
            running.join(120)
            assert not running.is_alive()
            assert status(conversation) == "finished"
            assert [event.id for event in told] == list(range(len(conversation.state.log)))
            results = [event for event in conversation.state.events if isinstance(event, ObservationEvent)]
            assert "woken" in results[0].observation.text
    finally:
        server.close()


def test_a_wrong_address_token_or_agent_is_a_clear_error(
    start_model: StartModel, running_server: RunningServer
) -> None:
    agent = Agent(llm=LLM(model="openai/none", api_key=SecretStr("key-123456")), tools=TERMINAL)
    right = running_server.workspace

    class Foreign(Agent):
        """A class that no server has."""

    for workspace, chosen, problem in (
        (RemoteWorkspace("http://127.0.0.1:9", "x"), agent, "No answer from http://127.0.0.1:9"),
        (RemoteWorkspace(right.url, "wrong-token-wrong-token-1"), agent, "access token"),
        (RemoteWorkspace(start_model([]).url, "x"), agent, "Drydock"),
        (right, Foreign(llm=agent.llm, tools=TERMINAL), "kind: 'Foreign' is none of"),
    ):
        with (
            Conversation(chosen, workspace, visualizer=None) as conversation,
            pytest.raises(RemoteError, match=problem.replace(".", r"\.")),
        ):
            conversation.send_message("Hello.")


def test_the_models_that_one_falls_back_to_and_the_name_on_commits_come_along(
    start_model: StartModel, running_server: RunningServer, tmp_path: Path
) -> None:
    down = start_model(lambda _request: fail(503))
    other = start_model([call("terminal", {"command": "git config user.name; git config user.email"}), finish("Done.")])
    ProfileStore(tmp_path).save("other", model(other).model_copy(update={"usage_id": "other"}), include_secrets=True)
    strategy = FallbackStrategy(fallback_llms=("missing", "other"), profile_store_dir=tmp_path)
    llm = model(down).model_copy(update={"fallback_strategy": strategy})
    who = GitSetup(user_name="Mira", user_email="mira@example.org")
    with Conversation(
        Agent(llm=llm, tools=TERMINAL), running_server.workspace, git=who, visualizer=None
    ) as conversation:
        conversation.send_message("Who am I?")
        conversation.run()
        assert status(conversation) == "finished"
        assert len(down.requests) == len(other.requests) == 2
        results = [event for event in conversation.state.events if isinstance(event, ObservationEvent)]
        assert results[0].observation.text.splitlines()[:2] == ["Mira", "mira@example.org"]


def test_what_only_a_program_s_own_process_can_have_is_refused_at_once(tmp_path: Path) -> None:
    agent = Agent(llm=LLM(), tools=TERMINAL)
    place = RemoteWorkspace("http://127.0.0.1:9")
    with pytest.raises(ValueError, match="persistence_dir: the server keeps the log"):
        Conversation(agent, place, persistence_dir=tmp_path)
    with pytest.raises(ValueError, match="confirm_subagents"):
        Conversation(agent, place, confirm_subagents=lambda actions: True)
    with pytest.raises(ValueError, match=r"llm\.retry_listener"):
        Conversation(Agent(llm=LLM(retry_listener=print), tools=TERMINAL), place)


def test_what_is_to_be_deleted_on_close_is_gone_from_the_server(
    start_model: StartModel, running_server: RunningServer
) -> None:
    agent = Agent(llm=model(start_model([finish("Done.")])), tools=TERMINAL)
    with Conversation(agent, running_server.workspace, delete_on_close=True, visualizer=None) as conversation:
        conversation.send_message("Go.")
        conversation.run()
    place = running_server.workspace
    with SyncDrydockClient(place.url, place.api_key) as client, pytest.raises(NotFoundError):
        client.conversation(conversation.id)


@pytest.mark.parametrize("moment", ["_configured", "_post"])
def test_a_pause_that_comes_before_the_server_is_asked_for_the_run_counts(
    start_model: StartModel, running_server: RunningServer, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    whole = getattr(RemoteRun, moment)

    async def paused_meanwhile(run: RemoteRun, *values: Any) -> Any:
        monkeypatch.setattr(RemoteRun, moment, whole)
        await run.pause()
        return await whole(run, *values)

    server = start_model([call("terminal", {"command": "sleep 60"}), finish("Done.")])
    with Conversation(Agent(llm=model(server), tools=TERMINAL), running_server.workspace, visualizer=None) as it:
        it.send_message("Begin.")
        monkeypatch.setattr(RemoteRun, moment, paused_meanwhile)
        it.run()
        assert status(it) == "paused"
        assert len(server.requests) < 2
