"""The element of a number: where the last look has shown it, or after the page has loaded itself anew."""

from __future__ import annotations

import asyncio
import contextlib

from playwright.async_api import Error, Locator

from .settling import repeated
from .tab import Tab
from .tree import Numbers, Tree, read_tree

_LOOK_MS = 5000.0


async def present(tab: Tab, number: int) -> Locator | None:
    """The element, if its document still has it."""
    reference = tab.numbers.reference(number)
    if not reference:
        return None
    with contextlib.suppress(Error):  # a document of that number is not there any more
        found = tab.page.get_by_ref(reference)
        if await found.count():
            return found
    return None


async def in_new_document(tab: Tab, number: int) -> Locator | None:
    """The only element of that role and name, if the page has been loaded anew since it was seen, and had one only.

    Pages that load themselves again and again would otherwise never be used: they are another document by the time a
    model has read them.
    """
    seen = tab.seen.named_once(number)
    if seen is None or _place(tab.page.url) != _place(tab.seen_url):
        return None
    fresh = Numbers()
    with contextlib.suppress(Error, asyncio.TimeoutError):
        tree = await repeated(lambda: _tree(tab, fresh))
        if fresh.documents[:1] == tab.numbers.documents[:1]:
            return None
        again = next((node for node in tree.nodes if (node.role, node.name) == (seen.role, seen.name)), None)
        if again is not None and tree.named_once(again.number) is not None:
            return tab.page.get_by_ref(fresh.reference(again.number))
    return None


async def _tree(tab: Tab, numbers: Numbers) -> Tree:
    await tab.page.wait_for_load_state("domcontentloaded", timeout=_LOOK_MS)
    return read_tree(await tab.page.aria_snapshot(mode="ai", boxes=True, timeout=_LOOK_MS), numbers)


def _place(url: str) -> str:
    return url.partition("#")[0]
