"""The planning file editor: views every file, and changes one, the plan."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from agent_core.errors import ToolError
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.file_editor import FileEditorAction, FileEditorObservation, edit
from agent_core.tools.file_keys import FileTool
from agent_core.tools.registry import register_tool
from agent_core.tools.sandbox_executor import SandboxExecutor
from agent_core.tools.spec import SandboxAccess, ToolAnnotations, ToolContext

PLAN_FILE: Final = "PLAN.md"
PLAN_PARTS: Final = (
    ("Objective", "What is to be reached, and how one will know that it is."),
    (
        "Context Summary",
        "The parts of the system that matter, how they work together, and what restricts the work.",
    ),
    ("Approach Overview", "The way to do it in a few sentences, why this way, and which others were turned down."),
    ("Implementation Steps", "Every step in its order: what to do, in which files, and what it depends on."),
    ("Testing and Validation", "How each step and the whole are checked: commands to run, and what they should show."),
)
"""The headings of a plan, and what belongs under each."""
BLANK_PLAN: Final = "\n\n".join(f"# {number}. {title}" for number, (title, _) in enumerate(PLAN_PARTS, 1)) + "\n"
"""What a new plan file holds: the five headings."""

PREPARE_SECONDS: Final = 30.0


class PlanningFileEditorAction(FileEditorAction):
    """One operation on one file, as for `file_editor`."""


class PlanningFileEditorObservation(FileEditorObservation):
    """The result, as of `file_editor`."""


class PlanningFileEditorExecutor(SandboxExecutor[PlanningFileEditorAction, PlanningFileEditorObservation]):
    """Edits the plan in the sandbox, where it makes it first if there is none.

    Args:
        plan_path: absolute path of the plan; ``PLAN.md`` in the workspace if empty.
        working_dir: folder for a sandbox of its own, where there is no conversation.
    """

    def __init__(self, plan_path: str = "", working_dir: str = "") -> None:
        super().__init__(working_dir)
        self.plan_path = _checked(plan_path)
        self._is_prepared = False

    def plan_in(self, sandbox: SandboxAccess) -> str:
        """Absolute path of the plan in this sandbox."""
        return self.plan_path or posixpath.join(sandbox.working_dir, PLAN_FILE)

    async def prepare(self, sandbox: SandboxAccess) -> None:
        """Make the plan file with its headings; one that is there already is left as it is."""
        asked = {"command": "create", "path": self.plan_in(sandbox), "file_text": BLANK_PLAN}
        with contextlib.suppress(ToolError):  # where it cannot be made, the first edit says why
            await sandbox.request("file.edit", asked, limit_seconds=PREPARE_SECONDS)
        self._is_prepared = True

    async def carry_out(
        self, action: PlanningFileEditorAction, context: ToolContext, key: str | None
    ) -> PlanningFileEditorObservation:
        if not self._is_prepared:
            await self.prepare(context.sandbox)
        bounds = {"only": [self.plan_in(context.sandbox)], "blank": BLANK_PLAN}
        return PlanningFileEditorObservation(**await edit(action, context, key, bounds))


_DESCRIPTION = """View files, and write the plan: {plan}

Every file and directory may be viewed; the plan is the only file that can be changed. It is there already, with a
heading for each of its parts.
- view: a file with line numbers (optionally only `view_range`), or the entries of a directory two levels deep.
- create: the whole plan at once, with `file_text`, as long as nothing but its headings has been written.
- str_replace: replace `old_str`, which must stand exactly once in the file, by `new_str`.
- insert: put `new_str` after line `insert_line`.
- undo_edit: take back the last change."""


class PlanningFileEditorTool(FileTool[PlanningFileEditorAction, PlanningFileEditorObservation]):
    """The `planning_file_editor` tool."""

    journaled: ClassVar[bool] = True
    tool_name: ClassVar[str] = "planning_file_editor"
    description: str = _DESCRIPTION
    annotations: ToolAnnotations = ToolAnnotations(
        title="Planning file editor", destructiveHint=False, openWorldHint=False
    )

    def touched(self, action: FileEditorAction) -> Iterable[str]:
        return (action.path,)

    @classmethod
    def make_executor(cls, *, plan_path: str | None = None) -> PlanningFileEditorExecutor:
        return PlanningFileEditorExecutor(plan_path or "")

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[ToolDefinition]:
        """The tool; `plan_path` is the absolute path of the plan, ``PLAN.md`` in the workspace if None.

        Raises:
            TypeError: a parameter is unknown.
            ValueError: the path is not absolute.
        """
        made = cls._made(**params)
        where = getattr(getattr(conv_state, "workspace", None), "working_dir", None)
        plan = getattr(made.executor, "plan_path", "")
        plan = plan or (posixpath.join(where, PLAN_FILE) if where else f"{PLAN_FILE} in the workspace")
        described = made.model_copy(update={"description": _DESCRIPTION.format(plan=plan)})
        return [cls.in_workspace(conv_state, described)]


def _checked(plan_path: str) -> str:
    if plan_path and not posixpath.isabs(plan_path):
        raise ValueError(f"plan_path is {plan_path!r}: give an absolute path, or none for {PLAN_FILE} in the workspace")
    return posixpath.normpath(plan_path) if plan_path else ""


register_tool(PlanningFileEditorTool.tool_name, PlanningFileEditorTool)
