"""The provider of sandboxes without an engine: under bubblewrap, or unconfined by explicit wish."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from agent_core.errors import SandboxError
from agent_core.events.transient import NETWORK_WARNING
from agent_core.runtime.local.cgroups import held_limits, remove_stale
from agent_core.runtime.local.folder import RECORD, SandboxFolder
from agent_core.runtime.local.sandbox import LocalSandbox
from agent_core.runtime.sandbox import (
    WITH_A_WAY_OUT,
    Availability,
    NetworkWish,
    Sandbox,
    SandboxLimits,
    SandboxSpec,
    SandboxState,
    object_name,
)

_NOT_HELD = "cannot be limited here, because this server may not make control groups"
_STALE_SECONDS = 3600.0
_INSTALL = "Install it: sudo apt-get install bubblewrap (or your system's equivalent)."


class LocalProvider:
    """Makes a sandbox of processes on this host for each conversation; `start_seconds` bounds the start of `check`.

    `confined` is False only by the user's explicit wish: then commands run as this server's user, with all it may do.
    """

    def __init__(
        self, data_dir: str, *, confined: bool = True, start_seconds: float = SandboxLimits().start_seconds
    ) -> None:
        self.name = "local" if confined else "unconfined"
        self._data_dir = data_dir
        self._confined = confined
        self._start_seconds = start_seconds
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="local-sandbox")

    async def check(self) -> Availability:
        if not self._confined:
            return Availability(True, "commands run as this server's user, WITHOUT ISOLATION, as was asked for")
        if shutil.which("bwrap") is None:
            return Availability(False, "bubblewrap (bwrap) is not installed", _INSTALL)
        try:
            await self._try()
        except SandboxError as error:
            return Availability(False, _short(str(error).removesuffix(error.fix)), _advice(str(error)) or error.fix)
        words = ["bubblewrap isolates processes of this host"]
        if shutil.which("slirp4netns") is None:
            words.append("without a network (no slirp4netns)")
        if "memory" not in await asyncio.get_running_loop().run_in_executor(self._pool, held_limits):
            words.append(f"the memory of a whole sandbox {_NOT_HELD}: each of its processes may have as much as it")
        return Availability(True, ", ".join(words))

    async def folders(self) -> Sequence[str]:
        return ()

    async def lacks(self) -> Mapping[str, str]:
        reason = "local sandboxes have no image, but see the programs of this host (sandbox = docker has images)"
        found = {"image": reason, "extra_deps": reason}
        held = await asyncio.get_running_loop().run_in_executor(self._pool, held_limits)
        if "memory" not in held:
            found["memory_mb"] = f"the memory of a whole sandbox {_NOT_HELD}"
        if "cpu" not in held:
            found["cpus"] = f"processors {_NOT_HELD}"
        if not self._confined:
            found["network"] = "unconfined sandboxes have the network of this host, whatever is wished for"
            if "pids" not in held:
                found["processes"] = f"processes {_NOT_HELD}"
        return found

    def create(self, spec: SandboxSpec) -> Sandbox:
        return self._sandbox(spec, object_name(spec.instance_id, spec.conversation_id))

    def restore(self, spec: SandboxSpec, state: SandboxState) -> Sandbox:
        name = state.get("name", "")
        known = name if name and "/" not in name and not name.startswith(".") else ""
        return self._sandbox(spec, known or object_name(spec.instance_id, spec.conversation_id))

    async def reap(self, instance_id: str, keep: Collection[str]) -> list[str]:
        remaining, removed = set(keep), []
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, remove_stale, _STALE_SECONDS)
        names = {object_name(instance_id, one) for one in remaining}
        for name, conversation in await loop.run_in_executor(self._pool, self._found, instance_id):
            if conversation not in remaining and name not in names:
                spec = SandboxSpec(conversation, instance_id, image="", data_dir=self._data_dir)
                await self._sandbox(spec, name).destroy()
                removed.append(conversation)
        return sorted(filter(None, removed))

    async def running(self, instance_id: str) -> Collection[str]:
        def look() -> set[str]:
            found = self._found(instance_id)
            return {one for name, one in found if one and SandboxFolder(self._data_dir, name).is_up}

        return await asyncio.get_running_loop().run_in_executor(self._pool, look)

    async def try_network(self, spec: SandboxSpec) -> Availability:
        """Whether sandboxes get this network, tried with one that is removed again."""
        if not self._confined:
            return Availability(False, "unconfined: commands use this host's own network, whatever is wished for")
        if spec.network not in WITH_A_WAY_OUT:
            return Availability(True, "none, as was asked for" if spec.network == "none" else "no way out")
        warnings = [text for status, text in await self._try(spec.network) if status == NETWORK_WARNING]
        if warnings:
            return Availability(False, warnings[-1])
        if spec.network == "host-access":
            return Availability(True, "leads out, and to this host, as was asked for")
        return Availability(True, "leads out, but not to this host nor to link-local and metadata addresses")

    async def prepare(self, spec: SandboxSpec) -> None:
        """There is nothing to be done."""

    async def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _sandbox(self, spec: SandboxSpec, name: str) -> LocalSandbox:
        bwrap = os.path.realpath(shutil.which("bwrap") or "/usr/bin/bwrap") if self._confined else None
        return LocalSandbox(spec, name, bwrap=bwrap, pool=self._pool)

    def _found(self, instance_id: str) -> list[tuple[str, str]]:
        """Folders of this instance with their conversations; "" for one that has not, or no more, said whose it is."""
        found = []
        for folder in sorted(Path(self._data_dir, "sandboxes").glob("drydock-*")):
            try:
                record = json.loads((folder / RECORD).read_text())
            except FileNotFoundError:
                record = {"instance": instance_id}  # its making, or its removal, was broken off
            except (OSError, ValueError):
                continue
            if record.get("instance") == instance_id:
                found.append((folder.name, str(record.get("conversation", ""))))
        return found

    async def _try(self, network: NetworkWish = "none") -> list[tuple[str, str]]:
        """Start a sandbox and remove it: the only honest test; returns what its start told."""
        statuses: list[tuple[str, str]] = []
        with tempfile.TemporaryDirectory(prefix="drydock-check-") as folder, _locked(folder):
            limits = SandboxLimits(start_seconds=self._start_seconds, tmp_size=1024**2, stop_seconds=1)
            spec = SandboxSpec(
                *("check", os.urandom(4).hex(), "", folder),
                network=network,
                limits=limits,
                ends_with_owner=True,
            )
            sandbox = self._sandbox(spec, object_name(spec.instance_id, spec.conversation_id))
            try:
                await sandbox.start(lambda status, text: statuses.append((status, text)))
            finally:
                await sandbox.destroy()
        return statuses


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Hold a lock on the folder, which ends with this process: the next server removes what has none."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _short(text: str) -> str:
    lines = text.strip().splitlines()
    return (lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}")[:500]


def _advice(text: str) -> str:
    if "No permissions to create" in text or "user namespace" in text or "uid map" in text:
        return (
            "Allow user namespaces: sudo sysctl kernel.unprivileged_userns_clone=1 (Debian), "
            "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu 24.04 and later), "
            "or sudo sysctl user.max_user_namespaces=15000."
        )
    if "Unknown option" in text:
        return "This bubblewrap is too old; version 0.8 or newer is needed."
    if "proc" in text:
        return (
            "This looks like a container that hides /proc; give it --security-opt systempaths=unconfined, "
            "or use Docker."
        )
    return ""
