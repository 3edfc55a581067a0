"""The MCP servers that one conversation has instead of its user's: kept, and encrypted."""

from __future__ import annotations

import json
import logging

from server.auth.secrets import SecretBox, SecretUnreadableError
from server.db.conversations import ConversationRecord
from server.settings.mcp_config import McpConfig, read_config

logger = logging.getLogger(__name__)

OWN_SERVERS = "mcp_config"
"""The key among a conversation's options."""


def sealed_servers(box: SecretBox, conversation_id: str, config: McpConfig) -> str:
    """The configuration as it is stored: it may hold keys."""
    return box.encrypt(json.dumps(config.model_dump(mode="json")), purpose=_purpose(conversation_id))


def opened_servers(box: SecretBox, record: ConversationRecord) -> McpConfig | None:
    """The servers of this conversation; None where it has the user's. What cannot be read any more counts as none."""
    stored = record.options.get(OWN_SERVERS)
    if not isinstance(stored, str):
        return None
    try:
        return read_config(json.loads(box.decrypt(stored, purpose=_purpose(record.id))))
    except SecretUnreadableError as error:
        logger.warning("the MCP servers of conversation %s are left out: %s", record.id, error)
        return McpConfig()


def _purpose(conversation_id: str) -> str:
    return f"conversation/{OWN_SERVERS}/{conversation_id}"
