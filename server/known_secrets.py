"""What of a user's must not be readable in anything that is stored beside the logs of conversations."""

from __future__ import annotations

from agent_core.events.masking import SecretMasker
from server.db.database import Database
from server.user_settings import secret_values


async def masker_of(database: Database, user_id: str) -> SecretMasker:
    """Hides every secret that is stored for the user: keys, tokens, those of MCP servers, and their own.

    Raises:
        DatabaseError: the database cannot be read.
    """
    user = await database.settings.get(user_id)
    own = await database.user_secrets.values(user_id)
    masker = SecretMasker(secret_values(user) if user is not None else ())
    masker.add(one.secret.get_secret_value() for one in own.values())
    return masker
