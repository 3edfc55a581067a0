"""One session of an editor: a conversation that is followed and shown, its turns, and the user's commands."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from acp import schema, update_agent_message_text
from acp.exceptions import RequestError
from pydantic import BaseModel

from drydock_client import (
    Action,
    AgentState,
    ClientError,
    DrydockClient,
    Event,
    Live,
    Observation,
    Problem,
    Resync,
    State,
    ToolCall,
)
from server.doors.acp.editor import EditorClient, Permissions
from server.doors.acp.editor_files import EditorFiles, EditorFilesError
from server.doors.acp.json_rpc import INTERNAL_ERROR, INVALID_REQUEST, from_server
from server.doors.acp.prompts import PromptMessage, fenced
from server.doors.acp.updates import Updates

logger = logging.getLogger(__name__)

CANCEL_SECONDS: Final = 15.0
"""After this time a cancelled turn is over, whatever the server says."""
_RESYNC: Final = "\n\n*The server was reset; what it knows of this conversation follows, from its beginning.*\n\n"


def _command(name: str, description: str, hint: str = "") -> schema.AvailableCommand:
    argument = schema.AvailableCommandInput(schema.UnstructuredCommandInput(hint=hint)) if hint else None
    return schema.AvailableCommand(name=name, description=description, input=argument)


COMMANDS: Final = [
    _command("changes", "Show which files of repositories in the agent's sandbox have changed."),
    _command("diff", "Show a changed file of the agent's sandbox.", "path of the file"),
    _command("fetch", "Copy a text file of the agent's sandbox into your folder.", "path of the file"),
    _command("send", "Copy a file or folder of yours into the agent's sandbox.", "its path, or . for all"),
    _command("title", "Give this conversation another title.", "the title"),
]


_AT_REST: Final[dict[str, schema.StopReason]] = {
    AgentState.AWAITING_USER_INPUT: "end_turn",
    AgentState.FINISHED: "end_turn",
    AgentState.REJECTED: "refusal",
    AgentState.PAUSED: "cancelled",
    AgentState.STOPPED: "cancelled",
}
_WAITING: Final = frozenset({AgentState.LOADING, AgentState.AWAITING_USER_INPUT, AgentState.FINISHED})
_NOT_STARTED: Final = "Failed to create agent session"
_REASONS: Final[tuple[tuple[str, schema.StopReason], ...]] = (
    ("maximum iteration", "max_turn_requests"),
    ("LLM_CONTENT_POLICY_VIOLATION", "refusal"),
    ("ContextWindow", "max_tokens"),
)
"""Errors that the protocol has a stop reason for, by what their reason contains."""


class EditorTurn:
    """One prompt and what comes of it, read from the log from before the message is sent (as the event `sent`)."""

    def __init__(self, state: str = "") -> None:
        self.is_cancelled = False
        self._state = state
        self._message_id = -1
        self._early: list[Action | Observation | State] | None = []
        self._is_received = self._is_at_work = False
        self._ended: asyncio.Future[schema.StopReason] = asyncio.get_running_loop().create_future()

    async def ended(self) -> schema.StopReason:
        return await asyncio.shield(self._ended)

    def sent(self, message_id: int) -> None:
        early, self._early, self._message_id = self._early or [], None, message_id
        for item in early:
            self._follow(item)

    def take(self, item: Live) -> None:
        """The next item of the log. A state of rest from before the agent set to work says nothing of this turn."""
        if isinstance(item, Problem) and item.message.startswith(_NOT_STARTED):
            self.fail(RequestError(INTERNAL_ERROR, item.message))
        elif isinstance(item, Action | Observation | State):
            if self._early is not None:
                self._early.append(item)
            else:
                self._follow(item)

    def end(self, reason: schema.StopReason) -> None:
        if not self._ended.done():
            self._ended.set_result("cancelled" if self.is_cancelled else reason)

    def fail(self, error: Exception) -> None:
        if self._ended.done():
            return
        if self.is_cancelled:
            self._ended.set_result("cancelled")
        else:
            self._ended.set_exception(error)
            self._ended.exception()  # whoever waits is told; where nobody does, nothing is to be said

    def _follow(self, item: Action | Observation | State) -> None:
        if item.id is not None:
            self._is_received = item.id >= self._message_id
        if not isinstance(item, State):
            self._is_at_work |= self._is_received and (isinstance(item, Observation) or item.source == "agent")
            return
        before, self._state = self._state, item.state
        is_blocked = self._is_received and item.state == AgentState.FINISHED and before != AgentState.RUNNING
        self._is_at_work = self._is_at_work or is_blocked or (self._is_received and item.state not in _WAITING)
        if not self._is_at_work:
            return
        reason = _AT_REST.get(item.state)
        if item.state == AgentState.ERROR:
            message = f"{item.reason} {item.detail}"
            reason = next((known for part, known in _REASONS if part in message), None)
            if reason is None:
                text = item.detail or item.reason or "the agent failed"
                self.fail(RequestError(INTERNAL_ERROR, text, {"reason": item.reason}))
        if reason is not None:
            self.end(reason)


class EditorSession:
    """Follows its conversation from `start` to `aclose`; what it has shown it does not show again."""

    def __init__(
        self,
        session_id: str,
        client: DrydockClient,
        editor: EditorClient,
        *,
        permissions: Permissions,
        files: EditorFiles,
    ) -> None:
        self.id = session_id
        self.permissions = permissions
        self._client = client
        self._editor = editor
        self._files = files
        self._updates = Updates()
        self._position = -1
        self._state = ""
        self._turn: EditorTurn | None = None
        self._following: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def replay(self, *, quietly: bool = False) -> None:
        async for event in self._client.events(self.id):
            if isinstance(event, Event):
                await self._take(event, quietly=quietly)
                self._position = event.id if event.id is not None else self._position

    def start(self, *first: BaseModel) -> None:
        """Show these and follow it, if it is not followed already; what is shown comes after this task's next wait."""
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow(first), name=f"acp-session-{self.id}")
            self._following.add_done_callback(self._followed)

    async def aclose(self) -> None:
        tasks = [task for task in (self._following, *self._tasks) if task is not None]
        for task in tasks:
            task.cancel()
        await self.permissions.aclose()
        if tasks:
            await asyncio.wait(tasks)
        if self._turn is not None:
            self._turn.end("cancelled")

    async def run_command(self, text: str) -> bool:
        name, _, argument = text.partition(" ")
        known = next((command for command in COMMANDS if f"/{command.name}" == name), None)
        if known is None:
            return False
        if known.input is not None and not argument.strip():
            answer = f"Say which: `{name} {known.input.root.hint}`"
        else:
            try:
                answer = await self._command(known.name, argument.strip())
            except (ClientError, RequestError, EditorFilesError) as error:
                answer = f"{name} failed: {error}"
        await self._editor.show(self.id, update_agent_message_text(answer))
        return True

    async def _command(self, name: str, argument: str) -> str:
        match name:
            case "changes":
                changes = await self._client.git.changes(self.id)
                return fenced("\n".join(f"{one.status} {one.path}" for one in changes)) if changes else "No changes."
            case "diff":
                diff = await self._client.git.diff(self.id, argument)
                return f"Before:\n{fenced(diff.original)}\nNow:\n{fenced(diff.modified)}"
            case "fetch":
                return await self._files.copy_out(argument, os.path.basename(argument))
            case "send":
                return await self._files.copy_in(argument)
            case _:
                await self._client.rename(self.id, argument)
                renamed = schema.SessionInfoUpdate(session_update="session_info_update", title=argument)
                await self._editor.show(self.id, renamed)
                return f"The title is now “{argument}”."

    async def prompt(self, message: PromptMessage) -> schema.StopReason:
        """Say it, and wait until the agent is at rest; raises `RequestError` (busy, or agent failed), `ClientError`."""
        if self._turn is not None:
            raise RequestError(
                INVALID_REQUEST, "session/prompt: another prompt of this session is being answered; cancel it, or wait"
            )
        turn = self._turn = EditorTurn(self._state)
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

    async def _follow(self, first: Sequence[BaseModel]) -> None:
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
            if not item.is_over:
                self._begin(self._answer(item), f"acp-call-{item.call_id}")
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
