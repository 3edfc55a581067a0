"""What the server says of itself, and plain confirmations."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Confirmation(BaseModel):
    """It is done."""

    message: str


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"]


class Memory(BaseModel):
    """Bytes of memory, and the share of the machine's."""

    rss: int
    vms: int
    percent: float


class Disk(BaseModel):
    """Bytes of the disk with the data."""

    total: int
    used: int
    free: int
    percent: float


class Transferred(BaseModel):
    """Bytes read and written."""

    read_bytes: int
    write_bytes: int


class Resources(BaseModel):
    """What the process uses."""

    cpu_percent: float
    memory: Memory
    disk: Disk
    io: Transferred


class ServerInfo(BaseModel):
    """For how long the process runs and rests, in seconds, and what it uses."""

    uptime: float
    idle_time: float
    resources: Resources


class FeatureFlags(BaseModel):
    """Parts of the original's client that are switched on."""

    ENABLE_BILLING: bool
    HIDE_LLM_SETTINGS: bool


class SandboxChoice(BaseModel):
    """Where conversations run, and why there."""

    provider: str
    reason: str


class DrydockFacts(BaseModel):
    """What our own page asks."""

    version: str
    sandbox: SandboxChoice
    model: str
    demo: bool
    auth_required: bool
    settings_stored: bool


class ClientConfig(BaseModel):
    """What a client needs to know before anything else."""

    APP_MODE: Literal["oss"]
    GITHUB_CLIENT_ID: str
    POSTHOG_CLIENT_KEY: str
    FEATURE_FLAGS: FeatureFlags
    DRYDOCK: DrydockFacts = Field(description="An addition to the protocol.")
