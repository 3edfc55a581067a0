"""The networks of Docker sandboxes, and the border between them and their engine's host."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_core.errors import SandboxError
from agent_core.runtime import network_border
from agent_core.runtime.docker.engine import DockerEngine, EngineRefusedError, unless_gone
from agent_core.runtime.docker.objects import Quota, sandbox_config
from agent_core.runtime.network_border import BRIDGES
from agent_core.runtime.sandbox import LABEL_INSTANCE, LABEL_ROLE, Availability, SandboxSpec, bridge_name, instance_name

_BORDER_ROLE = "border"

_SET_SECONDS = 20.0
_AGAIN_SECONDS = 600.0
_WORDS = 300
_UNKNOWN = -1


class DockerBorder:
    """The rules on the engine's host, set by a container before the first sandbox that needs them, and again later.

    Where the engine lets us make no such container (behind Compose's proxy, where a service sets them), it is tried out
    from a sandbox's place whether they are there. `problem` says, for people, why they are not; empty when they are.
    """

    def __init__(self, engine: DockerEngine) -> None:
        self.problem = ""
        self._engine = engine
        self._setting = asyncio.Lock()
        self._due = 0.0
        self._again: asyncio.Task[None] | None = None

    async def ensure(self, spec: SandboxSpec, network: str = "") -> bool:
        """Set or try out (in `network`) the rules; what goes wrong is in `problem`, and is tried again later.

        Returns whether it is known by now if they are there.
        """
        if self._due == 0.0:
            async with self._setting:
                if self._due == 0.0:
                    await self._set(spec, network)
        elif time.monotonic() > self._due and (self._again is None or self._again.done()):
            self._again = asyncio.create_task(self._set(spec, network), name="docker-border")
        return self._due > 0.0

    async def close(self) -> None:
        if self._again is not None:
            self._again.cancel()
            await asyncio.wait({self._again})

    async def _set(self, spec: SandboxSpec, network: str) -> None:
        set_it = "set the border of the sandboxes"
        status, problem = await self._tried(set_it, lambda client: _run(client, spec))
        again = status not in (_UNKNOWN, 403, 404)  # 404: to be pulled yet
        if status == 403 and network:

            def look(client: Any) -> str:
                found = probe(client, spec, network)
                return "" if found.ok else found.reason

            status, problem = await self._tried("try the sandboxes' network", look)
            again = status not in (_UNKNOWN, 404)
        self.problem = problem
        self._due = time.monotonic() + _AGAIN_SECONDS if again else 0.0

    async def _tried(self, what: str, work: Callable[[Any], str]) -> tuple[int, str]:
        """The engine's status, and what the problem is, or an empty string."""
        try:
            return 200, await self._engine.call(what, work, limit=_SET_SECONDS)
        except EngineRefusedError as error:
            return error.status, error.explanation.strip()
        except SandboxError as error:
            return _UNKNOWN, str(error)


def border_program() -> str:
    """The source of the program that sets the border."""
    return Path(network_border.__file__).read_text("utf-8")


def border_config(spec: SandboxSpec) -> dict[str, Any]:
    """A container with no right but to set the rules of the network of the engine's host."""
    return {
        "Image": spec.image,
        "User": "0:0",
        "Entrypoint": ["python3", "-I", "-S", "-c", border_program()],
        "Cmd": [],
        "WorkingDir": "/",
        "Labels": {LABEL_INSTANCE: spec.instance_id, LABEL_ROLE: _BORDER_ROLE},
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "CapDrop": ["ALL"],
            "CapAdd": ["NET_ADMIN"],
            "SecurityOpt": ["no-new-privileges"],
            "NetworkMode": "host",
            "UsernsMode": "host",
            "IpcMode": "private",
            "ReadonlyRootfs": True,
            "Memory": 128 * 1024**2,
            "PidsLimit": 16,
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
            "RestartPolicy": {"Name": "no"},
        },
    }


def _run(client: Any, spec: SandboxSpec) -> str:
    # A killed server's own go when it starts anew; those of a program, or of a server that never does, here.
    over = {"label": [f"{LABEL_ROLE}={_BORDER_ROLE}"], "status": ["created", "exited"]}
    for left in client.containers(all=True, filters=over):
        if time.time() - left["Created"] > _OLD_SECONDS:
            unless_gone(client.remove_container, left["Id"], force=True)
    status, words = _outcome(client, border_config(spec), f"drydock-border-{secrets.token_hex(4)}")
    return "" if status == 0 else words.rpartition("\n")[2][-_WORDS:] or "the container for it failed"


def _outcome(client: Any, config: dict[str, Any], name: str) -> tuple[int, str]:
    client.create_container_from_config(config, name)
    try:
        client.start(name)
        status = client.wait(name, timeout=_SET_SECONDS)["StatusCode"]
        return status, str(client.logs(name, tail=5), "utf-8", "replace").strip()
    finally:
        unless_gone(client.remove_container, name, v=True, force=True)


_PROBE = """
import socket, struct
rows = [line.split() for line in open("/proc/net/route")][1:]
for gateway in {socket.inet_ntoa(struct.pack("=I", int(row[2], 16))) for row in rows if row[1] == "00000000"}:
    try:
        socket.create_connection((gateway, 1), 2).close()
    except ConnectionRefusedError:
        print(gateway)
    except OSError:
        pass
    else:
        print(gateway)
"""


def probe(client: Any, spec: SandboxSpec, network: str) -> Availability:
    """Try to reach the host from a container in this network (in a thread)."""
    config = sandbox_config(spec, "", network, "", Quota())
    config["Entrypoint"], config["Cmd"] = ["python3", "-E", "-s", "-S", "-c", _PROBE], []
    config["WorkingDir"], config["HostConfig"]["Mounts"] = "/", []
    status, words = _outcome(client, config, f"{network}-try-{secrets.token_hex(4)}")
    if status != 0:
        return Availability(False, f"a container to try it with failed: {words[-_WORDS:]}")
    if words:
        return Availability(False, f"sandboxes can reach the host of the engine at {words}, though the rules are set")
    return Availability(True, "leads out, but not to the engine's host nor to link-local and metadata addresses")


def beyond_the_border(info: Mapping[str, Any]) -> Availability | None:
    """What the rules cannot cover, because the engine has a network of its own between it and the computer."""
    if any("rootless" in str(option) for option in info.get("SecurityOptions") or ()):
        return Availability(
            False,
            "the engine is a rootless one: sandboxes are kept off its own network and the cloud's addresses, but the "
            "addresses of this host are as far away as any others, and can be reached.",
            "Use an engine of root's where that matters.",
        )
    if "Desktop" in str(info.get("OperatingSystem")):
        return Availability(
            False,
            "the engine runs in a virtual machine: sandboxes are kept off that, but the addresses of this computer "
            "can be reached.",
            "Use an engine on Linux where that matters.",
        )
    return None


_ROLE = "network"
_OLD_SECONDS = 600.0
_CLOSE_SECONDS = 5.0
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
        self._instances: set[str] = set()
        self._creating = asyncio.Lock()
        self._is_closed = False

    async def ensure(self, spec: SandboxSpec) -> str:
        """Name of the network that a spec wishes for; ``none`` is the engine's own. Raises `SandboxError`."""
        if spec.network == "none":
            return "none"
        # Those of before there were borders had the wish's name alone.
        wish = f"guarded-{spec.network}" if spec.network in GUARDED else spec.network
        name = f"{instance_name(spec.instance_id)}-{wish}"
        self._instances.add(spec.instance_id)
        async with self._creating:
            if self._is_closed:
                raise SandboxError("No sandbox is started any more: the server ends.", code="start_failed")
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
        self._made.clear()

    def serve(self, instance_id: str) -> None:
        """What this instance has and nothing runs in is removed in the end, too."""
        self._instances.add(instance_id)

    async def remove_unused(self, instance_id: str, *, all_of_instance: bool) -> None:
        """Remove our networks in which nothing runs: this instance's if wished, and old ones of any other.

        An engine has room for some thirty. A sandbox that starts again gets another one (`DockerObjects.connect`).
        """
        self._instances.add(instance_id)

        def is_unused(network: Mapping[str, Any]) -> bool:
            own = _instance_of(network) == instance_id
            return all_of_instance if own else age(network["Created"]) > _OLD_SECONDS

        await self._remove(is_unused)

    async def close(self) -> None:
        """Remove what its instances have and nothing runs in; what cannot be removed is left to the next start.

        None is made any more, and what the engine is still at, and nobody waits for, is awaited first: it may make one.
        """
        self._is_closed = True
        if self._instances:
            loop = asyncio.get_running_loop()
            last = loop.time() + _CLOSE_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout_at(last):
                    async with self._creating:
                        pass
            await self._engine.settled(last - loop.time())
            with suppress(SandboxError):
                await self._remove(
                    lambda network: _instance_of(network) in self._instances, limit=max(1.0, last - loop.time())
                )

    async def _remove(self, wanted: Callable[[Mapping[str, Any]], bool], limit: float | None = None) -> None:
        def sweep(client: Any) -> None:
            for network in client.networks(filters={"label": [f"{LABEL_ROLE}={_ROLE}"]}):
                if wanted(network):
                    unless_gone(client.remove_network, network["Id"], also=(403,))  # 403: something runs in it

        await self._engine.call("remove unused networks", sweep, limit=limit)
        self.forget()

    async def _make(self, name: str, spec: SandboxSpec) -> None:
        look = "look for the sandboxes' network"
        if await self._engine.call_unless(look, lambda client: client.inspect_network(name), 404) is not None:
            return
        device = {_NAME: bridge_name(BRIDGES, name)} if spec.network in GUARDED else {}
        options = _BRIDGE | device | (_NO_HOST if spec.network == "internal" else {})

        def create(client: Any) -> None:
            client.create_network(
                name,
                driver="bridge",
                internal=spec.network == "internal",
                check_duplicate=True,
                options=options,
                labels={LABEL_INSTANCE: spec.instance_id, LABEL_ROLE: _ROLE},
            )

        try:  # 403, 409: another process was faster, and has the name or the device
            await self._engine.call_unless("create the sandboxes' network", create, 403, 409)
        except EngineRefusedError as error:
            if "address pool" not in error.explanation:
                raise
            raise SandboxError(
                f"The Docker engine has no addresses left for the sandboxes' network ({error.explanation.strip()}).",
                code="no_addresses",
                fix="Remove networks that nobody uses (docker network prune), or give the engine more addresses"
                " (default-address-pools in its daemon.json). The next message tries again.",
            ) from error


def _instance_of(network: Mapping[str, Any]) -> str:
    return str((network.get("Labels") or {}).get(LABEL_INSTANCE, ""))


def age(created: str) -> float:
    """Seconds since a time in the engine's words."""
    return (datetime.now(UTC) - datetime.fromisoformat(created[:19]).replace(tzinfo=UTC)).total_seconds()
