"""Commands that a user types in the editor, carried out here and never told to the agent."""

from __future__ import annotations

import os
from typing import Final

from acp import update_agent_message_text
from acp.exceptions import RequestError
from acp.schema import AvailableCommand, AvailableCommandInput, SessionInfoUpdate, UnstructuredCommandInput

from drydock_client import ClientError, DrydockClient
from server.doors.acp.copies import Copies, CopyError
from server.doors.acp.editor import EditorClient
from server.doors.acp.folders import OutsideError
from server.doors.acp.prompts import fenced


def _command(name: str, description: str, hint: str = "") -> AvailableCommand:
    wanted = AvailableCommandInput(UnstructuredCommandInput(hint=hint)) if hint else None
    return AvailableCommand(name=name, description=description, input=wanted)


COMMANDS: Final = [
    _command("changes", "Show which files of repositories in the agent's sandbox have changed."),
    _command("diff", "Show a changed file of the agent's sandbox.", "path of the file"),
    _command("fetch", "Copy a text file of the agent's sandbox into your folder.", "path of the file"),
    _command("send", "Copy a file or folder of yours into the agent's sandbox.", "its path, or . for all"),
    _command("title", "Give this conversation another title.", "the title"),
]


class Commands:
    """Those of one session."""

    def __init__(self, client: DrydockClient, editor: EditorClient, session_id: str, copies: Copies) -> None:
        self._client = client
        self._editor = editor
        self._session_id = session_id
        self._copies = copies

    async def run(self, text: str) -> bool:
        """Carry out the command in this message and say what came of it; False where it is none.

        Raises:
            ConnectionError: the editor has gone.
        """
        name, _, argument = text.partition(" ")
        known = next((command for command in COMMANDS if f"/{command.name}" == name), None)
        if known is None:
            return False
        if known.input is not None and not argument.strip():
            answer = f"Say which: `{name} {known.input.root.hint}`"
        else:
            try:
                answer = await self._answer(known.name, argument.strip())
            except (ClientError, RequestError, CopyError, OutsideError) as error:
                answer = f"{name} failed: {error}"
        await self._editor.show(self._session_id, update_agent_message_text(answer))
        return True

    async def _answer(self, name: str, argument: str) -> str:
        match name:
            case "changes":
                changes = await self._client.git.changes(self._session_id)
                return fenced("\n".join(f"{one.status} {one.path}" for one in changes)) if changes else "No changes."
            case "diff":
                diff = await self._client.git.diff(self._session_id, argument)
                return f"Before:\n{fenced(diff.original)}\nNow:\n{fenced(diff.modified)}"
            case "fetch":
                return await self._copies.hand_over(argument, os.path.basename(argument))
            case "send":
                return await self._copies.bring(argument)
            case _:
                await self._client.rename(self._session_id, argument)
                renamed = SessionInfoUpdate(session_update="session_info_update", title=argument)
                await self._editor.show(self._session_id, renamed)
                return f"The title is now “{argument}”."
