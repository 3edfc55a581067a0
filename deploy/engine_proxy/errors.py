"""What can be wrong with a request."""

from __future__ import annotations


class ForbiddenCallError(Exception):
    """The call is not allowed; the message says which part of it and becomes the engine-style 403 answer."""


class MalformedError(Exception):
    """The request is not HTTP as this proxy reads it; answered with 400."""


class EngineAnswerError(Exception):
    """The engine itself has answered a question about the call with an error, which becomes the call's answer.

    Attributes:
        status: its HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
