"""Where a Docker engine is, and what is wished of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class EngineTls(NamedTuple):
    """Files in PEM form: who vouches for an engine (None: whom the system trusts), what is shown to it, and its key."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class DockerHost:
    """One engine of several: ``unix://``, ``tcp://`` (with the files of `tls`) or ``ssh://`` (by `ssh_config`, a file).

    It takes no new sandboxes beside `max_sandboxes` of them (None: by its memory), nor any while it is `draining`.
    """

    name: str
    url: str
    tls: EngineTls | None = None
    ssh_config: str | None = None
    max_sandboxes: int | None = None
    draining: bool = False
