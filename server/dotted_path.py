"""Classes that a setting names by their dotted path."""

from __future__ import annotations

import importlib
from typing import TypeVar

from server.errors import ConfigurationError

_T = TypeVar("_T")


def class_at(dotted_path: str, base: type[_T], *, setting: str) -> type[_T]:
    """The subclass of `base` at that path; `setting` is named in errors.

    Raises:
        ConfigurationError: there is none, or it is no subclass of `base`.
    """
    module, _, name = dotted_path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"{setting}: {dotted_path!r} cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigurationError(f"{setting}: {dotted_path!r} is no subclass of {base.__name__}")
    return found
