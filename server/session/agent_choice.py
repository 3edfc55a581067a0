"""What was chosen about a conversation's agent: for it, by its user, and for the whole server, in this order."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from agent_core.session.agent_options import AgentOptions
from server.db.conversations import ConversationRecord
from server.db.user_settings import StoredSettings
from server.settings.settings import Settings

logger = logging.getLogger(__name__)

AGENT_OPTIONS: Final = "agent_options"
"""The key among a conversation's options."""


def options_of(user: StoredSettings | None, server: Settings, record: ConversationRecord) -> AgentOptions:
    """The choices that count for this conversation."""
    of_user = _read(user.agent_options if user is not None else None, f"user {record.user_id!r}")
    of_conversation = _read(record.options.get(AGENT_OPTIONS), f"conversation {record.id}")
    return of_conversation.over(of_user.over(server.agent_options or AgentOptions()))


def _read(stored: Mapping[str, Any] | None, whose: str) -> AgentOptions:
    """Stored choices, without those that this server does not know (any more): its log names them."""
    values = dict(stored or {})
    while True:
        try:
            return AgentOptions.model_validate(values)
        except ValidationError as error:
            wrong = {str(problem["loc"][0]) if problem["loc"] else "" for problem in error.errors()} & values.keys()
            logger.warning("the agent options %s of %s cannot be used, and are left out", sorted(wrong), whose)
            values = {name: value for name, value in values.items() if wrong and name not in wrong}
