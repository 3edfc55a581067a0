"""Public names of a package that are loaded when first used, listed once: as imports that type checkers see."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any


class LazyNames:
    """The names that a package's ``__init__.py`` has under ``if TYPE_CHECKING``, read out of that file.

    A line each: ``from module import X as X``, and ``Alias = X``. `listed` are those without the aliases whose modules
    begin with `home`.
    """

    def __init__(self, package: str, file: str, *, home: str = "agent_core.") -> None:
        self._package = package
        lines = [line.split() for line in Path(file).read_text("utf-8").splitlines()]
        self._modules = {line[3]: line[1] for line in lines if line[:1] == ["from"] and line[4:5] == ["as"]}
        self._aliases = {line[0]: line[2] for line in lines if line[1:2] == ["="] and line[2] in self._modules}
        self.listed = sorted(name for name, module in self._modules.items() if module.startswith(home))
        self.known = {*self._modules, *self._aliases}

    def load(self, name: str) -> Any:
        """What the package has by this name."""
        own_name = self._aliases.get(name, name)
        if own_name not in self._modules:
            raise AttributeError(f"module {self._package!r} has no attribute {name!r}")
        return getattr(import_module(self._modules[own_name]), own_name)
