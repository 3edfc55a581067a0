"""Files, or a folder, for a file input."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import ElementHandle, Locator

from .errors import ActionError

_LIMIT_MS = 10_000.0
_TAKES_FOLDER = "e => e.webkitdirectory"
_EMPTY = """e => {
    e.value = '';
    for (const name of ['input', 'change']) e.dispatchEvent(new Event(name, { bubbles: true }));
}"""


async def choose_files(element: Locator | ElementHandle, number: int, paths: list[Path]) -> str:
    """Choose these in place of what was chosen; says so.

    Raises:
        ActionError: it takes a folder and was given files, or the other way around.
    """
    if not paths:
        await element.evaluate(_EMPTY)
        return f"Element {number} has no files now."
    folders = [path for path in paths if path.is_dir()]
    if await element.evaluate(_TAKES_FOLDER):
        if len(paths) > 1 or not folders:
            raise ActionError(f"element {number} takes one folder, with all that is in it: give the folder's path")
        await element.set_input_files(folders[0], timeout=_LIMIT_MS)
        return f"Chose the folder {folders[0].name} in element {number}."
    if folders:
        raise ActionError(f"{str(folders[0])!r} is a folder, and element {number} takes files only")
    await element.set_input_files([str(path) for path in paths], timeout=_LIMIT_MS)
    return f"Chose {len(paths)} files in element {number}."
