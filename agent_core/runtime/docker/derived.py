"""Images with what a server or user wants installed: made once from each image and its commands, and shared."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from agent_core.errors import SandboxError
from agent_core.runtime.docker.engine import DockerEngine, EngineRefusedError, refusal_of, unless_gone
from agent_core.runtime.docker.images import ensure_image
from agent_core.runtime.docker.networks import DockerNetworks
from agent_core.runtime.docker.objects import confinement
from agent_core.runtime.sandbox import LABEL_INSTANCE, LABEL_ROLE, Progress, SandboxSpec

logger = logging.getLogger(__name__)

DERIVED_IMAGES: Final = "drydock/derived"
KEPT: Final = 20
"""So many of these images are kept for an instance; older ones that no container has are removed."""

INSTALLING: Final = "STATUS$BUILDING_RUNTIME"
_ROLE: Final = "derive"
_AT_A_TIME: Final = 2
_SLACK_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 2.0
_LINE_CHARS: Final = 200
_TAIL_CHARS: Final = 1500
_KILLED: Final = (124, 137, 143)
_FIX: Final = "Mend the commands in runtime_extra_deps, or leave them out, and begin a conversation with that."
_RIGHTS: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETFCAP", "SETGID", "SETUID")
"""What package managers need of root's rights; the sandbox itself gets none of them."""

# Whoever runs pip here means the sandbox's own Python, whatever its distribution thinks of that.
_BEFORE: Final = "export DEBIAN_FRONTEND=noninteractive PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore\n"


class DerivedImages:
    """The images of one engine in which commands have been run."""

    def __init__(self, engine: DockerEngine, networks: DockerNetworks) -> None:
        self._engine = engine
        self._networks = networks
        self._making: dict[str, asyncio.Task[None]] = {}
        self._listeners: dict[str, list[Progress]] = {}
        self._turns = asyncio.Semaphore(_AT_A_TIME)

    async def image(self, spec: SandboxSpec, progress: Progress) -> str:
        """Name of the image for a spec with `extra_deps`, made first if it is not there; `progress` hears how it goes.

        Raises `SandboxError`: ``deps_failed`` with the last words of the commands, or as `ensure_image` does.
        """
        await ensure_image(self._engine, spec.image, progress)
        base = await self._engine.call("look at the image", lambda client: client.inspect_image(spec.image)["Id"])
        assert spec.extra_deps is not None  # noqa: S101 - who asks has some
        digest = hashlib.sha256(
            f"{spec.instance_id}\0{base}\0{_BEFORE}\0{spec.extra_deps.commands}".encode()
        ).hexdigest()[:40]
        name = f"{DERIVED_IMAGES}:{digest}"
        if await self._engine.call_unless("look for it", lambda client: client.inspect_image(name), 404) is not None:
            return name
        progress(INSTALLING, "Installing what the server or its user wants in the sandbox (runtime_extra_deps)")
        listeners = self._listeners.setdefault(name, [])
        listeners.append(progress)
        try:
            if (task := self._making.get(name)) is None:
                task = asyncio.create_task(self._make(name, base, spec), name=f"derive {name}")
                self._making[name] = task
                task.add_done_callback(lambda done: self._made(name, done))
            await asyncio.shield(task)
        finally:
            listeners.remove(progress)
        return name

    async def close(self) -> None:
        for task in list(self._making.values()):
            task.cancel()
        if self._making:
            await asyncio.wait(set(self._making.values()))

    def _made(self, name: str, task: asyncio.Task[None]) -> None:
        self._making.pop(name, None)
        self._listeners.pop(name, None)
        if not task.cancelled():
            task.exception()  # those who wait raise it; nobody may be left

    async def _make(self, name: str, base: str, spec: SandboxSpec) -> None:
        assert spec.extra_deps is not None  # noqa: S101 - as above
        limit = spec.extra_deps.limit_seconds
        loop = asyncio.get_running_loop()
        abandoned = threading.Event()

        def tell(text: str) -> None:
            loop.call_soon_threadsafe(self._tell, name, f"Installing: {text}")

        async with self._turns:
            network = await self._networks.ensure(spec)
            config = derive_config(spec, base, network)
            try:
                await self._engine.call(
                    "install what is wanted in the sandbox (runtime_extra_deps)",
                    lambda client: _install(client, config, name, spec, tell, abandoned),
                    limit=limit + _SLACK_SECONDS,
                    on_abandon=abandoned.set,
                )
            except EngineRefusedError as error:
                if error.status != 403:
                    raise
                reason = "the proxy before the Docker engine makes no images"
                fix = "Use an image that has what you want, or leave runtime_extra_deps out."
                raise SandboxError(f"runtime_extra_deps: {reason}.", code="deps_failed", fix=fix) from error
            finally:
                abandoned.set()

    def _tell(self, name: str, text: str) -> None:
        for listener in list(self._listeners.get(name, ())):
            listener(INSTALLING, text)


def derive_config(spec: SandboxSpec, base: str, network: str) -> dict[str, Any]:
    """The container in which the commands run: root, but with no right beyond its own files."""
    assert spec.extra_deps is not None  # noqa: S101 - who asks has some
    return {
        "Image": base,
        "User": "0:0",
        "WorkingDir": "/",
        "Entrypoint": ["timeout", "-s", "KILL", str(max(1, round(spec.extra_deps.limit_seconds)))],
        "Cmd": ["/bin/sh", "-ec", _BEFORE + spec.extra_deps.commands],
        "Labels": {LABEL_INSTANCE: spec.instance_id, LABEL_ROLE: _ROLE},
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            **confinement(network, spec.limits),
            "CapAdd": list(_RIGHTS),
            "RestartPolicy": {"Name": "no"},
        },
    }


def _install(
    client: Any,
    config: dict[str, Any],
    name: str,
    spec: SandboxSpec,
    tell: Callable[[str], None],
    abandoned: threading.Event,
) -> None:
    """Run the commands and keep what they made as an image (in a thread)."""
    assert spec.extra_deps is not None  # noqa: S101 - as above
    failed = f"What is wanted in the sandbox could not be installed in {spec.image}:"
    helper = f"drydock-derive-{secrets.token_hex(6)}"
    container = client.create_container_from_config(config, helper)["Id"]
    try:
        began = time.monotonic()
        client.start(container)
        try:
            problem = _until_it_ends(client, container, spec, tell, abandoned)
            state = client.inspect_container(container)["State"]
            is_over = time.monotonic() - began >= max(1, round(spec.extra_deps.limit_seconds))
            if not problem and state["ExitCode"] in _KILLED and is_over and not state.get("OOMKilled"):
                problem = f"they had not ended after {spec.extra_deps.limit_seconds:g} s (runtime_extra_deps_seconds)"
            if not problem and state["ExitCode"] != 0:
                more = ", out of memory" if state.get("OOMKilled") else ""
                problem = f"they ended with exit code {state['ExitCode']}{more}"
            if problem:
                words = str(client.logs(container, tail=30), "utf-8", "replace").strip()[-_TAIL_CHARS:]
                raise SandboxError(
                    f"{failed} {problem}; the last words of the commands: {words or '(none)'}.",
                    code="deps_failed",
                    fix=_FIX,
                )
            repository, _, tag = name.partition(":")
            client.commit(container, repository=repository, tag=tag)
        except Exception as error:
            if refusal_of(error) not in (404, 409):
                raise
            # Not as the engine says it, which would be taken for a sandbox that is to be made again.
            raise SandboxError(f"{failed} its container was removed meanwhile.", code="deps_failed") from None
    finally:
        unless_gone(client.remove_container, container, v=True, force=True)
    _forget_old_ones(client, spec.instance_id)


def _until_it_ends(
    client: Any, container: str, spec: SandboxSpec, tell: Callable[[str], None], abandoned: threading.Event
) -> str:
    """Tell each new last line of what it prints; why it was ended early, if it was."""
    shown = ""
    while True:
        found = client.inspect_container(container)
        if not found["State"]["Running"]:
            return ""
        if abandoned.is_set():
            raise SandboxError("The server ends, or nobody waits any more.", code="deps_failed")
        lines = str(client.logs(container, tail=1), "utf-8", "replace").strip().splitlines()
        if lines and lines[-1] != shown:
            shown = lines[-1]
            tell(shown[-_LINE_CHARS:])
        if spec.limits.disk and _size(client, container) > spec.limits.disk:
            client.kill(container)
            return f"they have written more than {spec.limits.disk // 1024**2} MiB (sandbox_disk_mb)"
        abandoned.wait(_LOOK_SECONDS)


def _size(client: Any, container: str) -> int:
    [found] = client.containers(all=True, size=True, filters={"id": container}) or [{}]
    return int(found.get("SizeRw") or 0)


def _forget_old_ones(client: Any, instance_id: str) -> None:
    own = {"label": f"{LABEL_INSTANCE}={instance_id}"}
    try:
        found = sorted(client.images(DERIVED_IMAGES, filters=own), key=lambda one: -int(one["Created"]))
        for one in found[KEPT:]:
            unless_gone(client.remove_image, one["RepoTags"][0], also=(409,))  # 409: a container has it
    except Exception as error:  # noqa: BLE001 - the new image is there
        logger.warning("old images with extra dependencies could not be removed: %s", error)
