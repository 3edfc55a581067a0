"""A screenshot with the numbers of the elements on it, drawn on a page of our own: the site's is left as it is."""

from __future__ import annotations

import base64
import html

from playwright.async_api import BrowserContext

from .tree import Box

QUALITY = 80
_COLOURS = ("#d12b2b", "#1f5fd6", "#1b7f37", "#a0460a", "#7a2bbf", "#0b7285", "#b0126f", "#5c5f00")
_STYLE = """
body { margin: 0; position: relative; overflow: hidden }
img { display: block; width: 100vw }
div { position: absolute; box-sizing: border-box; border: 1px solid var(--c) }
b { position: absolute; left: -1px; top: -1px; background: var(--c); color: #fff;
    font: bold 11px/13px sans-serif; padding: 0 2px; white-space: nowrap }
"""
_LIMIT_MS = 10_000


async def draw_marks(context: BrowserContext, picture: bytes, marks: list[tuple[int, Box]]) -> bytes:
    """The picture with a frame and a number for each mark, as JPEG."""
    page = await context.new_page()
    try:
        await page.set_content(_document(picture, marks), wait_until="load", timeout=_LIMIT_MS)
        return await page.screenshot(type="jpeg", quality=QUALITY, timeout=_LIMIT_MS)
    finally:
        await page.close()


def _document(picture: bytes, marks: list[tuple[int, Box]]) -> str:
    source = "data:image/jpeg;base64," + base64.b64encode(picture).decode("ascii")
    parts = [f"<!doctype html><style>{_STYLE}</style><img src='{html.escape(source)}'>"]
    for number, box in marks:
        colour = _COLOURS[number % len(_COLOURS)]
        place = f"left:{box.x}px;top:{max(0.0, box.y)}px;width:{box.width}px;height:{box.height}px;--c:{colour}"
        parts.append(f"<div style='{place}'><b>{number}</b></div>")
    return "".join(parts)
