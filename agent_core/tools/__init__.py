"""Tools: their specifications, definitions, and the built-in ones, loaded when first used.

What tools are made of, and what is made of them, may be looked for here, too; `agent_core` is their own place.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent_core.lazy_names import LazyNames

if TYPE_CHECKING:
    from agent_core.events.schema import Action as Action
    from agent_core.events.schema import Observation as Observation
    from agent_core.tools.apply_patch import ApplyPatchAction as ApplyPatchAction
    from agent_core.tools.apply_patch import ApplyPatchExecutor as ApplyPatchExecutor
    from agent_core.tools.apply_patch import ApplyPatchObservation as ApplyPatchObservation
    from agent_core.tools.apply_patch import ApplyPatchTool as ApplyPatchTool
    from agent_core.tools.browser import BrowserAction as BrowserAction
    from agent_core.tools.browser import BrowserClickAction as BrowserClickAction
    from agent_core.tools.browser import BrowserClickTool as BrowserClickTool
    from agent_core.tools.browser import BrowserCloseTabAction as BrowserCloseTabAction
    from agent_core.tools.browser import BrowserCloseTabTool as BrowserCloseTabTool
    from agent_core.tools.browser import BrowserGetContentAction as BrowserGetContentAction
    from agent_core.tools.browser import BrowserGetContentTool as BrowserGetContentTool
    from agent_core.tools.browser import BrowserGetStateAction as BrowserGetStateAction
    from agent_core.tools.browser import BrowserGetStateTool as BrowserGetStateTool
    from agent_core.tools.browser import BrowserGetStorageAction as BrowserGetStorageAction
    from agent_core.tools.browser import BrowserGetStorageTool as BrowserGetStorageTool
    from agent_core.tools.browser import BrowserGoBackAction as BrowserGoBackAction
    from agent_core.tools.browser import BrowserGoBackTool as BrowserGoBackTool
    from agent_core.tools.browser import BrowserListTabsAction as BrowserListTabsAction
    from agent_core.tools.browser import BrowserListTabsTool as BrowserListTabsTool
    from agent_core.tools.browser import BrowserNavigateAction as BrowserNavigateAction
    from agent_core.tools.browser import BrowserNavigateTool as BrowserNavigateTool
    from agent_core.tools.browser import BrowserObservation as BrowserObservation
    from agent_core.tools.browser import BrowserScrollAction as BrowserScrollAction
    from agent_core.tools.browser import BrowserScrollTool as BrowserScrollTool
    from agent_core.tools.browser import BrowserSetStorageAction as BrowserSetStorageAction
    from agent_core.tools.browser import BrowserSetStorageTool as BrowserSetStorageTool
    from agent_core.tools.browser import BrowserStartRecordingAction as BrowserStartRecordingAction
    from agent_core.tools.browser import BrowserStartRecordingTool as BrowserStartRecordingTool
    from agent_core.tools.browser import BrowserStopRecordingAction as BrowserStopRecordingAction
    from agent_core.tools.browser import BrowserStopRecordingTool as BrowserStopRecordingTool
    from agent_core.tools.browser import BrowserSwitchTabAction as BrowserSwitchTabAction
    from agent_core.tools.browser import BrowserSwitchTabTool as BrowserSwitchTabTool
    from agent_core.tools.browser import BrowserToolExecutor as BrowserToolExecutor
    from agent_core.tools.browser import BrowserToolSet as BrowserToolSet
    from agent_core.tools.browser import BrowserTypeAction as BrowserTypeAction
    from agent_core.tools.browser import BrowserTypeTool as BrowserTypeTool
    from agent_core.tools.browser_code import BrowserCodeAction as BrowserCodeAction
    from agent_core.tools.browser_code import BrowserCodeExecutor as BrowserCodeExecutor
    from agent_core.tools.browser_code import BrowserTool as BrowserTool
    from agent_core.tools.builtin import CondensationRequestAction as CondensationRequestAction
    from agent_core.tools.builtin import CondensationRequestObservation as CondensationRequestObservation
    from agent_core.tools.builtin import CondensationRequestTool as CondensationRequestTool
    from agent_core.tools.builtin import FinishAction as FinishAction
    from agent_core.tools.builtin import FinishObservation as FinishObservation
    from agent_core.tools.builtin import FinishTool as FinishTool
    from agent_core.tools.builtin import ThinkAction as ThinkAction
    from agent_core.tools.builtin import ThinkObservation as ThinkObservation
    from agent_core.tools.builtin import ThinkTool as ThinkTool
    from agent_core.tools.definition import ToolDefinition as ToolDefinition
    from agent_core.tools.delegate import AgentDelegateAction as AgentDelegateAction
    from agent_core.tools.delegate import AgentDelegateObservation as AgentDelegateObservation
    from agent_core.tools.delegate import BrowsingDelegateTool as BrowsingDelegateTool
    from agent_core.tools.delegate import DelegateAction as DelegateAction
    from agent_core.tools.delegate import DelegateObservation as DelegateObservation
    from agent_core.tools.delegate import DelegateTool as DelegateTool
    from agent_core.tools.delegate import TaskAction as TaskAction
    from agent_core.tools.delegate import TaskObservation as TaskObservation
    from agent_core.tools.delegate import TaskTool as TaskTool
    from agent_core.tools.delegate import TaskToolSet as TaskToolSet
    from agent_core.tools.execution import ToolExecutor as ToolExecutor
    from agent_core.tools.file_editor import FileEditorAction as FileEditorAction
    from agent_core.tools.file_editor import FileEditorExecutor as FileEditorExecutor
    from agent_core.tools.file_editor import FileEditorObservation as FileEditorObservation
    from agent_core.tools.file_editor import FileEditorTool as FileEditorTool
    from agent_core.tools.file_editor import PlanningFileEditorAction as PlanningFileEditorAction
    from agent_core.tools.file_editor import PlanningFileEditorExecutor as PlanningFileEditorExecutor
    from agent_core.tools.file_editor import PlanningFileEditorObservation as PlanningFileEditorObservation
    from agent_core.tools.file_editor import PlanningFileEditorTool as PlanningFileEditorTool
    from agent_core.tools.file_search import GlobAction as GlobAction
    from agent_core.tools.file_search import GlobExecutor as GlobExecutor
    from agent_core.tools.file_search import GlobObservation as GlobObservation
    from agent_core.tools.file_search import GlobTool as GlobTool
    from agent_core.tools.file_search import GrepAction as GrepAction
    from agent_core.tools.file_search import GrepExecutor as GrepExecutor
    from agent_core.tools.file_search import GrepObservation as GrepObservation
    from agent_core.tools.file_search import GrepTool as GrepTool
    from agent_core.tools.ipython import IPythonAction as IPythonAction
    from agent_core.tools.ipython import IPythonExecutor as IPythonExecutor
    from agent_core.tools.ipython import IPythonObservation as IPythonObservation
    from agent_core.tools.ipython import IPythonTool as IPythonTool
    from agent_core.tools.llm_edit import LLMBasedFileEditTool as LLMBasedFileEditTool
    from agent_core.tools.llm_edit import LLMEditAction as LLMEditAction
    from agent_core.tools.llm_edit import LLMEditExecutor as LLMEditExecutor
    from agent_core.tools.llm_edit import LLMEditObservation as LLMEditObservation
    from agent_core.tools.plugins import AgentSkillsRequirement as AgentSkillsRequirement
    from agent_core.tools.plugins import JupyterRequirement as JupyterRequirement
    from agent_core.tools.plugins import PluginRequirement as PluginRequirement
    from agent_core.tools.plugins import PluginService as PluginService
    from agent_core.tools.presets import get_builtin_tools as get_builtin_tools
    from agent_core.tools.presets import get_default_tools as get_default_tools
    from agent_core.tools.presets import get_delegating_tools as get_delegating_tools
    from agent_core.tools.presets import get_gemini_tools as get_gemini_tools
    from agent_core.tools.presets import get_gpt5_tools as get_gpt5_tools
    from agent_core.tools.presets import get_planning_tools as get_planning_tools
    from agent_core.tools.presets import register_planning_tools as register_planning_tools
    from agent_core.tools.registry import is_tool_usable as is_tool_usable
    from agent_core.tools.registry import list_registered_tools as list_registered_tools
    from agent_core.tools.registry import list_usable_tools as list_usable_tools
    from agent_core.tools.registry import register_tool as register_tool
    from agent_core.tools.registry import resolve_tool as resolve_tool
    from agent_core.tools.spec import DeclaredResources as DeclaredResources
    from agent_core.tools.spec import Tool as Tool
    from agent_core.tools.spec import ToolAnnotations as ToolAnnotations
    from agent_core.tools.task_tracker import TaskItem as TaskItem
    from agent_core.tools.task_tracker import TaskTrackerAction as TaskTrackerAction
    from agent_core.tools.task_tracker import TaskTrackerExecutor as TaskTrackerExecutor
    from agent_core.tools.task_tracker import TaskTrackerObservation as TaskTrackerObservation
    from agent_core.tools.task_tracker import TaskTrackerTool as TaskTrackerTool
    from agent_core.tools.terminal import BashExecutor as BashExecutor
    from agent_core.tools.terminal import BashTool as BashTool
    from agent_core.tools.terminal import NamedTerminalAction as NamedTerminalAction
    from agent_core.tools.terminal import TerminalAction as TerminalAction
    from agent_core.tools.terminal import TerminalExecutor as TerminalExecutor
    from agent_core.tools.terminal import TerminalObservation as TerminalObservation
    from agent_core.tools.terminal import TerminalTool as TerminalTool
    from agent_core.tools.terminal import execute_bash_tool as execute_bash_tool
    from agent_core.tools.vision_inspect import VisionInspectAction as VisionInspectAction
    from agent_core.tools.vision_inspect import VisionInspectObservation as VisionInspectObservation
    from agent_core.tools.vision_inspect import VisionInspectTool as VisionInspectTool

    # Names by which other programs know the same; new programs use the ones they stand for.
    ExecuteBashAction = TerminalAction
    ExecuteBashObservation = TerminalObservation

_names = LazyNames(__name__, __file__, home="agent_core.tools.")


def __getattr__(name: str) -> Any:
    if name in ("get_default_agent", "get_planning_agent"):
        return getattr(import_module("agent_core"), name)
    return _names.listed if name == "__all__" else _names.load(name)
