"""A sandbox that is looked up when it is first needed, so that a conversation's log opens whatever the sandboxes do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agent_core.runtime.naming import WORKSPACE
from agent_core.runtime.sandbox import (
    Attachment,
    DiskUsage,
    Progress,
    Sandbox,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
)


class DeferredSandbox:
    """A `Sandbox` that passes everything on to the one that `find` gives; each failed attempt may be repeated.

    Every method raises what `find` raises (`SandboxError` where no provider can work).
    """

    provider = "deferred"

    def __init__(
        self, spec: SandboxSpec, find: Callable[[], Awaitable[Sandbox]], check: Callable[[], None] = lambda: None
    ) -> None:
        """`check` raises `SandboxError` when nothing may be started, or go on, just now."""
        self.spec = spec
        self._check = check
        self._find = find
        self._found: Sandbox | None = None

    @property
    def state(self) -> SandboxState:
        return self._found.state if self._found is not None else {}

    @property
    def working_dir(self) -> str:
        return self._found.working_dir if self._found is not None else WORKSPACE

    @property
    def survived(self) -> bool:
        return self._found is not None and self._found.survived

    async def _sandbox(self) -> Sandbox:
        # No lock: finding it twice gives two objects for the same sandbox, of which one is kept.
        found = self._found or await self._find()
        self._found = self._found or found
        return self._found

    async def start(self, progress: Progress) -> None:
        self._check()
        await (await self._sandbox()).start(progress)

    async def attach(self) -> Attachment:
        return await (await self._sandbox()).attach()

    async def poll(self) -> SandboxStatus:
        return await (await self._sandbox()).poll()

    async def pause(self) -> None:
        await (await self._sandbox()).pause()

    async def resume(self) -> None:
        self._check()
        await (await self._sandbox()).resume()

    async def stop(self) -> None:
        await (await self._sandbox()).stop()

    async def destroy(self) -> None:
        await (await self._sandbox()).destroy()

    async def snapshot(self) -> str:
        self._check()
        return await (await self._sandbox()).snapshot()

    async def usage(self) -> DiskUsage | None:
        return await (await self._sandbox()).usage()
