"""Selection of a sandbox provider: the configured one, or the best that works here, with the reason in words."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_core.errors import SandboxError
from agent_core.runtime.docker.docker_host import DockerHost
from agent_core.runtime.docker.hosts import DockerHosts
from agent_core.runtime.docker.images import DEFAULT_IMAGE
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.kubernetes.options import KubernetesOptions
from agent_core.runtime.local.provider import LocalProvider
from agent_core.runtime.sandbox import Availability, SandboxLimits, SandboxProvider, SandboxWish

if TYPE_CHECKING:
    from agent_core.runtime.kubernetes.provider import KubernetesProvider

_KUBERNETES: Final = "agent_core.runtime.kubernetes.provider"
"""Its modules are loaded where somebody asks for it, which few do."""


class ProviderChoice(NamedTuple):
    """A provider that works here, and why it is this one (one sentence for people)."""

    provider: SandboxProvider
    reason: str


async def choose_provider(
    wish: SandboxWish,
    *,
    data_dir: str,
    image: str = DEFAULT_IMAGE,
    docker_host: str | None = None,
    docker_hosts: Sequence[DockerHost] = (),
    start_seconds: float = SandboxLimits().start_seconds,
    kubernetes: KubernetesOptions | None = None,
) -> ProviderChoice:
    """Find the provider to use; on a busy machine at most `start_seconds` and what the engine takes.

    ``auto`` takes Docker where an engine answers and `image` is there or can be pulled, otherwise ``local``.
    ``kubernetes`` and ``unconfined`` are never chosen unless asked for. `docker_hosts` are taken for ``auto`` and
    ``docker``, whether they can be reached or not, in place of the one engine. Raises `SandboxError`: ``no_sandbox``
    (auto), ``engine_unavailable``, ``image_missing`` or ``no_isolation``.
    """
    if docker_hosts and wish in ("auto", "docker"):
        hosts = DockerHosts(docker_hosts)
        return ProviderChoice(hosts, f"docker: {(await hosts.check()).reason}")
    if wish == "docker":
        return await _docker(image, docker_host)
    if wish == "local":
        return await _local(data_dir, start_seconds)
    if wish == "kubernetes":
        return await _kubernetes(image, kubernetes)
    if wish == "unconfined":
        provider = LocalProvider(data_dir, confined=False)
        return ProviderChoice(provider, f"unconfined: {(await provider.check()).reason}")
    try:
        return await _docker(image, docker_host)
    except SandboxError as no_docker:
        try:
            chosen = await _local(data_dir, start_seconds)
        except SandboxError as no_local:
            raise SandboxError(
                f"No sandbox can be had here. Docker: {no_docker} Local: {no_local}",
                code="no_sandbox",
                fix="Mend one of them, or accept the risk in so many words: --sandbox unconfined.",
            ) from no_local
        return ProviderChoice(chosen.provider, f"{chosen.reason}. Not Docker: {no_docker}")


async def _docker(image: str, host: str | None) -> ProviderChoice:
    provider = DockerProvider(host)
    engine = await _working(provider, provider.check(), "engine_unavailable")
    present = await _working(provider, provider.check_image(image), "image_missing")
    return ProviderChoice(provider, f"docker: {engine}, and {present}")


async def _local(data_dir: str, start_seconds: float) -> ProviderChoice:
    provider = LocalProvider(data_dir, start_seconds=start_seconds)
    return ProviderChoice(provider, f"local: {await _working(provider, provider.check(), 'no_isolation')}")


async def _kubernetes(image: str, options: KubernetesOptions | None) -> ProviderChoice:
    provider: KubernetesProvider = import_module(_KUBERNETES).KubernetesProvider(options)
    cluster = await _working(provider, provider.check(), "engine_unavailable")
    known = await provider.check_image(image)
    return ProviderChoice(provider, f"kubernetes: {cluster}, and {known.reason}. {known.fix}".strip())


async def _working(provider: SandboxProvider, check: Awaitable[Availability], code: str) -> str:
    found = await check
    if found.ok:
        return found.reason
    await provider.close()
    reason = found.reason.rstrip(".")
    raise SandboxError(f"{reason[:1].upper()}{reason[1:]}.", code=code, fix=found.fix)
