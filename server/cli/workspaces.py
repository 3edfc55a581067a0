"""`SandboxWorkspaces`: the workspaces of a server's sandboxes, read beside it, whether it runs or not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from agent_core.errors import SandboxError
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.kubernetes.provider import KubernetesProvider
from agent_core.runtime.local.provider import LocalProvider
from agent_core.runtime.sandbox import Sandbox, SandboxLimits, SandboxProvider, SandboxSpec, SandboxStatus
from agent_core.runtime.workspace_archive import WritableFile
from server.db.data_folder import ID_FILE
from server.parts import make_part
from server.settings.docker_hosts import hosts_of
from server.settings.kubernetes import kubernetes_options
from server.settings.settings import MEGABYTE, Settings


class SandboxWorkspaces:
    """`Workspaces` of a data folder, of whichever providers; a context manager whose methods block.

    An engine that does not answer is asked once.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data_dir = str(settings.data_dir.absolute())
        most = settings.sandbox_disk_mb if settings.sandbox_disk_max_mb is None else settings.sandbox_disk_max_mb
        self._limits = SandboxLimits(disk=most * MEGABYTE)
        self._providers: dict[tuple[str, str], SandboxProvider] = {}
        self._broken: dict[tuple[str, str], SandboxError] = {}
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            for provider in self._providers.values():
                self._runner.run(provider.close())
        finally:
            self._runner.close()

    def write(self, conversation_id: str, sandbox: Mapping[str, str], file: WritableFile) -> list[str]:
        """See `Workspaces`."""
        place = _place(sandbox)
        if place in self._broken:
            raise self._broken[place]
        try:
            return self._runner.run(self._write(conversation_id, sandbox, file))
        except SandboxError as error:
            if error.code == "engine_unavailable":
                self._broken[place] = error
            raise

    def is_here(self, conversation_id: str, sandbox: Mapping[str, str]) -> bool:
        """Whether the sandbox is there, in whatever state; False where nobody can say."""
        try:
            return self._runner.run(self._poll(conversation_id, sandbox)) is not SandboxStatus.ABSENT
        except SandboxError:
            return False

    async def _write(self, conversation_id: str, sandbox: Mapping[str, str], file: WritableFile) -> list[str]:
        found = self._sandbox(conversation_id, sandbox)
        if not hasattr(found, "archive"):  # an operator's own provider of before
            raise SandboxError(f"The provider {found.provider} cannot read workspaces from outside.")
        return await found.archive(file)

    async def _poll(self, conversation_id: str, sandbox: Mapping[str, str]) -> SandboxStatus:
        return await self._sandbox(conversation_id, sandbox).poll()

    def _sandbox(self, conversation_id: str, sandbox: Mapping[str, str]) -> Sandbox:
        provider = self._provider(*_place(sandbox))
        spec = SandboxSpec(conversation_id, self._instance_id(), image="", data_dir=self._data_dir, limits=self._limits)
        return provider.restore(spec, sandbox)

    def _instance_id(self) -> str:
        with suppress(FileNotFoundError):  # nothing is restored yet
            return Path(self._data_dir, ID_FILE).read_text("ascii", errors="replace").strip()
        return ""

    def _provider(self, name: str, host: str) -> SandboxProvider:
        if (name, host) not in self._providers:
            own: SandboxProvider | None = make_part(self._settings, "sandbox_provider_class", self._settings)
            if own is not None and own.name == name:
                self._providers[name, host] = own
            elif name == "docker":
                self._providers[name, host] = self._docker(host)
            elif name == "kubernetes":
                self._providers[name, host] = KubernetesProvider(kubernetes_options(self._settings))
            elif name in ("local", "unconfined"):
                self._providers[name, host] = LocalProvider(self._data_dir, confined=name == "local")
            else:
                raise SandboxError(f"Its sandbox is one of {name or 'no provider'}, which is not there.")
        return self._providers[name, host]

    def _docker(self, name: str) -> DockerProvider:
        hosts = {host.name: host for host in hosts_of(self._settings.docker_hosts)}
        if not (name or hosts):
            return DockerProvider()
        # The first has the sandboxes that know of none, of when there was but one engine.
        if (host := hosts.get(name or next(iter(hosts)))) is None:
            raise SandboxError(f"Its sandbox is on the Docker host {name!r}, which docker_hosts does not name.")
        return DockerProvider.of_host(host)


def _place(sandbox: Mapping[str, str]) -> tuple[str, str]:
    """The provider, and of its hosts the one, that a sandbox is at."""
    return sandbox.get("provider", ""), sandbox.get("host", "")
