"""What sites have stored: cookies, local storage, and the session storage of the open tabs."""

from __future__ import annotations

import asyncio
from typing import Any

from playwright.async_api import Error

from .errors import ActionError, in_words
from .session import BrowserSession
from .tab import Tab
from .tabs import Tabs

_SECONDS = 3.0
_READ = "() => [location.origin, Object.entries(sessionStorage)]"
_WRITE = """items => {
    sessionStorage.clear();
    for (const item of items) sessionStorage.setItem(item.name, item.value);
}"""
_SAME_SITE = {"strict": "Strict", "lax": "Lax", "none": "None", "no_restriction": "None"}
"""As programs that export cookies write it; what stands for nothing said is left out."""

State = dict[str, Any]


class Storage:
    """Reads and replaces all of it, in the form that the library has for it, with ``sessionStorage`` besides."""

    def __init__(self, session: BrowserSession, tabs: Tabs) -> None:
        self._session = session
        self._tabs = tabs

    async def read(self) -> State:
        """All there is; the session storage is that of the tab that was opened last, where several show a site."""
        state: State = dict(await self._session.context.storage_state())
        origins = {origin["origin"]: dict(origin) for origin in state.get("origins", ())}
        for origin, items in await asyncio.gather(*map(_session_storage, self._tabs.all())):
            if items:
                known = origins.setdefault(origin, {"origin": origin, "localStorage": []})
                known["sessionStorage"] = [{"name": name, "value": value} for name, value in items]
        return {**state, "origins": list(origins.values())}

    async def replace(self, state: State) -> str:
        """Put this in place of all there is; says what was set, and which session storage had no tab to be set in.

        Raises:
            ActionError: it is not in the form that was read.
        """
        cookies, origins = _list(state, "cookies"), _list(state, "origins")
        plain = [{"localStorage": [], **origin} for origin in origins]
        try:
            await self._session.context.set_storage_state({"cookies": [*map(_cookie, cookies)], "origins": plain})  # type: ignore[arg-type] # checked by the library
        except Error as error:
            raise ActionError(f"storage_state cannot be used: {in_words(error)}") from None
        wanted = {origin.get("origin"): _list(origin, "sessionStorage") for origin in origins}
        set_for = await asyncio.gather(*(self._set_session(tab, wanted) for tab in self._tabs.all()))
        said = f"Set {len(cookies)} cookies and the storage of {len(origins)} origins, in place of all there was."
        left = [str(origin) for origin, items in wanted.items() if items and origin not in set_for]
        more = "the session storage needs an open tab of its site, so this was left out"
        return f"{said} But {more}: {', '.join(left)}." if left else said

    async def _set_session(self, tab: Tab, wanted: dict[Any, list[State]]) -> str:
        """The site whose session storage was replaced in the tab; "" for none."""
        origin, _ = await _session_storage(tab)
        if origin:
            try:
                await asyncio.wait_for(tab.page.evaluate(_WRITE, wanted.get(origin, [])), _SECONDS)
            except (Error, asyncio.TimeoutError):
                return ""
        return origin


async def _session_storage(tab: Tab) -> tuple[str, list[list[str]]]:
    """A tab's site and what is stored for it; nothing for what has no such storage, and for pages that are busy."""
    if not tab.asks_for_another:
        try:
            origin, items = await asyncio.wait_for(tab.page.evaluate(_READ), _SECONDS)
        except (Error, asyncio.TimeoutError):
            return "", []
        return origin, items
    return "", []


def _cookie(given: State) -> State:
    same_site = _SAME_SITE.get(str(given.get("sameSite") or "").lower())
    rest = {name: value for name, value in given.items() if name != "sameSite"}
    return {**rest, "sameSite": same_site} if same_site else rest


def _list(state: State, name: str) -> list[State]:
    found = state.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ActionError(f"storage_state cannot be used: {name} must be a list of objects")
    return found
