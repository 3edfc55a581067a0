"""The IPython tool: cells in a kernel that is kept in the sandbox; and the tools that search code by such cells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field

from agent_core.events.messages import ImageContent, TextContent
from agent_core.events.plain_text import first_line
from agent_core.events.schema import Action, Observation, parameters_of
from agent_core.tools.context import ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.execution import SandboxExecutor
from agent_core.tools.registry import built_in
from agent_core.tools.spec import ToolAnnotations

TIMEOUT_SECONDS = 120.0
MAX_OUTPUT_CHARS = 30_000
RESOURCE = "ipython:kernel"
_OUTER_MARGIN_SECONDS = 150.0  # a kernel may take 120 s to start
_PRINTED_IMAGE = re.compile(r"^!\[[^\]\n]*\]\(data:image/[a-z+.-]+;base64,[^)\n]*\)?.*$", re.MULTILINE)

IPythonStatus = Literal["completed", "error", "timeout", "interrupted", "kernel_died", "unavailable"]


class IPythonAction(Action):
    """One cell. The model gives its code; the rest is for programs.

    `include_extra`: the result ends with the kernel's directory and interpreter. `kernel_init_code` runs first in each
    kernel.
    """

    code: str = Field(
        description="The Python code of the cell. Magic commands work, such as %pip install, and !command for a shell."
    )
    include_extra: bool = True
    kernel_init_code: str = ""

    def __str__(self) -> str:
        return first_line(self.code)


class IPythonObservation(Observation):
    """What a cell printed and showed. `content` is what a model reads; pictures are beside it.

    Code that fails is no error of the tool: its traceback is the result. `status` ``unavailable``: there is no kernel
    to be had in this sandbox. `omitted`: characters of the output that were left out in its middle.
    """

    code: str = ""
    status: IPythonStatus = "completed"
    image_urls: list[str] | None = None
    working_dir: str = ""
    python: str = ""
    omitted: int = 0

    @property
    def to_llm_content(self) -> Sequence[TextContent | ImageContent]:
        text = _PRINTED_IMAGE.sub("[A picture was printed here; it is not repeated as text.]", self.text)
        shown = [ImageContent(image_urls=self.image_urls)] if self.image_urls else []
        return [TextContent(text=text), *shown]


class IPythonExecutor(SandboxExecutor[IPythonAction, IPythonObservation]):
    """Runs cells in a sandbox's one kernel, started with the first; interrupted after `timeout_seconds` (over 0).

    Without `agent_skills` a kernel that its cell starts has no helper functions.
    """

    def __init__(
        self, *, timeout_seconds: float = TIMEOUT_SECONDS, working_dir: str = "", agent_skills: bool = True
    ) -> None:
        super().__init__(working_dir)
        self._agent_skills = agent_skills
        if not timeout_seconds > 0:
            raise ValueError(f"timeout_seconds is {timeout_seconds}; it must be above zero")
        self._timeout = timeout_seconds

    async def carry_out(self, action: IPythonAction, context: ToolContext, key: str | None) -> IPythonObservation:
        limit = self._timeout if context.hard_timeout is None else context.hard_timeout
        arguments: dict[str, Any] = {"code": action.code, "timeout": limit, "max_output": MAX_OUTPUT_CHARS}
        if secrets := await context.secrets_for(action.code):
            arguments["env"] = secrets
        if not self._agent_skills:
            arguments["agent_skills"] = False
        if action.kernel_init_code:
            arguments["init_code"] = action.kernel_init_code
        reply = await context.sandbox.request(
            "kernel.run", arguments, key=key, limit_seconds=limit + _OUTER_MARGIN_SECONDS, on_output=context.emit_output
        )
        result = reply.result
        status: IPythonStatus = result["status"]
        return IPythonObservation.from_text(
            _text(result, limit, include_extra=action.include_extra),
            is_error=status == "unavailable",
            code=action.code,
            status=status,
            image_urls=result["images"] or None,
            working_dir=result["working_dir"],
            python=result["python"],
            omitted=result["omitted"],
        )


def _text(result: dict[str, Any], limit: float, *, include_extra: bool) -> str:
    output = str(result["output"]).removesuffix("\n")
    lines = [output] if output else []
    if result["status"] == "timeout":
        lines.append(f"[Execution timed out ({limit:g} seconds).]")
    elif not output and not result["images"] and result["status"] == "completed":
        lines.append("[Code executed successfully with no output]")
    if result["notice"]:
        lines.append(f"[{result['notice']}]")
    if include_extra and result["working_dir"]:
        lines.append(f"[Jupyter current working directory: {result['working_dir']}]")
        lines.append(f"[Jupyter Python interpreter: {result['python']}]")
    return "\n".join(lines)


_DESCRIPTION = """Run a cell of Python code in an IPython kernel inside the sandbox.

The kernel is kept: variables, imports and functions are there for the next cell. The terminal does not see them; its
working directory is followed. Install packages with %pip; %restart starts a new kernel.

- The result is what the cell prints, its last value, and its pictures (matplotlib: plt.show()).
- A cell is interrupted at its time limit; input() cannot be answered.
- Ready to use: open_file(path, line_number=1, context_lines=100), goto_line, scroll_down, scroll_up, search_dir(term,
  dir), search_file(term, file), find_file(name, dir), parse_pdf(path), parse_docx, parse_latex, parse_pptx,
  search_code_snippets, get_entity_contents, explore_tree_structure, file_editor(command, path, ...). help(name) tells
  more."""


@built_in
class IPythonTool(ToolDefinition[IPythonAction, IPythonObservation]):
    """The `execute_ipython_cell` tool."""

    journaled = True
    tool_name = "execute_ipython_cell"
    resources = (RESOURCE,)
    description: str = _DESCRIPTION
    annotations: ToolAnnotations = ToolAnnotations(title="IPython")

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of what a model gives: the code alone."""
        schema = parameters_of(self.action_type)
        return {**schema, "properties": {"code": schema["properties"]["code"]}}

    @classmethod
    def create(
        cls,
        conv_state: Any = None,
        *,
        executor: IPythonExecutor | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        agent_skills: bool = True,
        **params: Any,
    ) -> Sequence[ToolDefinition]:
        if params:
            raise TypeError(
                f"{cls.tool_name} takes no parameter {sorted(params)}; it takes timeout_seconds, agent_skills and"
                " executor"
            )
        executor = executor or IPythonExecutor(timeout_seconds=timeout_seconds, agent_skills=agent_skills)
        text = _DESCRIPTION if agent_skills else _DESCRIPTION.partition("\n- Ready to use:")[0]
        return [cls.model_validate({"description": text}).set_executor(executor)]


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


class _CodeSearchTool(ToolDefinition[Action, IPythonObservation]):
    """A tool whose call is a cell that calls the function of the tool's name in the sandbox."""

    executor_class = IPythonExecutor
    journaled = True
    resources = (RESOURCE,)

    def action_from_arguments(self, arguments: Mapping[str, Any]) -> Action:
        values = self.action_type.model_validate(dict(arguments)).model_dump(exclude={"kind"}, exclude_none=True)
        keywords = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return IPythonAction(code=f"{self.name}({keywords})", include_extra=False)


@built_in
class SearchCodeSnippetsTool(_CodeSearchTool):
    """The `search_code_snippets` tool."""

    tool_name = "search_code_snippets"
    action_type: type[Action] = SearchCodeSnippetsAction
    description: str = (
        "Search a project's Python code: for definitions by name, for lines with a text, or for what is around lines of"
        " a file."
    )
    annotations: ToolAnnotations = ToolAnnotations.read_only("Search code")


@built_in
class GetEntityContentsTool(_CodeSearchTool):
    """The `get_entity_contents` tool."""

    tool_name = "get_entity_contents"
    action_type: type[Action] = GetEntityContentsAction
    description: str = "Read files, classes and functions of a project's Python code whole, by their names."
    annotations: ToolAnnotations = ToolAnnotations.read_only("Read code")


@built_in
class ExploreTreeStructureTool(_CodeSearchTool):
    """The `explore_tree_structure` tool."""

    tool_name = "explore_tree_structure"
    action_type: type[Action] = ExploreTreeStructureAction
    description: str = (
        "Show how a project's Python code hangs together, as a tree: what folders, files, classes and functions"
        " contain, import, inherit from and invoke, or what does so with them."
    )
    annotations: ToolAnnotations = ToolAnnotations.read_only("Explore code")


CODE_SEARCH_TOOLS: Final = (SearchCodeSnippetsTool, GetEntityContentsTool, ExploreTreeStructureTool)
