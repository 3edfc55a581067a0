"""The one error of this package."""

from __future__ import annotations

from agent_core.errors import DrydockError


class WireError(DrydockError, ValueError):
    """What a client sent cannot be taken; the message names the field, its problem and what to do."""
