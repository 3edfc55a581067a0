"""What of an event in its public form programs are not sent: hidden events, and what only a browser's view needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_OF_THE_VIEW: Final = frozenset(
    {
        "dom_object",
        "axtree_object",
        "active_page_index",
        "last_browser_action",
        "last_browser_action_error",
        "focused_element_bid",
        "extra_element_properties",
        "screenshot",
        "set_of_marks",
    }
)


def is_hidden(wire: Mapping[str, Any]) -> bool:
    """Whether an event in its public form is marked as hidden."""
    return (wire.get("args") or wire.get("extras") or {}).get("hidden") is True


def without_view(wire: dict[str, Any]) -> dict[str, Any]:
    """The event without what only the browser view needs (trajectory)."""
    extras = wire.get("extras")
    if not isinstance(extras, dict) or _OF_THE_VIEW.isdisjoint(extras):
        return wire
    return {**wire, "extras": {key: value for key, value in extras.items() if key not in _OF_THE_VIEW}}
