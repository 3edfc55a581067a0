"""`SandboxHosts`: the machines that sandboxes run on, where there are several: swept, drained, lost and back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from agent_core.runtime.sandbox import HasHosts, HostView, SandboxProvider
from agent_core.troubles import Trouble, coded
from server.db.errors import DatabaseError
from server.db.repositories.drained_hosts import DrainedHosts
from server.metrics import ServerMetrics

logger = logging.getLogger(__name__)

ASK_SECONDS: Final = 5.0
"""How often it is looked what other servers were told of draining."""

_STATES: Final = ("up", "draining", "lost")


class SandboxHosts:
    """What a provider with several hosts says of them; none before `serve`, and with any other provider.

    `on_change` is told of a host that was lost, is back or is drained. `sweep` removes what former sandboxes have left
    on the host of this name.
    """

    def __init__(
        self, drained: DrainedHosts | None, metrics: ServerMetrics, sweep: Callable[[str], Awaitable[None]]
    ) -> None:
        self.on_change: Callable[[HostView], None] = lambda view: None
        self._drained = drained
        self._sweep = sweep
        self._provider: HasHosts | None = None
        for name, read in _GAUGES.items():
            metrics.gauges(name, lambda read=read: read(self.views()))  # type: ignore[misc]

    async def serve(self, provider: SandboxProvider) -> bool:
        """Whether this provider has hosts; they are drained, or not, as this or another server was told last."""
        if not isinstance(provider, HasHosts):
            return False
        await self._drain_as_said(provider)
        self._provider = provider
        return True

    def views(self) -> Sequence[HostView]:
        return self._provider.hosts() if self._provider is not None else ()

    @property
    def most(self) -> int | None:
        """How many sandboxes may be up on all of them; None: there are none. Nothing of a lost one counts as free."""
        views = self.views()
        return most_on(views) if views else None

    async def drain(self, name: str, draining: bool) -> HostView:
        """See `HasHosts.drain`; it is so after the next start, too, and at all servers within `ASK_SECONDS`.

        Raises `KeyError` and `DatabaseError`.
        """
        provider, known = self._provider, {view.name for view in self.views()}
        if provider is None or name not in known:
            raise KeyError(name)
        if self._drained is not None:
            await self._drained.say(name, draining)
        provider.drain(name, draining)
        return next(view for view in self.views() if view.name == name)

    async def run(self) -> None:
        """Follow the hosts, and what other servers were told of them, until cancelled."""
        provider = self._provider
        while provider is not None:
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    view = await provider.next_change()
            except TimeoutError:
                await self._drain_as_said(provider)
                continue
            try:
                if view.status != "lost" and not view.is_swept:
                    await self._sweep(view.name)
                self.on_change(view)
            except Exception:
                logger.exception("the host %s could not be seen to", view.name, extra=coded(Trouble.UNEXPECTED))

    async def _drain_as_said(self, provider: HasHosts) -> None:
        if self._drained is None:
            return
        try:
            said = await self._drained.all()
        except DatabaseError as error:  # of which others speak
            logger.debug("which hosts are drained cannot be read: %s", error)
            return
        for view in provider.hosts():
            if view.name in said:
                provider.drain(view.name, said[view.name])


def most_on(views: Sequence[HostView]) -> int:
    """How many sandboxes may be up on these hosts together; nothing of a lost or drained one counts as free."""
    return sum(one.max_sandboxes if one.status == "up" else one.sandboxes for one in views)


def _each(read: Callable[[HostView], float]) -> Callable[[Sequence[HostView]], Mapping[tuple[str, ...], float]]:
    return lambda views: {(view.name,): read(view) for view in views}


def _states(views: Sequence[HostView]) -> Mapping[tuple[str, ...], float]:
    return {(view.name, state): float(view.status == state) for view in views for state in _STATES}


_GAUGES: Final[Mapping[str, Callable[[Sequence[HostView]], Mapping[tuple[str, ...], float]]]] = {
    "drydock_docker_host_status": _states,
    "drydock_docker_host_sandboxes": _each(lambda view: view.sandboxes),
    "drydock_docker_host_max_sandboxes": _each(lambda view: view.max_sandboxes),
    "drydock_docker_host_memory_bytes": _each(lambda view: view.memory),
    "drydock_docker_host_memory_free_bytes": _each(lambda view: view.memory_free),
}
