"""The microagents of a repository that no conversation has cloned."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Final

from pydantic import BaseModel

from agent_core.skills import frontmatter
from server.git_providers.errors import AccessRefusedError, MissingError
from server.git_providers.provider import GitProvider

LEGACY_FILE = ".cursorrules"
SHARED: Final = frozenset({".openhands", "openhands-config"})
"""Names of an owner's repository for all others; clients look for the second one at GitLab and Azure DevOps."""


class MicroagentFile(BaseModel):
    """Where a microagent is."""

    name: str
    path: str


class Microagent(BaseModel):
    """A microagent: its text without the header, and the words that call it."""

    content: str
    path: str
    triggers: list[str]
    git_provider: str | None


def folder_of(repository: str) -> str:
    """Where a repository has them; the one that is there for all repositories of its owner is another case."""
    return "microagents" if repository.rstrip("/").rpartition("/")[2] in SHARED else ".openhands/microagents"


async def list_microagents(account: GitProvider, repository: str) -> list[MicroagentFile]:
    """The microagents of a repository, in the order of their names; empty when there are none.

    Raises:
        MissingError: there is no such repository.
        GitProviderError: see `GitProvider`.
    """
    await account.repository(repository)
    paths = await account.files(repository, folder_of(repository))
    found = [MicroagentFile(name=PurePosixPath(path).stem, path=path) for path in paths if _is_one(path)]
    try:
        await account.file(repository, LEGACY_FILE)
    except MissingError:
        pass
    else:
        found.append(MicroagentFile(name="cursorrules", path=LEGACY_FILE))
    return sorted(found, key=lambda one: one.name)


async def read_microagent(account: GitProvider, repository: str, path: str) -> Microagent:
    """One microagent.

    Raises:
        MissingError: there is no such repository.
        AccessRefusedError: there is no such file in it.
        GitProviderError: see `GitProvider`.
    """
    await account.repository(repository)
    try:
        text = await account.file(repository, path)
    except MissingError as error:
        raise AccessRefusedError(f"file {path} in {repository}") from error
    header: dict[str, Any] = {}
    try:
        read, body = frontmatter.split(text)
        header = dict(read)
    except ValueError:
        body = text
    words = header.get("triggers")
    triggers = [str(word) for word in words] if isinstance(words, list) else []
    return Microagent(content=body, path=path, triggers=triggers, git_provider=account.name)


def _is_one(path: str) -> bool:
    return path.endswith(".md") and PurePosixPath(path).name.lower() != "readme.md"
