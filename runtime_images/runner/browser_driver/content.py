"""What a page says, as text."""

from __future__ import annotations

import asyncio
from typing import Any

from playwright.async_api import Error, Frame, Page

from .errors import ActionError, has_moved
from .settling import repeated
from .tab import Tab

_FRAME_SECONDS = 5.0
_MOST_FRAMES = 20
_TEXT = "() => document.body ? document.body.innerText : document.documentElement?.textContent ?? ''"
_LINKS = """() => {
    const seen = new Map();
    for (const link of document.querySelectorAll('a[href]')) {
        const text = (link.innerText || link.getAttribute('aria-label') || '').trim().replace(/\\s+/g, ' ');
        if (/^https?:|^mailto:/.test(link.href) && !seen.has(link.href)) seen.set(link.href, text.slice(0, 200));
    }
    return [...seen].map(([address, text]) => text + ' <' + address + '>');
}"""


async def text_of(tab: Tab, *, with_links: bool) -> str:
    """All text that the page shows, its frames' after its own; then its links, if wished.

    A page that never stays is held for it.
    """
    try:
        return await _text_of(tab.page, with_links)
    except Error as error:
        if not has_moved(error):
            raise
    async with tab.held():
        return await _text_of(tab.page, with_links)


async def _text_of(page: Page, with_links: bool) -> str:
    parts: list[str] = []
    links: list[str] = []
    for frame in page.frames[:_MOST_FRAMES]:
        try:
            text = str(await _asked(frame, _TEXT)).strip()
            if text:
                parts.append(text if frame is page.main_frame else f"[Frame {frame.url}]\n{text}")
            if with_links:
                links += await _asked(frame, _LINKS)
        except asyncio.TimeoutError:
            if frame is page.main_frame:
                raise ActionError(f"the page did not tell its text within {_FRAME_SECONDS:g} s") from None
        except Error:
            if frame is page.main_frame:
                raise
    if links:
        parts.append("Links:\n" + "\n".join(links))
    return "\n\n".join(parts)


async def _asked(frame: Frame, script: str) -> Any:
    return await asyncio.wait_for(repeated(lambda: frame.evaluate(script)), _FRAME_SECONDS)
