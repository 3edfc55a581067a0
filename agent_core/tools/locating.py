"""Tools that find the places in code that matter; their calls are cells of the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from agent_core.events.schema import Action
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.ipython import RESOURCE, IPythonAction, IPythonExecutor, IPythonObservation
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import ToolAnnotations

_NAMES: Final = "such as 'src/shop.py', 'src/shop.py:Cart' or 'src/shop.py:Cart.total'"


class SearchCodeSnippetsAction(Action):
    """Words or lines, and the files to look in."""

    search_terms: list[str] | None = Field(
        default=None,
        max_length=50,
        description="Names of classes and functions, or any text: their definitions are shown, else the lines with it.",
    )
    line_nums: list[int] | None = Field(
        default=None, max_length=50, description="Lines of one file: the class or function around each is shown."
    )
    file_path_or_pattern: str = Field(
        default="**/*.py", min_length=1, max_length=4096, description="The file, or a pattern for paths of files."
    )


class GetEntityContentsAction(Action):
    """Parts of the code by their names."""

    entity_names: list[str] = Field(min_length=1, max_length=50, description=f"Files, classes and functions, {_NAMES}.")


class ExploreTreeStructureAction(Action):
    """Where to begin, in which direction, and how far."""

    start_entities: list[str] = Field(
        default=["/"],
        min_length=1,
        max_length=50,
        description=f"Where to begin: '/' for the whole project, or {_NAMES}.",
    )
    direction: Literal["downstream", "upstream", "both"] = Field(
        default="downstream",
        description="downstream: what they consist of and depend on; upstream: what depends on them.",
    )
    traversal_depth: int = Field(default=2, ge=-1, le=10, description="How far; -1 for as far as it goes.")
    entity_type_filter: list[Literal["directory", "file", "class", "function"]] | None = Field(
        default=None, description="Only entities of these kinds."
    )
    dependency_type_filter: list[Literal["contains", "imports", "inherits", "invokes"]] | None = Field(
        default=None, description="Only relations of these kinds."
    )


class LocatingTool(ToolDefinition[Action, IPythonObservation]):
    """What the three have in common: a call is a cell that calls the function of the tool's name in the sandbox."""

    journaled: ClassVar[bool] = True
    resources: ClassVar[tuple[str, ...] | None] = (RESOURCE,)

    @classmethod
    def make_executor(cls) -> IPythonExecutor:
        return IPythonExecutor()

    def action_from_arguments(self, arguments: Mapping[str, Any]) -> Action:
        asked = self.action_type.model_validate(dict(arguments)).model_dump(exclude={"kind"}, exclude_none=True)
        given = ", ".join(f"{name}={value!r}" for name, value in asked.items())
        return IPythonAction(code=f"{self.name}({given})", include_extra=False)


class SearchCodeSnippetsTool(LocatingTool):
    """The `search_code_snippets` tool."""

    tool_name: ClassVar[str] = "search_code_snippets"
    action_type: type[Action] = SearchCodeSnippetsAction
    description: str = (
        "Search a project's Python code: for definitions by name, for lines with a text, or for what is around lines of"
        " a file."
    )
    annotations: ToolAnnotations = ToolAnnotations.read_only("Search code")


class GetEntityContentsTool(LocatingTool):
    """The `get_entity_contents` tool."""

    tool_name: ClassVar[str] = "get_entity_contents"
    action_type: type[Action] = GetEntityContentsAction
    description: str = "Read files, classes and functions of a project's Python code whole, by their names."
    annotations: ToolAnnotations = ToolAnnotations.read_only("Read code")


class ExploreTreeStructureTool(LocatingTool):
    """The `explore_tree_structure` tool."""

    tool_name: ClassVar[str] = "explore_tree_structure"
    action_type: type[Action] = ExploreTreeStructureAction
    description: str = (
        "Show how a project's Python code hangs together, as a tree: what folders, files, classes and functions"
        " contain, import, inherit from and invoke, or what does so with them."
    )
    annotations: ToolAnnotations = ToolAnnotations.read_only("Explore code")


LOCATING_TOOLS: Final = (SearchCodeSnippetsTool, GetEntityContentsTool, ExploreTreeStructureTool)
for _tool in LOCATING_TOOLS:
    register_tool(_tool.tool_name, _tool)
