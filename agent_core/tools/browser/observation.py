"""What the browser answers: one shape for all of its tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from agent_core.events.messages import Frozen, ImageContent, TextContent
from agent_core.events.schema import Observation
from agent_core.tools.browser.actions import Look

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
        url: address of the active page; "" when none is known.
        open_pages: the tabs, in the order of their opening.
        active_page_index: which of them is active; -1 for none.
        focused_element: number of the element that has the focus, as far as the tree was asked for; else "".
        screenshot: the window as a data URL; "" where none was asked for.
        set_of_marks: the same with the numbers of the elements in it.
        screenshot_path: where in the workspace the picture is kept.
        downloads: paths of files that were downloaded meanwhile.
        last_action: what was asked for, as one line of code.
        last_action_error: why it failed; "" when it did not.
        visible_only: whether the tree was that of the window's part only.
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
        """The text and, where there is one, the picture: that with the numbers if possible."""
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
    said = "\n".join(part for part in parts if part)
    return said or ("Done." if result["status"] == "completed" else "")
