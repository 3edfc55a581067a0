"""Sandboxes in memory for tests: one that works, and slow, broken, never ready and lossy ones, all with one interface.

They behave like a provider's sandboxes towards `agent_core.runtime.channel.connection.SandboxConnection` and run no
program: what an operation does is given as a handler (`agent_core.testing.fake_runner`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from agent_core.errors import SandboxError, SandboxLostError
from agent_core.events.transient import NETWORK_WARNING
from agent_core.runtime.sandbox import (
    Attachment,
    Availability,
    DiskUsage,
    Progress,
    Sandbox,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
)
from agent_core.testing.fake_runner import FakeAnswer, FakeHandler, FakeRequest, FakeRunner


@dataclass(frozen=True, slots=True)
class FakeBehaviour:
    """How a fake sandbox misbehaves.

    Attributes:
        start_seconds: how long a start takes (slow).
        error: raised by each start (broken).
        never_ready: a start ends with ``start_timeout`` after the spec's limit.
        attach_seconds: how long attaching takes.
        drop_after: the stream drops whenever this many operations have begun on it (lossy); 0 never.
        mute: the runner greets and never answers.
        network_warning: what its start tells about its network; empty: nothing.
    """

    start_seconds: float = 0.0
    error: SandboxError | None = None
    never_ready: bool = False
    attach_seconds: float = 0.0
    drop_after: int = 0
    mute: bool = False
    network_warning: str = ""


SLOW = FakeBehaviour(start_seconds=0.3)
BROKEN = FakeBehaviour(error=SandboxError("The engine is on fire.", code="engine_unavailable", fix="Fetch some water."))
NEVER_READY = FakeBehaviour(never_ready=True)
LOSSY = FakeBehaviour(drop_after=1)


class FakeSandbox:
    """A `Sandbox` without processes; `runner` is what is attached to, `files` what is seen of its disk."""

    provider = "fake"

    def __init__(
        self, spec: SandboxSpec, handlers: Mapping[str, FakeHandler], behaviour: FakeBehaviour | None = None
    ) -> None:
        self.spec = spec
        self.behaviour = behaviour or FakeBehaviour()
        self.runner = FakeRunner(handlers={name: self._lossy(handler) for name, handler in handlers.items()})
        self.status = SandboxStatus.ABSENT
        self.survived = False
        self.files: DiskUsage | None = None
        self.starts = 0
        self.attaches = 0
        self._begun = 0
        self._dropping: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> SandboxState:
        return {"provider": self.provider, "name": self.spec.conversation_id}

    @property
    def working_dir(self) -> str:
        return "/workspace"

    async def start(self, progress: Progress) -> None:
        self.starts += 1
        progress("STATUS$STARTING_RUNTIME", "Starting the sandbox")
        if self.behaviour.error is not None:
            raise self.behaviour.error
        if self.behaviour.never_ready:
            await asyncio.sleep(self.spec.limits.start_seconds)
            raise SandboxError(
                f"The sandbox was not ready within {self.spec.limits.start_seconds:g} s.", code="start_timeout"
            )
        await asyncio.sleep(self.behaviour.start_seconds)
        self.survived = self.status in (SandboxStatus.RUNNING, SandboxStatus.PAUSED)
        if not self.survived:
            await self.runner.restart(keep_journal=self.status is SandboxStatus.STOPPED)
        self.runner.mute = self.behaviour.mute
        self.status = SandboxStatus.RUNNING
        if self.behaviour.network_warning:
            progress(NETWORK_WARNING, self.behaviour.network_warning)
        progress("STATUS$RUNTIME_STARTED", "The sandbox runs")

    async def attach(self) -> Attachment:
        await asyncio.sleep(self.behaviour.attach_seconds)
        if self.status is not SandboxStatus.RUNNING:
            raise SandboxLostError("The sandbox is not running any more.")
        self.attaches += 1
        self._begun = 0
        return await self.runner.connect()

    async def poll(self) -> SandboxStatus:
        return self.status

    async def pause(self) -> None:
        if self.status is SandboxStatus.RUNNING:
            self.status = SandboxStatus.PAUSED

    async def resume(self) -> None:
        if self.status is SandboxStatus.PAUSED:
            self.status = SandboxStatus.RUNNING

    async def stop(self) -> None:
        await self.runner.close()
        if self.status is not SandboxStatus.ABSENT:
            self.status = SandboxStatus.STOPPED

    async def destroy(self) -> None:
        await self.kill(SandboxStatus.ABSENT)

    async def snapshot(self) -> str:
        return f"snapshot-of-{self.spec.conversation_id}"

    async def usage(self) -> DiskUsage | None:
        return self.files

    async def kill(self, left: SandboxStatus = SandboxStatus.STOPPED) -> None:
        """End it as somebody outside does."""
        self.status = left
        await self.runner.close()
        if self._dropping:
            await asyncio.wait(self._dropping)

    def _lossy(self, handler: FakeHandler) -> FakeHandler:
        """Wrap a handler so that the stream drops while its operation runs, if that is the behaviour."""

        async def run(call: FakeRequest) -> FakeAnswer:
            self._begun += 1
            if self.behaviour.drop_after and self._begun >= self.behaviour.drop_after:
                task = asyncio.create_task(self.runner.drop(), name="fake-drop")
                self._dropping.add(task)
                task.add_done_callback(self._dropping.discard)
            return await handler(call)

        return run


@dataclass(eq=False)
class FakeProvider:
    """Makes fake sandboxes and keeps them by conversation, so that `restore` finds them again."""

    handlers: dict[str, FakeHandler] = field(default_factory=dict)
    behaviour: FakeBehaviour = field(default_factory=FakeBehaviour)
    availability: Availability = field(default_factory=lambda: Availability(True, "fake sandboxes always work"))
    name: str = "fake"

    def __post_init__(self) -> None:
        self.sandboxes: dict[tuple[str, str], FakeSandbox] = {}

    async def check(self) -> Availability:
        return self.availability

    def create(self, spec: SandboxSpec) -> Sandbox:
        return self._find(spec)

    def restore(self, spec: SandboxSpec, state: SandboxState) -> Sandbox:
        return self._find(spec)

    async def reap(self, instance_id: str, keep: Collection[str]) -> list[str]:
        gone = [key for key in self.sandboxes if key[0] == instance_id and key[1] not in keep]
        for key in gone:
            await self.sandboxes.pop(key).destroy()
        return sorted(conversation for _, conversation in gone)

    async def prepare(self, spec: SandboxSpec) -> None:
        pass

    async def close(self) -> None:
        for sandbox in self.sandboxes.values():
            await sandbox.runner.close()

    def _find(self, spec: SandboxSpec) -> FakeSandbox:
        key = (spec.instance_id, spec.conversation_id)
        if key not in self.sandboxes:
            self.sandboxes[key] = FakeSandbox(spec, self.handlers, self.behaviour)
        return self.sandboxes[key]
