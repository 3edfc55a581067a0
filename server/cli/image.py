"""``drydock image``: builds the sandbox images, of what an installed Drydock brings along; no checkout is needed."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import deque
from pathlib import Path
from typing import Any, Final, TextIO

from agent_core.errors import SandboxError
from agent_core.runtime.docker.docker_host import DockerHost
from agent_core.runtime.docker.engine import DockerEngine
from agent_core.runtime.docker.images import OWN_IMAGES
from server.errors import ConfigurationError
from server.settings.docker_hosts import hosts_of
from server.settings.settings import Settings

BUILD_SECONDS: Final = 1800.0
_CONNECT_SECONDS: Final = 15.0
_FOLDER: Final = Path(__file__).parents[2] / "runtime_images"
_BASE: Final = "debian:bookworm-slim"
_CONTENT_LABEL: Final = "dev.drydock.content"
_CONTENT: Final = {
    "base": ("base/Dockerfile", "base/requirements.lock", "base-images.lock"),
    "browser": ("browser/Dockerfile", "browser/requirements.lock"),
}
_SHOWN: Final = 12


def image(out: TextIO, *, kind: str = "base", force: bool = False, host: DockerHost | None = None) -> int:
    """Build one, unless it is there with the same content, and what it is built on; returns the exit status.

    On this `host`; None: with the engine that the environment names.
    """
    asyncio.run(_build_all(["base"] if kind == "base" else ["base", kind], out, host, force=force))
    return 0


def host_named(name: str, settings: Settings) -> DockerHost:
    """One of the server's Docker hosts; raises `ConfigurationError` where there is none of this name."""
    hosts = {host.name: host for host in hosts_of(settings.docker_hosts)}
    if name not in hosts:
        known = f"known are {', '.join(hosts)}" if hosts else "there are none; is --config missing?"
        raise ConfigurationError(f"docker_hosts names no {name!r}; {known}")
    return hosts[name]


def content_of(kind: str) -> str:
    """What an image is made of, in 16 digits: the label of `scripts/sandbox-image`, so that each knows the other's."""
    files = [*_CONTENT["base"], *(_CONTENT[kind] if kind != "base" else ())]
    return hashlib.sha256(b"".join((_FOLDER / name).read_bytes() for name in files)).hexdigest()[:16]


async def _build_all(kinds: list[str], out: TextIO, host: DockerHost | None, *, force: bool) -> None:
    engine = DockerEngine(None, _CONNECT_SECONDS) if host is None else DockerEngine.of_host(host, _CONNECT_SECONDS)
    try:
        for kind in kinds:
            await _build_one(engine, kind, out, force=force and kind == kinds[-1])
    finally:
        await engine.close()


async def _build_one(engine: DockerEngine, kind: str, out: TextIO, *, force: bool) -> None:
    name = f"{OWN_IMAGES}:{kind}"
    found = await engine.call_unless("look for the image", lambda client: client.inspect_image(name), 404)
    labels = (found or {}).get("Config", {}).get("Labels") or {}
    if labels.get(_CONTENT_LABEL) == content_of(kind) and not force:
        out.write(f"{name} is up to date\n")
        return
    out.write(f"building {name} (a few minutes the first time)\n")
    out.flush()
    abandoned = threading.Event()
    size = await engine.call(
        f"build {name}",
        lambda client: _build(client, kind, force, abandoned),
        limit=BUILD_SECONDS,
        on_abandon=abandoned.set,
    )
    out.write(f"built {name}, {size // 1_000_000} MB\n")


def _build(client: Any, kind: str, anew: bool, abandoned: threading.Event) -> int:
    """Runs in a thread; the image's size in bytes."""
    name = f"{OWN_IMAGES}:{kind}"
    last: deque[str] = deque(maxlen=_SHOWN)
    for step in client.build(
        path=str(_FOLDER / kind),
        tag=name,
        labels={_CONTENT_LABEL: content_of(kind), "dev.drydock.image": "sandbox"},
        buildargs=_base_argument() if kind == "base" else {},
        nocache=anew,
        rm=True,
        forcerm=True,
        decode=True,
    ):
        if "error" in step:
            said = "\n".join([*last, str(step["error"]).strip()])
            raise SandboxError(
                f"The image {name} could not be built; the last lines of its build are:\n{said}",
                code="image_failed",
                fix="Mend what they say, and try again.",
            )
        last.extend(line for line in str(step.get("stream", "")).splitlines() if line.strip())
        if abandoned.is_set():
            raise SandboxError(f"The build of {name} was broken off.", code="image_failed")
    return int(client.inspect_image(name)["Size"])


def _base_argument() -> dict[str, str]:
    """The base by its digest, where one is recorded."""
    for line in (_FOLDER / "base-images.lock").read_text("utf-8").splitlines():
        tag, _, digest = line.partition(" ")
        if tag == _BASE:
            return {"DEBIAN_IMAGE": f"{_BASE.split(':')[0]}@{digest.strip()}"}
    return {}
