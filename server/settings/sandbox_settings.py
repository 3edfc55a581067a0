"""`SandboxSettings`: those of the server's settings that say where and within what limits sandboxes run."""

from __future__ import annotations

from math import inf
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from agent_core.runtime.sandbox import NetworkWish, SandboxWish
from server.settings.text_fields import (
    EnvironmentVariables,
    FromTable,
    Words,
)

MAX_COMMANDS = 20_000
PositiveSeconds = Annotated[float, Field(gt=0)]


class SandboxSettings(BaseModel):
    """The base of `Settings`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    sandbox: SandboxWish = Field(
        "auto",
        description="`docker`, `local` (bubblewrap), `unconfined` (no isolation at all: only for code that you trust), "
        "or `auto`: Docker where an engine answers, else local.",
    )
    sandbox_image: str = Field(
        "drydock/sandbox:base",
        min_length=1,
        description="Docker image of the sandboxes: any with Python 3.8 or newer. A tag may mean another image one "
        "day; `name@sha256:…` never does.",
    )
    sandbox_images: Words = Field(
        (),
        description="Images that conversations may choose beside `sandbox_image` and our own (`drydock/sandbox:…`): by "
        "their user's settings, by the request that makes them, or by a file of their repository. Patterns in which "
        "`*` stands for anything but a slash, such as `python:3.*` or `ghcr.io/me/*`; `*` alone allows any.",
    )
    sandbox_network: NetworkWish = Field(
        "full",
        description="`none`: no network; `internal`: one without a way out, not to other sandboxes either; "
        "`full`: the internet and your network, but neither this host nor what its cloud tells it (link-local and "
        "metadata addresses), over IPv4 only; `host-access`: `full`, and this host with all that listens there.",
    )
    sandbox_network_max: NetworkWish | None = Field(
        None,
        description="The widest network that a conversation may choose, from `none` over `internal` and `full` to "
        "`host-access`; by default `sandbox_network`.",
    )
    sandbox_memory_mb: int = Field(4096, ge=64, description="Memory of one sandbox, in MiB.")
    sandbox_memory_max_mb: int | None = Field(
        None,
        ge=64,
        description="The most memory that a conversation may choose, in MiB; by default `sandbox_memory_mb`.",
    )
    sandbox_cpus: float = Field(2.0, gt=0, description="Processors of one sandbox.")
    sandbox_cpus_max: float | None = Field(
        None, gt=0, description="The most processors that a conversation may choose; by default `sandbox_cpus`."
    )
    sandbox_processes: int = Field(512, ge=16, description="Processes and threads of one sandbox.")
    sandbox_processes_max: int | None = Field(
        None, ge=16, description="The most processes that a conversation may choose; by default `sandbox_processes`."
    )
    sandbox_tmp_mb: int = Field(
        1024, ge=1, description="Size of a sandbox's `/tmp`, and in a container of its `/var/tmp`, in MiB, in memory."
    )
    sandbox_disk_mb: int = Field(
        10240,
        ge=0,
        description="What the files of one sandbox may take on the disk, in MiB; 0: any amount. Where there is more, "
        "whatever runs in it is ended. Docker on XFS with `pquota`: held by quotas, too (`drydock doctor` says so).",
    )
    sandbox_disk_max_mb: int | None = Field(
        None,
        ge=0,
        description="The most that a conversation may choose of the disk, in MiB; by default `sandbox_disk_mb`; 0: any "
        "amount.",
    )
    sandbox_inodes: int = Field(
        1_000_000, ge=0, description="How many files, folders and links one sandbox may have; 0: any number."
    )
    sandbox_read_only: bool = Field(
        True,
        description="Docker: whether nothing of a sandbox's image can be changed. What can be written then is "
        "`/workspace`, the home folder, `/tmp` and `/var/tmp`.",
    )
    sandbox_start_seconds: PositiveSeconds = Field(60, description="Bound on a sandbox's start.")
    sandbox_start_max_seconds: PositiveSeconds | None = Field(
        None, description="The longest start that a conversation may choose; by default `sandbox_start_seconds`."
    )
    sandbox_grace_seconds: PositiveSeconds = Field(
        5, description="What a sandbox's processes get to end by themselves."
    )

    runtime_startup_env_vars: Annotated[EnvironmentVariables, FromTable] = Field(
        {},
        description="Variables of everything that runs in sandboxes, beside those of their users; a table in the file, "
        "JSON in the variable. What looks like a secret, by its name or its value, is hidden wherever it appears.",
    )
    runtime_extra_deps: str = Field(
        "",
        max_length=MAX_COMMANDS,
        description="Shell commands that install in the image of sandboxes what it lacks, such as `apt-get update && "
        "apt-get install -y jq`. They run as root, in the network of the conversation, once for each image; the image "
        "that they make is kept and used by all. Not for secrets, nor with local sandboxes, which have no image.",
    )
    runtime_extra_deps_seconds: PositiveSeconds = Field(600, description="Bound on these commands.")
    users_set_up_sandboxes: bool = Field(
        True,
        description="Whether users may have `runtime_startup_env_vars` and `runtime_extra_deps` of their own. Where "
        "they may no more, what they had counts no more either, from the next start of each conversation on.",
    )

    @field_validator(
        "sandbox_network_max",
        "sandbox_memory_max_mb",
        "sandbox_cpus_max",
        "sandbox_processes_max",
        "sandbox_disk_max_mb",
        "sandbox_start_max_seconds",
    )
    @classmethod
    def _most_is_no_less_than_usual(cls, value: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name).replace("_max", "")
        usual = info.data.get(name)
        if value is None or usual is None:  # that one is wrong itself
            return value
        order = get_args(NetworkWish)
        most, least = (order.index(value), order.index(usual)) if usual in order else (value or inf, usual or inf)
        if most < least:
            raise ValueError(f"is less than {name}, which is {usual}; set it to that or more, or leave it out")
        return value

    @field_validator("runtime_extra_deps")
    @classmethod
    def _there_is_something_to_install_in(cls, value: str, info: ValidationInfo) -> str:
        sandbox, own = info.data.get("sandbox"), info.data.get("sandbox_provider_class")
        if value.strip() and own is None and sandbox in ("local", "unconfined"):
            raise ValueError(f"{sandbox} sandboxes have no image to install in; leave it out, or have sandbox = docker")
        return value
