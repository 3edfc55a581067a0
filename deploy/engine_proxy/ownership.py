"""Ownership of containers, volumes and networks, asked of the engine for each call."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from deploy.engine_proxy.calls import ObjectKind
from deploy.engine_proxy.http import Engine, EngineAnswerError, EngineResponse
from deploy.engine_proxy.rules import ADDED_RIGHTS, ID, INSTANCE_LABEL, OWN_NAME, ForbiddenCallError, is_compose_label

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NOT_THERE: Final = 404
_RIGHTS: Final = (
    *("Privileged", "Binds", "Devices", "DeviceRequests", "DeviceCgroupRules", "VolumesFrom", "Links"),
    *("PortBindings", "PublishAllPorts", "PidMode", "UTSMode", "UsernsMode", "CgroupParent", "ExtraHosts", "GroupAdd"),
    "Sysctls",
)
_LIFTED: Final = re.compile(r"(seccomp|apparmor|systempaths)[=:]unconfined|label[=:]disable|no-new-privileges[=:]false")
_OWN_IMAGES: Final = re.compile(r"([^/]*[.:][^/]*/)?drydock(/|$)", re.IGNORECASE)  # of whatever registry


class ServedInstance:
    """The one instance that the proxy serves: the first it was asked for, and never another.

    Its name is kept in a file that outlives the proxy, so whoever takes the server over later cannot reach the things
    of another Drydock on this host. Raises `ValueError` for a bad name in the file, `OSError` where that cannot be read
    or its folder is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name: str | None = None
        if path.exists():
            self.name = path.read_text(encoding="ascii").strip()
            if _NAME.fullmatch(self.name) is None:
                raise ValueError(f"{path} holds no name of an instance; remove it to have one written anew")
        elif not path.parent.is_dir():
            raise FileNotFoundError(f"the folder {path.parent} is not there; it keeps whose proxy this is")

    def learn(self, name: str) -> None:
        """Serve this instance from now on, if none is served yet; `ForbiddenCallError` where that is not possible."""
        if self.name is not None:
            return
        if _NAME.fullmatch(name) is None:
            raise ForbiddenCallError("the label drydock.instance is not the name of an instance")
        temporary = self._path.with_name(f"{self._path.name}.new")
        try:
            with temporary.open("w", encoding="ascii") as file:
                file.write(f"{name}\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            raise ForbiddenCallError(f"the proxy cannot write down whom it serves: {error.strerror}") from None
        self.name = name


class Ownership:
    """Tells what belongs to the served instance, and refuses the rest with `ForbiddenCallError`.

    Ours is what carries the instance's label and is of no compose project; labels never change, and all that the proxy
    lets be made gets it. Methods may raise `OSError` when the engine does not answer, and take the API version as in a
    path.
    """

    def __init__(self, engine: Engine, instance: ServedInstance) -> None:
        self._engine = engine
        self._instance = instance

    def is_ours(self, labels: object) -> bool:
        if not isinstance(labels, dict) or any(value and is_compose_label(name) for name, value in labels.items()):
            return False
        return self._instance.name is not None and labels.get(INSTANCE_LABEL) == self._instance.name

    def claim(self, labels: Mapping[str, object]) -> None:
        """Check that these labels are the instance's; a proxy that serves nobody yet learns whom."""
        name = labels.get(INSTANCE_LABEL)
        if not isinstance(name, str) or not name:
            raise ForbiddenCallError(f"the label {INSTANCE_LABEL} is missing")
        self._instance.learn(name)
        if name != self._instance.name:
            raise ForbiddenCallError(
                f"this proxy serves the instance {self._instance.name} and no other; "
                "after the server's data were removed, remove the proxy's volume, too"
            )

    async def container(self, reference: str, version: str) -> dict[str, object]:
        """A container of ours as the engine describes it, by name or id; `EngineAnswerError` if there is none."""
        _check_reference(reference)
        found = await self._found(f"{version}/containers/{reference}/json")
        self._check("container", reference, _part(found, "Config").get("Labels"))
        if not _is_confined(found):
            # Images inherit labels too: of one that was made from a sandbox, anybody may make such a container.
            raise ForbiddenCallError(
                f"the container {reference} has more rights than one that was made through this proxy"
            )
        return found

    async def network(self, reference: str, version: str) -> str:
        _check_reference(reference)
        found = await self._found(f"{version}/networks/{reference}")
        self._check("network", reference, found.get("Labels"))
        if found.get("Driver", "bridge") != "bridge":
            raise ForbiddenCallError(f"the network {reference} is not one that this proxy makes")
        return full_id(found)

    async def volume(self, name: str, version: str) -> None:
        if OWN_NAME.fullmatch(name) is None:
            raise ForbiddenCallError("only volumes whose names begin with drydock- can be touched")
        found = await self._found(f"{version}/volumes/{name}")
        self._check_volume(name, found)

    async def exec_in_ours(self, reference: str, version: str) -> None:
        """Check that an exec is in a container of ours and has no more rights than that."""
        found = await self._found(f"{version}/exec/{reference}/json")
        process = found.get("ProcessConfig")
        if not isinstance(process, dict) or process.get("privileged"):
            raise ForbiddenCallError("an exec with privileges was not made through this proxy")
        await self.container(str(found.get("ContainerID", "")), version)

    async def unless_not_ours(self, kind: ObjectKind, name: str, version: str) -> None:
        """Check that a volume or network of that name, if any, is ours."""
        try:
            await (self.volume(name, version) if kind == "volume" else self.network(name, version))
        except EngineAnswerError as error:
            if error.status != _NOT_THERE:
                raise

    async def fit(self, kind: ObjectKind | None, body: dict[str, object], version: str) -> None:
        """Change the body of a new thing so that it is ours and uses only ours."""
        self.claim(_labels(body))
        if kind == "container":
            await self._fit_container(body, version)
        elif kind == "network":
            body["CheckDuplicate"] = True

    async def _fit_container(self, body: dict[str, object], version: str) -> None:
        """Compose 2 labels images that it builds with its project: emptied here, or its end would remove sandboxes."""
        labels = _labels(body)
        image = await self._engine.ask("GET", f"{version}/images/{quote(str(body.get('Image')), safe='/:@')}/json")
        inherited = _labels(image.document().get("Config")) if image.succeeded else {}
        body["Labels"] = {**{name: "" for name in inherited if is_compose_label(name)}, **labels}
        for mount in _volume_mounts(body):
            options = mount.get("VolumeOptions")
            options = mount["VolumeOptions"] = options if isinstance(options, dict) else {}
            options["Labels"] = {**_labels(options), INSTANCE_LABEL: labels[INSTANCE_LABEL]}
            await self.unless_not_ours("volume", str(mount["Source"]), version)
        mode = _part(body, "HostConfig").get("NetworkMode")
        if mode != "none":
            await self.network(str(mode), version)

    async def settle(
        self, kind: ObjectKind | None, body: dict[str, object], response: EngineResponse, version: str
    ) -> None:
        """Check again what a new container got hold of, now that nobody can take it away.

        Where a volume of that name was somebody else's, which an engine gives instead of an error, the container is
        removed.
        """
        if kind == "volume":
            self._check_volume("of this name", response.document())
        if kind != "container":
            return
        container = full_id(response.document())
        try:
            for mount in _volume_mounts(body):
                await self.volume(str(mount["Source"]), version)
        except BaseException:
            await self._engine.ask("DELETE", f"{version}/containers/{container}?force=1")
            raise

    async def check_start(self, found: dict[str, object], version: str) -> None:
        """Check that a container's networks are ours; names are bound to networks only at its start."""
        networks = _part(_part(found, "NetworkSettings"), "Networks")
        for name in {*networks, str(_part(found, "HostConfig").get("NetworkMode"))} - {"none"}:
            await self.unless_not_ours("network", name, version)

    async def is_here(self, name: str, tag: str, version: str) -> bool:
        """Whether an image to be pulled is here already: then it is left, since others on this host run it."""
        if _OWN_IMAGES.match(name):
            raise ForbiddenCallError("the images of Drydock are built, never pulled")
        reference = f"{name}{'@' if ':' in tag else ':'}{tag}"
        found = await self._engine.ask("GET", f"{version}/images/{quote(reference, safe='/:@')}/json")
        return found.status != _NOT_THERE

    async def derived_image(self, name: str, version: str) -> bool:
        """Whether there is an image of this name, which is ours then."""
        found = await self._engine.ask("GET", f"{version}/images/{name}/json")
        if found.status == _NOT_THERE:
            return False
        self._check("image", name, _part(found.document(), "Config").get("Labels"))
        return True

    def claim_filters(self, filters: Mapping[str, list[str]]) -> None:
        """Learn from a list's filters whom the proxy serves, if it serves nobody yet."""
        for label in filters.get("label", []):
            name, _, value = label.partition("=")
            if name == INSTANCE_LABEL and value:
                self._instance.learn(value)

    def only_ours(self, listed: object, kind: ObjectKind | None) -> object:
        if kind == "volume":
            volumes = listed.get("Volumes") if isinstance(listed, dict) else None
            return {"Volumes": self.only_ours(volumes, None), "Warnings": None}
        return [item for item in listed if self.is_ours(_labels(item))] if isinstance(listed, list) else []

    async def _found(self, target: str) -> dict[str, object]:
        return (await self._engine.ask("GET", target)).document()

    def _check_volume(self, name: str, found: Mapping[str, object]) -> None:
        """Ours, and no place of the host or the network under such a name, whoever labelled it."""
        self._check("volume", name, found.get("Labels"))
        if found.get("Driver", "local") != "local" or _part(found, "Options").keys() - {"size"}:
            raise ForbiddenCallError(f"the volume {name} is not one that this proxy makes")

    def _check(self, kind: str, reference: str, labels: object) -> None:
        if not self.is_ours(labels):
            raise ForbiddenCallError(f"the {kind} {reference} is not of the instance that this proxy serves")


def full_id(described: Mapping[str, object]) -> str:
    """The whole id of what the engine describes, in place of any other reference."""
    found = described.get("Id")
    if not isinstance(found, str) or ID.fullmatch(found) is None:
        raise ForbiddenCallError("the engine's answer could not be understood")
    return found


def _check_reference(reference: str) -> None:
    """Names must be ours, so that nobody learns which others there are."""
    if OWN_NAME.fullmatch(reference) is None and ID.fullmatch(reference) is None:
        raise ForbiddenCallError("only things whose names begin with drydock- can be touched")


def _is_confined(found: Mapping[str, object]) -> bool:
    host = _part(found, "HostConfig")
    dropped, mode, mounts = host.get("CapDrop"), str(host.get("NetworkMode")), found.get("Mounts") or []
    options = host.get("SecurityOpt")
    return (
        not any(host.get(right) for right in _RIGHTS)
        and {str(right).removeprefix("CAP_") for right in _list(host.get("CapAdd"))} <= ADDED_RIGHTS
        and isinstance(dropped, list)
        and "ALL" in dropped
        and host.get("IpcMode") in ("private", "none")
        and _LIFTED.search("\n".join(map(str, options)) if isinstance(options, list) else str(options)) is None
        and (mode == "none" or OWN_NAME.fullmatch(mode) is not None)
        and isinstance(mounts, list)
        and all(isinstance(mount, dict) and _is_plain_mount(mount) for mount in mounts)
    )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value] if value else []


def _is_plain_mount(mount: Mapping[str, object]) -> bool:
    """A volume of ours, or an unnamed one that came with the container."""
    name = str(mount.get("Name", ""))
    return mount.get("Type") == "tmpfs" or (
        mount.get("Type") == "volume" and bool(OWN_NAME.fullmatch(name) or ID.fullmatch(name))
    )


def _part(value: Mapping[str, object], key: str) -> dict[str, object]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _labels(value: object) -> dict[str, object]:
    return _part(value, "Labels") if isinstance(value, dict) else {}


def _volume_mounts(body: Mapping[str, object]) -> list[dict[str, object]]:
    mounts = _part(body, "HostConfig").get("Mounts")
    return [mount for mount in mounts if mount.get("Type") == "volume"] if isinstance(mounts, list) else []
