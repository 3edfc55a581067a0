"""The task tracker: the agent's own list of what there is to do, which is the newest result in the log."""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from agent_core.events.messages import Frozen
from agent_core.events.schema import Action, Observation
from agent_core.tools.context import ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.execution import ToolExecutor
from agent_core.tools.registry import built_in
from agent_core.tools.spec import ToolAnnotations

MAX_TASKS: Final = 200
MAX_TITLE_CHARS: Final = 1_000
MAX_NOTES_CHARS: Final = 10_000

TaskStatus = Literal["todo", "in_progress", "done"]
TaskCommand = Literal["view", "plan"]

_ICONS: Final[dict[TaskStatus, str]] = {"todo": "⏳", "in_progress": "🔄", "done": "✅"}
_WORDS: Final[dict[TaskStatus, str]] = {"done": "done", "in_progress": "in progress", "todo": "to do"}


class TaskItem(Frozen):
    """One task of a list."""

    title: str = Field(min_length=1, max_length=MAX_TITLE_CHARS, description="The task in a few words.")
    notes: str = Field(default="", max_length=MAX_NOTES_CHARS, description="Details, or what came of it.")
    status: TaskStatus = Field(default="todo", description="How far it is.")
    id: str = Field(default="", max_length=100, description="A name that stays while the list changes; optional.")

    @model_validator(mode="before")
    @classmethod
    def _null_is_nothing(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data

    @field_validator("id", mode="before")
    @classmethod
    def _numbers_are_names(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class TaskTrackerAction(Action):
    """Look at the list, or replace it."""

    command: TaskCommand = Field(
        default="view", description="view: show the list. plan: replace the whole list by task_list."
    )
    task_list: list[TaskItem] | None = Field(
        default=None,
        max_length=MAX_TASKS,
        description="For plan: all tasks in their order, also those that have not changed.",
    )

    @model_validator(mode="after")
    def _plan_needs_tasks(self) -> Self:
        if self.command == "plan" and self.task_list is None:
            raise ValueError("task_list is missing: plan replaces the whole list, so give all tasks ([] for none)")
        return self


class TaskTrackerObservation(Observation):
    """The list after the call."""

    command: TaskCommand = "view"
    task_list: list[TaskItem] = Field(default_factory=list)


class TaskTrackerExecutor(ToolExecutor[TaskTrackerAction, TaskTrackerObservation]):
    """Keeps the list: a conversation's in its log, and without a conversation one of its own."""

    def __init__(self) -> None:
        self._own: list[TaskItem] = []

    def __call__(self, action: TaskTrackerAction, conversation: ToolContext | None = None) -> TaskTrackerObservation:
        if conversation is not None:
            latest = conversation.latest
            return _result(action, latest.task_list if isinstance(latest, TaskTrackerObservation) else [])
        observation = _result(action, self._own)
        self._own = observation.task_list
        return observation

    async def acall(self, action: TaskTrackerAction, conversation: ToolContext | None = None) -> TaskTrackerObservation:
        return self(action, conversation)


_DESCRIPTION = """Keep a list of the tasks of this conversation; your user sees it too.

Use it for work of several steps, or when your user gives you several things to do; not for a single simple step.
- plan replaces the whole list: send every task, also those that have not changed.
- Set a task to in_progress when you begin it (one at a time) and to done as soon as it is done and checked.
- Add what you find on the way; drop what is no longer needed.
- view shows the list."""


@built_in
class TaskTrackerTool(ToolDefinition[TaskTrackerAction, TaskTrackerObservation]):
    """The `task_tracker` tool."""

    tool_name = "task_tracker"
    executor_class = TaskTrackerExecutor
    remembers = True
    resources = ("tool:task_tracker",)
    description: str = _DESCRIPTION
    annotations: ToolAnnotations = ToolAnnotations(
        title="Task tracker", destructiveHint=False, idempotentHint=True, openWorldHint=False
    )


def _result(action: TaskTrackerAction, before: list[TaskItem]) -> TaskTrackerObservation:
    if action.command == "view":
        return TaskTrackerObservation.from_text(_shown(before), command="view", task_list=before)
    tasks = action.task_list or []
    text = "The task list was cleared: it has 0 items."
    if tasks:
        counts = [(sum(task.status == status for task in tasks), word) for status, word in _WORDS.items()]
        parts = ", ".join(f"{count} {word}" for count, word in counts if count)
        text = f"The task list was updated: it has {len(tasks)} item{'' if len(tasks) == 1 else 's'} ({parts})."
    return TaskTrackerObservation.from_text(text, command="plan", task_list=tasks)


def _shown(tasks: list[TaskItem]) -> str:
    if not tasks:
        return 'There is no task list yet. Use the "plan" command to make one.'
    lines = ["# Task List", ""]
    for number, task in enumerate(tasks, 1):
        lines.append(f"{number}. {_ICONS[task.status]} {task.title}")
        lines += [f"   {line}" for line in task.notes.splitlines()]
    return "\n".join(lines)
