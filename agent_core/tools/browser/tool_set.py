"""The browser as a set of tools that name elements by the numbers of the last look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from agent_core.events.schema import Action
from agent_core.tools.browser import actions
from agent_core.tools.browser.executor import BrowserToolExecutor
from agent_core.tools.browser.observation import BrowserObservation
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import ToolAnnotations

RESOURCE = "browser:session"


class SingleBrowserTool(ToolDefinition[actions.BrowserAction, BrowserObservation]):
    """What the single tools have in common; each says what it is in its class."""

    journaled: ClassVar[bool] = True
    resources: ClassVar[tuple[str, ...] | None] = (RESOURCE,)
    make_executor: ClassVar[Callable[..., Any]] = BrowserToolExecutor

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[ToolDefinition]:
        """The one tool, with the executor given (also as the only argument) or one made from the parameters."""
        given = {"executor": conv_state} if isinstance(conv_state, BrowserToolExecutor) else {}
        return super().create(**given, **params)


def _hints(title: str, *, reads: bool = False, destroys: bool = False) -> ToolAnnotations:
    return ToolAnnotations(title=title, readOnlyHint=reads, destructiveHint=destroys, idempotentHint=reads)


class BrowserNavigateTool(SingleBrowserTool):
    """The `browser_navigate` tool."""

    tool_name: ClassVar[str] = "browser_navigate"
    action_type: type[Action] = actions.BrowserNavigateAction
    description: str = (
        "Open an address in the browser, in the active tab or a new one. What the page shows is not told: "
        "look with browser_get_state, or read with browser_get_content."
    )
    annotations: ToolAnnotations = _hints("Browser navigate")


class BrowserClickTool(SingleBrowserTool):
    """The `browser_click` tool."""

    tool_name: ClassVar[str] = "browser_click"
    action_type: type[Action] = actions.BrowserClickAction
    description: str = "Click an element of the page by its number from browser_get_state."
    annotations: ToolAnnotations = _hints("Browser click")


class BrowserTypeTool(SingleBrowserTool):
    """The `browser_type` tool."""

    tool_name: ClassVar[str] = "browser_type"
    action_type: type[Action] = actions.BrowserTypeAction
    description: str = (
        "Put text into an element by its number from browser_get_state: type into a field in place of what is "
        "in it, choose an option of a list, or give the files for a file input."
    )
    annotations: ToolAnnotations = _hints("Browser type")


class BrowserGetStateTool(SingleBrowserTool):
    """The `browser_get_state` tool."""

    tool_name: ClassVar[str] = "browser_get_state"
    action_type: type[Action] = actions.BrowserGetStateAction
    description: str = (
        "Look at the active page: its address, the tabs, and its elements as a tree, each with the number by "
        "which browser_click and browser_type name it. Numbers hold until the page goes to another address."
    )
    annotations: ToolAnnotations = _hints("Browser get state", reads=True)


class BrowserGetContentTool(SingleBrowserTool):
    """The `browser_get_content` tool."""

    tool_name: ClassVar[str] = "browser_get_content"
    action_type: type[Action] = actions.BrowserGetContentAction
    description: str = "Read the text of the active page, up to 50,000 characters at a time."
    annotations: ToolAnnotations = _hints("Browser get content", reads=True)


class BrowserScrollTool(SingleBrowserTool):
    """The `browser_scroll` tool."""

    tool_name: ClassVar[str] = "browser_scroll"
    action_type: type[Action] = actions.BrowserScrollAction
    description: str = (
        "Scroll the active page up or down by almost a window's height, to see more or to have it load more."
    )
    annotations: ToolAnnotations = _hints("Browser scroll")


class BrowserGoBackTool(SingleBrowserTool):
    """The `browser_go_back` tool."""

    tool_name: ClassVar[str] = "browser_go_back"
    action_type: type[Action] = actions.BrowserGoBackAction
    description: str = "Go back to the page before in the active tab."
    annotations: ToolAnnotations = _hints("Browser go back")


class BrowserListTabsTool(SingleBrowserTool):
    """The `browser_list_tabs` tool."""

    tool_name: ClassVar[str] = "browser_list_tabs"
    action_type: type[Action] = actions.BrowserListTabsAction
    description: str = "List the open tabs with their ids, addresses and titles; * stands before the active one."
    annotations: ToolAnnotations = _hints("Browser list tabs", reads=True)


class BrowserSwitchTabTool(SingleBrowserTool):
    """The `browser_switch_tab` tool."""

    tool_name: ClassVar[str] = "browser_switch_tab"
    action_type: type[Action] = actions.BrowserSwitchTabAction
    description: str = "Make a tab the active one, on which all other tools work."
    annotations: ToolAnnotations = _hints("Browser switch tab")


class BrowserCloseTabTool(SingleBrowserTool):
    """The `browser_close_tab` tool."""

    tool_name: ClassVar[str] = "browser_close_tab"
    action_type: type[Action] = actions.BrowserCloseTabAction
    description: str = "Close a tab."
    annotations: ToolAnnotations = _hints("Browser close tab", destroys=True)


class BrowserGetStorageTool(SingleBrowserTool):
    """The `browser_get_storage` tool."""

    tool_name: ClassVar[str] = "browser_get_storage"
    action_type: type[Action] = actions.BrowserGetStorageAction
    description: str = "Read the cookies of the browser and the local storage of its sites, as JSON."
    annotations: ToolAnnotations = _hints("Browser get storage", reads=True)


class BrowserSetStorageTool(SingleBrowserTool):
    """The `browser_set_storage` tool."""

    tool_name: ClassVar[str] = "browser_set_storage"
    action_type: type[Action] = actions.BrowserSetStorageAction
    description: str = (
        "Replace the cookies of the browser and the local storage of its sites, for example to be logged in."
    )
    annotations: ToolAnnotations = _hints("Browser set storage", destroys=True)


class BrowserStartRecordingTool(SingleBrowserTool):
    """The `browser_start_recording` tool."""

    tool_name: ClassVar[str] = "browser_start_recording"
    action_type: type[Action] = actions.BrowserStartRecordingAction
    description: str = "Begin to record what happens in the browser, step by step, with pictures."
    annotations: ToolAnnotations = _hints("Browser start recording")


class BrowserStopRecordingTool(SingleBrowserTool):
    """The `browser_stop_recording` tool."""

    tool_name: ClassVar[str] = "browser_stop_recording"
    action_type: type[Action] = actions.BrowserStopRecordingAction
    description: str = "End the recording and save it in the workspace."
    annotations: ToolAnnotations = _hints("Browser stop recording")


_TOOLS: tuple[type[SingleBrowserTool], ...] = (
    BrowserNavigateTool,
    BrowserClickTool,
    BrowserTypeTool,
    BrowserGetStateTool,
    BrowserGetContentTool,
    BrowserScrollTool,
    BrowserGoBackTool,
    BrowserListTabsTool,
    BrowserSwitchTabTool,
    BrowserCloseTabTool,
    BrowserGetStorageTool,
    BrowserSetStorageTool,
    BrowserStartRecordingTool,
    BrowserStopRecordingTool,
)


class BrowserToolSet(ToolDefinition[actions.BrowserAction, BrowserObservation]):
    """All browser tools, on one executor.

    For a part of them, or with an executor of one's own, register a factory that returns what the `create` of single
    tools gives: ``BrowserNavigateTool.create(executor)``.
    """

    make_executor: ClassVar[Callable[..., Any]] = BrowserToolExecutor

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[ToolDefinition]:
        """The fourteen tools; the parameters are those of `BrowserToolExecutor`."""
        executor = cls._executor_from(**params)
        return [tool.create(executor=executor)[0] for tool in _TOOLS]


for _tool in _TOOLS:
    register_tool(_tool.tool_name, _tool)
register_tool(BrowserToolSet.name, BrowserToolSet)
