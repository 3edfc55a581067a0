"""What can go wrong between this server and a provider of git repositories. No message ever holds a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from server.errors import PlainError


class GitProviderError(PlainError):
    """A provider cannot be asked, or answers with an error or in an unknown form; the text is fit for users."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The status of the provider's answer, where it is an unusual one."""


class TokenRefusedError(GitProviderError):
    """The provider does not take the token: a wrong one, or one that has expired or was withdrawn."""

    reply_status: ClassVar[int] = 401

    def __init__(self, provider: str) -> None:
        super().__init__(
            f"Invalid {provider} token. {provider} does not accept the stored one, it may have expired: store a new one"
        )


class TokenMissingError(GitProviderError):
    """There is no token for the provider that is meant, or for any."""

    reply_status: ClassVar[int] = 401

    def __init__(self, provider: str | None = None) -> None:
        meant = f"Store one for {provider}." if provider else "(such as GitHub)."
        super().__init__(f"Git provider token required. {meant}")


class AccessRefusedError(GitProviderError):
    """No account has access to it: "repo o/n", or a file in one."""

    reply_status: ClassVar[int] = 401

    def __init__(self, what: str) -> None:
        super().__init__(f"Unable to access {what}")


class MissingError(GitProviderError):
    """What was asked for is not there, or the token gives no access to it."""


class UnknownOutcomeError(GitProviderError):
    """What was to be made may have been made: the connection was lost before the provider answered."""


class RateLimitedError(GitProviderError):
    """The provider takes no more requests with this token for now; `retry_after`: seconds, where it says so."""

    def __init__(self, provider: str, retry_after: float | None) -> None:
        when = "later" if retry_after is None else f"in {max(1, round(retry_after))} seconds"
        super().__init__(f"{provider} API rate limit exceeded; try again {when}")
        self.retry_after = retry_after

    @property
    def reply_headers(self) -> Mapping[str, str]:
        """When to try again."""
        return {} if self.retry_after is None else {"Retry-After": str(max(1, round(self.retry_after)))}
