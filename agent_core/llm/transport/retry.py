"""When to try again, and after how long."""

from __future__ import annotations

from dataclasses import dataclass

from agent_core.errors import LLMError

MAX_RETRY_AFTER = 300.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential waits, without jitter, over a fixed number of attempts.

    Attributes:
        attempts: attempts in all, the first included; at least one is made.
        multiplier: seconds of the first wait, before the limits; doubled for each further one.
        min_wait: the shortest wait, seconds.
        max_wait: the longest wait, seconds.
    """

    attempts: int = 5
    multiplier: float = 8.0
    min_wait: float = 8.0
    max_wait: float = 64.0

    def wait_after(self, attempt: int, error: LLMError) -> float | None:
        """Seconds to wait after the failed attempt of that number (from 1); None when there is to be no other.

        A wait that the server asked for is kept exactly. One longer than `MAX_RETRY_AFTER` means giving up: nobody is
        left waiting that long without an answer.
        """
        if not error.retryable or attempt >= self.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= MAX_RETRY_AFTER else None
        exponent = min(attempt - 1, 32)
        return max(self.min_wait, min(self.multiplier * 2.0**exponent, self.max_wait))
