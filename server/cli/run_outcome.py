"""How a run of ``drydock run`` has ended, and the exit status that says so."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from drydock_client.events import AgentState, State


class ExitStatus(IntEnum):
    """The exit statuses of ``drydock run``; those of signals are 128 and the signal's number."""

    FINISHED = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    WAITS_FOR_ANSWER = 4
    WAITS_FOR_CONFIRMATION = 5
    GAVE_UP = 6
    LIMIT = 7
    STOPPED = 8
    TIME_OVER = 124


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What has become of a task: the agent's last state, why, and the exit status."""

    status: int
    state: str = ""
    reason: str = ""


_BY_STATE: Final = {
    AgentState.FINISHED: ExitStatus.FINISHED,
    AgentState.AWAITING_USER_INPUT: ExitStatus.WAITS_FOR_ANSWER,
    AgentState.AWAITING_USER_CONFIRMATION: ExitStatus.WAITS_FOR_CONFIRMATION,
    AgentState.REJECTED: ExitStatus.GAVE_UP,
    AgentState.PAUSED: ExitStatus.STOPPED,
    AgentState.STOPPED: ExitStatus.STOPPED,
}
_LIMIT: Final = "RuntimeError: Agent reached maximum"
_UNREACHABLE: Final = (
    *("STATUS$ERROR_LLM_AUTHENTICATION", "STATUS$ERROR_LLM_SERVICE_UNAVAILABLE"),
    *("STATUS$ERROR_LLM_INTERNAL_SERVER_ERROR", "STATUS$ERROR_LLM_OUT_OF_CREDITS"),
    *("CHAT_INTERFACE$AGENT_RATE_LIMITED_STOPPED_MESSAGE", "STATUS$ERROR_RUNTIME_DISCONNECTED"),
    *("LLMModelNotFoundError", "SandboxError", "SandboxLostError"),
)
"""What reasons of failures begin with where a model or the sandbox could not be had."""


def outcome_of(state: State) -> RunOutcome:
    """The outcome of a task whose agent has come to rest in this state."""
    words = state.detail or state.reason
    if state.state == AgentState.ERROR and state.reason.startswith(_LIMIT):
        return RunOutcome(ExitStatus.LIMIT, str(state.state), words)
    if state.state == AgentState.ERROR and state.reason.startswith(_UNREACHABLE):
        return RunOutcome(ExitStatus.UNREACHABLE, str(state.state), words)
    return RunOutcome(_BY_STATE.get(state.state, ExitStatus.FAILED), str(state.state), words)  # type: ignore[call-overload]
