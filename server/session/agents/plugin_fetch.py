"""Fetching plugins by git: their files at one commit, without running any of them."""

from __future__ import annotations

import asyncio
import base64
import errno
import io
import os
import re
import shutil
import signal
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import IO, Final, NamedTuple
from urllib.parse import urlsplit

from agent_core.destinations import PORTS, Destination, DestinationError, Destinations, is_public
from agent_core.errors import DrydockError
from server.db.data_folder import PLUGIN_SCRATCH
from server.db.storage_health import file_error, is_of_disk
from server.git_providers.kinds import Credentials
from server.settings.plugin_source import PluginSource

FETCH_SECONDS: Final = 60.0
MAX_FILES: Final = 1_000
MAX_FILE_BYTES: Final = 2 * 1024 * 1024
MAX_BYTES: Final = 8 * 1024 * 1024
_MAX_BLOCKS: Final = 256 * 1024
"""Of a file that git writes: of half a KiB, or a whole one, as the shell counts."""
_MAX_MEMORY_KIB: Final = 1024 * 1024
"""What each of git's processes may take: a small pack may hold objects of any size."""
_MAX_PRINTED: Final = 2 * MAX_BYTES
_MAX_COMPLAINT: Final = 64 * 1024
_MAX_LISTING: Final = 1024 * 1024

_LIMITED = 'ulimit -f "$0" && { ulimit -v "$1" 2>/dev/null || :; } && shift && exec "$@"'
_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.askPass=",
    "core.sshCommand=false",
    "credential.helper=",
    "protocol.allow=never",
    "protocol.https.allow=always",
    "protocol.http.allow=always",
    "http.followRedirects=false",
    "http.proxy=",
    "fetch.fsckObjects=true",
    "fetch.unpackLimit=1",
    "pack.threads=1",
    "fetch.recurseSubmodules=no",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_REASONS: Final = (
    (
        r"Authentication failed|could not read Username|terminal prompts disabled|HTTP 40[13]|error: 40[13]",
        "there is no such repository, or it may not be read",
    ),
    (r"not found|error: 404|not valid: is this a git repository", "there is no such repository"),
    (r"couldn't find remote ref|not our ref|unadvertised object", "it has no branch, tag or commit of this name"),
    (r"redirect|error: 30\d", "it is somewhere else by now; give its present address"),
    (r"File size limit|too large|index-pack died|[Oo]ut of memory", "it is too large"),
    (r"resolve host|connect to|Connection|timed out|unable to access", "it cannot be reached"),
)


class PluginError(DrydockError):
    """A plugin cannot be installed; the message says why, and what to do."""


class Fetched(NamedTuple):
    """The files of a plugin at a commit, by their paths in it, and which of them are programs."""

    commit: str
    files: Mapping[str, bytes]
    executables: frozenset[str]

    def archive(self) -> bytes:
        """Them all in one compressed tar file, always the same for the same files."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz", compresslevel=6) as archive:
            for name, content in sorted(self.files.items()):
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(content), 0o755 if name in self.executables else 0o644
                archive.addfile(info, io.BytesIO(content))
        return data.getvalue()

    @classmethod
    def of_archive(cls, commit: str, archive: bytes) -> Fetched:
        """What `archive` has made one of."""
        files: dict[str, bytes] = {}
        executables = set()
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
            for info in opened:
                content = opened.extractfile(info)
                if content is not None:
                    files[info.name] = content.read()
                    if info.mode & 0o100:
                        executables.add(info.name)
        return cls(commit, files, frozenset(executables))


async def fetch(
    source: PluginSource, destinations: Destinations, credentials: Credentials | None, *, scratch: Path
) -> Fetched:
    """A plugin's files as they are at the moment; nothing of them is run, and nothing stays on this host.

    `credentials` are for this address alone; `scratch` is the folder in which it works. Links and submodules are left
    out. Raises `PluginError`, or `EventStoreError` where the server's disk does not let it.
    """
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            places = await _places(source, destinations)
            return await _fetched(source, places, credentials, scratch)
    except TimeoutError:
        raise PluginError(f"{source.url} was not fetched within {FETCH_SECONDS:g} s; try again") from None
    except OSError as error:
        if is_of_disk(error):
            raise file_error(f"{source.url} cannot be fetched", error) from error
        raise PluginError(f"{source.url} cannot be fetched: {error.strerror or error}") from error


async def _places(source: PluginSource, destinations: Destinations) -> list[Destination]:
    try:
        places = await destinations.find(source.url)
    except DestinationError as error:
        fix = "; the operator may allow it (setting plugin_hosts)" if error.not_public else ""
        raise PluginError(f"source: {error}{fix}") from None
    if urlsplit(source.url).scheme == "http" and any(is_public(ip_address(_address(place))) for place in places):
        raise PluginError("source: give an https address; what comes unencrypted, anybody on the way may change")
    return places


async def _fetched(
    source: PluginSource, places: Sequence[Destination], credentials: Credentials | None, scratch: Path
) -> Fetched:
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix=PLUGIN_SCRATCH, dir=scratch)
    try:
        git = _Git(folder, _settings_for(source.url, places), credentials, source.url)
        await git.run("init", "-q", "--bare", "--template=", ".")
        await git.run("fetch", "-q", "--depth=1", "--no-tags", "--", source.url, source.ref or "HEAD", where=source)
        commit = (await git.run("rev-parse", "--verify", "FETCH_HEAD^{commit}", where=source)).decode().strip()
        tree = f"{commit}:{source.path}"
        try:
            listing = await git.run("ls-tree", "-r", "-z", "-l", "--full-tree", tree)
        except PluginError:
            raise PluginError(f"path: {source.url} has no folder {source.path!r} at {commit[:12]}") from None
        entries = _entries(listing)
        contents = await git.run("cat-file", "--batch", sent="".join(f"{one.id}\n" for one in entries).encode())
        files = dict(zip((one.name for one in entries), _contents(contents, entries), strict=True))
        return Fetched(commit, files, frozenset(one.name for one in entries if one.is_executable))
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


class _Entry(NamedTuple):
    name: str
    id: str
    size: int
    is_executable: bool


def _entries(listing: bytes) -> list[_Entry]:
    if len(listing) > _MAX_LISTING:
        raise PluginError(f"it has too many files; a plugin has {MAX_FILES} at most")
    found: list[_Entry] = []
    for line in listing.decode("utf-8", "surrogateescape").split("\0"):
        facts, _, name = line.partition("\t")
        kind = facts.split()
        if len(kind) != 4 or kind[0] not in ("100644", "100755"):  # links and submodules lead elsewhere
            continue
        if not name.isprintable() or ".." in PurePosixPath(name).parts:
            raise PluginError(f"a name in it cannot be used: {name[:100]!r}")
        found.append(_Entry(name, kind[2], int(kind[3]), kind[0] == "100755"))
        if found[-1].size > MAX_FILE_BYTES:
            raise PluginError(f"{name}: it has more than {MAX_FILE_BYTES // 1024**2} MiB; a plugin's files are small")
    if len(found) > MAX_FILES:
        raise PluginError(f"it has {len(found)} files; a plugin has {MAX_FILES} at most. Name its folder (path)")
    if sum(one.size for one in found) > MAX_BYTES:
        raise PluginError(f"it has more than {MAX_BYTES // 1024**2} MiB; name the plugin's folder (path)")
    return found


def _contents(data: bytes, entries: Sequence[_Entry]) -> list[bytes]:
    """What ``git cat-file --batch`` has printed, apart."""
    found: list[bytes] = []
    start = 0
    for entry in entries:
        start = data.index(b"\n", start) + 1
        found.append(data[start : start + entry.size])
        start += entry.size + 1
    return found


def _settings_for(url: str, places: Sequence[Destination]) -> list[str]:
    """Git's settings; it asks the very addresses that were looked up."""
    parts = urlsplit(url)
    port = parts.port or PORTS[parts.scheme]
    found = [_address(place) for place in places]
    addresses = ",".join(f"[{one}]" if ":" in one else one for one in found)
    return [*_SETTINGS, f"http.curloptResolve={parts.hostname}:{port}:{addresses}"]


def _address(place: Destination) -> str:
    return urlsplit(place.url).hostname or ""


class _Git:
    """Runs git in a folder of its own, with none of this process's variables, configuration or credentials."""

    def __init__(self, folder: str, settings: Sequence[str], credentials: Credentials | None, url: str) -> None:
        self._folder = folder
        self._arguments = [part for setting in settings for part in ("-c", setting)]
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": folder,
            "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "false",
            "GIT_ATTR_NOSYSTEM": "1",
        }
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"):
            if name in os.environ:
                self._environment[name] = os.environ[name]
        if credentials is not None and credentials.token is not None:
            word = f"{credentials.username}:{credentials.token.get_secret_value()}".encode()
            header = f"Authorization: Basic {base64.b64encode(word).decode()}"
            # In the environment, not in the arguments, which every user of this machine may read.
            self._environment.update(
                GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0=f"http.{url}.extraHeader", GIT_CONFIG_VALUE_0=header
            )

    async def run(self, *arguments: str, sent: bytes = b"", where: PluginSource | None = None) -> bytes:
        """What it prints. `PluginError`: it failed, in words where it was to read `where`."""
        command = [
            "/bin/sh",
            "-c",
            _LIMITED,
            str(_MAX_BLOCKS),
            str(_MAX_MEMORY_KIB),
            "git",
            *self._arguments,
            *arguments,
        ]
        # Files, and not pipes: the shell's limit holds for them, too, and nobody has to read as git writes.
        with ExitStack() as opened:
            given, printed, complaint = (opened.enter_context(self._scratch()) for _ in range(3))
            given.write(sent)
            given.seek(0)
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    cwd=self._folder,
                    env=self._environment,
                    stdin=given,
                    stdout=printed,
                    stderr=complaint,
                    start_new_session=True,
                )
            except OSError as error:
                raise PluginError(f"git could not be started: {error.strerror or error}") from error
            try:
                status = await process.wait()
            finally:
                with suppress(ProcessLookupError):  # git, and what it has started
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            if status == 127:
                raise PluginError("git is not installed where the server runs; install it")
            if status != 0:
                complaint.seek(0)
                said = complaint.read(_MAX_COMPLAINT).decode("utf-8", "replace")
                if full := next((one for one in _FULL if os.strerror(one) in said), 0):
                    raise OSError(full, os.strerror(full))
                raise PluginError(_reason(said, where))
            printed.seek(0)
            return printed.read(_MAX_PRINTED)

    def _scratch(self) -> IO[bytes]:
        return tempfile.TemporaryFile(dir=self._folder)


def _reason(complaint: str, where: PluginSource | None) -> str:
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    last = re.sub(r"^(fatal|error|remote): *", "", lines[-1])[:300] if lines else "git says nothing about why"
    if where is None:
        return last
    for pattern, words in _REASONS:
        if re.search(pattern, complaint, re.IGNORECASE):
            named = f"{where.url} at {where.ref}" if where.ref else where.url
            return f"{named} cannot be fetched: {words} ({last})"
    return f"{where.url} cannot be fetched: {last}"
