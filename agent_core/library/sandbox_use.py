"""The sandbox of a library's conversation: opened once, used by one run or one single call at a time.

A connection to it takes it away from the one before. So there is one for each run, and between the runs one for each
call, or one that was lent for longer: single calls share that, and a run that begins gets it back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

from agent_core.library.workspace import OpenWorkspace, Workspace
from agent_core.llm.transport import client
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.loop_thread import Closer, library_loop


class YieldingLock(asyncio.Lock):
    """A lock whose holder is asked to give it back when somebody else wants it.

    Attributes:
        give_back: what asks the holder; None for one that ends by itself.
    """

    give_back: Callable[[], object] | None = None

    async def acquire(self) -> bool:  # type: ignore[override]  # the library's type says always true
        if self.give_back is not None:
            self.give_back()
        return await super().acquire()


class SandboxUse:
    """Opens the workspace when it is first needed.

    Attributes:
        turn: held while something uses the sandbox.
    """

    def __init__(self, conversation_id: str, workspace: Workspace, *, data_dir: str, at_exit: Closer) -> None:
        """`data_dir` is the folder that the workspace may keep things in; empty: none."""
        self.turn = YieldingLock()
        self._lent: SandboxConnection | None = None
        self._sharing = 0
        self._shared = asyncio.Condition()
        self._lending = asyncio.Lock()
        self._giving_back: asyncio.Task[None] | None = None
        self._conversation_id = conversation_id
        self._workspace = workspace
        self._data_dir = data_dir
        self._at_exit = at_exit
        self._opening = asyncio.Lock()
        self._opened: OpenWorkspace | None = None

    async def connection(self) -> SandboxConnection:
        """A way to the sandbox, which is not started yet.

        Raises:
            SandboxError: it cannot be had here.
        """
        async with self._opening:
            if self._opened is None:
                instance = self._data_dir or uuid4().hex
                self._opened = await self._workspace.open(self._conversation_id, instance, self._data_dir)
                library_loop().close_at_exit(self._at_exit)
                library_loop().close_at_exit(client.aclose)
            return SandboxConnection(self._opened.sandbox)

    @contextlib.asynccontextmanager
    async def for_one_call(self) -> AsyncIterator[SandboxConnection]:
        """A connection that is closed afterwards; waits for its turn.

        Raises:
            SandboxError: the sandbox cannot be had.
        """
        if self._lent is not None:
            self._sharing += 1
            try:
                yield self._lent
            finally:
                async with self._shared:
                    self._sharing -= 1
                    self._shared.notify_all()
            return
        async with self.turn:
            connection = await self.connection()
            try:
                await connection.start()
                yield connection
            finally:
                await connection.close()

    async def lend(self) -> SandboxConnection:
        """A connection that lasts until a run begins, or the end.

        Raises:
            SandboxError: the sandbox cannot be had.
        """
        async with self._lending:
            if self._lent is None:
                await self.turn.acquire()
                connection = None
                try:
                    connection = await self.connection()
                    await connection.start()
                except BaseException:
                    if connection is not None:
                        await connection.close()
                    self.turn.release()
                    raise
                self._lent, self.turn.give_back = connection, self._ask_back
            return self._lent

    def _ask_back(self) -> None:
        connection, self._lent, self.turn.give_back = self._lent, None, None
        if connection is not None:
            self._giving_back = asyncio.create_task(self._given_back(connection), name="sandbox-given-back")

    async def _given_back(self, connection: SandboxConnection) -> None:
        async with self._shared:
            await self._shared.wait_for(lambda: self._sharing == 0)
        try:
            await connection.close()
        finally:
            self.turn.release()

    async def close(self) -> None:
        """End the sandbox, if it was ever there."""
        self._ask_back()
        if self._giving_back is not None:
            await asyncio.wait([self._giving_back])
        library_loop().forget(self._at_exit)
        if self._opened is not None:
            await self._opened.close()
