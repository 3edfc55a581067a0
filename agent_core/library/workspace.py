"""Workspaces of conversations: a folder of this host, a Docker container, or any sandbox."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args
from uuid import uuid4

from agent_core.errors import SandboxError
from agent_core.runtime.docker.images import BROWSER_IMAGE, DEFAULT_IMAGE
from agent_core.runtime.docker.owner_guard import OwnerGuard
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.local.folder import remove_tree
from agent_core.runtime.local.launch_order import host_has_browser
from agent_core.runtime.local.provider import LocalProvider
from agent_core.runtime.sandbox import WORKSPACE, NetworkWish, Sandbox, SandboxProvider, SandboxSpec
from agent_core.runtime.standalone import folder_spec, require_isolation
from agent_core.spelling import did_you_mean, spelled
from agent_core.tools.browser import BROWSER

DEFAULT_URL = "http://127.0.0.1:3000"
IN_DOCKER = "docker:"
"""What a text begins with that names an image; a folder of such a name is written as ``./docker:…``."""


@dataclass(slots=True)
class OpenWorkspace:
    """A sandbox, and what was made for it and ends with it."""

    sandbox: Sandbox
    provider: SandboxProvider | None = None
    scratch: str = ""
    guard: OwnerGuard | None = None

    async def close(self) -> None:
        if self.provider is not None:
            try:
                await self.sandbox.destroy()
            finally:
                await self.provider.close()
        if self.guard is not None:  # what could not be removed it tries again, at the program's end
            self.guard.close()
        if self.scratch:
            remove_tree(Path(self.scratch))


class Workspace(ABC):
    """A place to work in; nothing is done before a conversation runs."""

    def for_fork(self, conversation_id: str) -> Workspace:
        """The place of a fork of this conversation; raises `ValueError` where only the program can say it."""
        raise ValueError(f"workspace: say where fork {conversation_id} works; only one conversation can be in this one")

    @property
    @abstractmethod
    def working_dir(self) -> str:
        """Absolute path of the folder, as commands see it."""

    @property
    def missing_parts(self) -> dict[str, str]:
        """The parts it lacks of those that tools need (`ToolDefinition.needs`), each with the way to get it."""
        return {}


class SandboxWorkspace(Workspace):
    """A place whose sandbox the program has for itself."""

    @abstractmethod
    async def open(self, conversation_id: str, instance_id: str, data_dir: str) -> OpenWorkspace:
        """The sandbox for it, which may keep things in `data_dir`; raises `SandboxError`, or `ValueError`."""

    async def opened_for(self, conversation_id: str, data_dir: str) -> OpenWorkspace:
        """`open` for an instance that `data_dir` stands for, or, where it is empty, for one of its own."""
        return await self.open(conversation_id, data_dir or uuid4().hex, data_dir)


@spelled
@dataclass(frozen=True, init=False)
class LocalWorkspace(SandboxWorkspace):
    """A folder of this host, made where it is missing; commands see it under its own path and nothing beside it.

    `confined` False runs commands as this user with all that it may do: only by explicit wish. `network` is ``none``,
    ``full`` or ``host-access`` (`NetworkWish`). `working_dir` is another name of `folder`.
    """

    folder: str | Path
    confined: bool
    network: NetworkWish

    def __init__(
        self,
        folder: str | Path | None = None,
        confined: bool = True,
        network: NetworkWish = "full",
        *,
        working_dir: str | Path | None = None,
    ) -> None:
        place = working_dir if folder is None else folder
        if place is None:
            raise TypeError("folder is missing: give the path of a folder of this host")
        _check_network(network)
        object.__setattr__(self, "folder", place)
        object.__setattr__(self, "confined", confined)
        object.__setattr__(self, "network", network)

    def for_fork(self, conversation_id: str) -> Workspace:
        return replace(self, folder=f"{self.working_dir}-{conversation_id[:8]}")

    @property
    def working_dir(self) -> str:
        return str(Path(self.folder).expanduser().resolve())

    @property
    def missing_parts(self) -> dict[str, str]:
        fix = "install Chromium on this computer, and beside the program its library (pip install 'playwright>=1.65')"
        return {} if host_has_browser() else {BROWSER: f"{fix}; or work in DockerWorkspace(image={BROWSER_IMAGE!r})"}

    async def open(self, conversation_id: str, instance_id: str, data_dir: str) -> OpenWorkspace:
        if self.confined:
            require_isolation()
        scratch = "" if data_dir else tempfile.mkdtemp(prefix="drydock-")
        spec = folder_spec(
            self.working_dir,
            conversation_id=conversation_id,
            instance_id=instance_id,
            data_dir=data_dir or scratch,
            ends_with_owner=bool(scratch),
            network=self.network,
        )
        provider = LocalProvider(spec.data_dir, confined=self.confined)
        return OpenWorkspace(provider.create(spec), provider, scratch)


@spelled
@dataclass(frozen=True)
class DockerWorkspace(SandboxWorkspace):
    """A container of its own, with a workspace that ends with the conversation.

    `image` has Python 3.8 or newer; `network` is a `NetworkWish`; `host` is the engine's address, None the usual one.
    """

    image: str = DEFAULT_IMAGE
    network: NetworkWish = "full"
    host: str | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_network(self.network)

    def for_fork(self, conversation_id: str) -> Workspace:
        return self

    @property
    def working_dir(self) -> str:
        return WORKSPACE

    @property
    def missing_parts(self) -> dict[str, str]:
        fix = f"{self.image} has none; make an image that has (drydock image browser), and give image={BROWSER_IMAGE!r}"
        return {BROWSER: fix} if self.image == DEFAULT_IMAGE else {}

    async def open(self, conversation_id: str, instance_id: str, data_dir: str) -> OpenWorkspace:
        provider = DockerProvider(self.host)
        engine = await provider.check()
        if not engine.ok:
            await provider.close()
            raise SandboxError(f"{engine.reason.rstrip('.')}.", code="engine_unavailable", fix=engine.fix)
        spec = SandboxSpec(
            conversation_id=conversation_id,
            instance_id=instance_id,
            image=self.image,
            data_dir=data_dir,
            network=self.network,
            environment=self.environment,
            ends_with_owner=not data_dir,
        )
        with suppress(SandboxError):
            await provider.remove_abandoned()
        guard = None if data_dir else OwnerGuard(instance_id, self.host)
        return OpenWorkspace(provider.create(spec), provider, guard=guard)


def _check_network(network: object) -> None:
    if network not in (known := get_args(NetworkWish)):
        raise ValueError(f"network is {network!r}: {did_you_mean(str(network), known)}")


@spelled
@dataclass(frozen=True)
class RemoteWorkspace(Workspace):
    """A workspace of its own in a sandbox of a Drydock server, which runs the agent, too.

    `url` is the address that the server prints when it starts, `api_key` its access token. The server may be away for
    `reconnect_seconds` before a run fails; `timeout` is in seconds, for one request; `ca_file` holds the certificates
    of whom to trust in place of the usual authorities.
    """

    url: str = DEFAULT_URL
    api_key: str | None = field(default=None, repr=False)
    reconnect_seconds: float = 120.0
    timeout: float = 30.0
    ca_file: str | None = None

    def for_fork(self, conversation_id: str) -> Workspace:
        return self

    @property
    def working_dir(self) -> str:
        return WORKSPACE


@dataclass(frozen=True)
class ExistingSandbox(SandboxWorkspace):
    """A sandbox that its caller made and will end."""

    sandbox: Sandbox

    @property
    def working_dir(self) -> str:
        return self.sandbox.working_dir

    async def open(self, conversation_id: str, instance_id: str, data_dir: str) -> OpenWorkspace:
        return OpenWorkspace(self.sandbox)


def workspace_of(source: str | Path | Workspace | Sandbox) -> SandboxWorkspace | RemoteWorkspace:
    """The workspace for a path, ``docker:IMAGE``, a server's address (its key: ``DRYDOCK_API_KEY``) or a sandbox.

    Else `TypeError`.
    """
    if isinstance(source, SandboxWorkspace | RemoteWorkspace):
        return source
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        return RemoteWorkspace(source, os.environ.get("DRYDOCK_API_KEY"), ca_file=os.environ.get("DRYDOCK_CA_FILE"))
    if isinstance(source, str) and source.startswith(IN_DOCKER):
        return DockerWorkspace(source.removeprefix(IN_DOCKER) or DEFAULT_IMAGE)
    if isinstance(source, str | Path):
        return LocalWorkspace(source)
    if isinstance(source, Workspace) or not hasattr(source, "working_dir"):
        kind = type(source).__name__
        raise TypeError(f"workspace is a {kind}: give the path of a folder, a workspace or a sandbox")
    return ExistingSandbox(source)


def share_files(one: Workspace, other: Workspace) -> bool:
    """Whether both workspaces have the same files."""
    local = isinstance(one, LocalWorkspace) and isinstance(other, LocalWorkspace)
    return one.working_dir == other.working_dir if local else isinstance(one, ExistingSandbox) and one == other
