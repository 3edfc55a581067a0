"""Calls on one element of the active page, named by its number in the tree that was shown last."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from playwright.async_api import ElementHandle, Error, Locator
from playwright.async_api import TimeoutError as PlaywrightTimeoutError

from .errors import ActionError
from .tabs import Tab, Tabs, repeated
from .tree import AccessibilityTree, ElementNumbers, read_tree
from .workspace_files import WorkspaceFiles

_LIMIT_MS = 10_000.0
_SHOWN_OPTIONS = 50
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
"""An example of what a field of each kind takes."""
_KEEPING = frozenset({"color", "range"})
"""Fields that keep their value in place of one that they do not take; the others become empty."""
_EMPTY = """e => {
    e.value = '';
    for (const name of ['input', 'change']) e.dispatchEvent(new Event(name, { bubbles: true }));
}"""
_LOOK_MS = 5000.0
_TYPED_CHARACTERS = 500
_DRAGGED_PIXELS = 6
_TYPED_KINDS = {f"INPUT:{kind}" for kind in ("text", "search", "email", "url", "tel", "password")}
_KIND = "e => e.tagName === 'INPUT' ? 'INPUT:' + e.type : e.tagName"
_HREF = "e => { const link = e.closest('a[href]'); return link && /^https?:/.test(link.href) ? link.href : '' }"
_OTHER_PROGRAM = """e => {
    const link = e.closest('a[href], area[href]');
    return link && link.protocol && !/^(https?|ftp|file|data|blob|about|javascript):$/.test(link.protocol)
        ? link.href.slice(0, 200) : '';
}"""
_CLICKED_KINDS = {f"INPUT:{kind}" for kind in ("radio", "checkbox", "button", "submit", "reset", "image")}
_CHOOSE = """option => {
    const select = option.closest('select');
    const chosen = select && select.multiple ? !option.selected : true;
    if (!select) return '';
    if (!select.multiple) select.value = option.value;
    option.selected = chosen;
    for (const name of ['input', 'change']) select.dispatchEvent(new Event(name, { bubbles: true }));
    return chosen ? 'chosen' : 'no longer chosen';
}"""
_IS_EDITABLE = "e => e.isContentEditable || ['INPUT', 'TEXTAREA'].includes(e.tagName)"


class Elements:
    """Each method does one thing and says so in a sentence; else it raises `ActionError`, or Playwright's error."""

    def __init__(self, tabs: Tabs, files: WorkspaceFiles) -> None:
        self._tabs = tabs
        self._files = files

    async def find(self, number: int) -> Locator:
        """The element of that number; raises `ActionError` when the page does not have it, or no longer."""
        tab = await self._tabs.active()
        if reference := tab.numbers.reference(number):
            with contextlib.suppress(Error):  # a document of that number is not there any more
                found = tab.page.get_by_ref(reference)
                if await found.count():
                    return found
        again = await _in_new_document(tab, number)
        if again is not None:
            return again
        raise ActionError(
            f"there is no element {number} on the page as it is now; look at the page again and take one of its numbers"
        )

    async def address(self, number: int) -> str:
        """The address of the link that it is, or is in; empty when it is none."""
        return str(await (await self.find(number)).evaluate(_HREF))

    async def click(self, number: int, button: Any, modifiers: list[Any], times: int, new_tab: bool) -> str:
        element = await self.find(number)
        if await element.evaluate(_KIND) == "OPTION" and (became := await element.evaluate(_CHOOSE)):
            return f"Option {number} is {became}."
        leads_out = await element.evaluate(_OTHER_PROGRAM)
        keys = [*modifiers, *(["ControlOrMeta"] if new_tab else [])]
        clicked = f"{'Double-clicked' if times > 1 else 'Clicked'} element {number}."
        try:
            await element.click(button=button, modifiers=keys, click_count=times, timeout=_LIMIT_MS, no_wait_after=True)
        except Error as error:
            if "has been closed" not in error.message:
                raise
            return f"{clicked} Its page has closed."  # a window that ends itself is faster than the answer at times
        if leads_out:
            clicked += f" It leads to {leads_out}, which is for another program; there is none here."
        return clicked

    async def type(self, number: int, text: str) -> str:
        element = await self.find(number)
        kind = await element.evaluate(_KIND)
        if kind == "SELECT":
            return await self.select(number, [text])
        if kind == "INPUT:file":
            return await self.upload(number, [line for line in text.splitlines() if line])
        if kind in _CLICKED_KINDS:
            raise ActionError(f"element {number} takes no text, it is a {kind.partition(':')[2]}: click it")
        if not await element.evaluate(_IS_EDITABLE):
            await element.click(timeout=_LIMIT_MS)
            await (await self._tabs.active()).page.keyboard.type(text)
            return f"Clicked element {number} and typed the text."
        typed, enters = text.rstrip("\n"), text.endswith("\n") and "TEXTAREA" not in kind
        if not enters:
            typed = text
        if len(typed) > _TYPED_CHARACTERS or "\n" in typed or kind not in _TYPED_KINDS:
            await _fill(element, number, typed)
        else:
            await element.fill("", timeout=_LIMIT_MS)
            await element.press_sequentially(typed, timeout=_LIMIT_MS)
        if enters:
            await element.press("Enter", timeout=_LIMIT_MS, no_wait_after=True)
        return f"Typed the text into element {number}{' and pressed Enter' if enters else ''}."

    async def fill(self, number: int, text: str) -> str:
        await _fill(await self.find(number), number, text)
        return f"Filled element {number}."

    async def clear(self, number: int) -> str:
        await (await self.find(number)).clear(timeout=_LIMIT_MS)
        return f"Emptied element {number}."

    async def select(self, number: int, options: list[str]) -> str:
        element = await self.find(number)
        try:
            chosen = await element.select_option(options, timeout=3000.0)
        except PlaywrightTimeoutError:
            known = await element.evaluate(_OPTIONS)
            if known is None:
                raise
            shown = ", ".join(known[:_SHOWN_OPTIONS]) + (", …" if len(known) > _SHOWN_OPTIONS else "")
            names = ", ".join(map(repr, options))
            raise ActionError(
                f"{names} cannot be chosen in element {number}; its options are: {shown or 'none'}"
            ) from None
        return f"Chose {', '.join(chosen) or 'nothing'} in element {number}."

    async def hover(self, number: int) -> str:
        await (await self.find(number)).hover(timeout=_LIMIT_MS)
        return f"The pointer is on element {number}."

    async def focus(self, number: int) -> str:
        await (await self.find(number)).focus(timeout=_LIMIT_MS)
        return f"Element {number} has the focus."

    async def press(self, number: int, keys: str) -> str:
        """Press a key or combination in it; a character without a key is inserted."""
        element = await self.find(number)
        if len(keys) == 1 and not keys.isascii():
            await element.focus(timeout=_LIMIT_MS)
            await (await self._tabs.active()).page.keyboard.insert_text(keys)
        else:
            await element.press(keys, timeout=_LIMIT_MS, no_wait_after=True)
        return f"Pressed {keys} in element {number}."

    async def drag(self, source: int, target: int) -> str:
        """Moves first, to make it a drag, before the page scrolls to a target that is out of sight."""
        taken, place = await self.find(source), await self.find(target)
        mouse = (await self._tabs.active()).page.mouse
        await taken.hover(timeout=_LIMIT_MS)
        box = await taken.bounding_box(timeout=_LIMIT_MS)
        await mouse.down()
        try:
            if box is not None:
                x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
                await mouse.move(x + _DRAGGED_PIXELS, y + _DRAGGED_PIXELS, steps=2)
            for _ in range(2):  # the page hears that it is over the target, and then where on it
                await place.hover(timeout=_LIMIT_MS)
        finally:
            await mouse.up()
        return f"Dragged element {source} to element {target}."

    async def upload(self, number: int, files: list[str]) -> str:
        """Choose files for a file input, or for what opens a file chooser; an empty list takes the choice back."""
        element = await self.find(number)
        paths = [self._files.existing(path) for path in files]
        if await element.evaluate(_KIND) == "INPUT:file":
            return await _choose_files(element, number, paths)
        page = (await self._tabs.active()).page
        with self._tabs.files_at_hand():
            async with page.expect_file_chooser(timeout=_LIMIT_MS) as chooser:
                await element.click(timeout=_LIMIT_MS)
            return await _choose_files((await chooser.value).element, number, paths)


async def _fill(element: Locator, number: int, text: str) -> None:
    """Fill a field in one go; raise where one for a date or the like does not take the text."""
    kind = await element.evaluate("e => e.tagName === 'INPUT' ? e.type : ''")
    await element.fill(text, timeout=_LIMIT_MS)
    if kind not in _FORMS or not text:
        return
    value = await element.input_value(timeout=_LIMIT_MS)
    if not value or (kind in _KEEPING and value != text.strip().lower()):
        raise ActionError(f"element {number} is for a {kind} and did not take {text!r}; write it like {_FORMS[kind]}")


async def _in_new_document(tab: Tab, number: int) -> Locator | None:
    """The only element of that role and name, when a page that reloads itself has become another document."""
    seen = tab.seen.named_once(number)
    if seen is None or tab.page.url.partition("#")[0] != tab.seen_url.partition("#")[0]:
        return None
    fresh = ElementNumbers()
    with contextlib.suppress(Error, asyncio.TimeoutError):
        tree = await repeated(lambda: _tree(tab, fresh))
        if fresh.documents[:1] == tab.numbers.documents[:1]:
            return None
        again = next((node for node in tree.nodes if (node.role, node.name) == (seen.role, seen.name)), None)
        if again is not None and tree.named_once(again.number) is not None:
            return tab.page.get_by_ref(fresh.reference(again.number))
    return None


async def _tree(tab: Tab, numbers: ElementNumbers) -> AccessibilityTree:
    await tab.page.wait_for_load_state("domcontentloaded", timeout=_LOOK_MS)
    return read_tree(await tab.page.aria_snapshot(mode="ai", boxes=True, timeout=_LOOK_MS), numbers)


async def _choose_files(element: Locator | ElementHandle, number: int, paths: list[Path]) -> str:
    if not paths:
        await element.evaluate(_EMPTY)
        return f"Element {number} has no files now."
    folders = [path for path in paths if path.is_dir()]
    if await element.evaluate("e => e.webkitdirectory"):
        if len(paths) > 1 or not folders:
            raise ActionError(f"element {number} takes one folder, with all that is in it: give the folder's path")
        await element.set_input_files(folders[0], timeout=_LIMIT_MS)
        return f"Chose the folder {folders[0].name} in element {number}."
    if folders:
        raise ActionError(f"{str(folders[0])!r} is a folder, and element {number} takes files only")
    await element.set_input_files([str(path) for path in paths], timeout=_LIMIT_MS)
    return f"Chose {len(paths)} files in element {number}."
