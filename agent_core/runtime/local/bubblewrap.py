"""What a local sandbox sees: bubblewrap's arguments for a small read-only view of the host and folders of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from agent_core.runtime.local.launch import FILTER_MARK, INFO_MARK
from agent_core.runtime.local.shown_libraries import Shown
from agent_core.runtime.naming import RUNNER_ROOT, STATE_DIR
from agent_core.runtime.sandbox import SandboxLimits

HOME = "/home/agent"
INNER_UID = 1000
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
OWN_PROGRAMS = "/opt/bin"
RESOLVER = "10.0.2.3"
_SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SHARED_MEMORY = 64 * 1024**2
_HOST_FILES = (
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/chromium.d",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
)
"""Read-only, where the host has them; nothing that names its users, keys or machines."""

_KERNEL_SETTINGS = ("acpi", "bus", "driver", "fs", "irq", "mtrr", "pressure", "scsi", "sys", "sysrq-trigger", "tty")
_KERNEL_SECRETS = (
    "kallsyms",
    "kcore",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "slabinfo",
    "timer_list",
)

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
    for path in _HOST_FILES:
        arguments += ["--ro-bind-try", path, path]
    for name in OWN_FILES:
        arguments += ["--ro-bind", f"{folder}/etc/{name}", f"/etc/{name}"]
    prefix = interpreter().prefix
    if prefix is not None:
        arguments += ["--ro-bind", prefix, prefix]
    if lacks_python():
        arguments += ["--dir", OWN_PROGRAMS, "--symlink", interpreter().path, f"{OWN_PROGRAMS}/python"]
    return arguments


def without_kernel_files() -> list[str]:
    """Arguments for a sandbox that has to run as this host's root, because the folder that it works in is root's.

    Such processes have no capabilities, but the kernel lets root write its settings without any; bubblewrap covers only
    a part of them.
    """
    arguments: list[str] = []
    for name in _KERNEL_SETTINGS:
        if os.path.exists(f"/proc/{name}"):
            arguments += ["--ro-bind", f"/proc/{name}", f"/proc/{name}"]
    for name in _KERNEL_SECRETS:
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
        *_packages(libraries),
        *("--bind", f"{folder}/state", STATE_DIR),
        *("--bind", f"{folder}/home", HOME),
        *("--bind", *workspace),
        *("--remount-ro", "/dev", "--remount-ro", "/"),  # both are in memory and would be without a bound
        *("--chdir", RUNNER_ROOT, "--info-fd", INFO_MARK),
        *(("--seccomp", FILTER_MARK) if filtered else ()),
    ]


def _packages(libraries: Sequence[tuple[str, Shown]]) -> list[str]:
    return [
        word
        for seen, library in libraries
        for name in library.names
        for word in ("--ro-bind", f"{seen}/{name}", f"{library.place}/{name}")
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
    """True when the sandbox's Python goes by the name ``python3`` only: most people, and models, type ``python``."""
    return interpreter().prefix is None and shutil.which("python", path=SYSTEM_PATH) is None


class Interpreter:
    """A Python for the runner: the system's, or, where that is missing or too old, the one that runs this server."""

    def __init__(self, path: str, prefix: str | None) -> None:
        self.path = path
        self.prefix = prefix


@cache
def interpreter() -> Interpreter:
    """Find it once per process; `prefix` is the folder to show to the sandbox in addition, if any."""
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
