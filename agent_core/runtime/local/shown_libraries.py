"""Libraries for local sandboxes: they are shown this server's own copies, read-only.

Only the packages named here are shown, and what those need, nothing else of the environment that the server runs in.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from agent_core.runtime.naming import RUNNER_ROOT

BROWSER_PACKAGES = ("playwright", "greenlet")
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_KERNEL_PROJECTS = ("ipykernel", "jupyter_client", "pypdf")
_NEVER_USED = frozenset({"debugpy"})
_PROJECT = re.compile(r"[A-Za-z0-9._-]+")


class Shown(NamedTuple):
    """Packages of one purpose: folders and files of a folder of this host."""

    variable: str
    """The variable that tells the runner where they are."""
    place: str
    """Where a sandbox sees them."""
    folder: str
    """The folder of this host that holds all of them."""
    names: tuple[str, ...]


@cache
def shown_libraries() -> tuple[Shown, ...]:
    """What this host has of the browser's library and the kernel's."""
    found = []
    if browser := _folder_of(BROWSER_PACKAGES):
        place = f"{RUNNER_ROOT}/browser-library"
        found.append(Shown("DRYDOCK_BROWSER_LIBRARY", place, browser, BROWSER_PACKAGES))
    folder = _folder_of(_KERNEL_PROJECTS[:2])
    if folder and (names := tuple(sorted(_names_of(folder, set(_KERNEL_PROJECTS))))):
        found.append(Shown("DRYDOCK_KERNEL_LIBRARY", f"{RUNNER_ROOT}/kernel-library", folder, names))
    return tuple(found)


def host_has_browser() -> bool:
    """Whether this host has what a browser in a local sandbox needs: the library, and a Chromium on its path."""
    return bool(_folder_of(BROWSER_PACKAGES)) and any(shutil.which(name) for name in CHROMIUM)


@cache
def _folder_of(packages: tuple[str, ...]) -> str:
    """The folder that holds all of these packages; empty where they are not installed."""
    folders: set[str] = set()
    for name in packages:
        spec = find_spec(name)
        places = list(spec.submodule_search_locations or []) if spec is not None else []
        if not places:
            return ""
        folders.add(str(Path(places[0]).resolve().parent))
    return folders.pop() if len(folders) == 1 else ""


def _names_of(folder: str, projects: set[str]) -> set[str]:
    """The names in that folder of what these projects have installed, and those that they need."""
    names: set[str] = set()
    done = set(_NEVER_USED)
    while projects:
        project = projects.pop()
        done.add(project)
        try:
            distribution = metadata.distribution(project)
        except metadata.PackageNotFoundError:
            continue  # one for another system, or an optional one
        names |= {file.parts[0] for file in distribution.files or () if _is_package(folder, file.parts)}
        projects |= set(_needs(distribution)) - done
    return names


def _is_package(folder: str, parts: tuple[str, ...]) -> bool:
    first = parts[0]
    if first.endswith(".dist-info"):  # of which one is read: it says how kernels are started
        return first.startswith("jupyter_client-")
    return first not in ("..", "__pycache__") and not first.endswith(".pth") and Path(folder, first).exists()


def _needs(distribution: metadata.Distribution) -> Iterator[str]:
    for requirement in distribution.requires or ():
        project, _, condition = requirement.partition(";")
        found = _PROJECT.match(project)
        if found is not None and "extra" not in condition and "pypy" not in condition:
            yield found.group().lower()
