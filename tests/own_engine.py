"""A Docker engine of a test's own, on a file system of its own, with a small image."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import tarfile
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from docker.api.client import APIClient
from docker.utils import kwargs_from_env

from agent_core.runtime.docker.images import DEFAULT_IMAGE
from agent_core.runtime.processes import children_of
from agent_core.testing.sandbox_contract import eventually

MEGABYTE = 1024**2
IMAGE = "drydock-test/small"
TLS_PORT = 2376
CLONE_NEWNET = 0x40000000
LIBRARIES = ("usr/lib/python3/", "usr/lib/x86_64-linux-gnu/gconv/", "usr/lib/x86_64-linux-gnu/perl")


def unmount(disk: Path) -> None:
    """Unmount it, and whatever an engine has left mounted in its folder."""
    with open("/proc/self/mounts") as file:
        places = [line.split()[1] for line in file]
    for place in reversed(places):
        if place.startswith(f"{disk.parent}/") and subprocess.run(["umount", place], check=False).returncode != 0:
            subprocess.run(["umount", "-l", place], check=False)


def started_engine(
    folder: Path, stack: ExitStack, *, driver: str = "overlay2", tls: tuple[Path, Path, Path] | None = None
) -> str:
    """An engine in a network of its own: it would take the bridge of this host's other one away.

    Its processes are numbered anew, too: as those of another machine they cannot be looked into from here. With `tls`,
    an authority, a certificate and its key, it also listens at `TLS_PORT` of that network (see `connected_to`).
    """
    encrypted = [f"--host=tcp://127.0.0.1:{TLS_PORT}", "--tlsverify"] if tls is not None else []
    encrypted += [f"--tls{name}={file}" for name, file in zip(("cacert", "cert", "key"), tls or (), strict=False)]
    settings, place = folder / "daemon.json", folder / "s"
    settings.write_text("{}")
    log = stack.enter_context((folder / "log").open("wb"))
    engine = subprocess.Popen(
        [
            *("unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child"),
            *("sh", "-c", 'ip link set lo up && exec dockerd "$@"', "dockerd"),
            *(f"--config-file={settings}", f"--host=unix://{place}", *encrypted),
            *(f"--data-root={folder}/disk/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"),
            *(f"--storage-driver={driver}", "--bridge=none", "--iptables=false", "--ip6tables=false"),
            *(f"--containerd-namespace={folder.name}", f"--containerd-plugins-namespace={folder.name}-plugins"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    stack.callback(end, engine)
    asyncio.run(eventually(lambda: answers(place, engine, folder / "log"), limit=90))
    return f"unix://{place}"


def engine_of(folder: Path) -> int:
    """The process of the engine that was started in this folder, by the number that it has here."""
    command = f"dockerd\0--config-file={folder / 'daemon.json'}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().startswith(command):
                return int(process.name)
        except OSError:
            continue
    raise LookupError(f"no engine runs in {folder}")


def connected_to(folder: Path) -> socket.socket:
    """A connection to the engine's `TLS_PORT`, out of the network that it has for itself."""
    found: list[socket.socket] = []

    def connect() -> None:  # in a thread that ends with it: it is in that network from now on
        network = os.open(f"/proc/{engine_of(folder)}/ns/net", os.O_RDONLY)
        try:
            assert ctypes.CDLL(None).setns(network, CLONE_NEWNET) == 0
        finally:
            os.close(network)
        found.append(socket.create_connection(("127.0.0.1", TLS_PORT)))

    thread = threading.Thread(target=connect)
    thread.start()
    thread.join()
    return found[0]


def end(engine: subprocess.Popen[bytes]) -> None:
    for process in children_of(engine.pid):
        os.kill(process, signal.SIGTERM)
    try:
        engine.wait(60)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait(60)


def answers(place: Path, engine: subprocess.Popen[bytes], log: Path) -> bool:
    assert engine.poll() is None, log.read_text()[-2000:]
    with socket.socket(socket.AF_UNIX) as probe:  # the SDK leaves its own open when nobody listens
        return probe.connect_ex(str(place)) == 0


def load_image(address: str) -> None:
    """Give it what of this host's own image a shell and the runner need: a whole one takes many times as long."""
    source: Any = APIClient(version="auto", **kwargs_from_env())
    target: Any = APIClient(base_url=address, version="auto")
    container = source.create_container(DEFAULT_IMAGE, ["true"], network_disabled=True)
    try:
        with tempfile.TemporaryFile() as whole, tempfile.NamedTemporaryFile() as small:
            for piece in source.export(container):
                whole.write(piece)
            whole.seek(0)
            with tarfile.open(fileobj=whole) as old, tarfile.open(fileobj=small, mode="w") as new:
                for entry in old:
                    if is_needed(entry):
                        new.addfile(entry, old.extractfile(entry) if entry.isreg() else None)
            small.flush()
            told = target.import_image_from_file(small.name, repository=IMAGE)
            assert "error" not in told, told
    finally:
        source.remove_container(container, force=True)
        source.close()
        target.close()


def is_needed(entry: tarfile.TarInfo) -> bool:
    large = entry.size > MEGABYTE and not entry.name.endswith(("/python3.11", "/bash", "/libc.so.6", "/libcrypto.so.3"))
    return (
        not large
        and not entry.islnk()
        and not entry.name.startswith(("opt/", "var/", "usr/share/", "usr/lib/git-core/", *LIBRARIES))
    )
