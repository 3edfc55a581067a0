"""Loads the server quickly: its imports are most of the time between the start of the process and its first answer."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

CLIENT_LIBRARIES = ("aiohttp", "requests", "tornado")
"""What python-socketio loads for its clients, which this process has no use for: 0.2 s and 20 MB. It does without
them where they are missing."""


YOUNG_OBJECTS = 5000
"""How many objects may be made before the collector looks for cycles among them (Python's default is 700): a page of
events is more than that and has none, and looking through it again and again was a fifth of the time to read it."""


@contextmanager
def quick_imports() -> Iterator[None]:
    """Within this, modules are loaded without collecting garbage in between, and without `CLIENT_LIBRARIES`.

    For the server's own process only: what was loaded here goes without those libraries for good. Whoever imports them
    afterwards gets them as usual.
    """
    hidden = [name for name in CLIENT_LIBRARIES if name not in sys.modules]
    modules = cast(dict[str, ModuleType | None], sys.modules)
    modules.update(dict.fromkeys(hidden))
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        for name in hidden:
            modules.pop(name, None)
        spare_collector()
        if was_collecting:
            gc.enable()


def spare_collector() -> None:
    """What is loaded by now stays for the life of the process: the collector of garbage need not look at it again."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
