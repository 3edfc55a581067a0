"""Keeps the branch of a conversation's repository up to date where commands change it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from agent_core.errors import DrydockError
from agent_core.events.llm_events import ObservationEvent
from agent_core.events.serialization import AnyEvent
from agent_core.session.repository import folder_of
from agent_core.tools.spec import SandboxAccess
from agent_core.tools.terminal import TerminalObservation
from server.db.conversations import ConversationRepository

logger = logging.getLogger(__name__)

GIT_SECONDS: Final = 40.0
MAX_BRANCH_CHARS: Final = 500
_MAY_CHANGE_IT = re.compile(r"\bgit\b[^|;&\n]*\s(checkout|switch|merge|rebase|reset|branch)\b")


class BranchKeeper:
    """Asks the sandbox for the branch after each command that may have changed it; an async context manager.

    The repository is the one that the conversation was begun with, else the workspace itself, if it is one. A command
    while it asks makes it ask once more.
    """

    def __init__(
        self, conversation_id: str, conversations: ConversationRepository, sandbox: Callable[[], SandboxAccess | None]
    ) -> None:
        self._id = conversation_id
        self._conversations = conversations
        self._sandbox = sandbox
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=f"branch-keeper:{self._id}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def observe(self, event: AnyEvent) -> None:
        """Take the next event into account; never waits."""
        if isinstance(event, ObservationEvent) and isinstance(event.observation, TerminalObservation):
            done = event.observation
            if done.exit_code == 0 and _MAY_CHANGE_IT.search(done.command):
                self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._look()
            except DrydockError as error:
                logger.info("the branch of conversation %s is not known: %s", self._id, error)

    async def _look(self) -> None:
        record = await self._conversations.get(self._id)
        sandbox = self._sandbox()
        if record is None or sandbox is None:
            return
        asked = {"directory": folder_of((record.selected_repository or "").strip()), "since": "commit"}
        found = (await sandbox.request("git.status", asked, limit_seconds=GIT_SECONDS)).result
        listed = found.get("repositories")  # of a form that nobody vouches for: it comes from a sandbox
        every = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        branch = next((one.get("branch") for one in every if one.get("path") == ""), None)
        if isinstance(branch, str) and branch and branch != record.selected_branch:
            await self._conversations.update(self._id, selected_branch=branch[:MAX_BRANCH_CHARS])
