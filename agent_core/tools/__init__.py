"""Tools: their specifications, definitions, and the built-in ones, loaded when first used.

What tools are made of, and what is made of them, may be looked for here, too; `agent_core` is their own place.
"""

from __future__ import annotations

from typing import Any

from agent_core.lazy_names import LazyNames

_names = LazyNames(__name__, __file__, home="agent_core.tools.")


def __getattr__(name: str) -> Any:
    return _names.listed if name == "__all__" else _names.load(name)
