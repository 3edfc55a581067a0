"""The library that drives browsers, for local sandboxes: they are shown this server's own copy, read-only.

Only the packages named here are shown, nothing else of the environment that the server runs in.
"""

from __future__ import annotations

import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from agent_core.runtime.naming import RUNNER_ROOT

PACKAGES = ("playwright", "greenlet")
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PLACE = f"{RUNNER_ROOT}/browser-library"
"""Where a sandbox sees the packages."""
VARIABLE = "DRYDOCK_BROWSER_LIBRARY"
"""The variable that tells the runner where they are."""


@cache
def library_folder() -> str:
    """The folder of this host that holds all of `PACKAGES`; empty where they are not installed."""
    folders: set[str] = set()
    for name in PACKAGES:
        spec = find_spec(name)
        places = list(spec.submodule_search_locations or []) if spec is not None else []
        if not places:
            return ""
        folders.add(str(Path(places[0]).resolve().parent))
    return folders.pop() if len(folders) == 1 else ""


def host_has_browser() -> bool:
    """Whether this host has what a browser in a local sandbox needs: the library, and a Chromium on its path."""
    return bool(library_folder()) and any(shutil.which(name) for name in CHROMIUM)


def shown_from(folder: str) -> list[str]:
    """Bubblewrap's arguments that show the packages in that folder; none for no folder."""
    if not folder:
        return []
    return [word for name in PACKAGES for word in ("--ro-bind", f"{folder}/{name}", f"{PLACE}/{name}")]
