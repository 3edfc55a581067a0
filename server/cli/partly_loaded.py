"""Libraries of which a server's process loads the part that it uses: the rest takes a tenth of a second, and 8 MB."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any, Final

_USED: Final[Mapping[str, Mapping[str, Iterable[str]]]] = {
    # SQLAlchemy's asynchronous engine without its object mapper.
    "sqlalchemy.ext.asyncio": {"engine": ("AsyncConnection", "AsyncEngine", "create_async_engine")},
    # uvicorn without its command line, and what restarts it.
    "uvicorn": {"config": ("Config",), "server": ("Server",)},
}
"""Packages, the modules in them that are used, and the names of the package that these define."""


def load_partly() -> None:
    """Have these packages hold what is used of them alone.

    Whoever asks one for anything else, such as an operator's own class for a session of the database, has all of it
    from then on.
    """
    for package, modules in _USED.items():
        _load(package, modules)


def _load(name: str, modules: Mapping[str, Iterable[str]]) -> None:
    spec = None if name in sys.modules else find_spec(name)
    if spec is None or spec.loader is None:
        return
    loader, package = spec.loader, module_from_spec(spec)

    def whole(wanted: str) -> Any:
        if wanted.startswith("__"):  # the import system asks for some that there may not be
            raise AttributeError(wanted)
        package.__dict__.pop("__getattr__", None)
        loader.exec_module(package)
        return getattr(package, wanted)

    sys.modules[name] = package
    try:
        for module, used in modules.items():
            found = import_module(f"{name}.{module}")
            package.__dict__.update({one: getattr(found, one) for one in used})
    except (ImportError, AttributeError):  # another release, which is made otherwise: all of it, as ever
        for one in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
            del sys.modules[one]
        return
    package.__dict__["__getattr__"] = whole
