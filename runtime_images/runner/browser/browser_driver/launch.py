"""Chromium: where it is, and how it is started."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playwright.async_api import Browser, Page, Playwright, ViewportSize

VIEWPORT: ViewportSize = {"width": 1280, "height": 720}
_VARIABLE = "DRYDOCK_CHROMIUM"
_NAMES = (
    *("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    "microsoft-edge",
)
_LIBRARY_FOLDERS = ("~/.cache/ms-playwright", "/ms-playwright", "/opt/ms-playwright")
_SHELL = "chromium_headless_shell-*/*/*headless*shell"
_OPTIONS = (
    # The sandbox of the conversation is the one that holds; there are no rights in it to make another.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def library_is_new_enough() -> bool:
    """Whether it can name the elements of a page."""
    return hasattr(Page, "get_by_ref")


def find_chromium() -> str | None:
    """The program to start: the one that ``DRYDOCK_CHROMIUM`` names, one on the PATH, or one of the library's own."""
    given = os.environ.get(_VARIABLE)
    if given:
        return given if os.access(given, os.X_OK) else None
    for name in _NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    folders = [os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or "", *_LIBRARY_FOLDERS]
    for folder in filter(None, folders):
        newest = sorted(Path(folder).expanduser().glob(_SHELL), reverse=True)
        if newest:
            return str(newest[0])
    return None


async def launch(playwright: Playwright, chromium: str, seconds: float) -> Browser:
    """Start it, with an empty profile that goes when it ends."""
    return await playwright.chromium.launch(
        executable_path=chromium, headless=True, args=list(_OPTIONS), timeout=seconds * 1000, chromium_sandbox=False
    )
