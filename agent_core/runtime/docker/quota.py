"""Whether an engine holds what it keeps to a size, by quotas of its file system: found out once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from agent_core.runtime.docker.engine import DockerEngine, EngineRefusedError
from agent_core.runtime.naming import LABEL_INSTANCE, LABEL_ROLE, instance_name

T = TypeVar("T")

_ROLE = "quota"
_TRIED_BYTES = 16 * 1024**2


class Quota(NamedTuple):
    """What an engine takes a size for: new volumes; the layer of a container that can be written."""

    volumes: bool = False
    root: bool = False


class DockerQuota:
    """Knows what one engine takes a size for; an engine that refuses one is not asked again."""

    def __init__(self, engine: DockerEngine) -> None:
        self._engine = engine
        self._known: Quota | None = None
        self._looking = asyncio.Lock()

    async def find(self, instance_id: str) -> Quota:
        """What the engine takes a size for, found out by making a volume for this instance and removing it.

        Raises:
            EngineUnavailableError: it does not answer.
        """
        async with self._looking:
            if self._known is None:
                try:
                    self._known = await self._look(instance_id)
                except EngineRefusedError as error:
                    if error.status >= 500 and not _is_about_quota(error):
                        return Quota()  # it has some other trouble, which may pass
                    self._known = Quota()
            return self._known

    async def keeping(self, instance_id: str, make: Callable[[Quota], Awaitable[T]]) -> T:
        """What `make` gives when it is told what may have a size; told that nothing may, where the engine refuses it.

        Raises:
            SandboxError: whatever `make` raises for other reasons.
        """
        quota = await self.find(instance_id)
        try:
            return await make(quota)
        except EngineRefusedError as error:
            if not quota.volumes or not _is_about_quota(error):
                raise
        self._known = Quota()
        return await make(self._known)

    async def _look(self, instance_id: str) -> Quota:
        name = f"{instance_name(instance_id)}-quota-{secrets.token_hex(4)}"
        labels = {LABEL_INSTANCE: instance_id, LABEL_ROLE: _ROLE}

        def look(client: Any) -> Quota:
            client.create_volume(name, driver_opts={"size": str(_TRIED_BYTES)}, labels=labels)
            try:
                return Quota(volumes=True, root=_holds_roots(client.info()))
            finally:
                client.remove_volume(name, force=True)

        return await self._engine.call("look whether volumes can have a size", look)


def _holds_roots(info: dict[str, Any]) -> bool:
    """Whether a container may have a size: a driver that counts what it has written, not its image.

    Btrfs counts the image, too, and would begin to count everything on the whole file system for it.
    """
    backing = {str(fact[0]): fact[1] for fact in info.get("DriverStatus") or () if len(fact) == 2}
    return info.get("Driver") == "overlay2" and backing.get("Backing Filesystem") == "xfs"


def _is_about_quota(error: EngineRefusedError) -> bool:
    return "quota" in error.explanation.lower()
