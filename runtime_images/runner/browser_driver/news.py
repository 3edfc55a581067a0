"""What happened in the browser by itself, to be told once with the next result."""

from __future__ import annotations

_MOST = 20


class News:
    """Sentences, in the order in which they were first said, and the tabs that pages have opened."""

    def __init__(self) -> None:
        self._said: dict[str, int] = {}
        self._opened: list[str] = []

    def say(self, text: str) -> None:
        """Tell this; there is a limit to what is told at once."""
        if text in self._said or len(self._said) < _MOST:
            self._said[text] = self._said.get(text, 0) + 1

    def opened(self, tab_id: str) -> None:
        """A page has opened this tab."""
        self._opened.append(tab_id)

    def take(self, active: str) -> list[str]:
        """What was said since the last time; what was said often is told once. `active` is the active tab's id."""
        said, self._said = self._said, {}
        opened, self._opened = self._opened, []
        told = [text if count == 1 else f"{text} ({count} times)" for text, count in said.items()]
        return [_opened_words(opened, active), *told] if opened else told


def _opened_words(ids: list[str], active: str) -> str:
    """What is said of tabs that pages have opened; the active one may be another by now, or they closed themselves."""
    if len(ids) == 1 and ids[0] == active:
        return f"A new tab {active} was opened and is the active one now."
    words = f"A new tab {ids[0]} was opened" if len(ids) == 1 else f"New tabs were opened: {', '.join(ids)}"
    return f"{words}; the active one is {active or 'none'} now."
