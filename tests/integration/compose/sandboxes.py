"""Sandboxes that the servers of compose projects have made."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from agent_core.runtime.docker.engine import connect
from tests.integration.compose.conftest import SOCKET


class Sandboxes:
    """The sandboxes of the project's conversations, seen from the host."""

    def __init__(self) -> None:
        self._instances: set[str] = set()

    def belong_to(self, server: str) -> None:
        """Learn whose sandboxes these are from the running server in this container."""
        with _engine() as engine:
            made = engine.exec_create(server, ["cat", "/data/instance-id"])
            self.belong_to_instance(engine.exec_start(made["Id"]).decode().strip())

    def belong_to_instance(self, name: str) -> None:
        """Learn whose sandboxes these are by the name that their labels have."""
        self._instances.add(name)

    def of(self, conversation_id: str) -> list[dict[str, Any]]:
        """Containers of a conversation."""
        filters = {"label": [f"drydock.conversation={conversation_id}"]}
        with _engine() as engine:
            found: list[dict[str, Any]] = engine.containers(all=True, filters=filters)
        return found

    def remove_all(self) -> None:
        """Remove whatever the project's server has made."""
        with _engine() as engine:
            for instance in self._instances:
                filters = {"label": [f"drydock.instance={instance}"]}
                for container in engine.containers(all=True, filters=filters):
                    engine.remove_container(container["Id"], force=True, v=True)
                for volume in engine.volumes(filters=filters)["Volumes"] or ():
                    engine.remove_volume(volume["Name"], force=True)
                for network in engine.networks(filters=filters):
                    engine.remove_network(network["Id"])


def _engine() -> Any:
    return closing(connect(f"unix://{SOCKET}", 60)[0])
