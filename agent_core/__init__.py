"""agent_core: conversations between people, models and sandboxes, without a server or a database.

The public names are loaded when they are first used, so importing the package costs nothing; `__init__.pyi` lists them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from agent_core.lazy_names import LazyNames

_names = LazyNames(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("agent_core.version").VERSION
    if name == "get_logger":
        return import_module("logging").getLogger
    if name == "__all__":
        return sorted([*_names.listed, "__version__", "get_logger"])
    return _names.load(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_names.known, "get_logger"])
