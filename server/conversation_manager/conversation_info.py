"""The public facts of a conversation: what is stored and what its session says, in one object."""

from __future__ import annotations

from typing import Any

from server.conversation_manager.conversation_manager import ConversationStatus, LiveConversation
from server.db.conversations import ConversationRecord
from server.session.titles import default_title
from server.wire.envelope import wire_time

CONVERSATION_VERSION = "V0"
"""Says which protocol the client has to speak; any other value makes it use another one."""


def conversation_info(record: ConversationRecord, live: LiveConversation) -> dict[str, Any]:
    """ConversationInfo, complete, for single answers and lists alike."""
    has_session = live.status is not ConversationStatus.STOPPED
    return {
        "conversation_id": record.id,
        "title": record.title or default_title(record.id),
        "last_updated_at": wire_time(record.last_updated_at or record.created_at),
        "status": live.status.value,
        "runtime_status": live.runtime_status,
        "runtime_warning": live.runtime_warning or None,
        "selected_repository": record.selected_repository,
        "selected_branch": record.selected_branch,
        "git_provider": record.git_provider,
        "trigger": record.trigger,
        "num_connections": live.num_connections,
        "url": f"/api/conversations/{record.id}" if has_session else None,
        "session_api_key": None,
        "created_at": wire_time(record.created_at),
        "pr_number": list(record.pr_number),
        "conversation_version": CONVERSATION_VERSION,
        "sub_conversation_ids": [],
    }
