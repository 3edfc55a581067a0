"""Makes pull and merge requests with the accounts of a user, and notes them at the conversation."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Final

from server.db.conversations import ConversationRecord
from server.db.database import Database
from server.db.errors import DatabaseError
from server.errors import ConversationNotFoundError
from server.git_providers.accounts import GitAccess, GitAccounts
from server.git_providers.model import MadeRequest, TokenMissingError
from server.provider_tools.tools import RequestArguments, RequestTool
from server.settings.git_hosts import Provider

logger = logging.getLogger(__name__)


END_SECONDS: Final = 10.0


class RequestMaker:
    """Carries out the tools; the tokens stay here. `aclose` it at the end."""

    def __init__(self, database: Database, git: GitAccess) -> None:
        self._database = database
        self._git = git
        self._making: set[asyncio.Task[MadeRequest]] = set()

    async def aclose(self) -> None:
        """Let what was begun come to its end, for some seconds."""
        if self._making:
            _, late = await asyncio.wait(self._making, timeout=END_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def make(
        self, tool: RequestTool, arguments: RequestArguments, *, user_id: str, conversation_id: str | None = None
    ) -> MadeRequest:
        """Make the request with the user's account as it is stored now; its number is added to the conversation's.

        Once it is being made it is made and noted also where this is cancelled: a provider does not take it back.

        Raises:
            ConversationNotFoundError: there is no such conversation of this user; nothing was made.
            GitProviderError: it could not be made, or whether it was cannot be said; the message says which.
        """
        record = await self._database.conversations.get(conversation_id) if conversation_id is not None else None
        if conversation_id is not None and (record is None or record.user_id != user_id):
            raise ConversationNotFoundError(conversation_id)
        accounts = self._git.accounts(await self._database.settings.get(user_id))
        provider = _chosen(tool, accounts, record)
        making = asyncio.create_task(
            self._made(accounts, provider, arguments, conversation_id), name=f"request-{conversation_id}"
        )
        self._making.add(making)
        making.add_done_callback(self._over)
        return await asyncio.shield(making)

    def _over(self, task: asyncio.Task[MadeRequest]) -> None:
        self._making.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits is told of it; where nobody does, the provider has said no

    async def _made(
        self, accounts: GitAccounts, provider: Provider, arguments: RequestArguments, conversation_id: str | None
    ) -> MadeRequest:
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
