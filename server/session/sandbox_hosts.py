"""`SandboxHosts`: the machines that sandboxes run on, where there are several: swept, drained, lost and back."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent_core.runtime.sandbox import HasHosts, HostView, SandboxProvider
from agent_core.troubles import Trouble, coded
from server.metrics import ServerMetrics

logger = logging.getLogger(__name__)

DRAINED: Final = "drained-hosts.json"
"""In the data folder: which hosts are drained and which are not, where somebody has said so of a running server."""

_STATES: Final = ("up", "draining", "lost")


class SandboxHosts:
    """What a provider with several hosts says of them; none before `serve`, and with any other provider.

    `on_change` is told of a host that was lost, is back or is drained. `sweep` removes what former sandboxes have left
    on the host of this name.
    """

    def __init__(self, data_dir: Path, metrics: ServerMetrics, sweep: Callable[[str], Awaitable[None]]) -> None:
        self.on_change: Callable[[HostView], None] = lambda view: None
        self._file = data_dir / DRAINED
        self._sweep = sweep
        self._provider: HasHosts | None = None
        for name, read in _GAUGES.items():
            metrics.gauges(name, lambda read=read: read(self.views()))  # type: ignore[misc]

    def serve(self, provider: SandboxProvider) -> bool:
        """Whether this provider has hosts; they are drained, or not, as was said before the server's last end."""
        if not isinstance(provider, HasHosts):
            return False
        self._provider = provider
        for name, draining in self._kept().items():
            if name in {view.name for view in self.views()}:
                provider.drain(name, draining)
        return True

    def views(self) -> Sequence[HostView]:
        return self._provider.hosts() if self._provider is not None else ()

    @property
    def most(self) -> int | None:
        """How many sandboxes may be up on all of them; None: there are none. Nothing of a lost one counts as free."""
        views = self.views()
        return sum(one.max_sandboxes if one.status == "up" else one.sandboxes for one in views) if views else None

    def drain(self, name: str, draining: bool) -> HostView:
        """See `HasHosts.drain`; it is so after the server's next start, too. Raises `KeyError` and `OSError`."""
        provider, known = self._provider, {view.name for view in self.views()}
        if provider is None or name not in known:
            raise KeyError(name)
        kept = {one: said for one, said in self._kept().items() if one in known} | {name: draining}
        half = self._file.with_suffix(".new")
        half.write_text(json.dumps(kept))
        os.replace(half, self._file)
        provider.drain(name, draining)
        return next(view for view in self.views() if view.name == name)

    async def run(self) -> None:
        """Follow the hosts, until cancelled."""
        provider = self._provider
        while provider is not None:
            view = await provider.next_change()
            try:
                if view.status != "lost" and not view.is_swept:
                    await self._sweep(view.name)
                self.on_change(view)
            except Exception:
                logger.exception("the host %s could not be seen to", view.name, extra=coded(Trouble.UNEXPECTED))

    def _kept(self) -> dict[str, bool]:
        try:
            found = json.loads(self._file.read_text())
            return {str(name): bool(said) for name, said in found.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError) as error:
            text = "%s cannot be read (%s): hosts are drained as docker_hosts says"
            logger.warning(text, self._file, error, extra=coded(Trouble.OTHER))
            return {}


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
