"""`Trouble`: each kind of bad luck that has a name, under which it is logged, counted and looked up."""

from __future__ import annotations

from contextvars import ContextVar
from enum import StrEnum
from typing import Final

CONVERSATION: Final[ContextVar[str]] = ContextVar("conversation", default="")
"""The conversation that is being worked for, to which a line of the log belongs that names none."""
USER: Final[ContextVar[str]] = ContextVar("user", default="")
"""The user whose request is being answered; empty where there is but one."""


class Trouble(StrEnum):
    """The codes of bad luck: fields `code` of lines in the log, and labels of a server's counter.

    What each is, what people read of it, and what to do is in docs/errors.md, which servers show at `/errors`. Some
    are codes of events, too.
    """

    # The storage.
    DISK_FULL = "disk_full"
    STORAGE_UNAVAILABLE = "storage_unavailable"
    STORAGE_UNREADABLE = "storage_unreadable"
    EVENT_UNREADABLE = "event_unreadable"
    DATABASE_BUSY = "database_busy"
    RETENTION_FAILED = "retention_failed"
    RETENTION_REMOVED = "retention_removed"
    AUDIT_BROKEN = "audit_broken"

    # Kills, and what they leave.
    INTERRUPTED = "interrupted"
    NOT_RESUMED = "not_resumed"
    CRASH_LOOP = "CrashLoop"
    LEFTOVERS_REMOVED = "leftovers_removed"
    LEFTOVERS_KEPT = "leftovers_not_removed"
    TASK_RESTARTED = "task_restarted"
    CLOCK_JUMPED = "clock_jumped"
    LEASE_LOST = "lease_lost"
    REDIS_AWAY = "redis_away"

    # Room.
    WAITING = "waiting"
    MEMORY_CEILING = "memory_ceiling"
    DISK_RESERVE = "disk_reserve"
    FROZEN = "DiskReserve"

    # Sandboxes.
    ENGINE_UNAVAILABLE = "engine_unavailable"
    HOST_LOST = "docker_host_lost"
    NO_HOST = "no_host"
    UNKNOWN_HOST = "unknown_host"
    ENGINE_REFUSED = "engine_refused"
    EXEC_REFUSED = "exec_refused"
    CLUSTER_FORBIDDEN = "cluster_forbidden"
    QUOTA_EXCEEDED = "quota_exceeded"
    UNSCHEDULABLE = "unschedulable"
    IMAGE_MISSING = "image_missing"
    NO_PYTHON = "no_python"
    NO_ADDRESSES = "no_addresses"
    NO_ISOLATION = "no_isolation"
    NO_PROVIDER = "no_provider"
    DEPS_FAILED = "deps_failed"
    START_TIMEOUT = "start_timeout"
    START_FAILED = "start_failed"
    SANDBOX_LOST = "sandbox_lost"
    SANDBOX_DISK_LIMIT = "sandbox_disk_limit"
    SANDBOX_NOT_STOPPED = "sandbox_not_stopped"
    SANDBOX_NOT_REMOVED = "sandbox_not_removed"
    ACTION_FAILED = "action_failed"
    ACTION_STOPPED = "action_stopped"

    # Models and agents.
    MODEL_KEY = "LLMAuthenticationError"
    MODEL_BUDGET = "LLMBudgetExceededError"
    MODEL_RATE = "LLMRateLimitError"
    MODEL_TIMEOUT = "LLMTimeoutError"
    MODEL_UNAVAILABLE = "LLMUnavailableError"
    MODEL_INTERNAL = "LLMInternalError"
    MODEL_SILENT = "LLMNoResponseError"
    MODEL_REFUSES = "LLMContentPolicyError"
    MODEL_CONTEXT = "LLMContextWindowError"
    MODEL_HISTORY = "LLMMalformedHistoryError"
    MODEL_REQUEST = "LLMBadRequestError"
    MODEL_UNKNOWN = "LLMModelNotFoundError"
    MODEL_CACHE = "LLMPromptCacheError"
    MODEL_ERROR = "LLMError"
    CALL_IN_TEXT = "FunctionCallConversionError"
    CALL_INVALID = "FunctionCallValidationError"
    CALL_OF_NOTHING = "FunctionCallNotExistsError"
    MODEL_RETRIED = "model_retried"
    MODEL_REPLACED = "model_replaced"
    NO_CONDENSATION = "NoCondensationError"
    MAX_ITERATIONS = "MaxIterationsReached"
    MAX_BUDGET = "MaxBudgetReached"
    STUCK = "stuck"
    STEP_FAILED = "step_failed"
    SUBAGENT_FAILED = "subagent_failed"

    # What others have made.
    TOOL_SERVER_FAILED = "tool_server_failed"
    PLUGIN_FAILED = "plugin_failed"
    HOOK_FAILED = "hook_failed"
    LISTENER_FAILED = "listener_failed"
    TRACES_LOST = "traces_lost"
    WEBHOOK_FAILED = "webhook_failed"
    WEBHOOK_GIVEN_UP = "webhook_given_up"

    # Clients.
    TOO_MANY_CONNECTIONS = "too_many_connections"
    CERTIFICATE = "certificate"
    UNFINISHED = "too_much_unfinished"
    TOO_MANY_LIVE_LOGS = "too_many_live_logs"
    NO_DESCRIPTORS = "no_descriptors"
    SLOW_CLIENT = "slow_client"
    WRONG_CLIENT = "wrong_client"
    WRONG_TOKENS = "wrong_tokens"
    SIGN_IN_FAILED = "sign_in_failed"
    USER_HEADER_REFUSED = "user_header_refused"

    # All others.
    UNEXPECTED = "unexpected_error"
    OTHER = "other"


def coded(code: Trouble, conversation_id: str = "", *, times: int = 1) -> dict[str, object]:
    """The `extra` of a line in the log that tells of such trouble, `times` of it, of a conversation if of one.

    A server counts the line.
    """
    facts: dict[str, object] = {"code": code, **({"times": times} if times != 1 else {})}
    return facts | ({"conversation_id": conversation_id} if conversation_id else {})


def trouble_of(code: str) -> Trouble | None:
    """The trouble with this code; None: it has no name of its own."""
    try:
        return Trouble(code)
    except ValueError:
        return None
