"""The order to the launcher of a local sandbox: what to start, as whom, within which bounds, and what it sees there.

That is a read-only view of the host by bubblewrap, folders of its own, and libraries.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from agent_core.runtime import network_border
from agent_core.runtime.injection import boot_command, serve_arguments
from agent_core.runtime.local import launch as local_launch
from agent_core.runtime.local.cgroups import ControlGroup
from agent_core.runtime.local.folder import HOME, INNER_UID, OWN_FILES, RESOLVER, SandboxFolder
from agent_core.runtime.processes import identify
from agent_core.runtime.sandbox import RUNNER_ROOT, STATE_DIR, WITH_A_WAY_OUT, WORKSPACE, SandboxLimits, SandboxSpec
from agent_core.runtime.seccomp import filter_program

_log = logging.getLogger(__name__)

BROWSER_PACKAGES = ("playwright", "greenlet")
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_KERNEL_PROJECTS = ("ipykernel", "jupyter_client", "pypdf")
_NEVER_USED = frozenset({"debugpy"})
_PROJECT = re.compile(r"[A-Za-z0-9._-]+")


class Shown(NamedTuple):
    """Packages of one purpose: the runner finds them by `variable`, in a sandbox they are at `place`."""

    variable: str
    place: str
    folder: str
    names: tuple[str, ...]


@cache
def shown_libraries() -> tuple[Shown, ...]:
    """The installed packages for the browser and the kernel."""
    found = []
    if browser := _folder_of(BROWSER_PACKAGES):
        place = f"{RUNNER_ROOT}/browser-library"
        found.append(Shown("DRYDOCK_BROWSER_LIBRARY", place, browser, BROWSER_PACKAGES))
    folder = _folder_of(_KERNEL_PROJECTS[:2])
    if folder and (names := tuple(sorted(_names_of(folder, set(_KERNEL_PROJECTS))))):
        found.append(Shown("DRYDOCK_KERNEL_LIBRARY", f"{RUNNER_ROOT}/kernel-library", folder, names))
    return tuple(found)


@cache
def _open_libraries() -> tuple[Shown, ...]:
    """Those that a sandbox can be shown; others would keep every sandbox from starting."""
    return tuple(shown for shown in shown_libraries() if _is_open(shown))


def _is_open(shown: Shown) -> bool:
    """Whether the user of a sandbox, who is another one where this is root, can read them."""
    if os.geteuid() != 0:
        return True
    for path in (Path(shown.folder), *(Path(shown.folder, name) for name in shown.names)):
        needed = 0o005 if path.is_dir() else 0o004
        if path.stat().st_mode & needed != needed:
            _log.warning(
                "%s can be read by root alone (the umask of its installation?): local sandboxes go without what is in"
                " %s for them; to mend it: chmod -R a+rX %s",
                *(path, shown.folder, shown.folder),
            )
            return False
    return True


def host_has_browser() -> bool:
    """Whether this host has the browser's library, and a Chromium on its path."""
    return bool(_folder_of(BROWSER_PACKAGES)) and any(shutil.which(name) for name in CHROMIUM)


@cache
def _folder_of(packages: tuple[str, ...]) -> str:
    folders: set[str] = set()
    for name in packages:
        spec = find_spec(name)
        places = list(spec.submodule_search_locations or []) if spec is not None else []
        if not places:
            return ""
        folders.add(str(Path(places[0]).resolve().parent))
    return folders.pop() if len(folders) == 1 else ""


def _names_of(folder: str, projects: set[str]) -> set[str]:
    names: set[str] = set()
    done = set(_NEVER_USED)
    while projects:
        project = projects.pop()
        done.add(project)
        try:
            distribution = metadata.distribution(project)
        except metadata.PackageNotFoundError:
            continue  # one for another system, or an optional one
        for first in {file.parts[0] for file in distribution.files or ()}:
            if first.endswith(".dist-info"):  # of which one is read: it says how kernels are started
                is_package = first.startswith("jupyter_client-")
            else:
                is_other = first in ("..", "__pycache__") or first.endswith(".pth")
                is_package = not is_other and Path(folder, first).exists()
            if is_package:
                names.add(first)
        for requirement in distribution.requires or ():
            needed, _, condition = requirement.partition(";")
            found = _PROJECT.match(needed)
            if found is not None and "extra" not in condition and "pypy" not in condition:
                projects |= {found.group().lower()} - done
    return names


SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
OWN_PROGRAMS = "/opt/bin"
_SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SHARED_MEMORY = 64 * 1024**2
_HOST_FILES = """
alternatives bash.bashrc ca-certificates chromium.d crypto-policies debian_version fonts inputrc ld.so.cache
ld.so.conf ld.so.conf.d localtime magic mime.types os-release pki/ca-trust pki/tls/certs protocols services
ssl/certs ssl/openssl.cnf terminfo timezone
"""
"""In /etc, read-only, where the host has them; nothing that names its users, keys or machines."""

_KERNEL_SETTINGS = ("acpi", "bus", "driver", "fs", "irq", "mtrr", "pressure", "scsi", "sys", "sysrq-trigger", "tty")
_KERNEL_SECRETS = "kallsyms kcore keys kmsg kpagecgroup kpagecount kpageflags slabinfo timer_list"


def isolation(folder: str) -> list[str]:
    """Arguments for namespaces, users and a view of the host; `folder` is the sandbox's as bubblewrap sees it.

    The network namespace is always one of its own: sharing the host's would open its loopback services, Drydock and
    its database among them, and the abstract sockets of its programs.
    """
    arguments = [
        *("--unshare-user", "--uid", str(INNER_UID), "--gid", str(INNER_UID), "--disable-userns"),
        # The runner is the first process: nobody inside can end it, and none beside it has descriptors of the host's.
        *("--unshare-pid", "--as-pid-1"),
        *("--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"),
        "--unshare-net",
        *("--new-session", "--cap-drop", "ALL"),
        *("--ro-bind", "/usr", "/usr"),
        *("--proc", "/proc", "--dev", "/dev", "--dir", "/etc", "--dir", "/run", "--dir", "/var"),
        *("--symlink", "/tmp", "/var/tmp"),  # noqa: S108 - a path inside the sandbox
    ]
    for path in _SYSTEM_FOLDERS:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            arguments += ["--ro-bind", path, path]
    for path in _HOST_FILES.split():
        arguments += ["--ro-bind-try", f"/etc/{path}", f"/etc/{path}"]
    for name in OWN_FILES:
        arguments += ["--ro-bind", f"{folder}/etc/{name}", f"/etc/{name}"]
    prefix = interpreter().prefix
    if prefix is not None:
        arguments += ["--ro-bind", prefix, prefix]
    if lacks_python():
        arguments += ["--dir", OWN_PROGRAMS, "--symlink", interpreter().path, f"{OWN_PROGRAMS}/python"]
    return arguments


def without_kernel_files() -> list[str]:
    """Arguments for a sandbox that runs as this host's root, who could write the kernel's settings otherwise."""
    arguments: list[str] = []
    for name in _KERNEL_SETTINGS:
        if os.path.exists(f"/proc/{name}"):
            arguments += ["--ro-bind", f"/proc/{name}", f"/proc/{name}"]
    for name in _KERNEL_SECRETS.split():
        if os.path.isfile(f"/proc/{name}"):
            arguments += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    return arguments


def places(
    folder: str,
    workspace: tuple[str, str],
    limits: SandboxLimits,
    *,
    filtered: bool,
    libraries: Sequence[tuple[str, Shown]] = (),
) -> list[str]:
    """Arguments for the sandbox's own folders and the bounds of those in memory, and for a filter of system calls.

    `workspace`: where bubblewrap sees it, and where the sandbox shall. `libraries`: packages, and where it sees those.
    """
    return [
        *("--size", str(limits.tmp_size), "--perms", "1777", "--tmpfs", "/tmp"),  # noqa: S108 - inside the sandbox
        *("--size", str(_SHARED_MEMORY), "--perms", "1777", "--tmpfs", "/dev/shm"),  # noqa: S108
        *("--ro-bind", f"{folder}/runner", f"{RUNNER_ROOT}/runner"),
        *(
            word
            for seen, library in libraries
            for name in library.names
            for word in ("--ro-bind", f"{seen}/{name}", f"{library.place}/{name}")
        ),
        *("--bind", f"{folder}/state", STATE_DIR),
        *("--bind", f"{folder}/home", HOME),
        *("--bind", *workspace),
        *("--remount-ro", "/dev", "--remount-ro", "/"),  # both are in memory and would be without a bound
        *("--chdir", RUNNER_ROOT, "--info-fd", local_launch.INFO_MARK),
        *(("--seccomp", local_launch.FILTER_MARK) if filtered else ()),
    ]


def environment(home: str, extra: Mapping[str, str], *, confined: bool) -> dict[str, str]:
    """Variables of every process: nothing of the server's own. `confined`: they see what `isolation` shows."""
    own_bin = "" if interpreter().prefix is None else f"{os.path.dirname(interpreter().path)}:"
    last = f":{OWN_PROGRAMS}" if confined and lacks_python() else ""
    return {
        "PATH": f"{home}/.local/bin:{own_bin}{SYSTEM_PATH}{last}",
        "HOME": home,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        **extra,
    }


@cache
def lacks_python() -> bool:
    """Whether the sandbox's Python has only the name ``python3``: people and models type ``python``."""
    return interpreter().prefix is None and shutil.which("python", path=SYSTEM_PATH) is None


class Interpreter(NamedTuple):
    """A Python for the runner: the system's, or, where that is missing or too old, this server's, in `prefix`."""

    path: str
    prefix: str | None


@cache
def interpreter() -> Interpreter:
    """Find it, once per process."""
    system = "/usr/bin/python3"
    if os.access(system, os.X_OK):
        try:
            answer = subprocess.run(  # noqa: S603 - a fixed path
                [system, "-I", "-S", "-c", "import sys; print(sys.version_info >= (3, 8))"],
                capture_output=True,
                timeout=10,
                check=False,
                env={},
            )
        except (OSError, subprocess.TimeoutExpired):
            answer = None
        if answer is not None and answer.stdout.strip() == b"True":
            return Interpreter(system, None)
    prefix = os.path.realpath(sys.base_prefix)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    path = Path(prefix, "bin", f"python{version}")
    return Interpreter(str(path), None if path.is_relative_to("/usr") else prefix)


def host_networks() -> list[str]:
    """All IPv4 addresses of this host, and networks on bridges without a network card; IPv6 is not sent at all."""
    found: list[str] = []
    address = ""
    for line in Path("/proc/self/net/fib_trie").read_text().splitlines():
        if line.split()[:1] == ["|--"]:
            address = line.split()[1]
        elif line.strip() == "/32 host LOCAL":
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
    points = [path for path in _MOUNT_POINTS if os.path.isdir(path)] if uid is not None else []
    folders = dict.fromkeys(library.folder for library in _open_libraries())
    paths = [path for path in (str(folder.path), spec.workspace, *folders) if path]
    mounts = dict(zip(paths, points, strict=False))
    # A user of the sandbox's own may not walk the way to the server's files.
    seen_at = {path: path if uid is None else mounts.get(path, "") for path in folders}
    libraries = [(seen_at[library.folder], library) for library in _open_libraries() if seen_at[library.folder]]
    seen = mounts.get(str(folder.path), str(folder.path))
    workspace = mounts.get(spec.workspace, spec.workspace) or f"{seen}/workspace"
    program = filter_program(os.uname().machine)
    inner = 0 if (uid is not None and not spec.workspace) or counted else spec.limits.processes
    inside = spec.workspace or WORKSPACE
    connecting, guarded = network_program(spec), spec.network != "host-access"
    return {
        "argv": [
            *(bwrap, *boot_command(interpreter().path, processes=inner, log=True)),
            *serve_arguments(
                spec.limits,
                socket=f"fd:{local_launch.SOCKET_MARK}",
                workspace=inside,
                own_workspace=not spec.workspace,
            ),
        ],
        "view": [
            *isolation(seen),
            *(without_kernel_files() if uid is None and os.geteuid() == 0 else ()),
            *places(seen, (workspace, inside), spec.limits, filtered=bool(program), libraries=libraries),
        ],
        "filter": program.hex(),
        "env": environment(
            HOME,
            {**{library.variable: library.place for _, library in libraries}, **spec.environment},
            confined=True,
        ),
        "mounts": mounts,
        "network": {
            "program": connecting,
            "border": network_border.__file__ if guarded else "",
            "resolver": f"{RESOLVER}/32",
            "refused": [SLIRP_NETWORK, *host_networks()] if guarded else [],
        }
        if connecting is not None
        else {},
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
    boot = boot_command(interpreter().path, root=str(folder.path), log=True)
    libraries = {library.variable: library.folder for library in shown_libraries()}
    return {
        "argv": [*boot, *serve],
        "view": [],
        "filter": "",
        "env": {
            **environment(str(folder.path / "home"), {**libraries, **spec.environment}, confined=False),
            MARK: folder.name,
        },
        "mounts": {},
        "network": {},
    }
