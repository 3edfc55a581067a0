"""One turn of a session: from a prompt until its agent is at rest again."""

from __future__ import annotations

import asyncio
from typing import Final

from acp.exceptions import RequestError
from acp.schema import StopReason

from drydock_client import Action, AgentState, Live, Observation, Problem, State
from server.acp.dispatch import INTERNAL_ERROR

_AT_REST: Final[dict[str, StopReason]] = {
    AgentState.AWAITING_USER_INPUT: "end_turn",
    AgentState.FINISHED: "end_turn",
    AgentState.REJECTED: "refusal",
    AgentState.PAUSED: "cancelled",
    AgentState.STOPPED: "cancelled",
}
_WAITING: Final = frozenset({AgentState.LOADING, AgentState.AWAITING_USER_INPUT, AgentState.FINISHED})
_NOT_STARTED: Final = "Failed to create agent session"
_REASONS: Final[tuple[tuple[str, StopReason], ...]] = (
    ("maximum iteration", "max_turn_requests"),
    ("LLM_CONTENT_POLICY_VIOLATION", "refusal"),
    ("ContextWindow", "max_tokens"),
)
"""Errors that the protocol has a stop reason for, by what their reason contains."""


class Turn:
    """Follows the log from before the message is sent; `ended` says how it ended, or raises.

    What comes before it is known where the message is in the log (`sent`) is looked at then.
    """

    def __init__(self, state: str = "") -> None:
        """`state` is the agent's before it."""
        self.is_cancelled = False
        self._state = state
        self._message_id = -1
        self._early: list[Action | Observation | State] | None = []
        self._is_heard = self._is_at_work = False
        self._ended: asyncio.Future[StopReason] = asyncio.get_running_loop().create_future()

    async def ended(self) -> StopReason:
        """The reason why the agent stopped, once it has.

        Raises:
            RequestError: it failed.
            ClientError: the server was lost.
        """
        return await asyncio.shield(self._ended)

    def sent(self, message_id: int) -> None:
        """The message is in the log, as the event of this id."""
        early, self._early, self._message_id = self._early or [], None, message_id
        for item in early:
            self._follow(item)

    def take(self, item: Live) -> None:
        """The next item of the log. A state of rest from before the agent set to work says nothing of this turn."""
        if isinstance(item, Problem) and item.message.startswith(_NOT_STARTED):
            self.fail(RequestError(INTERNAL_ERROR, item.message))
        elif isinstance(item, Action | Observation | State):
            if self._early is not None:
                self._early.append(item)
            else:
                self._follow(item)

    def end(self, reason: StopReason) -> None:
        """It is over."""
        if not self._ended.done():
            self._ended.set_result("cancelled" if self.is_cancelled else reason)

    def fail(self, error: Exception) -> None:
        """It is over, with an error."""
        if self._ended.done():
            return
        if self.is_cancelled:
            self._ended.set_result("cancelled")
        else:
            self._ended.set_exception(error)
            self._ended.exception()  # whoever waits is told; where nobody does, nothing is to be said

    def _follow(self, item: Action | Observation | State) -> None:
        if item.id is not None:
            self._is_heard = item.id >= self._message_id
        if isinstance(item, State):
            self._changed(item)
        elif isinstance(item, Observation) or item.source == "agent":
            self._is_at_work = self._is_at_work or self._is_heard

    def _changed(self, item: State) -> None:
        before, self._state = self._state, item.state
        is_blocked = self._is_heard and item.state == AgentState.FINISHED and before != AgentState.RUNNING
        self._is_at_work = self._is_at_work or is_blocked or (self._is_heard and item.state not in _WAITING)
        if not self._is_at_work:
            return
        if item.state == AgentState.ERROR:
            self._failed(item)
        elif (reason := _AT_REST.get(item.state)) is not None:
            self.end(reason)

    def _failed(self, item: State) -> None:
        told = f"{item.reason} {item.detail}"
        for part, reason in _REASONS:
            if part in told:
                self.end(reason)
                return
        self.fail(
            RequestError(INTERNAL_ERROR, item.detail or item.reason or "the agent failed", {"reason": item.reason})
        )
