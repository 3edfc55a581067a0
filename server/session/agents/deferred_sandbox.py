"""`DeferredSandbox`: a conversation's sandbox before it is known which one that is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from agent_core.errors import SandboxUnmadeError
from agent_core.events.transient import WAITING_FOR_ENGINE
from agent_core.runtime.sandbox import (
    WORKSPACE,
    Attachment,
    DiskUsage,
    Progress,
    Sandbox,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
)
from agent_core.runtime.workspace_archive import WritableFile

MAX_PLACES: Final = 3
"""So often one start goes to a place, where each is lost before anything was made there."""

Find = Callable[[SandboxState | None], Awaitable[Sandbox]]


class DeferredSandbox:
    """A `Sandbox` that passes everything on to what `find` gives.

    `check` raises while nothing may run, `check_owner` while it may be another server's by now, which alone reaches it.
    `find` is given the state of the one that could not be made where it was to be, and finds another place then.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        find: Find,
        check: Callable[[], None] = lambda: None,
        check_owner: Callable[[], None] = lambda: None,
    ) -> None:
        self.spec = spec
        self._check = check
        self._check_owner = check_owner
        self._find = find
        self._found: Sandbox | None = None

    def become(self, spec: SandboxSpec, find: Find) -> None:
        """Be another one from now on."""
        self.spec, self._find, self._found = spec, find, None

    @property
    def provider(self) -> str:
        return self._found.provider if self._found is not None else "none"

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
        self._check_owner()
        # No lock: finding it twice gives two objects for the same sandbox, of which one is kept.
        found = self._found or await self._find(None)
        self._found = self._found or found
        return self._found

    async def start(self, progress: Progress) -> None:
        self._check()
        for _ in range(MAX_PLACES - 1):
            sandbox = await self._sandbox()
            try:
                await sandbox.start(progress)
            except SandboxUnmadeError as error:
                progress(WAITING_FOR_ENGINE, f"{error} The sandbox is made elsewhere.")
                if self._found is sandbox:
                    self._found = await self._find(sandbox.state)
            else:
                return
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

    async def archive(self, file: WritableFile) -> list[str]:
        return await (await self._sandbox()).archive(file)

    async def usage(self) -> DiskUsage | None:
        return await (await self._sandbox()).usage()
