"""What a local sandbox sees: bubblewrap's arguments for a read-only view of the host, own folders, and libraries."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from agent_core.runtime.local.launch import FILTER_MARK, INFO_MARK
from agent_core.runtime.sandbox import RUNNER_ROOT, STATE_DIR, SandboxLimits

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
        names |= {file.parts[0] for file in distribution.files or () if _is_package(folder, file.parts)}
        projects |= set(_needs(distribution)) - done
    return names


def _is_package(folder: str, parts: tuple[str, ...]) -> bool:
    first = parts[0]
    if first.endswith(".dist-info"):  # of which one is read: it says how kernels are started
        return first.startswith("jupyter_client-")
    return first not in ("..", "__pycache__") and not first.endswith(".pth") and Path(folder, first).exists()


def _needs(distribution: metadata.Distribution) -> Iterator[str]:
    for requirement in distribution.requires or ():
        project, _, condition = requirement.partition(";")
        found = _PROJECT.match(project)
        if found is not None and "extra" not in condition and "pypy" not in condition:
            yield found.group().lower()


HOME = "/home/agent"
INNER_UID = 1000
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
OWN_PROGRAMS = "/opt/bin"
RESOLVER = "10.0.2.3"
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

OWN_FILES: Mapping[str, str] = {
    "passwd": f"root:x:0:0:root:/:/bin/sh\nagent:x:{INNER_UID}:{INNER_UID}:agent:{HOME}:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/:/bin/sh\n",
    "group": f"root:x:0:\nagent:x:{INNER_UID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "resolv.conf": f"nameserver {RESOLVER}\n",  # slirp4netns answers there; without it nobody does
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "gitconfig": "[init]\n\tdefaultBranch = main\n[safe]\n\tdirectory = *\n"
    "[user]\n\tname = Drydock agent\n\temail = agent@drydock.invalid\n",
}
"""Files of the sandbox's own /etc."""


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
        *("--chdir", RUNNER_ROOT, "--info-fd", INFO_MARK),
        *(("--seccomp", FILTER_MARK) if filtered else ()),
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
