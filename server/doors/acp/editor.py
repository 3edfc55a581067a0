"""The editor at the other end: what it is shown and asked for, its user's permissions among that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from acp import schema
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.helpers import update_current_mode
from pydantic import BaseModel, ValidationError

from drydock_client import Action, ClientError, DrydockClient
from server.doors.acp.json_rpc import INTERNAL_ERROR, plain
from server.doors.acp.tool_calls import awaits_confirmation, kind_of, locations_of, proposal_of, title_of

_Form = TypeVar("_Form", bound=BaseModel)
logger = logging.getLogger(__name__)

ASK, AUTO = "ask", "auto"

MODES: Final = [
    schema.SessionMode(id=ASK, name="Ask", description="Risky actions wait until you allow them."),
    schema.SessionMode(
        id=AUTO, name="Allow everything", description="The agent does what it wants to, in its sandbox."
    ),
]

ALLOW, ALLOW_ALWAYS, REJECT = "allow", "allow-always", "reject"

_OPTIONS: Final = [
    schema.PermissionOption(option_id=ALLOW, name="Allow", kind="allow_once"),
    schema.PermissionOption(option_id=ALLOW_ALWAYS, name="Allow everything in this session", kind="allow_always"),
    schema.PermissionOption(option_id=REJECT, name="Reject", kind="reject_once"),
]


class EditorClient:
    """The editor at the other end, and its `abilities` once named. Methods raise `ConnectionError` when it has gone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.abilities = schema.ClientCapabilities()

    @property
    def reads_files(self) -> bool:
        return self.abilities.fs is not None and bool(self.abilities.fs.read_text_file)

    @property
    def writes_files(self) -> bool:
        return self.abilities.fs is not None and bool(self.abilities.fs.write_text_file)

    async def show(self, session_id: str, update: BaseModel) -> None:
        await self._connection.send_notification("session/update", {"sessionId": session_id, "update": plain(update)})

    async def ask(self, session_id: str, call_id: str, action: Action) -> str | None:
        """Ask the user whether a call may be made; None: the question was dropped. `RequestError`: it cannot ask."""
        call: dict[str, Any] = {
            "toolCallId": call_id,
            "title": title_of(action),
            "kind": kind_of(action),
            "status": "pending",
            "content": [plain(one) for one in proposal_of(action) or ()],
            "locations": [plain(one) for one in locations_of(action) or ()],
        }
        params = {"sessionId": session_id, "toolCall": call, "options": [plain(option) for option in _OPTIONS]}
        answer = await self._connection.send_request("session/request_permission", params)
        outcome = _read(schema.RequestPermissionResponse, answer).outcome
        return outcome.option_id if isinstance(outcome, schema.AllowedOutcome) else None

    async def read_file(self, session_id: str, path: str, line: int | None, limit: int | None) -> str:
        """The text of a file as the editor has it, what is not saved included; `RequestError`: it gives none."""
        optional = {name: value for name, value in {"line": line, "limit": limit}.items() if value is not None}
        params = {"sessionId": session_id, "path": path, **optional}
        return _read(
            schema.ReadTextFileResponse, await self._connection.send_request("fs/read_text_file", params)
        ).content

    async def write_file(self, session_id: str, path: str, content: str) -> None:
        params = {"sessionId": session_id, "path": path, "content": content}
        await self._connection.send_request("fs/write_text_file", params)


def _read(form: type[_Form], answer: object) -> _Form:
    try:
        return form.model_validate(answer)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise RequestError(INTERNAL_ERROR, f"the editor's answer cannot be read: {where}: {problem['msg']}") from None


class Permissions:
    """Decides on risky actions, by asking or (mode ``auto``) by itself; one refusal refuses its answer."""

    def __init__(self, session_id: str, client: DrydockClient, editor: EditorClient) -> None:
        self.mode = ASK
        self.has_modes = True
        self.is_remembered = False
        self._session_id = session_id
        self._client = client
        self._editor = editor
        self._is_expected = False
        self._missing: int | None = None
        self._question: asyncio.Task[None] | None = None
        self._is_decided = False

    def state(self) -> schema.SessionModeState:
        return schema.SessionModeState(current_mode_id=self.mode, available_modes=MODES)

    def expect(self) -> None:
        self._is_expected = True

    def take(self, action: Action) -> None:
        if not awaits_confirmation(action):
            return
        if self._missing is None:
            metadata = action.tool_call_metadata
            self._missing = metadata.total_calls_in_response if metadata is not None else 1
        self._missing -= 1

    def ask(self, waiting: Mapping[str, Action]) -> None:
        if not self._is_expected or self._missing is None or self._missing > 0:
            return
        self._is_expected, self._missing, self._is_decided = False, None, False
        self._question = asyncio.create_task(self._decide(dict(waiting)), name=f"acp-permission-{self._session_id}")

    async def drop(self) -> None:
        self._is_expected, self._missing = False, None
        if not self._is_decided:
            await self.aclose()

    async def aclose(self) -> None:
        question, self._question = self._question, None
        if question is not None:
            question.cancel()
            await asyncio.wait([question])

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
                    await self._editor.show(self._session_id, update_current_mode(AUTO))
        except ClientError as error:
            logger.warning("the decision about conversation %s was not taken: %s", self._session_id, error)
        except ConnectionError:
            logger.info("the editor has gone; conversation %s waits for a decision", self._session_id)

    async def _choice(self, waiting: Mapping[str, Action]) -> str | None:
        choice: str | None = ALLOW
        if self.mode == AUTO:
            return choice
        for call_id, action in waiting.items():
            try:
                choice = await self._editor.ask(self._session_id, call_id, action)
            except RequestError as error:
                logger.warning("the editor cannot ask whether an action may be done, so it is rejected: %s", error)
                return REJECT
            if choice in (None, REJECT, ALLOW_ALWAYS):
                return choice
        return choice
