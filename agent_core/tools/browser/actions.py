"""What a model may ask of the browser, one class for each tool, and the calls that this means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple

from pydantic import Field

from agent_core.events.schema import Action

_INDEX = "Number of the element, as browser_get_state last showed it in brackets."


class BrowserCall(NamedTuple):
    """One call of the browser's program in the sandbox."""

    name: str
    args: dict[str, Any]


class Look(NamedTuple):
    """What is wanted to be known of the page after the calls.

    Attributes:
        tree: its accessibility tree with the numbers of the elements.
        screenshot: a picture of what the window shows.
        marks: that picture with the numbers in it; needs `screenshot`.
        visible_only: of the tree, what the window shows.
    """

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


class BrowserNavigateAction(BrowserAction):
    """Go to an address."""

    url: str = Field(min_length=1, description="Address to open; without a scheme https is meant, on this host http.")
    new_tab: bool = Field(default=False, description="Open it in a new tab, which becomes the active one.")

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("navigate", {"url": self.url, "new_tab": self.new_tab})]


class BrowserClickAction(BrowserAction):
    """Click an element."""

    index: int = Field(ge=0, description=_INDEX)
    new_tab: bool = Field(default=False, description="Open the link in a new tab, which becomes the active one.")

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("click", {"id": self.index, "new_tab": self.new_tab})]


class BrowserTypeAction(BrowserAction):
    """Put text into an element."""

    index: int = Field(ge=0, description=_INDEX)
    text: str = Field(
        description="What to put into the field in place of what is in it; a newline at its end presses Enter in a"
        " field of one line. For a list: the option to choose. For a file input: paths of files, one a line."
    )

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("type", {"id": self.index, "text": self.text})]


class BrowserGetStateAction(BrowserAction):
    """Look at the page."""

    include_screenshot: bool = Field(
        default=False, description="Show a picture of the page too, with the numbers of its elements."
    )

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("look", {})]

    def look(self) -> Look:
        return Look(tree=True, screenshot=self.include_screenshot, marks=self.include_screenshot)


class BrowserGetContentAction(BrowserAction):
    """Read the page."""

    extract_links: bool = Field(default=False, description="List the addresses of the page's links too.")
    start_from_char: int = Field(default=0, ge=0, description="Where to begin, to read on in a long page.")

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("content", {"links": self.extract_links, "start": self.start_from_char})]


class BrowserScrollAction(BrowserAction):
    """Scroll the page."""

    direction: Literal["up", "down"] = Field(default="down", description="Which way; almost a window's height.")

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("scroll", {"direction": self.direction})]


class BrowserGoBackAction(BrowserAction):
    """Go back in the tab's history."""

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("back", {})]


class BrowserListTabsAction(BrowserAction):
    """List the tabs."""

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("tabs", {})]


class BrowserSwitchTabAction(BrowserAction):
    """Make a tab the active one."""

    tab_id: str = Field(min_length=1, description="Id of the tab, four characters, from browser_list_tabs.")

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("switch_tab", {"tab": self.tab_id})]


class BrowserCloseTabAction(BrowserAction):
    """Close a tab."""

    tab_id: str = Field(min_length=1, description="Id of the tab, four characters, from browser_list_tabs.")

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("close_tab", {"tab": self.tab_id})]


class BrowserGetStorageAction(BrowserAction):
    """Read cookies and local storage."""

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("get_storage", {})]


class BrowserSetStorageAction(BrowserAction):
    """Replace cookies and local storage."""

    storage_state: dict[str, Any] = Field(
        description='What browser_get_storage gave: {"cookies": [...], "origins": [...]}. It replaces all there is.'
    )

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("set_storage", {"state": self.storage_state})]


class BrowserStartRecordingAction(BrowserAction):
    """Begin to record."""

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("start_recording", {})]


class BrowserStopRecordingAction(BrowserAction):
    """End the recording."""

    def calls(self) -> list[BrowserCall]:
        return [BrowserCall("stop_recording", {})]
