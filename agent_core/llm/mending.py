"""Whether the client library may mend a request that its provider would refuse, call by call."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

_may_mend: ContextVar[bool] = ContextVar("may_mend", default=True)


def forget(package: str) -> None:
    """Forget a package whose import broke off: the parts that are there would make every later attempt fail."""
    for name in [one for one in sys.modules if one.partition(".")[0] == package]:
        del sys.modules[name]


def decide_by_call(library: ModuleType) -> None:
    """Have the library ask for each call: its own `modify_params` is one switch for the whole process."""

    class Asking(type(library)):  # type: ignore[misc] # a class that only the library itself knows
        @property
        def modify_params(self) -> bool:
            return _may_mend.get()

    vars(library).pop("modify_params", None)
    library.__class__ = Asking


@contextmanager
def mending(allowed: bool) -> Iterator[None]:
    """What is begun inside may be mended, or not, in the threads too that it is handed to with its context."""
    token = _may_mend.set(allowed)
    try:
        yield
    finally:
        _may_mend.reset(token)
