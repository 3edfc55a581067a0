"""The browser tools: Chromium in the conversation's sandbox, whose elements are named by numbers of the last look."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple

from pydantic import Field

from agent_core.events.messages import Frozen, ImageContent, TextContent
from agent_core.events.schema import Action, Observation
from agent_core.tools.context import ToolContext
from agent_core.tools.definition import ToolDefinition, tool_name_of
from agent_core.tools.execution import SandboxExecutor
from agent_core.tools.registry import built_in
from agent_core.tools.spec import ToolAnnotations

RESOURCE = "browser:session"
BROWSER: Final = "browser"
"""The part of a sandbox that these tools need."""
_INDEX = "Number of the element, as browser_get_state last showed it in brackets."
_TAB = "Id of the tab, four characters, from browser_list_tabs."
_ARGUMENTS = {
    "index": "id",
    "tab_id": "tab",
    "extract_links": "links",
    "start_from_char": "start",
    "storage_state": "state",
}
"""What the browser's program calls the arguments that it calls otherwise."""


class BrowserCall(NamedTuple):
    """One call of the browser's program in the sandbox."""

    name: str
    args: dict[str, Any]


class Look(NamedTuple):
    """What is to be known of the page after the calls: its tree (`visible_only`: of the window), a picture of it."""

    tree: bool = False
    screenshot: bool = False
    marks: bool = False
    visible_only: bool = False


class BrowserAction(Action, ABC):
    """Any call of a browser tool."""

    @abstractmethod
    def calls(self) -> list[BrowserCall]:
        """What the browser's program is to do, in order."""

    def look(self) -> Look:
        """What is to be seen afterwards."""
        return Look()


class SingleBrowserAction(BrowserAction):
    """One call of the browser's program, whose arguments are the fields."""

    operation: ClassVar[str]

    def calls(self) -> list[BrowserCall]:
        args = {_ARGUMENTS.get(name, name): getattr(self, name) for name in type(self).model_fields if name != "kind"}
        return [BrowserCall(self.operation, args)]


class BrowserNavigateAction(SingleBrowserAction):
    """Go to an address."""

    operation = "navigate"
    url: str = Field(min_length=1, description="Address to open; without a scheme https is meant, on this host http.")
    new_tab: bool = Field(default=False, description="Open it in a new tab, which becomes the active one.")


class BrowserClickAction(SingleBrowserAction):
    """Click an element."""

    operation = "click"
    index: int = Field(ge=0, description=_INDEX)
    new_tab: bool = Field(default=False, description="Open the link in a new tab, which becomes the active one.")


class BrowserTypeAction(SingleBrowserAction):
    """Put text into an element."""

    operation = "type"
    index: int = Field(ge=0, description=_INDEX)
    text: str = Field(
        description="What to put into the field in place of what is in it; a newline at its end presses Enter in a"
        " field of one line. For a list: the option to choose. For a file input: paths of files, one a line."
    )


class BrowserGetStateAction(BrowserAction):
    """Look at the page."""

    include_screenshot: bool = Field(
        default=False, description="Show a picture of the page too, with the numbers of its elements."
    )

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("look", {})]

    def look(self) -> Look:
        return Look(tree=True, screenshot=self.include_screenshot, marks=self.include_screenshot)


class BrowserGetContentAction(SingleBrowserAction):
    """Read the page."""

    operation = "content"
    extract_links: bool = Field(default=False, description="List the addresses of the page's links too.")
    start_from_char: int = Field(default=0, ge=0, description="Where to begin, to read on in a long page.")


class BrowserScrollAction(SingleBrowserAction):
    """Scroll the page."""

    operation = "scroll"
    direction: Literal["up", "down"] = Field(default="down", description="Which way; almost a window's height.")


class BrowserGoBackAction(SingleBrowserAction):
    """Go back in the tab's history."""

    operation = "back"


class BrowserListTabsAction(SingleBrowserAction):
    """List the tabs."""

    operation = "tabs"


class BrowserSwitchTabAction(SingleBrowserAction):
    """Make a tab the active one."""

    operation = "switch_tab"
    tab_id: str = Field(min_length=1, description=_TAB)


class BrowserCloseTabAction(SingleBrowserAction):
    """Close a tab."""

    operation = "close_tab"
    tab_id: str = Field(min_length=1, description=_TAB)


class BrowserGetStorageAction(SingleBrowserAction):
    """Read cookies and local storage."""

    operation = "get_storage"


class BrowserSetStorageAction(SingleBrowserAction):
    """Replace cookies and local storage."""

    operation = "set_storage"
    storage_state: dict[str, Any] = Field(
        description='What browser_get_storage gave: {"cookies": [...], "origins": [...]}. It replaces all there is.'
    )


class BrowserStartRecordingAction(SingleBrowserAction):
    """Begin to record."""

    operation = "start_recording"


class BrowserStopRecordingAction(SingleBrowserAction):
    """End the recording."""

    operation = "stop_recording"


BrowserStatus = Literal["completed", "failed", "timeout", "interrupted", "crashed", "unavailable"]


class OpenPage(Frozen):
    """One open tab."""

    id: str
    url: str
    title: str = ""


class BrowserObservation(Observation):
    """What a call did, and what the page is like now. `content` is what a model reads; pictures are beside it.

    Attributes:
        status: how it went; ``unavailable``: there is no browser to be had in this sandbox.
        open_pages: the tabs in the order of their opening, of which `active_page_index` is active (-1: none).
        focused_element: number of the element that has the focus, as far as the tree was asked for; else "".
        screenshot: the window as a data URL, `set_of_marks` the same with the numbers of the elements; "" for none.
        last_action: what was asked for, as one line of code; `last_action_error` says why it failed.
        is_picture_for_model: whether models that see are shown the picture; people are in any case.
    """

    status: BrowserStatus = "completed"
    url: str = ""
    open_pages: list[OpenPage] = Field(default_factory=list)
    active_page_index: int = -1
    focused_element: str = ""
    screenshot: str = ""
    set_of_marks: str = ""
    screenshot_path: str = ""
    downloads: list[str] = Field(default_factory=list)
    last_action: str = ""
    last_action_error: str = ""
    visible_only: bool = False
    is_picture_for_model: bool = True

    @property
    def to_llm_content(self) -> Sequence[TextContent | ImageContent]:
        picture = (self.set_of_marks or self.screenshot) if self.is_picture_for_model else ""
        shown = list(super().to_llm_content)
        return [*shown, ImageContent(image_urls=[picture])] if picture else shown


def observed(result: dict[str, Any], text: str, *, action: str, look: Look) -> BrowserObservation:
    """The observation for an answer of the browser's program, with the text that a model is to read."""
    return BrowserObservation.from_text(
        text,
        is_error=result["status"] != "completed",
        status=result["status"],
        url=result["url"],
        open_pages=[OpenPage(**page) for page in result["tabs"]],
        active_page_index=result["active"],
        focused_element=result["focused"],
        screenshot=result["screenshot"],
        set_of_marks=result["marks"],
        screenshot_path=result["screenshot_path"],
        downloads=result["downloads"],
        last_action=action,
        last_action_error=result["error"],
        visible_only=look.visible_only,
        is_picture_for_model=look.marks,
    )


def state_text(result: dict[str, Any], look: Look) -> str:
    """What happened, then what the page is like, as far as it was asked for."""
    parts = [result["text"], result["error"], *result["notices"]]
    if look.tree and result["tabs"]:
        index = result["active"]
        active = result["tabs"][index] if 0 <= index < len(result["tabs"]) else {"title": "", "url": result["url"]}
        others = [f"{tab['id']} {tab['url']}" for place, tab in enumerate(result["tabs"]) if place != index]
        parts.append(f"URL: {active['url']}\nTitle: {active['title']}")
        parts += [f"Other tabs: {', '.join(others)}"] if others else []
        parts += [f"Screenshot saved to: {result['screenshot_path']}"] if result["screenshot_path"] else []
        parts.append(f"Elements, those in brackets can be used:\n{result['tree'] or '(the page is empty)'}")
    text = "\n".join(part for part in parts if part)
    return text or ("Done." if result["status"] == "completed" else "")


_OUTER_MARGIN_SECONDS = 120.0


class BrowserToolExecutor(SandboxExecutor[BrowserAction, BrowserObservation]):
    """One browser for as many tools as share it, started with the first call in the conversation's sandbox.

    Without a conversation it has a sandbox of its own on `working_dir` (the present folder if empty). ValueError: a
    time is not above zero, a domain is empty, or `headless` is false.

    Args:
        allowed_domains: hosts that pages may come from, with all below them; none for all.
        init_timeout_seconds: in which the browser must have started.
        action_timeout_seconds: for a call; after a late one, 30 s at most. The third in a row restarts the browser.
        navigation_timeout_seconds: in which a site must begin to answer.
        session_timeout_minutes: without a call, after which the browser is closed.
    """

    def __init__(
        self,
        *,
        allowed_domains: Sequence[str] | None = None,
        init_timeout_seconds: float = 30.0,
        action_timeout_seconds: float = 300.0,
        navigation_timeout_seconds: float = 30.0,
        session_timeout_minutes: float = 30.0,
        working_dir: str = "",
        headless: bool = True,
    ) -> None:
        super().__init__(working_dir)
        if not headless:
            raise ValueError("headless is False; the browser is in a sandbox, which has no screen: leave it out")
        times = {
            "init_timeout_seconds": init_timeout_seconds,
            "action_timeout_seconds": action_timeout_seconds,
            "navigation_timeout_seconds": navigation_timeout_seconds,
            "session_timeout_minutes": session_timeout_minutes,
        }
        for name, value in times.items():
            if not value > 0:
                raise ValueError(f"{name} is {value}; it must be above zero")
        domains = list(allowed_domains or [])
        if isinstance(allowed_domains, str) or not all(isinstance(name, str) and name.strip() for name in domains):
            raise ValueError(f"allowed_domains is {allowed_domains!r}; it must be a list of host names")
        self._options = {
            "timeout": action_timeout_seconds,
            "start_seconds": init_timeout_seconds,
            "navigation_seconds": navigation_timeout_seconds,
            "idle_seconds": session_timeout_minutes * 60,
            "allowed_domains": [name.strip() for name in domains],
        }
        self._limit_seconds = action_timeout_seconds + init_timeout_seconds + _OUTER_MARGIN_SECONDS

    async def carry_out(self, action: BrowserAction, context: ToolContext, key: str | None) -> BrowserObservation:
        calls, look = action.calls(), action.look()
        result = await self.ask(calls, look, context, key)
        return observed(result, state_text(result, look), action=as_code(calls), look=look)

    async def ask(
        self, calls: Sequence[BrowserCall], look: Look, context: ToolContext, key: str | None
    ) -> dict[str, Any]:
        """Have the browser's program do these calls, and return its answer."""
        options = dict(self._options)
        if context.hard_timeout is not None:
            options["timeout"] = context.hard_timeout
        args = {"calls": [call._asdict() for call in calls], "look": look._asdict(), **options}
        limit = max(self._limit_seconds, (context.hard_timeout or 0) + _OUTER_MARGIN_SECONDS)
        reply = await context.sandbox.request("browser.run", args, key=key, limit_seconds=limit)
        return reply.result


def as_code(calls: Sequence[BrowserCall]) -> str:
    """Calls as a person reads them: ``click(id=3)``."""
    return "\n".join(
        f"{call.name}({', '.join(f'{name}={json.dumps(one, ensure_ascii=False)}' for name, one in call.args.items())})"
        for call in calls
    )


_TOOLS: list[type[ToolDefinition]] = []


def _tool(
    action: type[BrowserAction], text: str, *, reads: bool = False, destroys: bool = False
) -> type[ToolDefinition[BrowserAction, BrowserObservation]]:
    """A tool that names elements by the numbers of the last look; its class is called as its action is.

    ``BrowserGoBackAction``: ``BrowserGoBackTool``, `browser_go_back`.
    """
    class_name = f"{action.__name__.removesuffix('Action')}Tool"
    name = tool_name_of(class_name)
    title = name.replace("_", " ").capitalize()
    hints = ToolAnnotations(title=title, readOnlyHint=reads, destructiveHint=destroys, idempotentHint=reads)

    @built_in
    class Single(ToolDefinition[BrowserAction, BrowserObservation]):
        __doc__ = f"The `{name}` tool."
        __qualname__ = class_name
        journaled = True
        tool_name = name
        resources = (RESOURCE,)
        make_executor: ClassVar[Callable[..., Any]] = BrowserToolExecutor
        action_type: type[Action] = action
        description: str = text
        annotations: ToolAnnotations = hints
        needs: ClassVar[str] = BROWSER

        @classmethod
        def create(cls, conv_state: Any = None, **params: Any) -> Sequence[ToolDefinition]:
            """The one tool, with the executor given (also as the only argument) or one made from the parameters."""
            extra = {"executor": conv_state} if isinstance(conv_state, BrowserToolExecutor) else {}
            return super().create(**extra, **params)

    Single.__name__ = class_name
    _TOOLS.append(Single)
    return Single


BrowserNavigateTool: Final = _tool(
    BrowserNavigateAction,
    "Open an address in the browser, in the active tab or a new one. What the page shows is not told: look with"
    " browser_get_state, or read with browser_get_content.",
)
BrowserClickTool: Final = _tool(
    BrowserClickAction,
    "Click an element of the page by its number from browser_get_state.",
)
BrowserTypeTool: Final = _tool(
    BrowserTypeAction,
    "Put text into an element by its number from browser_get_state: type into a field in place of what is in it,"
    " choose an option of a list, or give the files for a file input.",
)
BrowserGetStateTool: Final = _tool(
    BrowserGetStateAction,
    "Look at the active page: its address, the tabs, and its elements as a tree, each with the number by which"
    " browser_click and browser_type name it. Numbers hold until the page goes to another address.",
    reads=True,
)
BrowserGetContentTool: Final = _tool(
    BrowserGetContentAction,
    "Read the text of the active page, up to 50,000 characters at a time.",
    reads=True,
)
BrowserScrollTool: Final = _tool(
    BrowserScrollAction,
    "Scroll the active page up or down by almost a window's height, to see more or to have it load more.",
)
BrowserGoBackTool: Final = _tool(BrowserGoBackAction, "Go back to the page before in the active tab.")
BrowserListTabsTool: Final = _tool(
    BrowserListTabsAction,
    "List the open tabs with their ids, addresses and titles; * stands before the active one.",
    reads=True,
)
BrowserSwitchTabTool: Final = _tool(BrowserSwitchTabAction, "Make a tab the active one, on which all other tools work.")
BrowserCloseTabTool: Final = _tool(BrowserCloseTabAction, "Close a tab.", destroys=True)
BrowserGetStorageTool: Final = _tool(
    BrowserGetStorageAction,
    "Read the cookies of the browser and the local storage of its sites, as JSON.",
    reads=True,
)
BrowserSetStorageTool: Final = _tool(
    BrowserSetStorageAction,
    "Replace the cookies of the browser and the local storage of its sites, for example to be logged in.",
    destroys=True,
)
BrowserStartRecordingTool: Final = _tool(
    BrowserStartRecordingAction,
    "Begin to record what happens in the browser, step by step, with pictures.",
)
BrowserStopRecordingTool: Final = _tool(BrowserStopRecordingAction, "End the recording and save it in the workspace.")


@built_in
class BrowserToolSet(ToolDefinition[BrowserAction, BrowserObservation]):
    """All browser tools, on one executor.

    For some of them, or another executor, register a factory around ``BrowserNavigateTool.create(executor)`` and so on.
    """

    make_executor: ClassVar[Callable[..., Any]] = BrowserToolExecutor

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[ToolDefinition]:
        """The fourteen tools; the parameters are those of `BrowserToolExecutor`."""
        executor = cls._executor_from(**params)
        return [tool.create(executor=executor)[0] for tool in _TOOLS]
