"""The browser as a set of tools that name elements by the numbers of the last look (agent-core 4.10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from agent_core.events.schema import Action
from agent_core.tools.browser import actions
from agent_core.tools.browser.executor import BrowserToolExecutor
from agent_core.tools.browser.observation import BrowserObservation
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import DeclaredResources, ToolAnnotations

RESOURCE = "browser:session"


class SingleBrowserTool(ToolDefinition[actions.BrowserAction, BrowserObservation]):
    """What the single tools have in common; each says what it is in its class."""

    journaled: ClassVar[bool] = True
    asks: ClassVar[type[actions.BrowserAction]]
    says: ClassVar[str]
    reads_only: ClassVar[bool] = False
    destroys: ClassVar[bool] = False

    def declared_resources(self, action: Action) -> DeclaredResources:
        return DeclaredResources(keys=(RESOURCE,), declared=True)

    @classmethod
    def create(
        cls, conv_state: Any = None, *, executor: BrowserToolExecutor | None = None, **params: Any
    ) -> Sequence[ToolDefinition]:
        """The one tool, with the executor given (also as the only argument) or one made from the parameters."""
        if isinstance(conv_state, BrowserToolExecutor):
            executor = conv_state
        made = executor or _executor(cls.name, params)
        definition = cls(
            name=cls.tool_name,
            description=cls.says,
            action_type=cls.asks,
            observation_type=BrowserObservation,
            annotations=ToolAnnotations(
                title=cls.tool_name.replace("_", " ").capitalize(),
                readOnlyHint=cls.reads_only,
                destructiveHint=cls.destroys,
                idempotentHint=cls.reads_only,
            ),
        )
        return [definition.set_executor(made)]


class BrowserNavigateTool(SingleBrowserTool):
    """The `browser_navigate` tool."""

    tool_name: ClassVar[str] = "browser_navigate"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserNavigateAction
    says: ClassVar[str] = (
        "Open an address in the browser, in the active tab or a new one. What the page shows is not told: "
        "look with browser_get_state, or read with browser_get_content."
    )


class BrowserClickTool(SingleBrowserTool):
    """The `browser_click` tool."""

    tool_name: ClassVar[str] = "browser_click"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserClickAction
    says: ClassVar[str] = "Click an element of the page by its number from browser_get_state."


class BrowserTypeTool(SingleBrowserTool):
    """The `browser_type` tool."""

    tool_name: ClassVar[str] = "browser_type"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserTypeAction
    says: ClassVar[str] = (
        "Put text into an element by its number from browser_get_state: type into a field in place of what is "
        "in it, choose an option of a list, or give the files for a file input."
    )


class BrowserGetStateTool(SingleBrowserTool):
    """The `browser_get_state` tool."""

    tool_name: ClassVar[str] = "browser_get_state"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserGetStateAction
    says: ClassVar[str] = (
        "Look at the active page: its address, the tabs, and its elements as a tree, each with the number by "
        "which browser_click and browser_type name it. Numbers hold until the page goes to another address."
    )
    reads_only: ClassVar[bool] = True


class BrowserGetContentTool(SingleBrowserTool):
    """The `browser_get_content` tool."""

    tool_name: ClassVar[str] = "browser_get_content"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserGetContentAction
    says: ClassVar[str] = "Read the text of the active page, up to 50,000 characters at a time."
    reads_only: ClassVar[bool] = True


class BrowserScrollTool(SingleBrowserTool):
    """The `browser_scroll` tool."""

    tool_name: ClassVar[str] = "browser_scroll"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserScrollAction
    says: ClassVar[str] = (
        "Scroll the active page up or down by almost a window's height, to see more or to have it load more."
    )


class BrowserGoBackTool(SingleBrowserTool):
    """The `browser_go_back` tool."""

    tool_name: ClassVar[str] = "browser_go_back"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserGoBackAction
    says: ClassVar[str] = "Go back to the page before in the active tab."


class BrowserListTabsTool(SingleBrowserTool):
    """The `browser_list_tabs` tool."""

    tool_name: ClassVar[str] = "browser_list_tabs"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserListTabsAction
    says: ClassVar[str] = "List the open tabs with their ids, addresses and titles; * stands before the active one."
    reads_only: ClassVar[bool] = True


class BrowserSwitchTabTool(SingleBrowserTool):
    """The `browser_switch_tab` tool."""

    tool_name: ClassVar[str] = "browser_switch_tab"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserSwitchTabAction
    says: ClassVar[str] = "Make a tab the active one, on which all other tools work."


class BrowserCloseTabTool(SingleBrowserTool):
    """The `browser_close_tab` tool."""

    tool_name: ClassVar[str] = "browser_close_tab"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserCloseTabAction
    says: ClassVar[str] = "Close a tab."
    destroys: ClassVar[bool] = True


class BrowserGetStorageTool(SingleBrowserTool):
    """The `browser_get_storage` tool."""

    tool_name: ClassVar[str] = "browser_get_storage"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserGetStorageAction
    says: ClassVar[str] = "Read the cookies of the browser and the local storage of its sites, as JSON."
    reads_only: ClassVar[bool] = True


class BrowserSetStorageTool(SingleBrowserTool):
    """The `browser_set_storage` tool."""

    tool_name: ClassVar[str] = "browser_set_storage"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserSetStorageAction
    says: ClassVar[str] = (
        "Replace the cookies of the browser and the local storage of its sites, for example to be logged in."
    )
    destroys: ClassVar[bool] = True


class BrowserStartRecordingTool(SingleBrowserTool):
    """The `browser_start_recording` tool."""

    tool_name: ClassVar[str] = "browser_start_recording"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserStartRecordingAction
    says: ClassVar[str] = "Begin to record what happens in the browser, step by step, with pictures."


class BrowserStopRecordingTool(SingleBrowserTool):
    """The `browser_stop_recording` tool."""

    tool_name: ClassVar[str] = "browser_stop_recording"
    asks: ClassVar[type[actions.BrowserAction]] = actions.BrowserStopRecordingAction
    says: ClassVar[str] = "End the recording and save it in the workspace."


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

    @classmethod
    def create(
        cls, conv_state: Any = None, *, executor: BrowserToolExecutor | None = None, **params: Any
    ) -> Sequence[ToolDefinition]:
        """The fourteen tools; the parameters are those of `BrowserToolExecutor`."""
        made = executor or _executor(cls.name, params)
        return [tool.create(executor=made)[0] for tool in _TOOLS]


def _executor(name: str, params: dict[str, Any]) -> BrowserToolExecutor:
    try:
        return BrowserToolExecutor(**params)
    except TypeError as error:
        raise TypeError(f"{name} cannot be made with the parameters {sorted(params)}: {error}") from None


for _tool in _TOOLS:
    register_tool(_tool.tool_name, _tool)
register_tool(BrowserToolSet.name, BrowserToolSet)
