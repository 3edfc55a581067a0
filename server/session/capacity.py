"""`Capacity`: how many conversations may be at work, and how many sandboxes be up, on this machine."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from server.session.memory_ceiling import machine_memory, processors, whole_memory
from server.settings.settings import MEGABYTE, Settings

AGENTS_PER_CORE: Final = 250
"""An agent waits for its model most of the time; its steps take some milliseconds of a processor each."""
SANDBOX_MEMORY_MB: Final = 256
"""What a sandbox is reckoned with: about 20 MiB for its runner, the rest for what the agent runs. It may take more."""
KEPT_MEMORY_MB: Final = 1024
"""What the server and the machine's other programs are left."""
FEWEST_SANDBOXES: Final = 2


class Capacity(NamedTuple):
    """`working` conversations in all and `per_user` of each user may be at work at a time, and `sandboxes` be up.

    At most `warm` are kept ready for conversations to come, as long as there is room. `origin` says for people where
    the numbers come from.
    """

    working: int
    per_user: int
    sandboxes: int
    origin: str = ""
    warm: int = 0

    @classmethod
    def of(cls, settings: Settings, *, cores: int | None = None, memory_mb: int | None = None) -> Self:
        """As the settings say; what they leave open is reckoned from the machine's `cores` and memory.

        Sandboxes that an engine runs are not in the control group of this process, and have the whole machine's memory.
        So those of a cluster are reckoned, whose nodes are not known here.
        """
        cores = cores or processors()
        memory = whole_memory() if settings.sandbox in ("docker", "kubernetes") else machine_memory()
        memory_mb = memory_mb or memory.total // MEGABYTE
        by_memory = max(FEWEST_SANDBOXES, (memory_mb - KEPT_MEMORY_MB) // SANDBOX_MEMORY_MB)
        sandboxes = settings.max_sandboxes or by_memory
        by_cores = AGENTS_PER_CORE * cores
        if not (settings.docker_hosts and settings.max_sandboxes is None):  # whose memory is known once they are there
            by_cores = min(by_cores, sandboxes)
        working = settings.max_working_conversations or by_cores
        per_user = min(settings.max_concurrent_conversations or working, working)
        return cls(working, per_user, sandboxes, _origin(settings, cores, memory_mb), settings.warm_sandboxes)


def _origin(settings: Settings, cores: int, memory_mb: int) -> str:
    told = []
    if settings.max_sandboxes is None and settings.docker_hosts:
        told.append("sandboxes: as many as the Docker hosts that can be reached have memory for")
    elif settings.max_sandboxes is None:
        room = f"{SANDBOX_MEMORY_MB} MiB for each sandbox of {memory_mb} MiB, {KEPT_MEMORY_MB} MiB kept"
        told.append(f"sandboxes by memory: {room}")
    if settings.max_working_conversations is None:
        each = f"each of {cores} processors" if cores > 1 else "the one processor"
        told.append(f"agents: {AGENTS_PER_CORE} for {each}, at most one for each sandbox")
    if settings.max_concurrent_conversations is None:
        told.append("each user as many as all")
    return "; ".join(told) or "all as set"
