"""One session of an editor: a conversation that is followed, and what the editor is shown of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from acp import update_agent_message_text
from acp.exceptions import RequestError
from acp.schema import StopReason

from drydock_client import Action, AgentState, ClientError, DrydockClient, Event, Live, Resync, State, ToolCall
from server.acp.commands import Commands
from server.acp.dispatch import INTERNAL_ERROR, from_server
from server.acp.editor import Editor
from server.acp.editor_files import EditorFiles
from server.acp.permissions import Permissions
from server.acp.prompts import Message
from server.acp.turns import Turn
from server.acp.updates import Update, Updates

logger = logging.getLogger(__name__)

CANCEL_SECONDS: Final = 15.0
"""After this time a cancelled turn is over, whatever the server says."""
_RESYNC: Final = "\n\n*The server was reset; what it knows of this conversation follows, from its beginning.*\n\n"
INVALID_REQUEST: Final = -32600


class Session:
    """Follows the conversation from `start` to `aclose`; what it has shown it does not show again.

    Args:
        permissions: asks the editor's user, where the agent waits for that.
        files: carries out the agent's calls for the editor's files.
        commands: carries out what the user types for that.
    """

    def __init__(
        self,
        session_id: str,
        client: DrydockClient,
        editor: Editor,
        *,
        permissions: Permissions,
        files: EditorFiles,
        commands: Commands,
    ) -> None:
        self.id = session_id
        self.permissions = permissions
        self.commands = commands
        self._client = client
        self._editor = editor
        self._files = files
        self._updates = Updates()
        self._position = -1
        self._state = ""
        self._turn: Turn | None = None
        self._following: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def replay(self, *, quietly: bool = False) -> None:
        """Show what is in the log; `quietly` only reads it.

        Raises:
            ClientError: it cannot be read.
        """
        async for event in self._client.events(self.id):
            if isinstance(event, Event):
                await self._take(event, quietly=quietly)
                self._position = event.id if event.id is not None else self._position

    def start(self, *first: Update) -> None:
        """Show these and follow it, if it is not followed already; what is shown comes after this task's next wait."""
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow(first), name=f"acp-session-{self.id}")
            self._following.add_done_callback(self._followed)

    async def aclose(self) -> None:
        """Follow it no more; the conversation goes on."""
        tasks = [task for task in (self._following, *self._tasks) if task is not None]
        for task in tasks:
            task.cancel()
        await self.permissions.aclose()
        if tasks:
            await asyncio.wait(tasks)
        if self._turn is not None:
            self._turn.end("cancelled")

    async def prompt(self, message: Message) -> StopReason:
        """Say it, and wait until the agent is at rest; what it does meanwhile is shown.

        Raises:
            RequestError: another prompt is being answered, or the agent failed.
            ClientError: the server refused it, or was lost.
        """
        if self._turn is not None:
            raise RequestError(
                INVALID_REQUEST, "session/prompt: another prompt of this session is being answered; cancel it, or wait"
            )
        turn = self._turn = Turn(self._state)
        self._updates.expect(message.text)
        try:
            self.start()
            turn.sent((await self._client.send(self.id, message.text, images=message.images)).id)
            if turn.is_cancelled:
                await self._client.pause(self.id)
            return await turn.ended()
        finally:
            self._updates.expect_no_more(message.text)
            self._turn = None

    async def cancel(self) -> None:
        """Have the agent pause, or refuse what it asks for; the prompt is answered when that is done."""
        turn = self._turn
        if turn is None:
            return
        turn.is_cancelled = True
        asyncio.get_running_loop().call_later(CANCEL_SECONDS, turn.end, "cancelled")
        if self._state == AgentState.AWAITING_USER_CONFIRMATION:
            await self._refuse()  # who waits is not paused
            return
        try:
            await self._client.pause(self.id)
        except ClientError as error:
            logger.warning("conversation %s could not be paused: %s", self.id, error)

    async def _refuse(self) -> None:
        try:
            await self._client.confirm(self.id, accept=False)
        except ClientError as error:
            logger.warning("what conversation %s asks for could not be refused: %s", self.id, error)

    async def _follow(self, first: Sequence[Update]) -> None:
        try:
            for update in first:
                await self._editor.show(self.id, update)
            async with self._client.follow(self.id, after=self._position, live=True) as items:
                try:
                    async for item in items:
                        await self._take(item)
                        self.permissions.ask(self._updates.waiting)
                finally:
                    self._position = items.position
        except ClientError as error:
            logger.warning("conversation %s is followed no more: %s", self.id, error)
            if self._turn is not None:
                self._turn.fail(from_server(error))
        except ConnectionError:
            logger.info("the editor has gone")

    def _followed(self, task: asyncio.Task[None]) -> None:
        """Nobody would see the end of a turn any more."""
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            logger.error("conversation %s is followed no more", self.id, exc_info=error)
        if self._turn is not None:
            problem = "the conversation is no longer followed; send the prompt again"
            self._turn.fail(RequestError(INTERNAL_ERROR, problem))

    async def _take(self, item: Live, *, quietly: bool = False) -> None:
        if isinstance(item, Resync):
            self._updates = Updates()
            await self._editor.show(self.id, update_agent_message_text(_RESYNC))
        updates = self._updates.take(item)
        for update in () if quietly else updates:
            await self._editor.show(self.id, update)
        if isinstance(item, ToolCall):
            self._carry_out(item)
        elif isinstance(item, State):
            self._state = item.state
            if item.state == AgentState.AWAITING_USER_CONFIRMATION:
                if self._turn is not None and self._turn.is_cancelled:
                    self._begin(self._refuse(), f"acp-refuse-{self.id}")
                else:
                    self.permissions.expect()
            else:
                await self.permissions.drop()
        elif isinstance(item, Action):
            self.permissions.take(item)
        if self._turn is not None:
            self._turn.take(item)

    def _carry_out(self, call: ToolCall) -> None:
        if not call.is_over:
            self._begin(self._answer(call), f"acp-call-{call.call_id}")

    async def _answer(self, call: ToolCall) -> None:
        try:
            text, is_error = await self._files.answer(call)
            await self._client.answer_tool_call(self.id, call.call_id, text, is_error=is_error)
        except ClientError as error:
            logger.warning("the result of call %s was not taken: %s", call.call_id, error)
        except ConnectionError:
            logger.info("the editor has gone")

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
