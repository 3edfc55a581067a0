"""The exceptions of agent_core. `str(error)` is fit for a user (what failed, why, what to do) and holds no secret."""

from __future__ import annotations

import errno
from typing import Final, Self

DISK_FULL: Final = "disk_full"
STORAGE_UNAVAILABLE: Final = "storage_unavailable"


class DrydockError(Exception):
    """Base of every error that Drydock raises on purpose."""


def storage_code(error: BaseException) -> str:
    """`EventStoreError.code` for an error of the operating system about files."""
    return DISK_FULL if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) else STORAGE_UNAVAILABLE


class EventStoreError(DrydockError):
    """The log could not be read or written; nothing of the failed append was stored.

    `code` is empty, or says why nothing at all can be stored, or read, at present, and that this may pass:
    ``disk_full``, ``storage_unavailable`` or ``database_busy``.
    """

    def __init__(self, message: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.code = code

    @classmethod
    def about_file(cls, path: object, error: OSError) -> Self:
        """For a program that keeps its own files: what cannot be used, why, and what to do."""
        code = storage_code(error)
        reason = "the disk is full; free some space" if code == DISK_FULL else error.strerror or type(error).__name__
        return cls(f"{path} cannot be used: {reason}.", code=code)


class UnreadableError(EventStoreError):
    """Something that is stored cannot be read: it is damaged or lost, or the disk fails there; the rest can be."""


class StaleOwnerError(EventStoreError):
    """Somebody else owns this conversation by now: the append was fenced off and not stored."""


class NoSuchEventError(DrydockError, ValueError):
    """The log has no event with this id."""


class StreamClosedError(DrydockError):
    """The stream was closed; the event was not stored."""


class RemoteError(DrydockError):
    """A server that carries out a conversation cannot be asked, or refuses; the message names it and what to do."""


class ToolError(DrydockError, ValueError):
    """A tool was called in a way that its caller can correct; `code` is the sandbox's, for example ``not_found``."""

    code = ""


class ToolNotFoundError(DrydockError, KeyError):
    """No tool of this name is registered."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "unknown tool"


class SkillValidationError(DrydockError, ValueError):
    """A skill's file cannot be used; the message names the file and what is wrong with it.

    Attributes:
        path: the file, where it is known by a path.
        line: the line with the mistake, counted from 1, where it can be told.
    """

    def __init__(self, message: str, *, path: str = "", line: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.line = line


class SandboxError(DrydockError):
    """The sandbox failed (not the command in it).

    `code` is the cause, for example ``engine_unavailable``, ``image_missing``, ``no_python``, ``start_timeout``,
    ``lost``, ``protocol``; `fix` one sentence saying what to do about it, or empty.
    """

    def __init__(self, message: str, *, code: str = "sandbox", fix: str = "") -> None:
        super().__init__(f"{message} {fix}".strip())
        self.code = code
        self.fix = fix


class SandboxAwayError(SandboxError):
    """What the sandbox runs on cannot be reached, and may have it as it was once it can: who needs it waits."""


class SandboxUnmadeError(SandboxAwayError):
    """As `SandboxAwayError`, before anything of the sandbox was made there: it may as well be made elsewhere."""


class SandboxLostError(SandboxError):
    """The sandbox went away while it was needed; whether a running action took effect is unknown."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message, code="lost", fix=fix)


class SandboxClosedError(SandboxLostError):
    """Nobody is to use the sandbox any more: its conversation was stopped, or deleted, meanwhile."""


class LLMError(DrydockError):
    """A model call failed for good (after its retries).

    `status_id` is the public id of this kind of failure; `retryable`: the same request may succeed later, after the
    seconds `retry_after` if the server said so. `retry_attempt` (from 1) of `max_retries` failed; both 0 before any was
    made.
    """

    status_id = "STATUS$ERROR"
    retryable = False

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.retry_attempt = 0
        self.max_retries = 0


class LLMAuthenticationError(LLMError):
    """The key is missing, wrong or not allowed to use this model (401, 403)."""

    status_id = "STATUS$ERROR_LLM_AUTHENTICATION"


class LLMRateLimitError(LLMError):
    """The provider limits the rate (429)."""

    status_id = "CHAT_INTERFACE$AGENT_RATE_LIMITED_STOPPED_MESSAGE"
    retryable = True


class LLMTimeoutError(LLMError):
    """No answer, or no further part of it, within the time limit."""

    status_id = "STATUS$ERROR_LLM_SERVICE_UNAVAILABLE"
    retryable = True


class LLMUnavailableError(LLMError):
    """The server cannot be reached or says that it is overloaded."""

    status_id = "STATUS$ERROR_LLM_SERVICE_UNAVAILABLE"
    retryable = True


class LLMInternalError(LLMError):
    """The provider failed (500), or sent something that is no answer (cut stream, invalid JSON)."""

    status_id = "STATUS$ERROR_LLM_INTERNAL_SERVER_ERROR"
    retryable = True


class LLMNoResponseError(LLMInternalError):
    """The provider answered without any choice."""


class LLMContentPolicyError(LLMError):
    """The provider refused the content."""

    status_id = "STATUS$ERROR_LLM_CONTENT_POLICY_VIOLATION"


class NoCondensationError(DrydockError):
    """The view cannot be shortened now: too short, no place to cut, or its summary could not be had."""


class LLMContextWindowError(LLMError):
    """The prompt is longer than the model's context window."""


class LLMMalformedHistoryError(LLMError):
    """The provider refused the message history itself (a tool call without its result, for example)."""


class LLMBadRequestError(LLMError):
    """The provider refused the request for another reason (400)."""


class LLMModelNotFoundError(LLMBadRequestError):
    """The server does not know the model, or there is no model server behind the base URL (404)."""


class LLMPromptCacheError(LLMBadRequestError):
    """The provider refused the cache marks of the prompt; the same request without them may succeed."""


class LLMBudgetExceededError(LLMError):
    """The provider says that the account's budget is used up."""

    status_id = "STATUS$ERROR_LLM_OUT_OF_CREDITS"


class FunctionCallConversionError(LLMError):
    """A tool call could not be put into text for a model that takes no tools: the history is at fault."""


class FunctionCallValidationError(LLMError):
    """A model that writes its calls as text wrote one that cannot be; `str(error)` tells it what is wrong.

    `response` is the answer that held it, counted already; None while it is being read.
    """

    response: object = None


class FunctionCallNotExistsError(FunctionCallValidationError):
    """A model that writes its calls as text called a function that there is not."""


class AgentStuckInLoopError(DrydockError):
    """The agent repeats itself, from the event with the id `start` on; a message of its user sets it going again."""

    def __init__(self, message: str, *, start: int) -> None:
        super().__init__(message)
        self.start = start


class NotStuckError(DrydockError, ValueError):
    """There is no loop to recover from."""


class ConversationRunError(DrydockError):
    """A run of a conversation ended in an error; it can be run again, and is kept in `persistence_dir`, if anywhere."""

    def __init__(self, message: str, *, conversation_id: str, persistence_dir: str | None = None) -> None:
        super().__init__(f"Conversation {conversation_id}: {message}")
        self.conversation_id = conversation_id
        self.persistence_dir = persistence_dir


class LimitReachedError(DrydockError):
    """A limit that a new message extends was reached; `code`: ``MaxIterationsReached`` or ``MaxBudgetReached``."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class ClientToolError(DrydockError):
    """A client's answer to a call is refused; `code`: ``unknown``, ``early``, ``late``, ``answered``, ``loading``."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code
