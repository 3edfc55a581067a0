"""The order to the launcher of a local sandbox: what to start, as whom, and within which bounds."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import struct
from pathlib import Path
from typing import Any

from agent_core.runtime import network_border
from agent_core.runtime.injection import boot_command, serve_arguments
from agent_core.runtime.local import bubblewrap as local_view
from agent_core.runtime.local import launch as local_launch
from agent_core.runtime.local.bubblewrap import shown_libraries
from agent_core.runtime.local.cgroups import ControlGroup
from agent_core.runtime.local.folder import SandboxFolder
from agent_core.runtime.processes import identify
from agent_core.runtime.sandbox import WITH_A_WAY_OUT, WORKSPACE, SandboxSpec
from agent_core.runtime.seccomp import filter_program

_OWN = "/32 host LOCAL"


def host_networks() -> list[str]:
    """All IPv4 addresses of this host, and networks on bridges without a network card; IPv6 is not sent at all."""
    found: list[str] = []
    address = ""
    for line in Path("/proc/self/net/fib_trie").read_text().splitlines():
        if line.split()[:1] == ["|--"]:
            address = line.split()[1]
        elif line.strip() == _OWN:
            found.append(f"{address}/32")
    for line in Path("/proc/self/net/route").read_text().splitlines()[1:]:
        device, network, gateway, *_, mask = line.split()[:8]
        ports = Path("/sys/class/net", device, "brif")
        if gateway != "00000000" or network == "00000000" or not ports.is_dir():
            continue
        if not any((port / "device").exists() for port in ports.iterdir()):
            start = socket.inet_ntoa(struct.pack("=I", int(network, 16)))
            found.append(str(ipaddress.IPv4Network(f"{start}/{int(mask, 16).bit_count()}")))
    return list(dict.fromkeys(found))


MARK = "DRYDOCK_SANDBOX"
"""Variable that marks the processes of an unconfined sandbox; its value is the sandbox's name."""

SLIRP_NETWORK = "10.0.2.0/24"
_MOUNT_POINTS = ("/mnt", "/media", "/srv", "/opt")


def network_program(spec: SandboxSpec) -> str | None:
    """The program that connects a sandbox to the world, if that is wished and the program is there."""
    found = shutil.which("slirp4netns") if spec.network in WITH_A_WAY_OUT else None
    return None if found is None else os.path.realpath(found)


def launch_order(
    spec: SandboxSpec, folder: SandboxFolder, group: ControlGroup, uid: int | None, bwrap: str | None
) -> dict[str, Any]:
    """The order for `local.launch.main`; makes the control groups. `uid`: the user to become, or None to stay."""
    joins, limited = group.make(spec.limits)
    bounds = {"CORE": 0}
    if "memory" not in limited:
        bounds["DATA"] = spec.limits.memory
    if spec.limits.disk and not spec.workspace:  # one file alone cannot be more, whoever looks or does not
        bounds["FSIZE"] = spec.limits.disk
    if uid is not None and not spec.workspace:  # the user of a given folder may have processes elsewhere
        bounds["NPROC"] = spec.limits.processes
    guard = {
        "owner": list(identify(os.getpid()) or (0, 0)),
        "folder": str(folder.path),
        "joins": joins,
        "scratch": os.path.abspath(spec.data_dir),
    }
    own = _unconfined(spec, folder) if bwrap is None else _confined(spec, folder, uid, bwrap, "pids" in limited)
    return {
        **own,
        "folder": str(folder.path),
        "uid": uid,
        "joins": joins,
        "limits": bounds,
        "guard": guard if spec.ends_with_owner else {},
    }


def _confined(spec: SandboxSpec, folder: SandboxFolder, uid: int | None, bwrap: str, counted: bool) -> dict[str, Any]:
    places = [path for path in _MOUNT_POINTS if os.path.isdir(path)] if uid is not None else []
    folders = dict.fromkeys(library.folder for library in shown_libraries())
    wanted = [path for path in (str(folder.path), spec.workspace, *folders) if path]
    mounts = dict(zip(wanted, places, strict=False))
    # A user of the sandbox's own may not walk the way to the server's files.
    seen_at = {path: path if uid is None else mounts.get(path, "") for path in folders}
    libraries = [(seen_at[library.folder], library) for library in shown_libraries() if seen_at[library.folder]]
    seen = mounts.get(str(folder.path), str(folder.path))
    workspace = mounts.get(spec.workspace, spec.workspace) or f"{seen}/workspace"
    program = filter_program(os.uname().machine)
    inner = 0 if (uid is not None and not spec.workspace) or counted else spec.limits.processes
    inside = spec.workspace or WORKSPACE
    return {
        "argv": [
            *(bwrap, *boot_command(local_view.interpreter().path, processes=inner, log=True)),
            *serve_arguments(
                spec.limits,
                socket=f"fd:{local_launch.SOCKET_MARK}",
                workspace=inside,
                own_workspace=not spec.workspace,
            ),
        ],
        "view": [
            *local_view.isolation(seen),
            *(local_view.without_kernel_files() if uid is None and os.geteuid() == 0 else ()),
            *local_view.places(seen, (workspace, inside), spec.limits, filtered=bool(program), libraries=libraries),
        ],
        "filter": program.hex(),
        "env": local_view.environment(
            local_view.HOME,
            {**{library.variable: library.place for _, library in libraries}, **spec.environment},
            confined=True,
        ),
        "mounts": mounts,
        "network": _network(spec),
    }


def _network(spec: SandboxSpec) -> dict[str, Any]:
    program = network_program(spec)
    if program is None:
        return {}
    guarded = spec.network != "host-access"
    return {
        "program": program,
        "border": network_border.__file__ if guarded else "",
        "resolver": f"{local_view.RESOLVER}/32",
        "refused": [SLIRP_NETWORK, *host_networks()] if guarded else [],
    }


def _unconfined(spec: SandboxSpec, folder: SandboxFolder) -> dict[str, Any]:
    serve = serve_arguments(
        spec.limits,
        socket=f"fd:{local_launch.SOCKET_MARK}",
        state_dir=str(folder.path / "state"),
        workspace=str(folder.workspace),
        own_workspace=not spec.workspace,
        alone=False,
    )
    boot = boot_command(local_view.interpreter().path, root=str(folder.path), log=True)
    libraries = {library.variable: library.folder for library in shown_libraries()}
    return {
        "argv": [*boot, *serve],
        "view": [],
        "filter": "",
        "env": {
            **local_view.environment(str(folder.path / "home"), {**libraries, **spec.environment}, confined=False),
            MARK: folder.name,
        },
        "mounts": {},
        "network": {},
    }
