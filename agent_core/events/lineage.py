"""The ids of sub-conversations: each names the conversation that it belongs to."""

from __future__ import annotations

import re
from typing import Final

SEPARATOR: Final = "~"
"""Stands between the id of a conversation and the name of one of its sub-conversations."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def child_id(parent_id: str, name: str) -> str:
    """The id of the sub-conversation `name` of a conversation.

    Raises:
        ValueError: that is no such name.
    """
    if not _NAME.fullmatch(name):
        allowed = "small letters, digits, hyphens and underscores, up to 64"
        raise ValueError(f"{name!r} is no name of a sub-conversation; these are {allowed}")
    return f"{parent_id}{SEPARATOR}{name}"


def parent_of(conversation_id: str) -> str | None:
    """The id of the conversation that this one is a sub-conversation of; None for one of its own."""
    parent, separator, name = conversation_id.rpartition(SEPARATOR)
    return parent if separator and parent and _NAME.fullmatch(name) else None


def name_in_parent(conversation_id: str) -> str:
    """The name of a sub-conversation in its parent; of any other conversation its id."""
    return conversation_id.rpartition(SEPARATOR)[2] if parent_of(conversation_id) is not None else conversation_id


def belongs_to(conversation_id: str, other: str) -> bool:
    """Whether it is `other`, or below it."""
    return conversation_id == other or conversation_id.startswith(f"{other}{SEPARATOR}")
