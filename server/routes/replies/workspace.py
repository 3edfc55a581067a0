"""The files, repositories and ports of a conversation's workspace."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class FolderEntry(BaseModel):
    """What is in a folder; a link that leads nowhere is `missing`."""

    name: str
    kind: Literal["file", "folder", "missing", "other"]
    link: bool
    size: int | None
    modified: float | None = Field(description="Seconds since 1970.")
    hidden: bool = Field(description="Left out of `list-files`.")


class Folder(BaseModel):
    """A folder of the workspace."""

    root: str = Field(description="The workspace, as commands see it.")
    path: str
    entries: list[FolderEntry]
    left_out: int = Field(ge=0, description="How many more there are behind this page.")
    next_page_id: str | None = Field(description="`page_id` of the next page; null on the last one.")


class FileText(BaseModel):
    """The text of a file."""

    code: str


class SkippedFile(BaseModel):
    """A file that could not be stored."""

    name: str
    reason: str


class Uploaded(BaseModel):
    """What became of uploaded files."""

    uploaded_files: list[str] = Field(description="Absolute paths, as commands see them.")
    skipped_files: list[SkippedFile]


class Change(BaseModel):
    """A file that was changed: modified, added, deleted, or in conflict."""

    status: Literal["M", "A", "D", "U"]
    path: str


class Base(BaseModel):
    """Where a branch left the one it began from."""

    name: str
    commit: str


class RepositoryStatus(BaseModel):
    """A repository of the workspace."""

    path: str
    branch: str | None = Field(description="Null: detached.")
    head: str | None = Field(description="Null: no commit yet.")
    upstream: str | None
    ahead: int
    behind: int
    base: Base | None
    changes: list[Change]
    left_out: int = Field(ge=0)
    is_cut: bool


class GitStatus(BaseModel):
    """The repositories of the workspace."""

    folder: str
    repositories: list[RepositoryStatus]
    errors: list[str]


class Diff(BaseModel):
    """A file as it is, and as it was; empty where it is not there."""

    modified: str
    original: str


class Commit(BaseModel):
    """A commit."""

    hash: str
    parents: list[str]
    author: str
    email: str
    date: str
    refs: list[str]
    subject: str
    body: str


class History(BaseModel):
    """The newest commits first."""

    commits: list[Commit]
    has_more: bool
    next_page_id: str | None = Field(
        description="`page_id` of the next page of the same history, whatever is committed meanwhile; null: the last."
    )


class ListeningPort(BaseModel):
    """A port that a program listens on; what cannot be seen of it is null."""

    port: int = Field(ge=1, le=65535)
    addresses: list[str]
    pid: int | None
    process: str | None
    command: str | None
    url: str = Field(description="Opens the preview; counts for ten minutes.")


class Ports(BaseModel):
    """The ports of a sandbox."""

    running: bool
    mode: Literal["origin", "path"]
    ports: list[ListeningPort]


class WebHosts(BaseModel):
    """The same ports as older clients know them: addresses with their ports."""

    hosts: dict[str, int]
