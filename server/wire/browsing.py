"""The browser on the wire: the actions `browse` and `browse_interactive`, the observation `browse`."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError

from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.events.messages import TextContent
from agent_core.tools.browser import (
    BrowserAction,
    BrowserCodeAction,
    BrowserNavigateAction,
    BrowserNavigateTool,
    BrowserObservation,
    BrowserTool,
)
from agent_core.tools.browser.executor import as_code
from server.wire.action_fields import BrowseArgs, BrowseInteractiveArgs
from server.wire.errors import WireError
from server.wire.forms import RISK_NUMBERS, ActionForm, ObservationForm

_PNG: Final = "data:image/png;base64,"
_JPEG: Final = "data:image/jpeg;base64,"
_RISKS: Final = {number: risk for risk, number in RISK_NUMBERS.items()}


def browser_call_form(action: BrowserAction, event: ActionEvent, thought: str) -> ActionForm:
    """A call of a browser tool: an address to open is a `browse`, everything else code."""
    more = {"thought": thought, "security_risk": RISK_NUMBERS[event.security_risk], "return_axtree": False}
    if isinstance(action, BrowserNavigateAction):
        return ActionForm("browse", {"url": action.url, **more}, event.hard_timeout)
    code = action.code if isinstance(action, BrowserCodeAction) else as_code(action.calls())
    args = {"browser_actions": code, "browsergym_send_msg_to_user": "", **more}
    return ActionForm("browse_interactive", args, event.hard_timeout)


def browser_result_form(observation: BrowserObservation, event: ObservationEvent) -> ObservationForm:
    """What the browser answered; the page's tree is in the text, its objects are not kept."""
    opened = event.tool_name == BrowserNavigateTool.tool_name
    extras: dict[str, Any] = {
        "url": observation.url,
        "trigger_by_action": "browse" if opened else "browse_interactive",
        "screenshot": _shown(observation.screenshot),
        "screenshot_path": observation.screenshot_path or None,
        "set_of_marks": observation.set_of_marks,
        "error": observation.is_error,
        "goal_image_urls": [],
        "open_pages_urls": [page.url for page in observation.open_pages],
        "active_page_index": observation.active_page_index,
        "dom_object": {},
        "axtree_object": {},
        "extra_element_properties": {},
        "last_browser_action": observation.last_action,
        "last_browser_action_error": observation.last_action_error,
        "focused_element_bid": observation.focused_element,
        "filter_visible_only": observation.visible_only,
    }
    return ObservationForm("browse", observation.text, extras)


def _shown(picture: str) -> str:
    """The picture under the one label that the protocol's client knows: it puts that before every other one.

    Browsers go by the bytes of a picture, whatever its label says.
    """
    return _PNG + picture.removeprefix(_JPEG) if picture.startswith(_JPEG) else picture


def user_browsing(args: BrowseArgs | BrowseInteractiveArgs, timeout: float | None) -> ActionEvent:
    """What a user does with the browser of the agent, which is shown both.

    Raises:
        WireError: the code is none.
    """
    try:
        action: BrowserAction = (
            BrowserNavigateAction(url=args.url)
            if isinstance(args, BrowseArgs)
            else BrowserCodeAction(code=args.browser_actions)
        )
    except ValidationError as error:
        field = "url" if isinstance(args, BrowseArgs) else "browser_actions"
        text = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        raise WireError(f"args.{field}: {text.removeprefix('Value error, ')}") from error
    return ActionEvent(
        source="user",
        thought=[TextContent(text=args.thought)] if args.thought else [],
        action=action,
        tool_name=BrowserTool.tool_name,
        security_risk=_RISKS[args.security_risk],
        hard_timeout=timeout,
    )
