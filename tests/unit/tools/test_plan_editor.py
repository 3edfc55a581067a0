"""The planning file editor and the planning agent."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_core.agent.base import AgentBase
from agent_core.agent.presets import PlanningAgent, get_default_agent, get_planning_agent
from agent_core.events.llm_events import ObservationEvent, SystemPromptEvent
from agent_core.llm.llm import LLM
from agent_core.testing.fake_sandbox import FakeAnswer
from agent_core.testing.fake_sandbox import FakeRequest as RunnerCall
from agent_core.tools.file_editor import (
    BLANK_PLAN,
    PLAN_PARTS,
    PlanningFileEditorAction,
    PlanningFileEditorExecutor,
    PlanningFileEditorObservation,
    PlanningFileEditorTool,
)
from agent_core.tools.presets import get_planning_tools, register_planning_tools
from agent_core.tools.registry import resolve_tool
from agent_core.tools.spec import Tool, ToolMakerState, WorkspacePlace
from runtime_images.runner.files.editor import Editor, edit_of
from runtime_images.runner.files.edits import EditHistory
from tests.answering_sandbox import AnsweringSandbox, Asked, FakeCall
from tests.unit.controller.stage import REPLIES, Stage
from tests.unit.controller.test_answers import until
from tests.unit.controller.test_confirmation_flow import FINISHED

MODEL = LLM(model="openai/x")


@dataclass
class Workplace(AnsweringSandbox):
    """The runner's own editor on a folder."""

    state: str = field(default="", kw_only=True)

    def answer(self, asked: Asked) -> dict[str, Any]:
        return Editor(EditHistory(self.state)).run(edit_of(asked.args, self.working_dir))


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    (tmp_path / "work").mkdir()
    return Workplace(working_dir=str(tmp_path / "work"), state=str(tmp_path / "state"))


def file_in(place: Workplace, name: str) -> Path:
    return Path(place.working_dir, name)


def plan_of(place: Workplace) -> Path:
    return file_in(place, "PLAN.md")


async def do(place: Workplace, executor: PlanningFileEditorExecutor | None = None, **action: Any) -> Any:
    action = {"path": str(plan_of(place)), **action}
    return await (executor or PlanningFileEditorExecutor()).acall(
        PlanningFileEditorAction.model_validate(action), FakeCall(place)
    )


def test_a_plan_has_five_numbered_parts() -> None:
    assert [line for line in BLANK_PLAN.splitlines() if line] == [
        "# 1. Objective",
        "# 2. Context Summary",
        "# 3. Approach Overview",
        "# 4. Implementation Steps",
        "# 5. Testing and Validation",
    ]


async def test_the_plan_file_is_made_before_the_first_call_and_one_that_is_there_stays(place: Workplace) -> None:
    await PlanningFileEditorExecutor().prepare(place)
    assert plan_of(place).read_text() == BLANK_PLAN
    plan_of(place).write_text("my own plan\n")
    await PlanningFileEditorExecutor().prepare(place)
    assert plan_of(place).read_text() == "my own plan\n"
    plan_of(place).unlink()
    result = await do(place, command="view")
    assert "# 5. Testing and Validation" in result.text
    assert isinstance(result, PlanningFileEditorObservation)


async def test_every_file_can_be_viewed_but_the_plan_alone_can_be_changed(place: Workplace) -> None:
    other = file_in(place, "main.py")
    other.write_text("x = 1\n")
    assert "x = 1" in (await do(place, command="view", path=str(other))).text
    assert "main.py" in (await do(place, command="view", path=place.working_dir)).text
    for change in (
        {"command": "create", "file_text": "y"},
        {"command": "str_replace", "old_str": "x", "new_str": "y"},
        {"command": "insert", "insert_line": 0, "new_str": "y"},
        {"command": "undo_edit"},
    ):
        for path in (
            str(other),
            "PLAN.md",
            f"{place.working_dir}/sub/PLAN.md",
            f"{place.working_dir}/PLAN.md/../main.py",
        ):
            result = await do(place, path=path, **change)
            assert result.is_error
            assert f"not allowed on {path}" in result.text
            assert str(plan_of(place)) in result.text
    assert other.read_text() == "x = 1\n"


async def test_the_plan_is_written_at_once_or_part_by_part_but_never_overwritten(place: Workplace) -> None:
    written = await do(place, command="create", file_text="# 1. Objective\nShip it.\n")
    assert (written.is_error, written.prev_exist) == (False, True)
    assert "+Ship it." in written.diff
    again = await do(place, command="create", file_text="something else")
    assert again.is_error
    assert "cannot overwrite with `create`" in again.text
    assert (await do(place, command="str_replace", old_str="Ship it.", new_str="Sail it.")).is_error is False
    assert plan_of(place).read_text() == "# 1. Objective\nSail it.\n"
    assert (await do(place, command="undo_edit")).is_error is False
    assert plan_of(place).read_text() == "# 1. Objective\nShip it.\n"


async def test_the_plan_may_be_elsewhere(place: Workplace) -> None:
    elsewhere = f"{place.working_dir}/.agents_tmp/PLAN.md"
    executor = PlanningFileEditorExecutor(f"{place.working_dir}/./none/..//.agents_tmp/PLAN.md")
    await executor.prepare(place)
    assert file_in(place, ".agents_tmp/PLAN.md").read_text() == BLANK_PLAN
    assert (await do(place, executor, command="create", file_text="x", path=elsewhere)).is_error is False
    assert (await do(place, executor, command="create", file_text="x")).is_error
    written = f"{place.working_dir}/.agents_tmp/../.agents_tmp//PLAN.md"
    assert (await do(place, executor, command="insert", insert_line=1, new_str="y", path=written)).is_error is False
    with pytest.raises(ValueError, match=r"plan_path is 'PLAN.md': give an absolute path"):
        PlanningFileEditorTool.create(plan_path="PLAN.md")


def test_the_description_names_the_plan_and_unknown_parameters_are_refused() -> None:
    state = ToolMakerState("c", WorkspacePlace("/workspace"))
    (tool,) = resolve_tool(Tool(name="PlanningFileEditorTool"), state)
    assert "/workspace/PLAN.md" in tool.description
    assert (tool.name, tool.annotations.readOnlyHint, tool.journaled) == ("planning_file_editor", False, True)
    with pytest.raises(TypeError, match="plan_file"):
        resolve_tool(Tool(name="planning_file_editor", params={"plan_file": "/x"}), state)


def test_the_preset_has_its_tools_its_prompt_and_its_condenser() -> None:
    register_planning_tools()
    assert [tool.name for tool in get_planning_tools()] == ["glob", "grep", "planning_file_editor"]
    one = get_planning_agent(llm=MODEL)
    assert list(one.initialize()) == ["glob", "grep", "planning_file_editor", "finish", "think"]
    assert one.system_prompt_filename == "system_prompt_planning.j2"
    positions = [one.static_system_message.index(f"**{title}**") for title, _ in PLAN_PARTS]
    assert positions == sorted(positions)
    data = one.model_dump()["condenser"]
    assert (data["max_size"], data["keep_first"], data["llm"]["usage_id"]) == (100, 6, "condenser")
    assert AgentBase.revive(json.loads(one.model_dump_json())) == one
    assert PlanningAgent(llm=MODEL, system_prompt="Plan.").static_system_message == "Plan."
    other = PlanningAgent(llm=MODEL, system_prompt_kwargs={"plan_structure": "1. Everything"})
    assert "1. Everything" in other.static_system_message


def test_the_default_agent_has_a_browser_only_where_it_works_alone() -> None:
    assert "browser_tool_set" in [tool.name for tool in get_default_agent(MODEL).tools]
    assert "browser_tool_set" not in [tool.name for tool in get_default_agent(MODEL, cli_mode=True).tools]


async def test_a_conversation_of_a_planning_agent_makes_the_plan_file_before_the_model_is_asked() -> None:
    asked: list[dict[str, Any]] = []

    async def edit(call: RunnerCall) -> FakeAnswer:
        asked.append(dict(call.args))
        assert not stage.model.requests
        return {"is_error": False, "path": call.args["path"], "text": "made"}

    stage = Stage(settings={"agent_class": "PlanningAgent"})
    stage.sandbox.runner.handlers["file.edit"] = edit
    await stage.begin()
    try:
        await stage.say()
        events = await until(stage, FINISHED, [REPLIES["finish"]])
    finally:
        await stage.end()
    assert asked == [{"command": "create", "path": "/workspace/PLAN.md", "file_text": BLANK_PLAN}]
    prompt = next(event for event in events if isinstance(event, SystemPromptEvent))
    assert [tool["function"]["name"] for tool in prompt.tools][:3] == ["glob", "grep", "planning_file_editor"]
    assert any(isinstance(event, ObservationEvent) for event in events)
