"""The file editor tool: view, create and change files in the sandbox; and the one that may change the plan only."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, Self

from pydantic import Field

from agent_core.errors import ToolError
from agent_core.events.messages import ImageContent, TextContent
from agent_core.events.plain_text import one_line
from agent_core.events.schema import Action, Observation
from agent_core.tools.context import SandboxAccess, ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.execution import ActionT, ObservationT, SandboxExecutor
from agent_core.tools.registry import built_in
from agent_core.tools.spec import DeclaredResources, ToolAnnotations

LIMIT_SECONDS = 60.0

EditorCommand = Literal["view", "create", "str_replace", "insert", "undo_edit"]


class FileTool(ToolDefinition[ActionT, ObservationT], Generic[ActionT, ObservationT]):
    """A tool whose calls name the files that they touch, relative to `workspace`; one file has one name for locks."""

    workspace: str = ""

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[Self]:
        tool = cls._define(**params)
        where = getattr(getattr(conv_state, "workspace", None), "working_dir", "")
        return [tool.model_copy(update={"workspace": where}) if isinstance(where, str) else tool]

    def touched(self, action: Any) -> Iterable[str]:
        """The paths in the arguments of a call: its `path`, or what a subclass says; none where it touches no file."""
        return (action.path,)

    def declared_resources(self, action: Action) -> DeclaredResources:
        paths = {posixpath.normpath(posixpath.join(self.workspace, path)) for path in self.touched(action) if path}
        return DeclaredResources(keys=tuple(f"file:{path}" for path in sorted(paths)), declared=True)


class FileEditorAction(Action):
    """One operation on one file."""

    command: EditorCommand = Field(description="What to do.")
    path: str = Field(description="Absolute path of the file or directory.")
    file_text: str | None = Field(default=None, description="For create: the whole content of the new file.")
    old_str: str | None = Field(
        default=None, description="For str_replace: the text to replace; it must stand exactly once in the file."
    )
    new_str: str | None = Field(default=None, description="For str_replace and insert: the new text.")
    insert_line: int | None = Field(
        default=None, ge=0, description="For insert: the new text goes after this line; 0 is the top of the file."
    )
    view_range: list[int] | None = Field(
        default=None, description="For view of a file: first and last line, [1, 40]; -1 is the last line of the file."
    )

    def __str__(self) -> str:
        first, last = (self.view_range[0], self.view_range[-1]) if self.view_range else (0, 0)
        lines = f" lines {first}-{'end' if last == -1 else last}" if self.view_range else ""
        return one_line(f"{self.command} {self.path}{lines}")


class FileEditorObservation(Observation):
    """The result, with the content before and after a change and the unified diff between them."""

    command: EditorCommand = "view"
    path: str = ""
    prev_exist: bool = False
    old_content: str | None = None
    new_content: str | None = None
    diff: str | None = None

    def __str__(self) -> str:
        lines = [line for line in (self.diff or "").splitlines() if not line.startswith(("---", "+++"))]
        more, less = (sum(line.startswith(sign) for line in lines) for sign in "+-")
        if more or less:
            return one_line(f"{self.path}: +{more} -{less} lines")
        return super().__str__()


class FileEditorExecutor(SandboxExecutor[FileEditorAction, FileEditorObservation]):
    """Has the runner do it; refusals are observations. Without a conversation it works on `workspace_root`, or here."""

    def __init__(self, workspace_root: str = "") -> None:
        super().__init__(workspace_root)
        self.workspace_root = workspace_root

    async def carry_out(self, action: FileEditorAction, context: ToolContext, key: str | None) -> FileEditorObservation:
        return FileEditorObservation(**await edit(action, context, key, {}))


async def edit(
    action: FileEditorAction, context: ToolContext, key: str | None, bounds: Mapping[str, Any]
) -> dict[str, Any]:
    """Have the sandbox do it; returns the fields of the observation.

    Of `bounds`, ``only`` names the files that may be changed, ``blank`` a content that `create` may replace.
    """
    try:
        reply = await context.sandbox.request(
            "file.edit",
            {**action.model_dump(exclude={"kind"}, exclude_none=True), **bounds},
            key=None if action.command == "view" else key,
            limit_seconds=LIMIT_SECONDS,
        )
    except ToolError as error:  # arguments that no file can have, such as NUL in a path
        refused = [TextContent(text=str(error))]
        return {"content": refused, "is_error": True, "command": action.command, "path": action.path}
    result = reply.result
    content: list[TextContent | ImageContent] = [TextContent(text=result["text"])]
    if result.get("image"):
        content.append(ImageContent(image_urls=[result["image"]]))
    fields = ("is_error", "path", "prev_exist", "old_content", "new_content", "diff")
    return {"content": content, "command": action.command, **{name: result[name] for name in fields}}


_EDITOR = """View, create and edit files in the sandbox.

- view: a file with line numbers (optionally only `view_range`), an image (png, jpg, gif, webp, bmp), or the entries of
  a directory two levels deep.
- create: a new file with `file_text`; it does not overwrite an existing one.
- str_replace: replace `old_str` by `new_str`. `old_str` must match exactly, white space included, and stand once in the
  file: take in enough lines around the place to make it unique.
- insert: put `new_str` after line `insert_line`.
- undo_edit: take back the last change made to `path` by this tool."""


@built_in
class FileEditorTool(FileTool[FileEditorAction, FileEditorObservation]):
    """The `file_editor` tool."""

    journaled = True
    tool_name = "file_editor"
    executor_class = FileEditorExecutor
    description: str = _EDITOR
    annotations: ToolAnnotations = ToolAnnotations(title="File editor", openWorldHint=False)


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


class PlanningFileEditorAction(FileEditorAction):
    """One operation on one file, as for `file_editor`."""


class PlanningFileEditorObservation(FileEditorObservation):
    """The result, as of `file_editor`."""


class PlanningFileEditorExecutor(SandboxExecutor[PlanningFileEditorAction, PlanningFileEditorObservation]):
    """Edits the plan at `plan_path` (absolute; by default ``PLAN.md`` in the workspace), made if there is none."""

    def __init__(self, plan_path: str = "", working_dir: str = "") -> None:
        super().__init__(working_dir)
        if plan_path and not posixpath.isabs(plan_path):
            raise ValueError(
                f"plan_path is {plan_path!r}: give an absolute path, or none for {PLAN_FILE} in the workspace"
            )
        self.plan_path = posixpath.normpath(plan_path) if plan_path else ""
        self._is_prepared = False

    def plan_in(self, sandbox: SandboxAccess) -> str:
        return self.plan_path or posixpath.join(sandbox.working_dir, PLAN_FILE)

    async def prepare(self, sandbox: SandboxAccess) -> None:
        args = {"command": "create", "path": self.plan_in(sandbox), "file_text": BLANK_PLAN}
        with contextlib.suppress(ToolError):  # where it cannot be made, the first edit says why
            await sandbox.request("file.edit", args, limit_seconds=30.0)
        self._is_prepared = True

    async def carry_out(
        self, action: PlanningFileEditorAction, context: ToolContext, key: str | None
    ) -> PlanningFileEditorObservation:
        if not self._is_prepared:
            await self.prepare(context.sandbox)
        bounds = {"only": [self.plan_in(context.sandbox)], "blank": BLANK_PLAN}
        return PlanningFileEditorObservation(**await edit(action, context, key, bounds))


_PLANNING = """View files, and write the plan: {plan}

Every file and directory may be viewed; the plan is the only file that can be changed. It is there already, with a
heading for each of its parts.
- view: a file with line numbers (optionally only `view_range`), or the entries of a directory two levels deep.
- create: the whole plan at once, with `file_text`, as long as nothing but its headings has been written.
- str_replace: replace `old_str`, which must stand exactly once in the file, by `new_str`.
- insert: put `new_str` after line `insert_line`.
- undo_edit: take back the last change."""


@built_in
class PlanningFileEditorTool(FileTool[PlanningFileEditorAction, PlanningFileEditorObservation]):
    """The `planning_file_editor` tool."""

    journaled = True
    tool_name = "planning_file_editor"
    description: str = _PLANNING
    annotations: ToolAnnotations = ToolAnnotations(
        title="Planning file editor", destructiveHint=False, openWorldHint=False
    )

    @classmethod
    def make_executor(cls, *, plan_path: str | None = None) -> PlanningFileEditorExecutor:
        return PlanningFileEditorExecutor(plan_path or "")

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[Self]:
        """The tool; `plan_path` (absolute) is by default ``PLAN.md`` in the workspace. TypeError: unknown parameter."""
        (tool,) = super().create(conv_state, **params)
        in_workspace = posixpath.join(tool.workspace, PLAN_FILE) if tool.workspace else f"{PLAN_FILE} in the workspace"
        plan = getattr(tool.executor, "plan_path", "") or in_workspace
        return [tool.model_copy(update={"description": _PLANNING.format(plan=plan)})]
