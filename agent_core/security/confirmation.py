"""Confirmation policies: which batches of actions wait for the user (agent-core 6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent_core.events.llm_events import ActionEvent
from agent_core.tools.finish import FinishAction
from agent_core.tools.think import ThinkAction

_NEVER_ASKED = (FinishAction, ThinkAction)


class ConfirmationPolicy(Protocol):
    """Decides over the valid calls of one response, together."""

    def must_confirm(self, actions: Sequence[ActionEvent]) -> bool:
        """Whether the user has to agree before any of them runs."""
        ...


class NeverConfirm:
    """Everything runs at once: the sandbox is the border."""

    def must_confirm(self, actions: Sequence[ActionEvent]) -> bool:
        return False


class ConfirmRisky:
    """HIGH risk needs agreement, and so does UNKNOWN: no risk named is no permission given.

    Thoughts and the finish change nothing and never ask.
    """

    def must_confirm(self, actions: Sequence[ActionEvent]) -> bool:
        return any(
            action.security_risk in ("HIGH", "UNKNOWN")
            for action in actions
            if not isinstance(action.action, _NEVER_ASKED)
        )
