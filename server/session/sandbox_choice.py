"""What a conversation chooses of its sandbox, by its request or its user's settings, within the server's bounds."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from typing import Annotated, Final, Literal, NamedTuple, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from agent_core.runtime.docker.images import OWN_IMAGES, is_own
from agent_core.runtime.sandbox import NetworkWish, SandboxLimits
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.user_settings import StoredSettings
from server.errors import ServerError
from server.settings.settings import MEGABYTE, Settings

logger = logging.getLogger(__name__)

SANDBOX: Final = "sandbox"
"""Key among a conversation's options: the `ChosenSandbox` that it was begun with."""

_NETWORKS: Final[tuple[str, ...]] = get_args(NetworkWish)
_MOST: Final = 1_000_000_000
_IMAGE: Final = re.compile(
    r"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)


class SandboxRefusedError(ServerError):
    """Something was chosen that this server does not grant; the message names the field, the bound and the fix."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


def _image_name(value: str) -> str:
    name = value.strip()
    if name and (len(name) > 500 or _IMAGE.fullmatch(name) is None):
        raise ValueError("is no name of an image; write one such as python:3.12 or ghcr.io/owner/name:tag")
    return name


ImageName = Annotated[str, AfterValidator(_image_name)]
"""The name of an image, or an empty text for none."""


class SandboxOptions(BaseModel):
    """What a request chooses of its conversation's sandbox; the rest is as its user's settings and the server say."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    image: ImageName | None = None
    network: NetworkWish | None = None
    memory_mb: int | None = Field(None, ge=64, le=_MOST)
    cpus: float | None = Field(None, ge=0.01, le=_MOST)
    processes: int | None = Field(None, ge=16, le=_MOST)
    disk_mb: int | None = Field(None, ge=1, le=_MOST)
    start_seconds: float | None = Field(None, ge=1, le=_MOST)


class ChosenSandbox(SandboxOptions):
    """What a conversation was begun with, as it is stored with it; None is the server's, as it is by then.

    `image_from` says who chose the image; `extra_deps` are commands that install something in it, and
    `looked_in_repository` is whether its repository's own word is known.
    """

    model_config = ConfigDict(extra="ignore")

    image_from: Literal["request", "repository", "user", "server"] = "server"
    extra_deps: str = ""
    looked_in_repository: bool = False

    @property
    def choices(self) -> list[str]:
        """The fields in which somebody chose something."""
        names = [name for name in SandboxOptions.model_fields if getattr(self, name) is not None]
        names = [name for name in names if name != "image" or self.image_from != "server"]
        return [*names, *(["extra_deps"] if self.extra_deps else [])]


class _Bound(NamedTuple):
    """Of a number that may be chosen: its field, the settings with the server's own value and the most, its unit."""

    field: str
    setting: str
    maximum: str
    unit: str = ""

    def most(self, server: Settings) -> float:
        highest = getattr(server, self.maximum)
        value = getattr(server, self.setting) if highest is None else highest
        return math.inf if value == 0 else float(value)  # 0 is any amount, where it can be set

    def refusal(self, server: Settings, asked: float) -> str:
        return (
            f"{asked:g}{self.unit} is more than a conversation may have on this server, which is {self.most(server):g}"
            f"{self.unit}; choose less, or have {self.maximum} raised in the server's configuration"
        )


_BOUNDS: Final = (
    _Bound("memory_mb", "sandbox_memory_mb", "sandbox_memory_max_mb", " MiB"),
    _Bound("cpus", "sandbox_cpus", "sandbox_cpus_max", " processors"),
    _Bound("processes", "sandbox_processes", "sandbox_processes_max"),
    _Bound("disk_mb", "sandbox_disk_mb", "sandbox_disk_max_mb", " MiB"),
    _Bound("start_seconds", "sandbox_start_seconds", "sandbox_start_max_seconds", " s"),
)
_MULTIPLIED: Final = ("memory_mb", "cpus")
FACTOR: Final = "remote_runtime_resource_factor"
RUNTIME_IMAGE: Final = "sandbox_runtime_container_image"
BASE_IMAGE: Final = "sandbox_base_container_image"
COMMANDS: Final = "runtime_extra_deps"
SANDBOX_FIELDS: Final = frozenset({FACTOR, RUNTIME_IMAGE, BASE_IMAGE, COMMANDS})
"""The user's settings that choose something of their conversations' sandboxes."""


def choose_sandbox(request: SandboxOptions, user: StoredSettings | None, server: Settings) -> ChosenSandbox:
    """What a new conversation begins with.

    Of a user's two images the runtime's wins. `remote_runtime_resource_factor` multiplies the server's memory and
    processors, where the request does not say how much. Raises `SandboxRefusedError`.
    """
    user = user or StoredSettings()
    values = request.model_dump(exclude_none=True)
    for bound in _BOUNDS:
        if (asked := values.get(bound.field)) is not None and asked > bound.most(server):
            raise SandboxRefusedError(f"{SANDBOX}.{bound.field}", bound.refusal(server, asked))
    if request.network is not None and _rank(request.network) > _rank(_widest(server)):
        narrower = ", ".join(_NETWORKS[: _rank(_widest(server)) + 1])
        problem = (
            f"{request.network} is more than a conversation may have on this server: choose one of {narrower}, or have"
            " sandbox_network_max raised in the server's configuration"
        )
        raise SandboxRefusedError(f"{SANDBOX}.network", problem)
    for bound in _BOUNDS:
        factor = user.remote_runtime_resource_factor or 1
        if bound.field in _MULTIPLIED and factor > 1:
            multiplied = getattr(server, bound.setting) * factor
            if bound.field not in values and multiplied > bound.most(server):
                raise SandboxRefusedError(FACTOR, f"{factor} times: {bound.refusal(server, multiplied)}")
            values.setdefault(bound.field, multiplied)
    fields = {f"{SANDBOX}.image": request.image, **{name: getattr(user, name) for name in (RUNTIME_IMAGE, BASE_IMAGE)}}
    place, image = next(((name, text.strip()) for name, text in fields.items() if (text or "").strip()), ("", ""))
    if image:
        refuse_image(place, image, server)
    chosen_by = {"": "server", f"{SANDBOX}.image": "request"}.get(place, "user")
    values |= {"image": image or server.sandbox_image, "image_from": chosen_by}
    # The runtime's image is whole as it is, as in the origin.
    return ChosenSandbox.model_validate(
        {**values, "extra_deps": "" if place == RUNTIME_IMAGE else commands_of(user, server)}
    )


def commands_of(user: StoredSettings | None, server: Settings) -> str:
    """What installs something in images: the server's commands, and then the user's, where they may have some."""
    own = (user.runtime_extra_deps or "") if user is not None and server.users_set_up_sandboxes else ""
    return "\n".join(one.strip() for one in (server.runtime_extra_deps, own) if one.strip())


def commands_in(chosen: ChosenSandbox, server: Settings) -> str:
    """The commands that a conversation was begun with; the server's of now where users may have none any more."""
    return commands_of(None, server) if chosen.extra_deps and not server.users_set_up_sandboxes else chosen.extra_deps


def refuse_what_lacks(chosen: ChosenSandbox, lacks: Mapping[str, str], user: StoredSettings | None) -> None:
    """Raise `SandboxRefusedError` for a choice that the provider of sandboxes `lacks` (by field, with the reason)."""
    user = user or StoredSettings()
    for name in chosen.choices:
        if (reason := lacks.get(name)) is None:
            continue
        place = f"{SANDBOX}.{name}" if name != "extra_deps" else COMMANDS
        if name == "image" and chosen.image_from == "user":
            place = RUNTIME_IMAGE if user.sandbox_runtime_container_image else BASE_IMAGE
        elif name in _MULTIPLIED and (user.remote_runtime_resource_factor or 1) > 1:
            place = f"{place} ({FACTOR})"
        raise SandboxRefusedError(place, f"{reason}; leave it out")


def check_of_settings(settings: StoredSettings, changed: Collection[str], server: Settings) -> ChosenSandbox:
    """What the `changed` fields of a user's settings choose; raises `SandboxRefusedError`."""
    server = server.model_copy(update={COMMANDS: ""})  # what the server itself wants is none of theirs
    names = SANDBOX_FIELDS & set(changed)
    for name in names & {RUNTIME_IMAGE, BASE_IMAGE}:  # also the one that the other wins over
        choose_sandbox(SandboxOptions(), StoredSettings.model_validate({name: getattr(settings, name)}), server)
    only = StoredSettings.model_validate({name: getattr(settings, name) for name in names})
    return choose_sandbox(SandboxOptions(), only, server)


def stored_choice(record: ConversationRecord) -> ChosenSandbox:
    """What the conversation was begun with; what cannot be read of it is left to the server."""
    values = dict(record.options.get(SANDBOX) or {})
    while True:
        try:
            return ChosenSandbox.model_validate(values)
        except ValidationError as error:
            wrong = {str(problem["loc"][0]) for problem in error.errors()} & values.keys()
            logger.warning("conversation %s: its sandbox's %s cannot be used", record.id, ", ".join(sorted(wrong)))
            values = {name: value for name, value in values.items() if wrong and name not in wrong}


def with_choice(record: ConversationRecord, chosen: ChosenSandbox) -> ConversationRecord:
    """The record of a conversation that has this sandbox."""
    return replace(record, options={**record.options, SANDBOX: chosen.model_dump(mode="json", exclude_none=True)})


def network_of(chosen: ChosenSandbox, server: Settings) -> NetworkWish:
    """The chosen network, or the server's; never a wider one than conversations may have by now."""
    return min(chosen.network or server.sandbox_network, _widest(server), key=_rank)


def image_of(chosen: ChosenSandbox, server: Settings) -> str:
    """The image that the conversation has had from its beginning; the server's where none may choose it by now."""
    if chosen.image and (chosen.image_from == "server" or is_allowed(chosen.image, server)):
        return chosen.image
    return server.sandbox_image


def limits_of(chosen: ChosenSandbox, server: Settings) -> SandboxLimits:
    """The chosen limits, or the server's; never more than conversations may have by now."""

    def value(bound: _Bound) -> float:
        chosen_one = getattr(chosen, bound.field)
        found: float = getattr(server, bound.setting) if chosen_one is None else min(chosen_one, bound.most(server))
        return found

    found = {bound.field: value(bound) for bound in _BOUNDS}
    return SandboxLimits(
        memory=int(found["memory_mb"]) * MEGABYTE,
        cpus=found["cpus"],
        processes=int(found["processes"]),
        tmp_size=server.sandbox_tmp_mb * MEGABYTE,
        disk=int(found["disk_mb"]) * MEGABYTE,
        inodes=server.sandbox_inodes,
        read_only=server.sandbox_read_only,
        start_seconds=found["start_seconds"],
        stop_seconds=server.sandbox_grace_seconds,
    )


def is_allowed(image: str, server: Settings) -> bool:
    """Whether a conversation may choose this image: the server's own, one of ours, or one of `sandbox_images`."""
    if image == server.sandbox_image or is_own(image):
        return True
    whole = image if ":" in image.rpartition("/")[2] else f"{image}:latest"
    names = (image, whole, whole.removesuffix(":latest"))  # the same image
    return any(_pattern(one).fullmatch(name) for one in server.sandbox_images for name in names)


def refuse_image(field: str, image: str, server: Settings) -> None:
    """Raise `SandboxRefusedError` for an image that is not allowed, with what is and what to do."""
    if is_allowed(image, server):
        return
    allowed = dict.fromkeys((server.sandbox_image, f"{OWN_IMAGES}:*", *server.sandbox_images))
    problem = (
        f"the image {image} is not one that conversations may choose on this server: {', '.join(allowed)}. Choose one"
        " of these, or have it added to sandbox_images in the server's configuration"
    )
    raise SandboxRefusedError(field, problem)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """`*` stands for anything but a slash, which would lead to another registry or owner; alone for anything."""
    return re.compile(".*" if text == "*" else "[^/]*".join(re.escape(part) for part in text.split("*")))


def _widest(server: Settings) -> NetworkWish:
    return server.sandbox_network_max or server.sandbox_network


def _rank(network: str) -> int:
    return _NETWORKS.index(network)
