"""Snapshots of a workspace's files at moments of its conversation: the runner keeps them behind its actions.

Here the moments are named that it cannot know of: messages of the user, and actions that are carried out elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from agent_core.errors import EventStoreError, SandboxError, SandboxLostError, ToolError, storage_code
from agent_core.events.branches import Rewind
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.channel.shared_sandbox import SharedSandbox
from agent_core.runtime.sandbox import SandboxStatus
from agent_core.tools.context import SandboxAccess
from agent_core.tools.definition import ToolDefinition

logger = logging.getLogger(__name__)

TAKE_SECONDS = 30.0
RESTORE_SECONDS = 120.0
SLOWEST = 5 * 1024**2
"""Bytes that are unpacked in a second, at least."""
MOMENTS = 500
MAX_PACK = 1024**3


class Restored(NamedTuple):
    """As of which event the files are now (None: as they were), and what there is to say of it."""

    event_id: int | None
    note: str = ""


def moments_of(path: Sequence[range], unanswered: Collection[int]) -> list[int]:
    """The ids on a path under which files may be kept, newest first; no action without an answer."""
    ids = (event_id for stretch in reversed(path) for event_id in reversed(stretch) if event_id not in unanswered)
    return list(islice(ids, MOMENTS))


class ConversationSnapshots:
    """Names the moments of one log; while `rewinding` is held the files are not yet those of its present."""

    def __init__(
        self, stream: EventStream, sandbox: SandboxAccess, tools: Mapping[str, ToolDefinition], rewinding: asyncio.Lock
    ) -> None:
        self._stream = stream
        self._sandbox = sandbox
        self._tools = tools
        self._position = -1
        self._request_id: int | None = None
        self._rewinding = rewinding

    def observe(self, event: AnyEvent) -> None:
        """Take a stored event into account: between the last action and the user's first message nothing was done."""
        self._position = event.id
        if isinstance(event, ActionEvent | ObservationEvent | Rewind):
            self._request_id = None
        elif isinstance(event, MessageEvent) and event.source == "user" and self._request_id is None:
            self._request_id = event.id

    async def run(self) -> None:
        """Keep the present files, and follow the log until the stream is closed."""
        await self._take(self._position if self._request_id is None else self._request_id)
        async with self._stream.subscribe(after=self._position) as events:
            async for event in events:
                if isinstance(event, MessageEvent) and event.source == "user":
                    async with self._rewinding:
                        pass  # what is asked of the runner after that it does after that
                    await self._take(event.id)
                elif isinstance(event, ObservationEvent):
                    tool = self._tools.get(event.tool_name)
                    if tool is not None and not (tool.journaled or tool.annotations.readOnlyHint):
                        await self._take(event.cause)  # the runner has not: it does not know of such calls
                self._position = events.position

    async def _take(self, event_id: int) -> None:
        try:
            args = {"name": name_of(self._stream.conversation_id, event_id)}
            await self._sandbox.request("workspace.snapshot", args, limit_seconds=TAKE_SECONDS)
        except (SandboxError, ToolError) as error:
            # One that is missing is found out when it is wanted, and the user told.
            logger.debug("no snapshot of %s at event %d: %s", self._stream.conversation_id, event_id, error)


async def has_files(sandbox: SandboxConnection | SharedSandbox) -> bool:
    """Whether there are files to restore: not without a sandbox, nor in another one's."""
    return isinstance(sandbox, SandboxConnection) and await sandbox.sandbox.poll() is not SandboxStatus.ABSENT


async def keep(sandbox: SandboxAccess, conversation_id: str, event_id: int) -> str:
    """Keep the files under the id of this event; returns why that cannot be done, or an empty string."""
    try:
        args = {"name": name_of(conversation_id, event_id)}
        await sandbox.request("workspace.snapshot", args, limit_seconds=RESTORE_SECONDS)
    except (SandboxError, ToolError) as error:
        return f"The files in the workspace were left as they are: {error}"
    return ""


async def restore(sandbox: SandboxAccess, conversation_id: str, moments: list[int]) -> Restored:
    """Make the files as they were at the one of these moments that was kept last; may be repeated.

    That need not be the one with the highest id: after a crash, or beside others, an action ends late.
    """
    names = {name_of(conversation_id, moment): moment for moment in moments}
    try:
        args = {"names": list(names), "keep": f"{conversation_id}:present"}
        reply = await sandbox.request("workspace.restore", args, limit_seconds=RESTORE_SECONDS)
    except SandboxLostError as error:
        return Restored(None, f"It is not known what became of the files in the workspace: {error}")
    except (SandboxError, ToolError) as error:
        return Restored(None, f"The files in the workspace were left as they are: {error}")
    found = names.get(str(reply.result.get("restored")))
    if found is None:
        return Restored(None, "The files in the workspace were left as they are: none are kept from then.")
    return Restored(found)


async def packed(sandbox: SandboxAccess, conversation_id: str, moments: list[int]) -> AsyncIterator[bytes]:
    """A tar file, in parts, of the files at the moment kept last, else as they are; raises as the others do."""
    names = [name_of(conversation_id, moment) for moment in moments]
    offset, is_whole, file = 0, False, uuid.uuid4().hex
    while not is_whole:
        args = {"names": names, "keep": f"{conversation_id}:packed", "offset": offset, "file": file}
        reply = await sandbox.request("workspace.pack", args, limit_seconds=RESTORE_SECONDS)
        part = reply.blob or b""
        offset += len(part)
        is_whole = bool(reply.result.get("eof")) or not part
        if offset > MAX_PACK:
            raise SandboxError(f"The workspace has more than {MAX_PACK // 2**20} MiB.", code="too_large")
        yield part


async def unpack(sandbox: SandboxAccess, parts: AsyncIterator[bytes]) -> None:
    """Put the files of such a tar file into the workspace."""
    offset = 0
    async for part in parts:
        await sandbox.request("workspace.unpack", {"offset": offset}, blob=part, limit_seconds=RESTORE_SECONDS)
        offset += len(part)
    args = {"offset": offset, "eof": True}
    limit = RESTORE_SECONDS + offset / SLOWEST
    await sandbox.request("workspace.unpack", args, blob=b"", limit_seconds=limit)


async def forget_behind(sandbox: SandboxAccess, conversation_id: str, last_id: int) -> None:
    """Have the sandbox forget what it knows of events behind the log's last one, when a session begins.

    They were lost, by a disk that lies or with an older backup: their results and files must not count for those that
    will have their numbers.
    """
    try:
        await sandbox.request("log.end", {"log": conversation_id, "last": last_id}, limit_seconds=TAKE_SECONDS)
    except (SandboxError, ToolError) as error:
        # A runner of an earlier release does not know of it, and what is missing from its disk cannot mislead.
        logger.info("%s: the sandbox may know of events that the log has lost: %s", conversation_id, error)


def name_of(conversation_id: str, event_id: int) -> str:
    """The key of an action, and the name under which files are kept."""
    return f"{conversation_id}:{event_id}"


PART = 8 * 1024 * 1024

_reading = ThreadPoolExecutor(1, thread_name_prefix="seeds")


async def plant(seed: Path | None, sandbox: SandboxAccess) -> None:
    """Unpack the tar file `seed` into the workspace, and remove it; without effect once it is gone."""
    if seed is None:
        return
    loop = asyncio.get_running_loop()
    try:
        file: BinaryIO = await loop.run_in_executor(_reading, seed.open, "rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreadable(error) from error
    try:
        await unpack(sandbox, _parts(file))
        await loop.run_in_executor(_reading, seed.unlink, True)
    except OSError as error:  # as long as it is there it would be put over what comes after it
        raise _unreadable(error) from error
    finally:
        await loop.run_in_executor(_reading, file.close)


def _unreadable(error: OSError) -> EventStoreError:
    reason = error.strerror or type(error).__name__
    return EventStoreError(
        f"The files that wait for it cannot be put into its workspace: {reason}", code=storage_code(error)
    )


async def _parts(file: BinaryIO) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while part := await loop.run_in_executor(_reading, file.read, PART):
        yield part
