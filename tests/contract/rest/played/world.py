"""What the played providers all have: the same repositories, branches and work, each told in a provider's own way."""

from __future__ import annotations

from dataclasses import dataclass, field

TOKEN = "tok-0123456789abcdef"
EXPIRED = "tok-expired-0123456789"


@dataclass(frozen=True)
class Branch:
    name: str
    sha: str
    date: str = "2026-11-01T10:00:00Z"
    protected: bool = False


@dataclass(frozen=True)
class Repo:
    id: int
    owner: str
    name: str
    private: bool
    stars: int
    updated: str
    branches: tuple[Branch, ...] = (Branch("main", "a" * 40, protected=True),)
    files: dict[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def is_personal(self) -> bool:
        return self.owner == "ann"


@dataclass(frozen=True)
class Request:
    """An open pull or merge request of the user; `trouble` is the protocol's type of task, or empty."""

    repo: Repo
    number: int
    title: str
    trouble: str


AGENT = "---\nname: tides\ntriggers:\n- tide\n- ebb\n---\nMind the tides."

BOAT = Repo(
    101,
    "ann",
    "boat",
    private=False,
    stars=7,
    updated="2026-11-20T09:00:00Z",
    branches=(
        Branch("main", "a" * 40, protected=True),
        *(Branch(f"fix/{number}", f"{number}" * 40) for number in range(1, 5)),
        Branch("sail", "f" * 40),
    ),
    files={
        ".openhands/microagents/tides.md": AGENT,
        ".openhands/microagents/ropes.md": "Knots.",
        ".openhands/microagents/notes.txt": "no microagent",
        ".cursorrules": "Say ahoy.",
        "README.md": "boat",
    },
)
RAFT = Repo(102, "ann", "raft", private=True, stars=0, updated="2026-11-19T09:00:00Z")
HARBOUR = Repo(103, "acme", "harbour", private=True, stars=3, updated="2026-11-18T09:00:00Z")
BOATHOUSE = Repo(104, "acme", "boathouse", private=False, stars=12, updated="2026-11-17T09:00:00Z")
REPOS = (BOAT, RAFT, HARBOUR, BOATHOUSE)

REQUESTS = (
    Request(BOAT, 11, "Mend the keel", "MERGE_CONFLICTS"),
    Request(BOAT, 12, "New sail", "FAILING_CHECKS"),
    Request(HARBOUR, 13, "Dredge", "UNRESOLVED_COMMENTS"),
    Request(HARBOUR, 14, "Nothing to do here", ""),
)
DRAFTS = frozenset({"14"})
"""Numbers of requests that are not meant to be merged yet."""
MERGED = frozenset({"31"})
"""Numbers of requests that are over."""
ISSUES = ((BOAT, 21, "It leaks"),)


class NoSuchRepoError(Exception):
    """What is asked for is not there."""


def repo_named(full_name: str) -> Repo:
    for one in REPOS:
        if one.full_name == full_name:
            return one
    raise NoSuchRepoError


def named_like(text: str) -> list[Repo]:
    return [one for one in REPOS if text.lower() in one.name.lower()]


def request_of(repo: Repo, number: int) -> Request | None:
    return next((one for one in REQUESTS if one.repo == repo and one.number == number), None)
