"""Clients of a conversation as those who carry out calls: what a tool's executor can ask of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from agent_core.events.control import ClientToolResult


class Clients(Protocol):
    """The clients that follow one conversation."""

    async def ask(
        self, action_id: int, name: str, arguments: Mapping[str, Any], limit_seconds: float
    ) -> ClientToolResult:
        """Have one of them carry out a call, and wait for what it answers.

        A call that a crash has cut short and that is asked for again finds the answer that was given meanwhile.

        Raises:
            ToolError: none has answered in time; the message says so.
        """
        ...
