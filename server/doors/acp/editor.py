"""What is asked of an editor, and what it is told: its side of the protocol, for sessions."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from acp.connection import Connection
from acp.exceptions import RequestError
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
)
from pydantic import BaseModel, ValidationError

from drydock_client import Action
from server.doors.acp.dispatch import INTERNAL_ERROR, plain
from server.doors.acp.tool_calls import kind_of, locations_of, title_of, wish_of

Form = TypeVar("Form", bound=BaseModel)

ALLOW, ALLOW_ALWAYS, REJECT = "allow", "allow-always", "reject"

_OPTIONS: Final = [
    PermissionOption(option_id=ALLOW, name="Allow", kind="allow_once"),
    PermissionOption(option_id=ALLOW_ALWAYS, name="Allow everything in this session", kind="allow_always"),
    PermissionOption(option_id=REJECT, name="Reject", kind="reject_once"),
]


class EditorClient:
    """The editor at the other end of a connection.

    Attributes:
        abilities: what it said that it can do, once it has.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.abilities = ClientCapabilities()

    @property
    def reads_files(self) -> bool:
        """Whether it gives out its files."""
        return self.abilities.fs is not None and bool(self.abilities.fs.read_text_file)

    @property
    def writes_files(self) -> bool:
        """Whether it takes changes of its files."""
        return self.abilities.fs is not None and bool(self.abilities.fs.write_text_file)

    async def show(self, session_id: str, update: BaseModel) -> None:
        """Show an update of a session.

        Raises:
            ConnectionError: it has gone.
        """
        await self._connection.send_notification("session/update", {"sessionId": session_id, "update": plain(update)})

    async def ask(self, session_id: str, call_id: str, action: Action) -> str | None:
        """Ask the user whether a call may be made: one of the constants above, or None where the question was dropped.

        Raises:
            RequestError: it cannot ask.
            ConnectionError: it has gone.
        """
        call: dict[str, Any] = {
            "toolCallId": call_id,
            "title": title_of(action),
            "kind": kind_of(action),
            "status": "pending",
            "content": [plain(one) for one in wish_of(action) or ()],
            "locations": [plain(one) for one in locations_of(action) or ()],
        }
        options = [plain(option) for option in _OPTIONS]
        wish = {"sessionId": session_id, "toolCall": call, "options": options}
        answer = await self._connection.send_request("session/request_permission", wish)
        outcome = _read(RequestPermissionResponse, answer).outcome
        return outcome.option_id if isinstance(outcome, AllowedOutcome) else None

    async def read_file(self, session_id: str, path: str, line: int | None, limit: int | None) -> str:
        """The text of a file as the editor has it, what is not saved included.

        Raises:
            RequestError: it has no such file, or does not give it out.
            ConnectionError: it has gone.
        """
        wish = {"sessionId": session_id, "path": path, "line": line, "limit": limit}
        given = {name: value for name, value in wish.items() if value is not None}
        return _read(ReadTextFileResponse, await self._connection.send_request("fs/read_text_file", given)).content

    async def write_file(self, session_id: str, path: str, content: str) -> None:
        """Give a file this text, as the editor does it.

        Raises:
            RequestError: it does not.
            ConnectionError: it has gone.
        """
        wish = {"sessionId": session_id, "path": path, "content": content}
        await self._connection.send_request("fs/write_text_file", wish)


def _read(form: type[Form], answer: object) -> Form:
    try:
        return form.model_validate(answer)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise RequestError(INTERNAL_ERROR, f"the editor's answer cannot be read: {where}: {problem['msg']}") from None
