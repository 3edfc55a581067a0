"""The sandbox protocol, which all providers implement: a place for every conversation, behind one byte stream."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

from agent_core.runtime.workspace_archive import WritableFile

SandboxState = Mapping[str, str]
"""Strings from which another process can find the sandbox again; JSON."""

Progress = Callable[[str, str], None]
"""``(status id of docs/protocol.md, text for people)``; called while a sandbox starts."""


NetworkWish = Literal["none", "internal", "full", "host-access"]
"""``none``; ``internal``: without a way out, nor to other sandboxes; ``full``: the internet, but neither this host nor
what its cloud tells it (link-local and metadata addresses); ``host-access``: ``full``, and these too."""

SandboxWish = Literal["auto", "docker", "local", "kubernetes", "unconfined"]
"""Which provider is wished for; ``auto``: the best that works here."""

KeyState = Literal["unknown", "running", "done", "lost"]
"""What a sandbox knows of a keyed request; ``lost``: it is another sandbox by now."""

WITH_A_WAY_OUT: Final = ("full", "host-access")


_DISK_SLACK = 16 * 1024**2


class SandboxStatus(StrEnum):
    """What a sandbox is doing, as far as its provider can see."""

    ABSENT = "absent"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Bounds on what one sandbox may use; memory and sizes in bytes.

    `disk` and `inodes` count its files, but those in memory (0: any); `read_only` is about a container's root.
    """

    memory: int = 4 * 1024**3
    cpus: float = 2.0
    processes: int = 512
    tmp_size: int = 1024**3
    disk: int = 10 * 1024**3
    inodes: int = 1_000_000
    read_only: bool = True
    start_seconds: float = 60.0
    stop_seconds: float = 5.0

    @property
    def disk_bound(self) -> int:
        """`disk` and a little more, which can be tolerated for a moment in which what runs is ended; 0: anything."""
        return self.disk + self.disk // 20 + _DISK_SLACK if self.disk else 0


class ExtraDeps(NamedTuple):
    """Shell commands, run as root, that install in the image of sandboxes what they need; and their limit."""

    commands: str
    limit_seconds: float


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """Specification of a sandbox: whose it is, what it is made from, its bounds.

    Attributes:
        instance_id: the server's own stable id; every object made is labelled with it.
        extra_deps: what is to be installed in the image first, once for all sandboxes that want the same.
        environment: variables of every process in the sandbox.
        data_dir: folder on the host under which a provider may keep what it needs.
        workspace: for providers without images, an absolute folder of this host to work in, seen inside under its own
            path, as its owner; it is nobody's to remove. Empty for a workspace of the sandbox's own.
        ends_with_owner: the sandbox of processes, and `data_dir`, which was made for it alone, end with the process
            that starts it, however that one ends; a container ends when nobody has held it for ten minutes.
    """

    conversation_id: str
    instance_id: str
    image: str
    data_dir: str
    extra_deps: ExtraDeps | None = None
    network: NetworkWish = "full"
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


class DiskUsage(NamedTuple):
    """Bytes that are allocated on the disk, and how many files, folders and links; ``whole``: there are no more."""

    bytes: int
    entries: int
    whole: bool = True


class Sandbox(Protocol):
    """One conversation's sandbox. All methods are idempotent and bounded in time by the spec's limits."""

    spec: SandboxSpec

    @property
    def provider(self) -> str:
        """Name of the `SandboxProvider` that made it; ``none`` while nobody has found out which does."""

    @property
    def state(self) -> SandboxState:
        """From this `SandboxProvider.restore` finds the sandbox again, in another process too."""

    @property
    def working_dir(self) -> str:
        """Absolute path of the workspace as processes in the sandbox see it."""

    @property
    def survived(self) -> bool:
        """Whether the last `start` found it at work or frozen: only then its runner knows all requests so far."""

    async def start(self, progress: Progress) -> None:
        """Bring it to READY from whatever it is (absent, stopped, paused, running); keeps the workspace.

        Raises `SandboxError`, whose `code` names the cause (``engine_unavailable``, ``image_missing``, ``no_python``,
        ``no_isolation``, ``start_timeout``, ``disk_full`` …) and whose message the fix. Nothing is left half made then.
        """

    async def attach(self) -> Attachment:
        """Open the byte stream to its runner; the newest one wins. Raises `SandboxLostError` when it does not run."""

    async def poll(self) -> SandboxStatus: ...

    async def pause(self) -> None:
        """Freeze its processes, until `resume`."""

    async def resume(self) -> None: ...

    async def stop(self) -> None:
        """End its processes; the workspace stays."""

    async def destroy(self) -> None:
        """Remove it with its workspace and everything that was made for it."""

    async def snapshot(self) -> str:
        """Keep the present workspace; returns a name for it."""

    async def archive(self, file: WritableFile) -> list[str]:
        """Write a tar file of the workspace as it is, whatever the sandbox does; nothing is started, paused or changed.

        Returns the paths that are not in it. Each file is as it is when it is read. Raises `SandboxError` (``lost``:
        there is no workspace), and what `file` raises.
        """

    async def usage(self) -> DiskUsage | None:
        """What its files take on the disk, seen from outside (None: cannot be seen); cheap to ask."""


class SandboxProvider(Protocol):
    """A way of making sandboxes."""

    name: str

    async def check(self) -> Availability:
        """Whether sandboxes can be made here, found out by trying what is cheap to try; at most a few seconds."""

    async def lacks(self) -> Mapping[str, str]:
        """What nobody can choose of sandboxes made here, each with the reason, in words.

        The keys are ``image``, ``extra_deps``, ``network``, ``memory_mb``, ``cpus``, ``processes``, ``disk_mb`` and
        ``start_seconds``.
        """

    async def folders(self) -> Sequence[str]:
        """Folders of this host, beside those of the specs, in which it keeps what is written in sandboxes."""

    def create(self, spec: SandboxSpec) -> Sandbox:
        """A sandbox for this conversation; nothing is done before `start`."""

    def restore(self, spec: SandboxSpec, state: SandboxState) -> Sandbox:
        """The sandbox that another object's `state` described."""

    async def reap(self, instance_id: str, keep: Collection[str]) -> list[str]:
        """Destroy all objects labelled with this instance whose conversation is not in `keep`; returns those ids."""

    async def prepare(self, spec: SandboxSpec) -> None:
        """Do ahead of time what sandboxes wait for at their start; a failure is told there."""

    async def close(self) -> None:
        """Let go of connections, threads, and what no sandbox of its instances uses; sandboxes stay as they are."""


@runtime_checkable
class TellsRunning(Protocol):
    """What a provider has besides that finds with one question what is up of all conversations of an instance."""

    async def running(self, instance_id: str) -> Collection[str]:
        """The conversations whose sandboxes are up or paused, as far as can be told; it may be of more.

        Raises `SandboxError`.
        """


@runtime_checkable
class HasImages(Protocol):
    """What a provider has besides whose sandboxes are made from images."""

    async def image_id(self, image: str, state: SandboxState) -> str:
        """What the image of this name is at present where a sandbox of this `state` is, "" where it is not there.

        Also "" where that takes no new sandboxes. The name may get another image later.
        """


@runtime_checkable
class HasHosts(Protocol):
    """What a provider has besides that makes sandboxes on several machines, which come and go."""

    async def place(self, spec: SandboxSpec, waiting: Callable[[str], None]) -> Sandbox:
        """As `SandboxProvider.create`, on a host that is there and has room; `waiting` is told why there is none yet.

        Raises `SandboxError` where there is none for as long as a start may take.
        """

    async def next_change(self) -> HostView:
        """Wait until a host is another than before (lost, back, drained); who asks is the only one.

        One that is back and from which nothing was removed yet takes nothing new before its `sweep`.
        """

    async def sweep(self, host: str, instance_id: str, keep: Collection[str] | None) -> list[str]:
        """As `SandboxProvider.reap`, on this host alone (None: keep everything); it takes new ones then."""

    def hosts(self) -> Sequence[HostView]:
        """All hosts as they are known to be at this moment, in the order of the configuration."""

    def drain(self, host: str, draining: bool) -> None:
        """Have a host take nothing new, or take new ones again; what runs there goes on. `KeyError`: there is none."""


class HostView(NamedTuple):
    """One of the machines that sandboxes are made on, as it is known to be; memory in bytes, 0 where it is not known.

    Attributes:
        status: `up`; `draining`: it takes nothing new, and what runs there goes on; `lost`: it cannot be reached.
        reason: a sentence that says that it cannot be reached, and why; "" where it can.
        since: when it came to be so (`time.time`).
        memory_free: what is left of its memory for sandboxes to come; 0 while it is lost.
        sandboxes: how many run there, of whichever server; as last seen while it is lost.
        max_sandboxes: how many may, before new ones are made elsewhere.
        images: the names of those that it has.
        is_swept: what former sandboxes have left there was removed (`HasHosts.sweep`).
    """

    name: str
    url: str
    status: Literal["up", "draining", "lost"]
    reason: str
    since: float
    version: str
    processors: int
    memory: int
    memory_free: int
    sandboxes: int
    max_sandboxes: int
    images: tuple[str, ...]
    is_swept: bool


@runtime_checkable
class TellsItsEnd(Protocol):
    """What a sandbox has besides whose provider knows why it does not run any more."""

    ended: str
    """Why, in words, as the last `poll` found it; "" where it runs, was stopped, or nothing is known."""


class RunnerReply(NamedTuple):
    """The runner's answer to one request (see `agent_core.tools.spec.SandboxReply`)."""

    result: dict[str, Any]
    blob: bytes | None = None


LABEL_INSTANCE = "drydock.instance"
LABEL_CONVERSATION = "drydock.conversation"
LABEL_ROLE = "drydock.role"
LABEL_CREATION = "drydock.making"
LABEL_MADE_FROM = "drydock.made-from"
LABEL_CONFIGURED = "drydock.configured"
LABEL_PROGRAM = "drydock.program"

WORKSPACE = "/workspace"
RUNNER_ROOT = "/.drydock"
"""Inside a sandbox: ``runner/`` (code, read-only for its user), ``state/`` (socket and journal), ``home/``."""
STATE_DIR = f"{RUNNER_ROOT}/state"
SOCKET_NAME = "runner.sock"
SOCKET = f"{STATE_DIR}/{SOCKET_NAME}"
_READABLE = 24


def object_name(instance_id: str, conversation_id: str) -> str:
    """The one name of all objects of a conversation's sandbox: readable, the same each time, and no other pair's."""
    digest = hashlib.sha256(f"{instance_id}\0{conversation_id}".encode()).hexdigest()[:12]
    readable = re.sub(r"[^a-z0-9]+", "-", conversation_id.lower()).strip("-")[:_READABLE].strip("-")
    return f"drydock-{readable}-{digest}" if readable else f"drydock-{digest}"


def instance_name(instance_id: str) -> str:
    """The prefix of what all sandboxes of one instance use together (networks)."""
    digest = hashlib.sha256(instance_id.encode()).hexdigest()[:12]
    return f"drydock-{digest}"


def bridge_name(prefix: str, network: str) -> str:
    """Name of the host's device for a network of the engine; a device's name has 15 characters at most."""
    return prefix + hashlib.sha256(network.encode()).hexdigest()[: 15 - len(prefix)]
