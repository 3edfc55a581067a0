"""Models of what git providers answer, in the protocol's form, and their errors; no message ever holds a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from server.errors import GitProviderError
from server.settings.git_hosts import Provider


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
        hint = f"Store one for {provider}." if provider else "(such as GitHub)."
        super().__init__(f"Git provider token required. {hint}")


class AccessRefusedError(GitProviderError):
    """No account has access to it: "repo o/n", or a file in one."""

    reply_status: ClassVar[int] = 401

    def __init__(self, what: str) -> None:
        super().__init__(f"Unable to access {what}")


class MissingError(GitProviderError):
    """What was asked for is not there, or the token gives no access to it."""


class UnknownOutcomeError(GitProviderError):
    """What was to be made may have been made: the connection was lost before the provider answered."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; it may have been made all the same: look before you try again")


class RateLimitedError(GitProviderError):
    """The provider takes no more requests with this token for now; `retry_after`: seconds, where it says so."""

    def __init__(self, provider: str, retry_after: float | None) -> None:
        when = "later" if retry_after is None else f"in {max(1, round(retry_after))} seconds"
        super().__init__(f"{provider} API rate limit exceeded; try again {when}")
        self.retry_after = retry_after

    @property
    def reply_headers(self) -> Mapping[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(max(1, round(self.retry_after)))}


T = TypeVar("T")

TaskType = Literal["MERGE_CONFLICTS", "FAILING_CHECKS", "UNRESOLVED_COMMENTS", "OPEN_ISSUE"]


class _ProviderModel(BaseModel):
    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)


class User(_ProviderModel):
    """Whose token it is."""

    id: str
    login: str
    avatar_url: str
    company: str | None = None
    name: str | None = None
    email: str | None = None


class Repository(_ProviderModel):
    """A repository; `link_header` is the same on all of one page and says whether there is another."""

    id: str
    full_name: str
    git_provider: Provider
    is_public: bool
    stargazers_count: int | None = None
    link_header: str | None = None
    pushed_at: str | None = None
    owner_type: Literal["user", "organization"] | None = None
    main_branch: str | None = None


class Branch(_ProviderModel):
    """A branch and its newest commit."""

    name: str
    commit_sha: str
    protected: bool
    last_push_date: str | None = None


class SuggestedTask(_ProviderModel):
    """Work that waits for the user: a request of theirs that needs a hand, or an issue that they were given."""

    git_provider: Provider
    task_type: TaskType
    repo: str
    issue_number: int
    title: str


@dataclass(frozen=True, slots=True)
class RequestWish:
    """A pull or merge request to be made: `source_branch` is to be merged into `target_branch`."""

    source_branch: str
    target_branch: str
    title: str
    body: str = ""
    draft: bool = False
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreatedRequest:
    """A pull or merge request that was created; `note` says what of the wish could not be done."""

    number: int
    url: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[T]):
    """A part of a list."""

    items: list[T]
    link: str | None = None
    """A Link header that says with ``rel="next"`` whether there is more."""
    total: int | None = None

    @property
    def has_next(self) -> bool:
        return self.link is not None and 'rel="next"' in self.link


@dataclass(frozen=True, slots=True)
class PageWish:
    """Which part of a list is wanted: the number of the page, from 1, and how many a page has."""

    page: int
    size: int

    @property
    def start(self) -> int:
        return (self.page - 1) * self.size


def next_link(address: str, page: int) -> str:
    """A Link header that names the page after `page`, for providers that say it in another way."""
    return f'<{address}?page={page + 1}>; rel="next"'


def sliced(items: list[T], wish: PageWish, address: str) -> ResultPage[T]:
    """A page of a list that a provider only gives as a whole."""
    end = wish.start + wish.size
    return ResultPage(
        items[wish.start : end], link=next_link(address, wish.page) if end < len(items) else None, total=len(items)
    )
