"""Where this host keeps what a container writes, when it is this host that runs it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agent_core.runtime.processes import members_of_namespace


class Places(NamedTuple):
    """Folders of this host; none when it is another one, or when this process may not look at them."""

    folders: tuple[str, ...]
    init: int
    container: str

    def processes(self) -> list[int]:
        """The container's processes, where they are seen from here. Blocks for as long as the process table takes."""
        try:
            groups = Path(f"/proc/{self.init}/cgroup").read_text()
        except OSError:
            return []
        return members_of_namespace(self.init) if self.container in groups else []


def places_of(found: Mapping[str, Any]) -> Places:
    """The places of a container as the engine describes it."""
    folders = {str(mount.get("Source")): None for mount in found.get("Mounts") or () if mount.get("Type") == "volume"}
    if not found["HostConfig"].get("ReadonlyRootfs"):
        upper = (found.get("GraphDriver") or {}).get("Data") or {}
        folders[str(upper.get("UpperDir"))] = None
    seen = all(os.path.isdir(folder) and os.access(folder, os.R_OK | os.X_OK) for folder in folders)
    return Places(tuple(folders) if seen else (), int(found["State"].get("Pid") or 0), str(found["Id"]))
