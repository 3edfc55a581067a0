"""The sandbox of a library's conversation: opened once, used by one run or one single call at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from uuid import uuid4

from agent_core.llm import client
from agent_core.runtime.connection import SandboxConnection
from agent_core.runtime.loop_thread import Closer, library_loop
from agent_core.session.workspace import OpenWorkspace, Workspace


class SandboxUse:
    """Opens the workspace when it is first needed.

    Attributes:
        turn: held while something uses the sandbox; a second connection to it would take it away from the first.
    """

    def __init__(self, conversation_id: str, workspace: Workspace, *, data_dir: str, at_exit: Closer) -> None:
        """`data_dir` is the folder that the workspace may keep things in; empty: none."""
        self.turn = asyncio.Lock()
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
        async with self.turn:
            connection = await self.connection()
            try:
                await connection.start()
                yield connection
            finally:
                await connection.close()

    async def close(self) -> None:
        """End the sandbox, if it was ever there."""
        library_loop().forget(self._at_exit)
        if self._opened is not None:
            await self._opened.close()
