"""Tools whose part of the sandbox is missing are not offered, and it is said once how to get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_core import Agent, DockerWorkspace, LocalWorkspace, Tool
from agent_core.library.workspace import ExistingSandbox, SandboxWorkspace, Workspace
from agent_core.tools import get_default_tools, registry
from agent_core.tools.spec import ToolMakerState, WorkspacePlace
from tests.unit.library.playing import DONE, Sandbox, Script, conversation, model


class FakeWorkspace(SandboxWorkspace):
    """Lacks a browser, and runs in the sandbox of the tests."""

    working_dir = "/workspace"
    missing_parts = {"browser": "buy one"}  # noqa: RUF012 - it is never changed

    def __init__(self) -> None:
        self._inner = ExistingSandbox(Sandbox())

    async def open(self, conversation_id: str, instance_id: str, data_dir: str):  # type: ignore[no-untyped-def] # as its inner one
        return await self._inner.open(conversation_id, instance_id, data_dir)


def offered(workspace: object) -> set[str]:
    agent = Agent(llm=model(Script()), tools=[*get_default_tools(), Tool(name="browser")])
    return set(agent.initialize(ToolMakerState("one", WorkspacePlace("/w", getattr(workspace, "missing_parts", {})))))


@pytest.mark.parametrize("has_one", [True, False])
def test_a_folder_offers_a_browser_where_this_computer_has_one(
    has_one: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_core.library.workspace.host_has_browser", lambda: has_one)
    names = offered(LocalWorkspace(tmp_path))
    assert ("browser_navigate" in names) is ("browser" in names) is has_one
    assert {"terminal", "file_editor"} <= names


@pytest.mark.parametrize(
    ("workspace", "has_one"),
    [(DockerWorkspace(), False), (DockerWorkspace(image="drydock/sandbox:browser"), True)],
)
def test_a_container_offers_one_unless_its_image_is_known_to_have_none(workspace: Workspace, has_one: bool) -> None:
    assert ("browser_navigate" in offered(workspace)) is has_one


def test_the_model_is_neither_offered_them_nor_told_of_them_and_it_is_said_once_how_to_get_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry._tell_of_missing.cache_clear()
    for _ in range(2):
        script = Script(DONE)
        agent = Agent(llm=model(script), tools=get_default_tools())
        with conversation(agent, workspace=FakeWorkspace()) as one:
            one.send_message("Hello")
            one.run()
        told = str(script.requests[0])
        assert "browser_navigate" not in told
        assert "terminal" in told
        with_browser = Agent(llm=model(Script()), tools=get_default_tools()).static_system_message
        assert with_browser not in told
    warnings = [record.message for record in caplog.records if "left out" in record.message]
    assert warnings == ["the agent's tools that need a browser are left out: buy one"]
