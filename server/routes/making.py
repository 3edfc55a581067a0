"""What the routes share that make a conversation: once for each idempotency key, and answered alike."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from server.conversation_manager.conversation_manager import ConversationStatus
from server.db.idempotency_keys import Attempt
from server.dependencies import Services
from server.errors import PlainError, ReplyError


async def made_once(
    services: Services,
    key: str | None,
    make: Callable[[Attempt], Awaitable[str]],
    *,
    user_id: str,
    scope: str,
    asked: Any,
    status: ConversationStatus,
    **facts: str,
) -> dict[str, Any]:
    """Make a conversation, unless this key has made it already; the answer is a `ConversationReply` with more facts.

    Args:
        services: the server's parts.
        key: the idempotency key of the request, if it has one.
        make: makes it, and gives its id; a repeated attempt goes on with what there is of it.
        user_id: whose key it is.
        scope: what the key stands for besides the user: the same in another scope is another key.
        asked: what was asked for, as JSON: with one key it must not change.
        status: what the conversation is as soon as it is made.
        facts: what else the answer says.

    Raises:
        ReplyError: the wish cannot be granted, or the key was used for another one.
    """

    async def answered(attempt: Attempt) -> dict[str, Any]:
        conversation_id = await make(attempt)
        told = {"status": "ok", "conversation_id": conversation_id, "message": None}
        return {**told, "conversation_status": status.value, **facts}

    return await services.database.idempotency_keys.once(
        key,
        answered,
        user_id=user_id,
        scope=scope,
        asked=asked,
        resource=uuid.uuid4().hex,
        refusals=(ReplyError, PlainError),
    )
