"""Start with ``python -c BOOT`` (see ``runner.browser``): says what it has, then serves until its input ends.

The first line of output is ``{"ready": true}``, or ``{"unavailable": WHY}`` when there is no browser to be had here.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

LINE_LIMIT = 64 * 1024 * 1024


async def main(workspace: str) -> None:
    """Serve one runner."""
    out = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    file = os.fdopen(out, "wb")

    def tell(message: dict[str, Any]) -> None:
        file.write(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")
        file.flush()

    try:
        # Imported late: without Playwright the reason is to be told in words.
        from playwright.async_api import Page

        from .driver import BrowserDriver
        from .session import find_chromium
    except ImportError as error:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        tell({"unavailable": f"the library that drives it cannot be loaded by Python {version} ({error})"})
        return
    if not hasattr(Page, "get_by_ref"):  # which names the elements of a page
        tell({"unavailable": "the library that drives it, Playwright, is older than 1.65"})
        return
    chromium = find_chromium()
    if chromium is None:
        tell({"unavailable": "Chromium was not found"})
        return
    tell({"ready": True})
    driver = BrowserDriver(tell, workspace, chromium)
    try:
        reader = asyncio.StreamReader(limit=LINE_LIMIT)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            message = json.loads(line)
            if "cancel" in message:
                driver.cancel(message["cancel"])
            else:
                driver.begin(message)
    finally:
        await driver.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
