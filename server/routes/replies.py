"""Replies that many routes share: errors, and confirmations."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from server.errors import ReplyError


class Confirmation(BaseModel):
    """It is done."""

    message: str


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"]


class Problem(BaseModel):
    """What is wrong with one part of a request, and what to send instead."""

    type: str = Field(description="The kind of problem, for programs.")
    loc: list[str | int] = Field(description="Where it is: body, query, path or header, and then the names in it.")
    msg: str = Field(description="The problem and the fix, for people.")


class ErrorReply(BaseModel):
    """An error. The original's routes differ in which field has the text: `detail`, `error` or `message`.

    At least one of the three is there.
    """

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["detail"]}, {"required": ["error"]}, {"required": ["message"]}]}
    )

    detail: str | list[Problem] = Field("", description="What is wrong; a list where parts of the request are.")
    error: str = Field("", description="What is wrong.")
    message: str = Field("", description="What is wrong.")
    status: str = Field("", description="`error`, where the answer would have a status otherwise.")
    msg_id: str = Field("", description="The id of the message, for translations.")
    code: str = Field("", description="The kind of error, for programs.")
    docs: str = Field("", description="Path of this server's page about that code.")
    conversation_id: str = Field("", description="The conversation that it is about.")
    success: bool = Field(False, description="False, where the answer would have it otherwise.")


_ERROR_REPLY: Final = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorReply"}}}

MEANINGS: Final = {
    400: "Something in the request cannot be so",
    401: "The access token is missing or wrong",
    403: "Not allowed: another origin's page, or outside of the workspace",
    404: "It is not there",
    405: "This address has no such method",
    409: "It contradicts what is there",
    410: "Gone for good",
    413: "Larger than this server takes",
    415: "Not of a form that can be shown",
    416: "The file has no such bytes",
    422: "The request has another form than it must have",
    429: "Too many requests; `Retry-After` says when to come again",
    500: "The server failed",
    502: "A service that had to be asked cannot be reached",
    503: "Not now; try again",
    507: "The sandbox's disk is full",
}
"""What a status means on every route."""


def errors(*statuses: int, model: Any = None) -> dict[int | str, dict[str, Any]]:
    """The entries of a route's ``responses`` for these statuses; by default an `ErrorReply`, which the document has."""
    kind = {"content": _ERROR_REPLY} if model is None else {"model": model}
    return {status: {"description": MEANINGS[status], **kind} for status in statuses}


def status_error(status: int, text: str, **more: str) -> ReplyError:
    """The refusal of routes whose answers have a ``status``."""
    return ReplyError(status, {"status": "error", "message": text, "detail": text, **more})


def plain_error(status: int, text: str) -> ReplyError:
    """The refusal of the other routes: the text as ``detail`` and as ``error``."""
    return ReplyError(status, {"detail": text, "error": text})
