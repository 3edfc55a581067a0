"""Fields of a form that take only some texts: what they do not take is said, with what they would."""

from __future__ import annotations

from playwright.async_api import Locator
from playwright.async_api import TimeoutError as PlaywrightTimeoutError

from .errors import ActionError

_LIMIT_MS = 10_000.0
_OPTIONS_MS = 3000.0
_SHOWN_OPTIONS = 50
_KIND = "e => e.tagName === 'INPUT' ? e.type : ''"
_OPTIONS = """e => e.tagName !== 'SELECT' ? null : [...e.options].map(
    option => (option.label || option.value).slice(0, 80) + (option.disabled ? ' (disabled)' : ''))"""
_FORMS = {
    "date": "2024-05-31",
    "time": "13:45",
    "datetime-local": "2024-05-31T13:45",
    "month": "2024-05",
    "week": "2024-W22",
    "color": "#ff8800",
    "range": "50",
}
"""What a field of each kind takes, by an example."""
_KEEPING = frozenset({"color", "range"})
"""Fields that keep their own value in place of one that they do not take; the others are empty then."""


async def fill(element: Locator, number: int, text: str) -> None:
    """Put a text into a field in one go.

    Raises:
        ActionError: it is a field for a date, a colour or the like, and does not take the text.
    """
    kind = await element.evaluate(_KIND)
    await element.fill(text, timeout=_LIMIT_MS)
    if kind not in _FORMS or not text:
        return
    value = await element.input_value(timeout=_LIMIT_MS)
    if not value or (kind in _KEEPING and value != text.strip().lower()):
        raise ActionError(f"element {number} is for a {kind} and did not take {text!r}; write it like {_FORMS[kind]}")


async def choose(element: Locator, number: int, options: list[str]) -> list[str]:
    """Choose these options of a list, by their values or labels, and no others; returns the values.

    Raises:
        ActionError: the list does not have them.
    """
    try:
        return await element.select_option(options, timeout=_OPTIONS_MS)
    except PlaywrightTimeoutError:
        known = await element.evaluate(_OPTIONS)
        if known is None:
            raise
        shown = ", ".join(known[:_SHOWN_OPTIONS]) + (", …" if len(known) > _SHOWN_OPTIONS else "")
        wanted = ", ".join(map(repr, options))
        raise ActionError(
            f"{wanted} cannot be chosen in element {number}; its options are: {shown or 'none'}"
        ) from None
