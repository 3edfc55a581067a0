"""What can go wrong with the database, in words for the user."""

from __future__ import annotations

from agent_core.errors import DrydockError, EventStoreError


class DatabaseError(EventStoreError):
    """The database could not be read or written; nothing of the failed change was stored."""


class DatabaseGoneError(OSError):
    """The database's file was removed or replaced while it is open: what is written to it would be lost."""


class DatabaseVersionError(DrydockError):
    """The database was made by a version of Drydock that this one does not know."""


class DataDirectoryError(DrydockError):
    """The data folder cannot be used; the message names it and the fix."""


class InstanceRunningError(DrydockError):
    """Another server is using the same data folder."""


class ConversationExistsError(DrydockError):
    """There is a conversation with this id already."""


class InvalidPageError(DrydockError, ValueError):
    """A `page_id` that no listing ever handed out."""


class TooManyWebhooksError(DrydockError):
    """A user has as many webhooks as one may have."""
