"""A sandbox with a notebook's kernel, for the conformance suite of the IPython tool."""

# ruff: noqa: S101 - for tests, with a home that users of the library can import

from __future__ import annotations

import asyncio

from agent_core.runtime.connection import SandboxConnection
from agent_core.runtime.standalone import AloneContext
from agent_core.tools.ipython import IPythonAction, IPythonExecutor, IPythonObservation


class NotebookKit:
    """A sandbox, and cells in its kernel."""

    def __init__(self, sandbox: SandboxConnection) -> None:
        self.sandbox = sandbox
        self.executor = IPythonExecutor()
        self.seen_live = asyncio.Event()
        self._count = 0

    async def cell(self, code: str, *, limit: float | None = None, extra: bool = False) -> IPythonObservation:
        """Run one cell, with a time limit in seconds; `extra` is its `include_extra`."""
        context = AloneContext(self.sandbox)
        self._count += 1
        context.idempotency_key = f"{self.sandbox.sandbox.spec.conversation_id}:{self._count}"
        context.hard_timeout = limit
        context.emit_output = self._show  # type: ignore[method-assign] # what is shown live is looked at
        return await self.executor.acall(IPythonAction(code=code, include_extra=extra), context)

    def _show(self, text: str) -> None:
        if "begun" in text:
            self.seen_live.set()

    async def text(self, code: str) -> str:
        """Run a cell that must go well; what a model reads."""
        seen = await self.cell(code)
        assert (seen.status, seen.is_error) == ("completed", False), seen.text
        return seen.text
