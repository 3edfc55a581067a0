"""Makes pull and merge requests with the accounts of a user, and notes them at the conversation (wire-protocol 4.9)."""

from __future__ import annotations

import logging
from dataclasses import replace

from server.db.conversations import ConversationRecord
from server.db.database import Database
from server.db.errors import DatabaseError
from server.errors import ConversationNotFoundError
from server.git_hosts import Provider
from server.git_providers.accounts import GitAccess, GitAccounts
from server.git_providers.errors import TokenMissingError
from server.git_providers.model import MadeRequest
from server.provider_tools.tools import RequestArguments, RequestTool

logger = logging.getLogger(__name__)


class RequestMaker:
    """Carries out the tools; the tokens stay here."""

    def __init__(self, database: Database, git: GitAccess) -> None:
        self._database = database
        self._git = git

    async def make(
        self, tool: RequestTool, arguments: RequestArguments, *, user_id: str, conversation_id: str | None = None
    ) -> MadeRequest:
        """Make the request with the user's account as it is stored now; its number is added to the conversation's.

        Raises:
            ConversationNotFoundError: there is no such conversation of this user; nothing was made.
            GitProviderError: it could not be made, or whether it was cannot be said; the message says which.
        """
        record = await self._database.conversations.get(conversation_id) if conversation_id is not None else None
        if conversation_id is not None and (record is None or record.user_id != user_id):
            raise ConversationNotFoundError(conversation_id)
        accounts = self._git.accounts(await self._database.settings.get(user_id))
        provider = _chosen(tool, accounts, record)
        made = await accounts.create_request(provider, arguments.repository, arguments.wish())
        if conversation_id is None:
            return made
        try:
            await self._database.conversations.add_pr_number(conversation_id, made.number)
        except DatabaseError as error:  # the request is there, and has to be told of
            logger.warning("conversation %s: request %d could not be noted: %s", conversation_id, made.number, error)
            return replace(made, note="; ".join(filter(None, [made.note, "it could not be noted at the conversation"])))
        return made


def _chosen(tool: RequestTool, accounts: GitAccounts, record: ConversationRecord | None) -> Provider:
    """The provider of the conversation's repository, if the tool works there, else the first with an account."""
    wanted = record.git_provider if record is not None else None
    there = [name for name in sorted(tool.providers, key=lambda name: name != wanted) if accounts.has(name)]
    if not there:
        raise TokenMissingError(tool.providers[0])
    return there[0]
