"""Shows what waits for clicks without looking like it: drawings, and words, that a tree would pass over.

The tree has numbers for what has a role or a pointing hand. A shape in a drawing (SVG) that listens for clicks has
neither: such shapes are given the role of an image and the hand; words within a line that of a button, others the hand.
"""

from __future__ import annotations

import asyncio
import contextlib

from playwright.async_api import Error, Page

_SECONDS = 3.0
_SCRIPT = """(() => {
    const lines = 'span, i, b, em, strong, div, li, td, p, [onclick]', most = 3000;
    const kinds = ['click', 'mousedown', 'mouseup', 'pointerdown', 'pointerup'];
    const own = new Set(['A', 'BUTTON', 'INPUT', 'SELECT', 'OPTION', 'TEXTAREA', 'LABEL', 'SUMMARY', 'AREA']);
    const listens = e => {
        if (kinds.some(kind => e['on' + kind])) return true;
        const known = getEventListeners(e);
        return kinds.some(kind => known[kind]);
    };
    const show = (document, depth) => {
        const drawn = [...document.querySelectorAll('svg, svg *')].slice(0, most);
        const words = [...document.querySelectorAll(lines)].slice(0, most);
        for (const e of drawn) {
            if (e.closest('a, button, defs') || e.hasAttribute('role') || !listens(e)) continue;
            e.setAttribute('role', 'img');
            const title = e.querySelector(':scope > title, :scope > desc');
            const name = title ? title.textContent.trim() : e.textContent.trim() || e.id || e.tagName;
            if (!e.hasAttribute('aria-label') && !e.hasAttribute('aria-labelledby')) e.setAttribute('aria-label', name);
            e.style.cursor = 'pointer';
        }
        for (const e of words) {
            if (e.children.length || e.hasAttribute('role') || own.has(e.tagName)) continue;
            if (!e.textContent.trim() || !listens(e)) continue;
            if (getComputedStyle(e).display === 'inline') e.setAttribute('role', 'button');
            e.style.cursor = 'pointer';
        }
        for (const frame of depth ? document.querySelectorAll('iframe') : [])
            if (frame.contentDocument) show(frame.contentDocument, depth - 1);
    };
    show(document, 3);
})()"""


async def show_clickable(page: Page) -> None:
    """Let what listens for clicks be numbered in the tree that is read next; for a page that is busy, it stays."""
    with contextlib.suppress(Error, asyncio.TimeoutError):
        await asyncio.wait_for(_show(page), _SECONDS)


async def _show(page: Page) -> None:
    line = await page.context.new_cdp_session(page)
    try:
        await line.send("Runtime.evaluate", {"expression": _SCRIPT, "includeCommandLineAPI": True})
    finally:
        with contextlib.suppress(Error):
            await line.detach()
