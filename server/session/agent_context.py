"""What an agent of the server is told beside its prompt and its tools: the one place where that is put together."""

from __future__ import annotations

from agent_core.skills.context import AgentContext
from server.db.user_settings import StoredSettings
from server.settings.settings import Settings


def agent_context(user: StoredSettings | None, server: Settings) -> AgentContext:
    """The context of a user's agents: the server's texts before the user's, and what neither of them has disabled.

    It tells no time: a conversation's first recall tells the date, and the system message stays the same from one
    conversation to the next, which providers charge less for.
    """
    user = user or StoredSettings()
    return AgentContext(
        system_message_suffix=_joined(server.system_message_suffix, user.system_message_suffix),
        user_message_suffix=_joined(server.user_message_suffix, user.user_message_suffix),
        disabled_skills=sorted({*server.disabled_skills, *(user.disabled_skills or ())}),
        current_datetime=None,
    )


def _joined(*texts: str | None) -> str:
    return "\n\n".join(text.strip() for text in texts if text and text.strip())
