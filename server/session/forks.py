"""Forks of conversations: a new record, the beginning of the log, and the files as they were (agent-core 8.3)."""

from __future__ import annotations

from dataclasses import replace

from agent_core.events.event import utc_now
from agent_core.session.forking import fork_log
from server.conversation_manager.conversation_manager import ConversationManager
from server.db.conversations import ConversationRecord
from server.db.database import Database
from server.session.recovery import RESUMES
from server.session.sandboxes import OTHER_SANDBOXES
from server.session.titles import default_title

_NOT_CARRIED = frozenset({RESUMES, OTHER_SANDBOXES})
"""Options that belong to one conversation alone."""


async def fork_conversation(
    database: Database,
    manager: ConversationManager,
    source: ConversationRecord,
    new_id: str,
    *,
    upto: int | None,
    reset_metrics: bool,
) -> str:
    """Make the conversation `new_id`, which begins as `source` did up to that event; it is not started.

    Returns what there is to say of its files, which is usually nothing.

    Raises:
        NoSuchEventError: the source's log has no such event.
        DrydockError: it cannot be written; nothing is left of it.
    """
    now = utc_now()
    record = replace(
        source,
        id=new_id,
        title=f"{source.title or default_title(source.id)} (fork)",
        created_at=now,
        last_updated_at=now,
        agent_state=None,
        sandbox=None,
        pr_number=(),
        options={key: value for key, value in source.options.items() if key not in _NOT_CARRIED},
    )
    if reset_metrics:
        record = replace(record, accumulated_cost=0.0, prompt_tokens=0, completion_tokens=0)
    await database.conversations.create(record)
    try:
        await fork_log((database.events, source.id), (database.events, new_id), upto=upto, reset_metrics=reset_metrics)
    except BaseException:
        await manager.delete(new_id)
        raise
    return ""
