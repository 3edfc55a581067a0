"""The provider of sandboxes in Docker containers, which share an engine and its networks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from agent_core.errors import SandboxError
from agent_core.runtime.docker.derived import DerivedImages
from agent_core.runtime.docker.docker_host import DockerHost
from agent_core.runtime.docker.engine import DockerEngine, labels_of, unless_gone
from agent_core.runtime.docker.images import check_image
from agent_core.runtime.docker.networks import GUARDED, DockerBorder, DockerNetworks, age, beyond_the_border, probe
from agent_core.runtime.docker.objects import GID, UID, DockerQuota, Quota
from agent_core.runtime.docker.sandbox import HOST, DockerSandbox
from agent_core.runtime.injection import runner_archive
from agent_core.runtime.sandbox import (
    LABEL_CONVERSATION,
    LABEL_INSTANCE,
    LABEL_PROGRAM,
    Availability,
    Sandbox,
    SandboxSpec,
    SandboxState,
    object_name,
)

_ABANDONED_SECONDS = 86_400.0


class DockerProvider:
    """Makes a container for each conversation (`SandboxProvider`); see `DockerEngine` for most parameters.

    `direct`: the runners in containers may be reached past the engine, where that is possible.
    """

    name = "docker"

    def __init__(
        self,
        host: str | None = None,
        *,
        connect_seconds: float = 15.0,
        direct: bool = True,
        engine: DockerEngine | None = None,
    ) -> None:
        self._engine = engine or DockerEngine(host, connect_seconds)
        self._border = DockerBorder(self._engine)
        self._networks = DockerNetworks(self._engine, self._border)
        self._quota = DockerQuota(self._engine)
        self._derived = DerivedImages(self._engine, self._networks)
        self._connect_seconds = connect_seconds
        self._direct = direct

    @classmethod
    def of_host(cls, host: DockerHost, *, connect_seconds: float = 15.0, direct: bool = True) -> Self:
        """That of one of several hosts, which its sandboxes remember."""
        engine = DockerEngine.of_host(host, connect_seconds)
        return cls(connect_seconds=connect_seconds, direct=direct, engine=engine)

    @property
    def engine(self) -> DockerEngine:
        return self._engine

    async def check(self) -> Availability:
        def look(client: Any) -> Any:
            runner_archive(UID, GID, True)  # made here once, so that the first start need not wait for it
            return client.version()

        try:
            version = await self._engine.call("say its version", look, limit=self._connect_seconds)
        except SandboxError as error:
            return Availability(False, str(error).removesuffix(error.fix).strip(), error.fix)
        if version.get("Os") != "linux":
            return Availability(
                False, f"the engine runs {version.get('Os')} containers", "Switch it to Linux containers."
            )
        return Availability(True, f"a Docker engine answers (version {version.get('Version')})")

    async def lacks(self) -> Mapping[str, str]:
        """There is nothing that it could not hold."""
        return {}

    async def folders(self) -> Sequence[str]:
        """Its own data folder, where the engine is one of this host; raises `SandboxError`."""
        info = await self._engine.call("say where it keeps its data", lambda client: client.info())
        return [str(info["DockerRootDir"])] if self._engine.is_of_this_host and info.get("DockerRootDir") else []

    async def check_image(self, image: str) -> Availability:
        return await check_image(self._engine, image)

    async def image_id(self, image: str, state: SandboxState) -> str:
        look = "look for the image"
        found = await self._engine.call_unless(look, lambda client: dict(client.inspect_image(image)), 404)
        return str(found["Id"]) if found is not None else ""

    async def quota(self, instance_id: str) -> Quota:
        return await self._quota.find(instance_id)

    def create(self, spec: SandboxSpec) -> Sandbox:
        return self._sandbox(spec, object_name(spec.instance_id, spec.conversation_id), known=False)

    def restore(self, spec: SandboxSpec, state: SandboxState) -> Sandbox:
        if (host := state.get(HOST, "")) and host != self._engine.name:
            raise unknown_host(host)
        name = state.get("container") or object_name(spec.instance_id, spec.conversation_id)
        return self._sandbox(spec, name, known=True)

    def _sandbox(self, spec: SandboxSpec, name: str, *, known: bool) -> DockerSandbox:
        return DockerSandbox(
            self._engine, self._networks, self._quota, self._derived, spec, name, known=known, direct=self._direct
        )

    async def reap(self, instance_id: str, keep: Collection[str]) -> list[str]:
        self._networks.serve(instance_id)
        removed = await self._remove_all(instance_id, keep)
        with suppress(SandboxError):
            await self.remove_abandoned()
        return removed

    async def running(self, instance_id: str) -> Collection[str]:
        filters = {"label": [f"{LABEL_INSTANCE}={instance_id}"], "status": ["running", "paused"]}
        found = await self._engine.call("list its sandboxes", lambda client: client.containers(filters=filters))
        return {labels_of(one).get(LABEL_CONVERSATION, "") for one in found} - {""}

    async def remove_abandoned(self) -> None:
        """Remove what programs have here that were killed together with their guards.

        Their containers ended when nobody held them any more, and nobody has come back for a day.
        """
        filters = {"label": [LABEL_PROGRAM], "status": ["created", "exited", "dead"]}

        def look(client: Any) -> set[str]:
            found: list[Mapping[str, Any]] = []
            for container in client.containers(all=True, filters=filters):
                unless_gone(lambda one: found.append(client.inspect_container(one)), container["Id"])
            return {str(one["Config"]["Labels"][LABEL_INSTANCE]) for one in found if is_abandoned(one)}

        for instance_id in await self._engine.call("look for what killed programs have left", look):
            await self._remove_all(instance_id, ())

    async def _remove_all(self, instance_id: str, keep: Collection[str]) -> list[str]:
        filters = {"label": [f"{LABEL_INSTANCE}={instance_id}"]}
        remaining = set(keep)
        removed: set[str] = set()

        def sweep(client: Any) -> None:
            for container in client.containers(all=True, filters=filters):
                conversation = labels_of(container).get(LABEL_CONVERSATION, "")
                if conversation not in remaining:
                    unless_gone(client.remove_container, container["Id"], v=True, force=True)
                    removed.add(conversation)
            for volume in client.volumes(filters=filters)["Volumes"] or ():
                conversation = labels_of(volume).get(LABEL_CONVERSATION, "")
                if conversation not in remaining:
                    unless_gone(client.remove_volume, volume["Name"], force=True)
                    removed.add(conversation)

        await self._engine.call("remove what is left of former sandboxes", sweep)
        await self._networks.remove_unused(instance_id, all_of_instance=not remaining)
        return sorted(removed - {""})

    async def others(self, instance_id: str) -> dict[str, int]:
        """How many containers and volumes the engine has of each other instance, whose server may be gone."""
        filters = {"label": [LABEL_INSTANCE]}

        def count(client: Any) -> Counter[str]:
            volumes = client.volumes(filters=filters)["Volumes"] or ()
            objects = (*client.containers(all=True, filters=filters), *volumes)
            return Counter(labels_of(one).get(LABEL_INSTANCE, "") for one in objects)

        found = await self._engine.call("list the sandboxes of other servers", count)
        return {name: number for name, number in found.most_common() if name != instance_id}

    async def prepare(self, spec: SandboxSpec) -> None:
        if spec.network in GUARDED and not await self._border.ensure(spec):
            await self._networks.ensure(spec)
        if spec.extra_deps is not None:
            await self._derived.image(spec, lambda status, text: None)

    async def try_network(self, spec: SandboxSpec) -> Availability:
        """Whether sandboxes get the network of the spec, tried with a container in it."""
        if spec.network == "none":
            return Availability(True, "none, as was asked for")
        try:
            network = await self._networks.ensure(spec)
            if problem := self._networks.warning(spec):
                return Availability(False, problem)
            if spec.network != "full":
                return Availability(True, f"{spec.network}, as was asked for")
            found = await self._engine.call("try the sandboxes' network", lambda client: probe(client, spec, network))
            if not found.ok:
                return found
            info = await self._engine.call("say what it is", lambda client: client.info())
            return beyond_the_border(info) or found
        finally:
            await self._networks.remove_unused(spec.instance_id, all_of_instance=True)

    async def close(self) -> None:
        await self._derived.close()
        await self._border.close()
        await self._networks.close()
        await self._engine.close()


def unknown_host(name: str) -> SandboxError:
    """The error for a sandbox on one of several hosts that is none of this server's (``unknown_host``)."""
    return SandboxError(
        f"The sandbox is on the Docker host {name!r}, and this server has none of that name any more.",
        code="unknown_host",
        fix="Have it among docker_hosts again, under the same name; or delete the conversation.",
    )


def is_abandoned(container: Mapping[str, Any]) -> bool:
    """Whether a program's container, as the engine describes it, has not run for a day."""
    ages = age(container["Created"]), age(container["State"]["FinishedAt"])  # of one that never ran: the year 1
    return not container["State"]["Running"] and min(ages) > _ABANDONED_SECONDS
