"""Results: the answers of the REST routes, as a program reads them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from drydock_client.errors import NotDrydockError
from drydock_client.events import EXPLAINED_WAITS, Event, Tolerant, Unknown


class Waiting(Tolerant):
    """The place in line of a conversation whose agent waits for its turn, and in words why it waits."""

    position: int
    message: str = ""


class Conversation(Tolerant):
    """The facts of a conversation. `id` is `conversation_id`; `waiting` None: it waits for no turn.

    `status` is ``STARTING``, ``RUNNING`` or ``STOPPED`` (``ERROR``, ``ARCHIVED`` are the protocol's others): whether it
    is loaded; `agent_state` is what its agent was last seen doing (an `AgentState`, None before its first start).
    `accumulated_cost` is in US dollars; `access` is ``owner``, ``write`` or ``read``.
    """

    id: str = Field(alias="conversation_id")
    title: str = ""
    status: str = "STOPPED"
    runtime_status: str | None = None
    runtime_warning: str | None = None
    waiting: Waiting | None = None
    created_at: datetime | None = None
    last_updated_at: datetime | None = None
    selected_repository: str | None = None
    selected_branch: str | None = None
    git_provider: str | None = None
    trigger: str | None = None
    num_connections: int = 0
    url: str | None = None
    pr_number: tuple[int, ...] = ()
    agent_state: str | None = None
    accumulated_cost: float = 0.0
    access: str = "owner"

    @property
    def why_it_waits(self) -> str:
        """Why work that is wanted of its agent does not begin yet; empty where nothing waits."""
        if self.waiting is not None:
            return self.waiting.message
        return (self.runtime_warning or "") if self.runtime_status in EXPLAINED_WAITS else ""


class Rewound(Tolerant):
    """Where a conversation goes on: behind the event `event_id`, or (None) at its beginning.

    `id` is that of the rewind; `files_of` the event as of which the files are (None: left as they were, see `note`).
    """

    id: int
    event_id: int | None = None
    files_of: int | None = None
    note: str = ""


class ConversationPage(Tolerant):
    """One page of a list of conversations; `next_page_id` None ends it."""

    results: tuple[Conversation, ...]
    next_page_id: str | None = None


class EventPage(Tolerant):
    """A part of a log, in the order that was asked for."""

    events: Sequence[Event | Unknown]
    has_more: bool = False


class Sent(Tolerant):
    """What was sent is in the log, under this id: what comes of it comes after it."""

    id: int


class SkippedFile(Tolerant):
    """A file that was not stored, and why."""

    name: str
    reason: str = ""


class Uploaded(Tolerant):
    """What became of files that were sent: paths in the sandbox, and those that were left out."""

    uploaded_files: tuple[str, ...] = ()
    skipped_files: tuple[SkippedFile, ...] = ()


class FolderEntry(Tolerant):
    """Something in a folder of the workspace: `kind` is ``file``, ``folder`` or ``other``."""

    name: str
    kind: str
    link: bool = False
    size: int | None = None
    modified: float | None = None
    hidden: bool = False


class Folder(Tolerant):
    """A folder of the workspace. `left_out`: how many more entries it has."""

    root: str = ""
    path: str = ""
    entries: tuple[FolderEntry, ...] = ()
    left_out: int = 0


class Change(Tolerant):
    """A file that differs: `status` is ``M``, ``A``, ``D``, ``U`` or ``R``."""

    status: str
    path: str


class Diff(Tolerant):
    """A file as it was and as it is."""

    original: str
    modified: str


class Port(Tolerant):
    """A port that something in the sandbox listens on. `url` opens its preview, and counts for ten minutes."""

    port: int
    url: str
    addresses: tuple[str, ...] = ()
    pid: int | None = None
    process: str | None = None
    command: str | None = None


class Webhook(Tolerant):
    """An address that is told of `events` (empty: all) of a conversation (None: all).

    It last acknowledged something at `delivered_at`, and nothing since `failing_since` (None while all is well);
    `problem` is what was wrong with the last attempt.
    """

    id: str
    url: str
    events: tuple[str, ...] = ()
    conversation_id: str | None = None
    active: bool = True
    created_at: datetime | None = None
    delivered_at: datetime | None = None
    failing_since: datetime | None = None
    problem: str = ""


class NewWebhook(Webhook):
    """A webhook that was just made, with the `secret` that signs what it sends."""

    secret: str = Field(repr=False)  # it is not to end in somebody's log


class Settings(Tolerant):
    """A user's settings, without secrets: flags say which of those are set. Further fields are in `model_extra`."""

    language: str | None = None
    agent: str | None = None
    llm_model: str | None = None
    llm_base_url: str | None = None
    llm_api_key_set: bool = False
    search_api_key_set: bool = False
    max_iterations: int | None = None
    max_budget_per_task: float | None = None
    confirmation_mode: bool | None = None
    security_analyzer: str | None = None
    git_user_name: str | None = None
    git_user_email: str | None = None
    mcp_config: dict[str, Any] | None = None
    provider_tokens_set: dict[str, str | None] = Field(default_factory=dict)


class Secret(Tolerant):
    """A secret's name and what it is for; values are never told."""

    name: str
    description: str | None = None


class OwnSkill(Tolerant):
    """A user's skill; `content` is None in lists, `problem` says why agents are not told it."""

    name: str
    enabled: bool = True
    type: str | None = None
    description: str = ""
    triggers: tuple[str, ...] = ()
    problem: str | None = None
    content: str | None = None


class PluginEntry(Tolerant):
    """An installed plugin at one `commit`; one that is `for_all` is the operator's, and cannot be changed."""

    name: str
    version: str = ""
    description: str = ""
    source: str
    ref: str = ""
    path: str = ""
    commit: str
    enabled: bool = True
    for_all: bool = False
    skills: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    mcp_servers: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class PluginChange(Tolerant):
    """What an update has changed; the commits are the same where there was nothing new."""

    old_commit: str
    new_commit: str
    plugin: PluginEntry


R = TypeVar("R", bound=Tolerant)


def parsed(kind: type[R], answer: Any) -> R:
    """One result; raises `NotDrydockError` where the answer lacks what every server sends."""
    try:
        return kind.model_validate(answer)
    except ValidationError as error:
        raise NotDrydockError(f"The server's answer is no {kind.__name__}: {_words(error)}") from error


def parsed_list(kind: type[R], answer: Any) -> list[R]:
    """A list of results; see `parsed`."""
    try:
        return TypeAdapter(list[kind]).validate_python(answer)  # type: ignore[valid-type] # a type at run time
    except ValidationError as error:
        raise NotDrydockError(f"The server's answer is no list of {kind.__name__}: {_words(error)}") from error


def listed(answer: Any, name: str, what: str) -> list[Any]:
    """The list in the field `name`; raises `NotDrydockError`."""
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, list):
        raise NotDrydockError(f"{what} has another form than it should: {answer!r:.200}")
    return found


def _words(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
