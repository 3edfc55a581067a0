"""A node that plays the pods of a `PlayedCluster` with real containers of the Docker engine.

It reads a pod's specification as a kubelet does: init containers first, users, rights, limits, volumes and their
folders, the code in config maps. A network policy that lets nothing out is played as a container without a network.
Init containers are processes of this host under bubblewrap, with the host's Python: half of the time of a start.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import tempfile
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from agent_core.runtime.docker.engine import Demultiplexer

_SOCKET = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
_PROCESSES = 100
"""As with podPidsLimit."""


class EngineError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Exec:
    """A command in a container: its three streams, and its exit code once they have ended."""

    def __init__(self, number: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._number = number
        self._reader = reader
        self.writer = writer

    async def pieces(self) -> AsyncIterator[tuple[int, bytes]]:
        streams = Demultiplexer()
        while data := await self._reader.read(65536):
            for piece in streams.feed(data):
                yield piece

    async def exit_code(self) -> int:
        return int((await engine("GET", f"/exec/{self._number}/json"))["ExitCode"] or 0)


class PlayedNode:
    """Runs pods; `volumes` holds the folders of claims."""

    name = "played-node"

    def __init__(self) -> None:
        # Not a folder of pytest's own: the user of a pod has to get there.
        self._folder = Path(tempfile.mkdtemp(prefix="drydock-played-"))
        self._folder.chmod(0o755)
        self._containers: dict[str, str] = {}

    async def prepare(self, pod: Mapping[str, Any], config_maps: Mapping[str, Any]) -> None:
        """Make the volumes of a pod."""
        for volume in pod["spec"]["volumes"]:
            place = self._place(pod, volume)
            if place is None or place.is_dir():
                continue
            place.mkdir(parents=True)
            place.chmod(0o2777)  # as a folder of its group
            if "configMap" in volume:
                for key, data in config_maps[volume["configMap"]["name"]]["binaryData"].items():
                    (place / key).write_bytes(base64.b64decode(data))

    async def run(self, pod: Mapping[str, Any], container: Mapping[str, Any], *, networked: bool) -> str:
        """Create and start a container."""
        config = self._config(pod, container, networked)
        name = f"drydock-played-{pod['metadata']['uid']}-{container['name']}"
        found = await engine("POST", f"/containers/create?name={name}", config)
        identity = str(found["Id"])
        self._containers[identity] = pod["metadata"]["uid"]
        await engine("POST", f"/containers/{identity}/start")
        return identity

    async def prepare_by(self, pod: Mapping[str, Any], container: Mapping[str, Any]) -> tuple[int, str]:
        """Run an init container to its end: its exit code and its words."""
        person, volumes = pod["spec"]["securityContext"], {one["name"]: one for one in pod["spec"]["volumes"]}
        arguments = ["--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--proc", "/proc"]
        for name in ("bin", "lib", "lib64"):
            arguments += ["--symlink", f"usr/{name}", f"/{name}"]
        for mount in container["volumeMounts"]:
            place = self._place(pod, volumes[mount["name"]])
            arguments += ["--ro-bind" if mount.get("readOnly") else "--bind", str(place), mount["mountPath"]]
        becoming = ["setpriv", f"--reuid={person['runAsUser']}", f"--regid={person['runAsGroup']}", "--clear-groups"]
        running = await asyncio.create_subprocess_exec(
            *(becoming if os.geteuid() == 0 else ()),
            "bwrap",
            *arguments,
            *container["command"],
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        words, _ = await running.communicate()
        return running.returncode or 0, words.decode()

    async def wait(self, identity: str) -> dict[str, Any]:
        """Its state once it has ended, with its last words."""
        await engine("POST", f"/containers/{identity}/wait")
        found = await engine("GET", f"/containers/{identity}/json")
        return {**found["State"], "Words": await self._words(identity)}

    async def end(self, identity: str, seconds: float) -> None:
        with contextlib.suppress(EngineError):
            await engine("POST", f"/containers/{identity}/stop?t={max(0, round(seconds))}")

    async def kill(self, identity: str) -> None:
        with contextlib.suppress(EngineError):
            await engine("POST", f"/containers/{identity}/kill")

    async def remove(self, identity: str) -> None:
        self._containers.pop(identity, None)
        with contextlib.suppress(EngineError):
            await engine("DELETE", f"/containers/{identity}?force=true&v=true")

    async def exec(self, identity: str, command: list[str], *, has_input: bool) -> Exec:
        order = {"Cmd": command, "AttachStdin": has_input, "AttachStdout": True, "AttachStderr": True}
        made = await engine("POST", f"/containers/{identity}/exec", order)
        reader, writer = await asyncio.open_unix_connection(_SOCKET)
        body = json.dumps({"Detach": False, "Tty": False}).encode()
        writer.write(
            b"POST /exec/%s/start HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\nConnection: Upgrade\r\n"
            b"Upgrade: tcp\r\nContent-Length: %d\r\n\r\n%s" % (made["Id"].encode(), len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n", 1)[0]:
            await closed(writer)
            raise EngineError(500, head.decode("latin-1"))
        return Exec(made["Id"], reader, writer)

    def forget_pod(self, pod: Mapping[str, Any]) -> None:
        shutil.rmtree(self._folder / "pods" / pod["metadata"]["uid"], ignore_errors=True)

    def forget_claim(self, name: str) -> None:
        shutil.rmtree(self._folder / "claims" / name, ignore_errors=True)

    async def close(self) -> None:
        for identity in list(self._containers):
            await self.remove(identity)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _words(self, identity: str) -> str:
        data = await engine("GET", f"/containers/{identity}/logs?stdout=true&stderr=true&tail=20", raw=True)
        return b"".join(piece for _, piece in Demultiplexer().feed(data)).decode("utf-8", "replace")

    def _place(self, pod: Mapping[str, Any], volume: Mapping[str, Any]) -> Path | None:
        if "persistentVolumeClaim" in volume:
            return self._folder / "claims" / str(volume["persistentVolumeClaim"]["claimName"])
        if volume.get("emptyDir", {}).get("medium") == "Memory":
            return None
        return self._folder / "pods" / str(pod["metadata"]["uid"]) / str(volume["name"])

    def _config(self, pod: Mapping[str, Any], container: Mapping[str, Any], networked: bool) -> dict[str, Any]:
        spec, rules = pod["spec"], container["securityContext"]
        volumes = {one["name"]: one for one in spec["volumes"]}
        binds, in_memory = [], {}
        for mount in container["volumeMounts"]:
            volume = volumes[mount["name"]]
            place = self._place(pod, volume)
            if place is None:
                size = volume["emptyDir"]["sizeLimit"]
                in_memory[mount["mountPath"]] = f"rw,exec,nosuid,nodev,mode=1777,size={size}"
                continue
            place /= mount.get("subPath", "")
            assert place.is_dir(), f"{place} is no folder of the volume"
            binds.append(f"{place}:{mount['mountPath']}:{'ro' if mount.get('readOnly') else 'rw'}")
        person = spec["securityContext"]
        assert person["runAsNonRoot"]
        assert person["seccompProfile"] == {"type": "RuntimeDefault"}  # which is the engine's own, too
        limits = container["resources"]["limits"]
        env = {"KUBERNETES_SERVICE_HOST": "10.255.255.1", "KUBERNETES_SERVICE_PORT": "443"}
        env |= {one["name"]: one["value"].replace("$$", "$") for one in container.get("env", ())}
        return {
            "Image": container["image"],
            "Entrypoint": container["command"],
            "Cmd": container.get("args", []),
            "WorkingDir": container.get("workingDir", ""),
            "Env": [f"{name}={value}" for name, value in env.items()],
            "User": f"{person['runAsUser']}:{person['runAsGroup']}",
            "Hostname": spec.get("hostname", pod["metadata"]["name"]),
            "Labels": {"drydock-test": "played"},
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": {
                "GroupAdd": [str(person["fsGroup"])],
                "CapDrop": rules["capabilities"]["drop"],
                "Privileged": rules["privileged"],
                "SecurityOpt": [] if rules["allowPrivilegeEscalation"] else ["no-new-privileges"],
                "ReadonlyRootfs": rules["readOnlyRootFilesystem"],
                "Memory": int(limits["memory"]),
                "MemorySwap": int(limits["memory"]),
                "NanoCpus": int(float(limits["cpu"].removesuffix("m")) * (1e6 if limits["cpu"].endswith("m") else 1e9)),
                "PidsLimit": _PROCESSES,
                "Binds": binds,
                "Tmpfs": in_memory,
                "NetworkMode": "bridge" if networked else "none",
                "RestartPolicy": {"Name": "no"},
            },
        }


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def engine(method: str, path: str, body: Any = None, *, raw: bool = False) -> Any:
    """One call of the engine's API."""
    reader, writer = await asyncio.open_unix_connection(_SOCKET)
    try:
        data = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {urllib.parse.quote(path, '/?&=')} HTTP/1.0\r\nHost: docker\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        answer = await reader.read()
    finally:
        await closed(writer)
    about, _, content = answer.partition(b"\r\n\r\n")
    status = int(about.split()[1])
    if b"transfer-encoding: chunked" in about.lower():
        content = _unchunked(content)
    if status >= 400:
        raise EngineError(status, json.loads(content or b"{}").get("message", ""))
    if raw:
        return content
    return json.loads(content) if content.strip() else {}


def _unchunked(content: bytes) -> bytes:
    found = b""
    while content:
        size, _, rest = content.partition(b"\r\n")
        length = int(size, 16)
        found, content = found + rest[:length], rest[length + 2 :]
        if not length:
            break
    return found
