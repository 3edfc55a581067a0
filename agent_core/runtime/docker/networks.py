"""The networks of Docker sandboxes: one for each instance and wish."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from agent_core.runtime.docker.border import DockerBorder
from agent_core.runtime.docker.engine import DockerEngine, EngineRefusedError, ignoring, unless_gone
from agent_core.runtime.naming import LABEL_INSTANCE, LABEL_ROLE, bridge_name, instance_name
from agent_core.runtime.network_border import BRIDGES
from agent_core.runtime.sandbox import SandboxSpec

_ROLE = "network"
_OLD_SECONDS = 600.0
GUARDED = ("internal", "full")
"""Wishes for a network from which the host is out of reach."""
_BRIDGE = {"com.docker.network.bridge.enable_icc": "false"}
_NAME = "com.docker.network.bridge.name"
# Without an address on the bridge there is no way back from the host either.
_NO_HOST = {"com.docker.network.bridge.inhibit_ipv4": "true"}


class DockerNetworks:
    """Bridges on which containers cannot reach one another, nor, unless that is wished, their host."""

    def __init__(self, engine: DockerEngine, border: DockerBorder) -> None:
        self._engine = engine
        self._border = border
        self._made: set[str] = set()
        self._making = asyncio.Lock()

    async def ensure(self, spec: SandboxSpec) -> str:
        """Name of the network that a spec wishes for; ``none`` is the engine's own."""
        if spec.network == "none":
            return "none"
        name = network_name(spec)
        async with self._making:
            if name not in self._made:
                await self._make(name, spec)
                self._made.add(name)
        if spec.network in GUARDED:
            await self._border.ensure(spec, name)
        return name

    def warning(self, spec: SandboxSpec) -> str:
        """What people are to know of the network that a spec gets; empty if nothing."""
        problem = self._border.problem if spec.network in GUARDED else ""
        if not problem:
            return ""
        return f"This sandbox can reach the host of its engine: {problem.rstrip('.')}. To find out more: drydock doctor"

    def forget(self) -> None:
        """Look anew next time, because somebody has removed a network."""
        self._made.clear()

    async def remove_unused(self, instance_id: str, *, all_of_instance: bool) -> None:
        """Remove networks of ours in which nothing runs: this instance's if wished, and old ones of any other.

        An engine has room for some thirty networks, which instances that nobody starts again would use up. A sandbox
        that is started again gets another network (`DockerObjects.connect`).
        """

        def sweep(client: Any) -> None:
            for network in client.networks(filters={"label": [f"{LABEL_ROLE}={_ROLE}"]}):
                own = (network.get("Labels") or {}).get(LABEL_INSTANCE) == instance_id
                if all_of_instance if own else _age(network["Created"]) > _OLD_SECONDS:
                    unless_gone(client.remove_network, network["Id"], also=(403,))  # 403: something runs in it

        await self._engine.call("remove unused networks", sweep)
        self.forget()

    async def _make(self, name: str, spec: SandboxSpec) -> None:
        try:
            await self._engine.call("look for the sandboxes' network", lambda client: client.inspect_network(name))
        except EngineRefusedError as error:
            if error.status != 404:
                raise
        else:
            return
        with ignoring(403, 409):  # another process was faster, and has the name or the device
            await self._engine.call(
                "create the sandboxes' network",
                lambda client: client.create_network(
                    name,
                    driver="bridge",
                    internal=spec.network == "internal",
                    check_duplicate=True,
                    options=_options(spec, name),
                    labels={LABEL_INSTANCE: spec.instance_id, LABEL_ROLE: _ROLE},
                ),
            )


def network_name(spec: SandboxSpec) -> str:
    """The network for a spec's wish; those of before there were borders had the wish's name alone."""
    wish = f"guarded-{spec.network}" if spec.network in GUARDED else spec.network
    return f"{instance_name(spec.instance_id)}-{wish}"


def _options(spec: SandboxSpec, name: str) -> dict[str, str]:
    device = {_NAME: bridge_name(BRIDGES, name)} if spec.network in GUARDED else {}
    return _BRIDGE | device | (_NO_HOST if spec.network == "internal" else {})


def _age(created: str) -> float:
    """Seconds since a time as the engine writes it; fractions of a second are left out."""
    return (datetime.now(UTC) - datetime.fromisoformat(created[:19]).replace(tzinfo=UTC)).total_seconds()
