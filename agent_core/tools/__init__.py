"""Tools: their specifications, their definitions, and the built-in ones.

The public names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_core.events.schema import Action as Action
    from agent_core.events.schema import Observation as Observation
    from agent_core.tools.agent_delegate import AgentDelegateAction, AgentDelegateObservation, BrowsingDelegateTool
    from agent_core.tools.apply_patch import (
        ApplyPatchAction,
        ApplyPatchExecutor,
        ApplyPatchObservation,
        ApplyPatchTool,
    )
    from agent_core.tools.browser import (
        BrowserAction,
        BrowserClickAction,
        BrowserClickTool,
        BrowserCloseTabAction,
        BrowserCloseTabTool,
        BrowserCodeAction,
        BrowserCodeExecutor,
        BrowserGetContentAction,
        BrowserGetContentTool,
        BrowserGetStateAction,
        BrowserGetStateTool,
        BrowserGetStorageAction,
        BrowserGetStorageTool,
        BrowserGoBackAction,
        BrowserGoBackTool,
        BrowserListTabsAction,
        BrowserListTabsTool,
        BrowserNavigateAction,
        BrowserNavigateTool,
        BrowserObservation,
        BrowserScrollAction,
        BrowserScrollTool,
        BrowserSetStorageAction,
        BrowserSetStorageTool,
        BrowserStartRecordingAction,
        BrowserStartRecordingTool,
        BrowserStopRecordingAction,
        BrowserStopRecordingTool,
        BrowserSwitchTabAction,
        BrowserSwitchTabTool,
        BrowserTool,
        BrowserToolExecutor,
        BrowserToolSet,
        BrowserTypeAction,
        BrowserTypeTool,
    )
    from agent_core.tools.condensation_request import (
        CondensationRequestAction,
        CondensationRequestObservation,
        CondensationRequestTool,
    )
    from agent_core.tools.definition import ToolDefinition
    from agent_core.tools.delegate import DelegateAction, DelegateObservation, DelegateTool
    from agent_core.tools.execution import ToolExecutor
    from agent_core.tools.file_editor import (
        FileEditorAction,
        FileEditorExecutor,
        FileEditorObservation,
        FileEditorTool,
    )
    from agent_core.tools.finish import FinishAction, FinishObservation, FinishTool
    from agent_core.tools.glob import GlobAction, GlobExecutor, GlobObservation, GlobTool
    from agent_core.tools.grep import GrepAction, GrepExecutor, GrepObservation, GrepTool
    from agent_core.tools.ipython import (
        AgentSkillsRequirement,
        IPythonAction,
        IPythonExecutor,
        IPythonObservation,
        IPythonTool,
        JupyterRequirement,
    )
    from agent_core.tools.llm_edit import LLMBasedFileEditTool, LLMEditAction, LLMEditExecutor, LLMEditObservation
    from agent_core.tools.plan_editor import (
        PlanningFileEditorAction,
        PlanningFileEditorExecutor,
        PlanningFileEditorObservation,
        PlanningFileEditorTool,
    )
    from agent_core.tools.presets import (
        get_builtin_tools,
        get_default_tools,
        get_delegating_tools,
        get_gemini_tools,
        get_gpt5_tools,
        get_planning_tools,
        register_planning_tools,
    )
    from agent_core.tools.registry import (
        is_tool_usable,
        list_registered_tools,
        list_usable_tools,
        register_tool,
        resolve_tool,
    )
    from agent_core.tools.spec import DeclaredResources, Tool, ToolAnnotations
    from agent_core.tools.task import TaskAction, TaskObservation, TaskTool, TaskToolSet
    from agent_core.tools.task_tracker import (
        TaskItem,
        TaskTrackerAction,
        TaskTrackerExecutor,
        TaskTrackerObservation,
        TaskTrackerTool,
    )
    from agent_core.tools.terminal import (
        BashExecutor,
        BashTool,
        NamedTerminalAction,
        TerminalAction,
        TerminalExecutor,
        TerminalObservation,
        TerminalTool,
        execute_bash_tool,
    )
    from agent_core.tools.think import ThinkAction, ThinkObservation, ThinkTool
    from agent_core.tools.vision_inspect import VisionInspectAction, VisionInspectObservation, VisionInspectTool

__all__ = [
    "AgentDelegateAction",
    "AgentDelegateObservation",
    "AgentSkillsRequirement",
    "ApplyPatchAction",
    "ApplyPatchExecutor",
    "ApplyPatchObservation",
    "ApplyPatchTool",
    "BashExecutor",
    "BashTool",
    "BrowserAction",
    "BrowserClickAction",
    "BrowserClickTool",
    "BrowserCloseTabAction",
    "BrowserCloseTabTool",
    "BrowserCodeAction",
    "BrowserCodeExecutor",
    "BrowserGetContentAction",
    "BrowserGetContentTool",
    "BrowserGetStateAction",
    "BrowserGetStateTool",
    "BrowserGetStorageAction",
    "BrowserGetStorageTool",
    "BrowserGoBackAction",
    "BrowserGoBackTool",
    "BrowserListTabsAction",
    "BrowserListTabsTool",
    "BrowserNavigateAction",
    "BrowserNavigateTool",
    "BrowserObservation",
    "BrowserScrollAction",
    "BrowserScrollTool",
    "BrowserSetStorageAction",
    "BrowserSetStorageTool",
    "BrowserStartRecordingAction",
    "BrowserStartRecordingTool",
    "BrowserStopRecordingAction",
    "BrowserStopRecordingTool",
    "BrowserSwitchTabAction",
    "BrowserSwitchTabTool",
    "BrowserTool",
    "BrowserToolExecutor",
    "BrowserToolSet",
    "BrowserTypeAction",
    "BrowserTypeTool",
    "BrowsingDelegateTool",
    "CondensationRequestAction",
    "CondensationRequestObservation",
    "CondensationRequestTool",
    "DeclaredResources",
    "DelegateAction",
    "DelegateObservation",
    "DelegateTool",
    "FileEditorAction",
    "FileEditorExecutor",
    "FileEditorObservation",
    "FileEditorTool",
    "FinishAction",
    "FinishObservation",
    "FinishTool",
    "GlobAction",
    "GlobExecutor",
    "GlobObservation",
    "GlobTool",
    "GrepAction",
    "GrepExecutor",
    "GrepObservation",
    "GrepTool",
    "IPythonAction",
    "IPythonExecutor",
    "IPythonObservation",
    "IPythonTool",
    "JupyterRequirement",
    "LLMBasedFileEditTool",
    "LLMEditAction",
    "LLMEditExecutor",
    "LLMEditObservation",
    "NamedTerminalAction",
    "PlanningFileEditorAction",
    "PlanningFileEditorExecutor",
    "PlanningFileEditorObservation",
    "PlanningFileEditorTool",
    "TaskAction",
    "TaskItem",
    "TaskObservation",
    "TaskTool",
    "TaskToolSet",
    "TaskTrackerAction",
    "TaskTrackerExecutor",
    "TaskTrackerObservation",
    "TaskTrackerTool",
    "TerminalAction",
    "TerminalExecutor",
    "TerminalObservation",
    "TerminalTool",
    "ThinkAction",
    "ThinkObservation",
    "ThinkTool",
    "Tool",
    "ToolAnnotations",
    "ToolDefinition",
    "ToolExecutor",
    "VisionInspectAction",
    "VisionInspectObservation",
    "VisionInspectTool",
    "execute_bash_tool",
    "get_builtin_tools",
    "get_default_tools",
    "get_delegating_tools",
    "get_gemini_tools",
    "get_gpt5_tools",
    "get_planning_tools",
    "is_tool_usable",
    "list_registered_tools",
    "list_usable_tools",
    "register_planning_tools",
    "register_tool",
    "resolve_tool",
]

_MODULES = {
    "agent_delegate": "AgentDelegateAction AgentDelegateObservation BrowsingDelegateTool",
    "apply_patch": "ApplyPatchAction ApplyPatchExecutor ApplyPatchObservation ApplyPatchTool",
    "browser": " ".join(name for name in __all__ if name.startswith("Browser")),
    "condensation_request": "CondensationRequestAction CondensationRequestObservation CondensationRequestTool",
    "definition": "ToolDefinition",
    "delegate": "DelegateAction DelegateObservation DelegateTool",
    "execution": "ToolExecutor",
    "file_editor": "FileEditorAction FileEditorExecutor FileEditorObservation FileEditorTool",
    "finish": "FinishAction FinishObservation FinishTool",
    "glob": "GlobAction GlobExecutor GlobObservation GlobTool",
    "grep": "GrepAction GrepExecutor GrepObservation GrepTool",
    "ipython": (
        "AgentSkillsRequirement IPythonAction IPythonExecutor IPythonObservation IPythonTool JupyterRequirement "
    ),
    "llm_edit": "LLMBasedFileEditTool LLMEditAction LLMEditExecutor LLMEditObservation",
    "plan_editor": (
        "PlanningFileEditorAction PlanningFileEditorExecutor PlanningFileEditorObservation PlanningFileEditorTool "
    ),
    "presets": (
        "get_builtin_tools get_default_tools get_delegating_tools get_gemini_tools get_gpt5_tools "
        "get_planning_tools register_planning_tools "
    ),
    "registry": "is_tool_usable list_registered_tools list_usable_tools register_tool resolve_tool",
    "spec": "DeclaredResources Tool ToolAnnotations",
    "task": "TaskAction TaskObservation TaskTool TaskToolSet",
    "task_tracker": "TaskItem TaskTrackerAction TaskTrackerExecutor TaskTrackerObservation TaskTrackerTool",
    "terminal": (
        "BashExecutor BashTool NamedTerminalAction TerminalAction TerminalExecutor TerminalObservation "
        "TerminalTool execute_bash_tool "
    ),
    "think": "ThinkAction ThinkObservation ThinkTool",
    "vision_inspect": "VisionInspectAction VisionInspectObservation VisionInspectTool",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names.split()}


# What tools are made of, and what is made of them, may be looked for here, too. `agent_core` is their own place.
_HOMES |= {"get_default_agent": "agent_core.agent.presets", "get_planning_agent": "agent_core.agent.presets"}
_HOMES |= dict.fromkeys(("Action", "Observation"), "agent_core.events.schema")

_OTHER_NAMES = {"ExecuteBashAction": "TerminalAction", "ExecuteBashObservation": "TerminalObservation"}
"""Names by which other programs know the same; new programs use the ones they stand for."""


def __getattr__(name: str) -> Any:
    """A public name, loaded when it is asked for."""
    own = _OTHER_NAMES.get(name, name)
    if own not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[own]), own)
