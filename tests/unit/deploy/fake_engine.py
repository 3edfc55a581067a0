"""A Docker engine as far as the proxy before it can tell: things with labels, and bytes for everything else."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK"
INSTANCE = "0123456789abcdef"
OURS = {"drydock.instance": INSTANCE}

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter, "FakeEngine"], Awaitable[None]]


class FakeEngine:
    """Listens at a socket file; its clients' calls reach `behaviour`, the proxy's own questions are answered.

    `received` holds the bytes of each connection of a client, `asked` the method and target of each question.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.received: list[bytearray] = []
        self.asked: list[str] = []
        self.behaviour: Behaviour = answer_ok
        self.before_answer: Callable[[str], None] = lambda _asked: None
        self.containers: dict[str, dict[str, Any]] = {}
        self.networks: dict[str, dict[str, Any]] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        self.execs: dict[str, dict[str, Any]] = {}
        self.images: dict[str, dict[str, Any]] = {}

    def add_container(self, name: str, labels: dict[str, str], network: str = "none") -> str:
        """A container; its id."""
        made = secrets.token_hex(32)
        self.containers[name] = {
            "Id": made,
            "Name": f"/{name}",
            "Config": {"Labels": labels},
            "HostConfig": {"NetworkMode": network, "CapDrop": ["ALL"], "IpcMode": "private", "Binds": None},
            "Mounts": [],
            "NetworkSettings": {"Networks": {network: {}}},
        }
        return made

    def add_network(self, name: str, labels: dict[str, str]) -> str:
        """A network; its id."""
        made = secrets.token_hex(32)
        self.networks[name] = {"Id": made, "Name": name, "Labels": labels}
        return made

    def add_volume(self, name: str, labels: dict[str, str] | None) -> None:
        """A volume."""
        self.volumes[name] = {"Name": name, "Labels": labels}

    def add_exec(self, container: str, *, privileged: bool = False) -> str:
        """An exec in a container, given by its id; its id."""
        made = secrets.token_hex(32)
        self.execs[made] = {"ID": made, "ContainerID": container, "ProcessConfig": {"privileged": privileged}}
        return made

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line = head.split(b"\r\n", 1)[0].decode()
        if line.endswith("HTTP/1.1"):
            self.received.append(bytearray(head))
            await self.behaviour(reader, writer, self)
            return
        method, target, _ = line.split(" ")
        length = next((int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.startswith(b"Content-Length")), 0)
        body = json.loads(await reader.readexactly(length)) if length else {}
        self.asked.append(f"{method} {target}")
        self.before_answer(f"{method} {target}")
        status, answered = self._answer(method, target, body)
        writer.write(f"HTTP/1.0 {status} X\r\n\r\n".encode() + json.dumps(answered).encode())

    def _answer(self, method: str, target: str, body: dict[str, Any]) -> tuple[int, object]:
        path = urlsplit(target).path.removeprefix("/v1.41")
        match [method, *path.strip("/").split("/")]:
            case ["POST", "containers", "create"]:
                (name,) = parse_qs(urlsplit(target).query)["name"]
                for mount in body["HostConfig"].get("Mounts", []):
                    if mount["Source"] not in self.volumes:
                        self.add_volume(mount["Source"], mount["VolumeOptions"]["Labels"])
                made = self.add_container(name, body["Labels"], body["HostConfig"]["NetworkMode"])
                self.containers[name]["body"] = body
                return 201, {"Id": made, "Warnings": []}
            case ["POST", "volumes", "create"]:
                return 201, self.volumes.setdefault(body["Name"], {"Name": body["Name"], "Labels": body["Labels"]})
            case ["POST", "networks", "create"]:
                made = self.add_network(body["Name"], body["Labels"])
                self.networks[body["Name"]]["body"] = body
                return 201, {"Id": made, "Warning": ""}
            case ["DELETE", "containers", reference]:
                self.containers = {n: c for n, c in self.containers.items() if reference not in (n, c["Id"])}
                return 204, None
            case ["GET", "containers", "json"]:
                return 200, [{"Id": c["Id"], "Labels": c["Config"]["Labels"]} for c in self.containers.values()]
            case ["GET", "networks"]:
                return 200, list(self.networks.values())
            case ["GET", "volumes"]:
                return 200, {"Volumes": list(self.volumes.values()), "Warnings": ["disk"]}
            case ["GET", "containers", reference, "json"]:
                return _one(self.containers, reference)
            case ["GET", "networks", reference]:
                return _one(self.networks, reference)
            case ["GET", "volumes", reference]:
                return _one(self.volumes, reference)
            case ["GET", "exec", reference, "json"]:
                return _one(self.execs, reference)
            case ["GET", "images", *reference, "json"]:
                return _one(self.images, "/".join(reference))
        return 501, {"message": f"not known to this engine: {method} {target}"}


def _one(things: dict[str, dict[str, Any]], reference: str) -> tuple[int, object]:
    for name, thing in things.items():
        if reference == name or str(thing.get("Id", "\0")).startswith(reference):
            return 200, thing
    return 404, {"message": f"no such thing: {reference}"}


async def answer_ok(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _engine: FakeEngine) -> None:
    """The plainest of answers."""
    writer.write(OK)
