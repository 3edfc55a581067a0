"""A sandbox for an executor that is called without a conversation."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from importlib import import_module
from typing import Any, Protocol, TypeVar

from agent_core.tools.spec import ToolContext

T = TypeVar("T")

PROVIDER = "agent_core.runtime.standalone"
"""The module that makes them. It stands above the tools, so it is looked up by its name, when it is needed."""


class OwnSandbox(Protocol):
    """A sandbox on a folder, for one executor."""

    def submit(self, work: Callable[[ToolContext], Coroutine[Any, Any, T]]) -> Future[T]:
        """Have `work` done in a loop elsewhere; starts the sandbox the first time."""
        ...

    def close(self) -> None:
        """End the sandbox; the folder stays."""
        ...


def open_own_sandbox(folder: str) -> OwnSandbox:
    """A sandbox whose workspace is that folder of this host, the present one if it is empty; nothing runs yet."""
    made: OwnSandbox = import_module(PROVIDER).open_folder(folder)
    return made
