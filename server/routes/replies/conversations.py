"""Conversations, their lists and what was done with them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from server.conversation_manager.conversation_manager import ConversationStatus


class ConversationInfo(BaseModel):
    """What is known of a conversation, the same in lists and alone."""

    conversation_id: str
    title: str
    last_updated_at: str | None = Field(description="UTC, ISO 8601 with microseconds and `Z`.")
    status: ConversationStatus
    runtime_status: str | None = Field(description="An id such as `STATUS$READY`.")
    runtime_warning: str | None = Field(
        description="What is wrong with the network of the sandbox that runs, and what to do about it."
    )
    selected_repository: str | None
    selected_branch: str | None
    git_provider: str | None
    trigger: str | None = Field(description="What it comes from: `gui`, `suggested_task`, …")
    num_connections: int = Field(ge=0)
    url: str | None = Field(description="The base of its routes while it has a session.")
    session_api_key: str | None
    created_at: str = Field(description="UTC, ISO 8601 with microseconds and `Z`.")
    pr_number: list[int]
    conversation_version: Literal["V0"]
    sub_conversation_ids: list[str]


class ConversationList(BaseModel):
    """A page of conversations, newest first."""

    results: list[ConversationInfo]
    next_page_id: str | None = Field(description="`page_id` of the next page; null on the last one.")


class ConversationReply(BaseModel):
    """What became of a conversation that was made, started or stopped."""

    status: Literal["ok"]
    conversation_id: str
    message: str | None
    conversation_status: ConversationStatus = Field(description="After a stop: what it was before.")


class ForkReply(ConversationReply):
    """The new conversation of a fork."""

    forked_from: str


class RewindReply(BaseModel):
    """Where a conversation goes on."""

    status: Literal["ok"]
    conversation_id: str
    id: int = Field(description="That of the rewind in the log.")
    event_id: int | None = Field(description="The last event that counts; null: none.")
    files_of: int | None = Field(None, description="As of which event the files are; null: left as they were.")
    note: str = Field("", description="Why the files are left as they are.")


class ClientToolsReply(BaseModel):
    """The tools that clients of a conversation carry out."""

    client_tools: list[dict[str, Any]]


class ConversationConfig(BaseModel):
    """Ids that the original's client asks for."""

    runtime_id: str | None
    session_id: str | None


class EditorAddress(BaseModel):
    """Where a browser sees the workspace; null: nowhere."""

    vscode_url: str | None
