"""Questions to the editor's user: whether the agent may do what it waits to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from acp.exceptions import RequestError
from acp.schema import SessionMode, SessionModeState

from drydock_client import Action, ClientError, DrydockClient
from server.doors.acp.editor import ALLOW_ALWAYS, REJECT, EditorClient
from server.doors.acp.tool_calls import awaits_confirmation

logger = logging.getLogger(__name__)

ASK, AUTO = "ask", "auto"

MODES: Final = [
    SessionMode(id=ASK, name="Ask", description="Risky actions wait until you allow them."),
    SessionMode(id=AUTO, name="Allow everything", description="The agent does what it wants to, in its sandbox."),
]

ModeChanged = Callable[[str], Awaitable[None]]


class Permissions:
    """Decides for one conversation, by asking or (mode ``auto``) by itself.

    The agent waits with all calls of an answer at once, and they are decided at once: one after the other is asked
    about, and the first refusal refuses them all. A question is dropped when somebody else has decided.

    Attributes:
        mode: ``ask`` or ``auto``.
        has_modes: whether the editor was told of them.
        is_remembered: everything was allowed for the rest of the conversation, which cannot be taken back.
    """

    def __init__(self, session_id: str, client: DrydockClient, editor: EditorClient, changed: ModeChanged) -> None:
        self.mode = ASK
        self.has_modes = True
        self.is_remembered = False
        self._session_id = session_id
        self._client = client
        self._editor = editor
        self._changed = changed
        self._is_expected = False
        self._missing: int | None = None
        self._asking: asyncio.Task[None] | None = None
        self._is_decided = False

    def state(self) -> SessionModeState:
        """The modes, as an editor shows them."""
        return SessionModeState(current_mode_id=self.mode, available_modes=MODES)

    def expect(self) -> None:
        """The agent waits from now on; the actions in question may be known, or come next."""
        self._is_expected = True

    def take(self, action: Action) -> None:
        """The next action: is it one of those in question, and are there more?"""
        if not awaits_confirmation(action):
            return
        if self._missing is None:
            metadata = action.tool_call_metadata
            self._missing = metadata.total_calls_in_response if metadata is not None else 1
        self._missing -= 1

    def ask(self, waiting: Mapping[str, Action]) -> None:
        """Ask, if it is time to; returns at once."""
        if not self._is_expected or self._missing is None or self._missing > 0:
            return
        self._is_expected, self._missing, self._is_decided = False, None, False
        self._asking = asyncio.create_task(self._decide(dict(waiting)), name=f"acp-permission-{self._session_id}")

    async def drop(self) -> None:
        """The agent waits no more, whoever has decided."""
        self._is_expected, self._missing = False, None
        if not self._is_decided:
            await self.aclose()

    async def aclose(self) -> None:
        """Ask no more."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.wait([asking])

    async def _decide(self, waiting: Mapping[str, Action]) -> None:
        try:
            choice = await self._choice(waiting)
            if choice is None:
                return  # the turn is being cancelled
            self._is_decided = True  # what follows from it is no reason to break off here
            remember = choice == ALLOW_ALWAYS
            await self._client.confirm(self._session_id, accept=choice != REJECT, remember=remember)
            if remember:
                self.mode, self.is_remembered = AUTO, True
                if self.has_modes:
                    await self._changed(AUTO)
        except ClientError as error:
            logger.warning("the decision about conversation %s was not taken: %s", self._session_id, error)
        except ConnectionError:
            logger.info("the editor has gone; conversation %s waits for a decision", self._session_id)

    async def _choice(self, waiting: Mapping[str, Action]) -> str | None:
        if self.mode == AUTO:
            return "allow"
        choice: str | None = "allow"
        for call_id, action in waiting.items():
            try:
                choice = await self._editor.ask(self._session_id, call_id, action)
            except RequestError as error:
                logger.warning("the editor cannot ask whether an action may be done, so it is rejected: %s", error)
                return REJECT
            if choice in (None, REJECT, ALLOW_ALWAYS):
                return choice
        return choice
