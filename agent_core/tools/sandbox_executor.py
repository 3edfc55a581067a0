"""Executors that do their work by requests to a sandbox: the conversation's, or else one of their own."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from importlib import import_module
from typing import Any, Protocol

from typing_extensions import TypeVar

from agent_core.events.schema import Action, Observation
from agent_core.tools.execution import ToolExecutor, present_call
from agent_core.tools.spec import ToolContext

T = TypeVar("T")

PROVIDER = "agent_core.runtime.standalone"
"""Makes such sandboxes. It stands above the tools, so it is looked up by its name, when it is needed."""


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


ActionT = TypeVar("ActionT", bound=Action, default=Any)
ObservationT = TypeVar("ObservationT", bound=Observation, default=Any)


class SandboxExecutor(ToolExecutor[ActionT, ObservationT]):
    """Works in the sandbox of the conversation that asks, or else in one of its own; subclasses define `carry_out`.

    Called in a thread, by itself or from another tool's executor, it waits for the result.

    Args:
        working_dir: folder for a sandbox of its own; the present one if empty. A conversation's sandbox has its own.
    """

    def __init__(self, working_dir: str = "") -> None:
        self.working_dir = working_dir
        self._own: OwnSandbox | None = None

    @abstractmethod
    async def carry_out(self, action: ActionT, context: ToolContext, key: str | None) -> ObservationT:
        """Do it, with requests to the sandbox of the context; those that must not be repeated under the key."""

    def __call__(self, action: ActionT, conversation: ToolContext | None = None) -> ObservationT:
        """Do it and wait.

        Raises:
            ToolError: the sandbox refused the arguments.
            SandboxError: the sandbox cannot be had; the message says why and what to do.
        """
        call = present_call()
        if call is not None:
            return call.do(lambda context: self.carry_out(action, context, None))
        return self._alone().submit(lambda context: self.carry_out(action, context, None)).result()

    async def acall(self, action: ActionT, conversation: ToolContext | None = None) -> ObservationT:
        """Do it as a conversation's action."""
        if conversation is None:
            work = self._alone().submit(lambda context: self.carry_out(action, context, None))
            return await asyncio.wrap_future(work)
        return await self.carry_out(action, conversation, conversation.idempotency_key)

    def close(self) -> None:
        """End the sandbox of its own, if it made one."""
        own, self._own = self._own, None
        if own is not None:
            own.close()

    def _alone(self) -> OwnSandbox:
        if self._own is None:
            self._own = open_own_sandbox(self.working_dir)
        return self._own
