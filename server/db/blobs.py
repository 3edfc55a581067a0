"""`BlobStore`: where large payloads are kept, each under its conversation and digest; and one in a folder on disk."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from agent_core.errors import EventStoreError, UnreadableError
from agent_core.troubles import Trouble, coded
from server.clock import careful_now
from server.db.storage_health import file_error

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
_THREADS = 2


class PayloadLostError(UnreadableError):
    """A large payload is not there any more, or was changed by somebody or something else."""


class BlobStore(Protocol):
    """Large payloads, each under its conversation and the SHA-256 of its content; failures are `EventStoreError`s."""

    async def put(self, conversation_id: str, data: bytes) -> str:
        """Keep `data`, durably when it returns; returns its digest, under which `get` finds it."""

    async def get(self, conversation_id: str, digest: str) -> bytes:
        """What was kept; `PayloadLostError` where it is not there any more, or is not what it was."""

    async def delete(self, conversation_id: str) -> None:
        """Forget everything of this conversation; unknown ids are fine."""

    async def collect(self, used: Mapping[str, Set[str]], *, older_than_seconds: float) -> int:
        """Remove what is in none of the `used` digests (by conversation id), and not young; returns how many went."""


class FolderBlobStore:
    """A `BlobStore` in a folder of the file system; an async context manager that owns its small thread pool."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pool: ThreadPoolExecutor | None = None
        self._running: set[asyncio.Future[Any]] = set()
        # Keeps `collect` from removing a piece between the moment `put` finds it there and marks it as fresh.
        self._lock = threading.Lock()

    async def __aenter__(self) -> Self:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="blobs")
        return self

    async def __aexit__(self, *_exception: object) -> None:
        pool, self._pool = self._pool, None
        if self._running:
            await asyncio.wait(self._running)
        if pool is not None:
            pool.shutdown(wait=False)

    async def put(self, conversation_id: str, data: bytes) -> str:
        try:
            return await self._in_thread(lambda: self._put(folder_name(conversation_id), data))
        except OSError as error:
            raise file_error("A large payload could not be stored", error) from error

    async def get(self, conversation_id: str, digest: str) -> bytes:
        path = self._folder / folder_name(conversation_id) / digest
        try:
            return await self._in_thread(lambda: _read(path))
        except FileNotFoundError as error:
            raise PayloadLostError(
                f"a large payload of conversation {conversation_id} is not there any more"
            ) from error
        except OSError as error:
            raise UnreadableError(
                f"a large payload of conversation {conversation_id} cannot be read: {error.strerror or error}"
            ) from error

    async def delete(self, conversation_id: str) -> None:
        path = self._folder / folder_name(conversation_id)
        try:
            await self._in_thread(lambda: _remove_tree(path))
        except OSError as error:
            raise file_error("large payloads could not be removed", error) from error

    async def collect(self, used: Mapping[str, Set[str]], *, older_than_seconds: float) -> int:
        keep = {folder_name(conversation_id): digests for conversation_id, digests in used.items()}
        return await self._in_thread(lambda: self._collect(keep, careful_now().timestamp() - older_than_seconds))

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        if self._pool is None:
            raise EventStoreError("the blob store is closed")
        running = asyncio.get_running_loop().run_in_executor(self._pool, work)
        self._running.add(running)
        running.add_done_callback(self._finished)
        # A thread cannot be stopped: who is cancelled leaves it to its end.
        return await asyncio.shield(running)

    def _finished(self, running: asyncio.Future[Any]) -> None:
        self._running.discard(running)
        if not running.cancelled():
            running.exception()  # whoever still waits is told; nobody is to be warned that nobody did

    def _put(self, name: str, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        folder = self._folder / name
        path = folder / digest
        with self._lock, suppress(FileNotFoundError):
            os.utime(path)
            return digest
        while True:
            if not folder.is_dir():
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                sync_folder(self._folder)
            try:
                _write(path, data)
            except FileNotFoundError:
                continue  # `collect` or `delete` took the empty folder away
            return digest

    def _collect(self, keep: Mapping[str, Set[str]], oldest: float) -> int:
        removed = 0
        if not self._folder.is_dir():
            return 0
        for folder in self._folder.iterdir():
            digests = keep.get(folder.name, frozenset())
            for path in folder.iterdir():
                with self._lock, suppress(FileNotFoundError):
                    if path.name not in digests and path.stat().st_mtime < oldest:
                        path.unlink()
                        removed += 1
            with suppress(OSError):  # not empty, or gone
                folder.rmdir()
        return removed


async def drop_blobs(blobs: BlobStore, conversation_id: str) -> None:
    """Delete the large payloads of a log whose rows are gone; what resists is left for `collect`."""
    try:
        await blobs.delete(conversation_id)
    except EventStoreError as error:
        text = "large payloads of the deleted conversation %s are left over for now: %s"
        _log.warning(text, conversation_id, error, extra=coded(Trouble.LEFTOVERS_KEPT, conversation_id))


def folder_name(conversation_id: str) -> str:
    """A folder name of this conversation's own: capitals are escaped too, for file systems that ignore case."""
    if _PLAIN_NAME.fullmatch(conversation_id):
        return conversation_id
    return "~" + hashlib.sha256(conversation_id.encode("utf-8", "surrogatepass")).hexdigest()


def _read(path: Path) -> bytes:
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != path.name:
        raise PayloadLostError(f"the large payload {path.name} of {path.parent.name} is damaged")
    return data


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        try:
            sync_folder(path.parent)
        except OSError:
            path.unlink(missing_ok=True)  # what is there counts as durable the next time
            raise
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _remove_tree(path: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(path)


def sync_folder(folder: Path) -> None:
    """Make durable what was created, replaced or removed in the folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
