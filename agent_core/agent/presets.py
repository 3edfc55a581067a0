"""Ready-made agents: with few tools, without a model, and with the usual condenser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic import Field, model_validator

from agent_core.agent.agent import Agent
from agent_core.agent.base import AgentBase
from agent_core.agent.step import StepInput, StepOutcome
from agent_core.agent.system_prompt import family_of
from agent_core.agent.toolbox import ToolSpecs
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import TextContent
from agent_core.events.schema import Action
from agent_core.llm.llm import LLM
from agent_core.memory.condensers import KEEP_FIRST, LLMSummarizingCondenser, condenser_llm
from agent_core.tools.browser_code import BrowserTool
from agent_core.tools.builtin import FinishAction
from agent_core.tools.file_editor import PLAN_PARTS, FileEditorAction, FileEditorTool
from agent_core.tools.file_search import GlobTool, GrepTool
from agent_core.tools.gemini_files import ListDirectoryTool, ReadFileTool
from agent_core.tools.ipython import CODE_SEARCH_TOOLS
from agent_core.tools.presets import get_default_tools, get_planning_tools
from agent_core.tools.spec import Tool
from agent_core.tools.terminal import TerminalAction, TerminalTool

READ_ONLY_PROMPT: Final = "system_prompt_read_only.j2"
LOCATING_PROMPT: Final = "system_prompt_locating.j2"
BROWSING_PROMPT: Final = "system_prompt_browsing.j2"


class ReadOnlyAgent(Agent):
    """Answers questions about what is there, and can change nothing: it has no shell, no editor and no MCP tools."""

    tools: ToolSpecs = Field(
        default_factory=lambda: [
            Tool(name=tool.tool_name) for tool in (GrepTool, GlobTool, ReadFileTool, ListDirectoryTool)
        ]
    )
    system_prompt_filename: str = READ_ONLY_PROMPT

    @property
    def supports_openhands_mcp(self) -> bool:
        return False


class LocAgent(ReadOnlyAgent):
    """Finds the places in a project's code that a task is about, and can change nothing; it needs an IPython kernel."""

    tools: ToolSpecs = Field(default_factory=lambda: [Tool(name=tool.tool_name) for tool in CODE_SEARCH_TOOLS])
    system_prompt_filename: str = LOCATING_PROMPT


class BrowsingAgent(Agent):
    """Does its task in a browser, by what a page says."""

    tools: ToolSpecs = Field(
        default_factory=lambda: [Tool(name=BrowserTool.tool_name, params={"set_of_marks": False, "visible_only": True})]
    )
    system_prompt_filename: str = BROWSING_PROMPT


class VisualBrowsingAgent(Agent):
    """Does its task in a browser, by what a page says and by how it looks; for models that see."""

    tools: ToolSpecs = Field(default_factory=lambda: [Tool(name=BrowserTool.tool_name)])
    system_prompt_filename: str = BROWSING_PROMPT


PLANNING_PROMPT: Final = "system_prompt_planning.j2"


class PlanningAgent(Agent):
    """Changes nothing but the plan, ``PLAN.md``; `system_prompt_kwargs` may set its parts, ``plan_structure``."""

    tools: ToolSpecs = Field(default_factory=get_planning_tools)
    system_prompt_filename: str = PLANNING_PROMPT

    @model_validator(mode="before")
    @classmethod
    def _knows_the_parts(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("system_prompt") is not None:
            return data
        parts = "\n".join(f"{number}. **{title}**: {content}" for number, (title, content) in enumerate(PLAN_PARTS, 1))
        return {
            **data,
            "system_prompt_kwargs": {"plan_structure": parts, **(data.get("system_prompt_kwargs") or {})},
        }


def get_planning_agent(llm: LLM) -> PlanningAgent:
    """A planning agent, which sums up what it did when its history becomes long."""
    return PlanningAgent(
        llm=llm,
        condenser=LLMSummarizingCondenser(llm=condenser_llm(llm), max_size=100, keep_first=6),
    )


FILE: Final = "/tmp/drydock-dummy.txt"  # noqa: S108 - of the sandbox
_WORDS: Final = "written by the dummy agent"
_ROUND: Final[Sequence[tuple[str, str, Action]]] = (
    (
        "I have no model: I do the same few things each time. First, a command.",
        TerminalTool.tool_name,
        TerminalAction(command=f"echo '{_WORDS}' > {FILE} && uname -sm && pwd"),
    ),
    ("Now I read the file that it has written.", FileEditorTool.tool_name, FileEditorAction(command="view", path=FILE)),
    ("I take it away again.", TerminalTool.tool_name, TerminalAction(command=f"rm {FILE}")),
)


class DummyAgent(AgentBase):
    """An agent without a model, to try an installation: for each message it runs a command and looks at a file."""

    tools: ToolSpecs = Field(
        default_factory=lambda: [Tool(name=tool.tool_name) for tool in (TerminalTool, FileEditorTool)]
    )

    async def astep(self, step: StepInput) -> StepOutcome:
        events: Sequence[Event] = () if step.view is None else step.view.events
        places = [n for n, event in enumerate(events) if isinstance(event, MessageEvent) and event.source == "user"]
        done = events[places[-1] + 1 :] if places else events
        work = [entry for entry in _ROUND if entry[1] in step.tools]
        place = sum(isinstance(event, ActionEvent) for event in done)
        if place < len(work):
            thought, name, action = work[place]
            return StepOutcome([ActionEvent(thought=[TextContent(text=thought)], tool_name=name, action=action)])
        failed = [event.error for event in done if isinstance(event, AgentErrorEvent)]
        results = [event.observation for event in done if isinstance(event, ObservationEvent)]
        failed += [result.text for result in results if result.is_error]
        report = f"All of it worked: {len(results)} calls were made and answered."
        if failed:
            report = "This did not work:\n" + "\n".join(failed)
        return StepOutcome([ActionEvent(tool_name="finish", action=FinishAction(message=report))])


BY_MODEL: Final = "auto"


def preset_for(model: str) -> str:
    """The name of the tools' preset that a model of this name was trained for, as far as that is known."""
    family, variant = family_of(model)
    if family == "google_gemini":
        return "gemini"
    return "gpt5" if variant in ("gpt-5", "codex") else "default"


def get_default_agent(llm: LLM, cli_mode: bool = False, enable_sub_agents: bool = False) -> Agent:
    """An agent for work on code, which sums up what it did when its history becomes long.

    With `cli_mode` it works where its user does, not in a sandbox: it judges risks accordingly, and has no browser.
    """
    return Agent(
        llm=llm,
        tools=get_default_tools(enable_browser=not cli_mode, enable_sub_agents=enable_sub_agents),
        condenser=LLMSummarizingCondenser(llm=condenser_llm(llm), max_size=80, keep_first=KEEP_FIRST),
        system_prompt_kwargs={"cli_mode": cli_mode},
    )
