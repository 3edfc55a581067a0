"""The sandbox protocol (architecture section 6): a place of its own for every conversation, behind one byte stream.

Providers implement `Sandbox` and `SandboxProvider`; all of them pass the same conformance suite.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol

SandboxState = Mapping[str, str]
"""A few strings from which another process can find the sandbox again; JSON."""

Progress = Callable[[str, str], None]
"""``(status id of wire-protocol section 5, text for people)``; called while a sandbox starts."""


class SandboxStatus(StrEnum):
    """What a sandbox is doing, as far as its provider can see."""

    ABSENT = "absent"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Bounds on what one sandbox may use. Memory and sizes are in bytes."""

    memory: int = 4 * 1024**3
    cpus: float = 2.0
    processes: int = 512
    tmp_size: int = 1024**3
    start_seconds: float = 60.0
    stop_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What is wanted: whose sandbox, made from what, within which bounds.

    Attributes:
        instance_id: the server's own stable id; every object made is labelled with it.
        image: image reference, for providers that use images.
        network: ``none``; ``internal`` (a network without a way out, nor a way to other sandboxes); ``full``.
        environment: variables of every process in the sandbox.
        data_dir: folder on the host under which a provider may keep what it needs.
        workspace: for providers without images, an absolute folder of this host to work in, seen inside under its own
            path, as its owner; it is nobody's to remove. Empty for a workspace of the sandbox's own.
        ends_with_owner: the sandbox of processes, and `data_dir` with it, end with the process that starts it, however
            that one ends. For a `data_dir` that was made for this sandbox alone: nobody will ever ask for it again.
    """

    conversation_id: str
    instance_id: str
    image: str
    data_dir: str
    network: Literal["none", "internal", "full"] = "full"
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    environment: Mapping[str, str] = field(default_factory=dict)
    workspace: str = ""
    ends_with_owner: bool = False


class Attachment(NamedTuple):
    """The open byte stream to the runner in a sandbox."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Availability(NamedTuple):
    """Whether a provider can work here; `reason` says why (not), `fix` what to do about it."""

    ok: bool
    reason: str
    fix: str = ""


class Sandbox(Protocol):
    """One conversation's sandbox. All methods are idempotent and bounded in time by the spec's limits."""

    provider: str
    spec: SandboxSpec

    @property
    def state(self) -> SandboxState:
        """From this `SandboxProvider.restore` finds the sandbox again, in another process too."""
        ...

    @property
    def working_dir(self) -> str:
        """Absolute path of the workspace as processes in the sandbox see it."""
        ...

    @property
    def survived(self) -> bool:
        """Whether the last `start` found it at work, or frozen in the middle of it.

        Only then its runner knows of everything that was ever asked of this conversation's sandbox.
        """
        ...

    async def start(self, progress: Progress) -> None:
        """Bring it to READY from whatever it is (absent, stopped, paused, running); keeps the workspace.

        Raises:
            SandboxError: it cannot be had; `code` names the cause (``engine_unavailable``, ``image_missing``,
                ``no_python``, ``no_isolation``, ``start_timeout``, ``disk_full`` …) and the message the fix.
                Nothing is left half made.
        """
        ...

    async def attach(self) -> Attachment:
        """Open the byte stream to its runner (the newest attachment wins).

        Raises:
            SandboxLostError: there is no running sandbox to attach to.
        """
        ...

    async def poll(self) -> SandboxStatus:
        """What it is doing now."""
        ...

    async def pause(self) -> None:
        """Freeze its processes; they cost no processor time."""
        ...

    async def resume(self) -> None:
        """Let frozen processes go on."""
        ...

    async def stop(self) -> None:
        """End its processes; the workspace stays."""
        ...

    async def destroy(self) -> None:
        """Remove it with its workspace and everything that was made for it."""
        ...

    async def snapshot(self) -> str:
        """Keep the present workspace; returns a name for it."""
        ...


class SandboxProvider(Protocol):
    """A way of making sandboxes."""

    name: str

    async def check(self) -> Availability:
        """Whether sandboxes can be made here, found out by trying what is cheap to try; at most a few seconds."""
        ...

    def create(self, spec: SandboxSpec) -> Sandbox:
        """A sandbox for this conversation; nothing is done before `start`."""
        ...

    def restore(self, spec: SandboxSpec, state: SandboxState) -> Sandbox:
        """The sandbox that another object's `state` described."""
        ...

    async def reap(self, instance_id: str, keep: Collection[str]) -> list[str]:
        """Destroy all objects labelled with this instance whose conversation is not in `keep`; returns those ids."""
        ...

    async def close(self) -> None:
        """Let go of connections and threads; sandboxes stay as they are."""
        ...


class RunnerReply(NamedTuple):
    """The runner's answer to one request (see `agent_core.tools.spec.SandboxReply`)."""

    result: dict[str, Any]
    blob: bytes | None = None
