"""What can be wrong with a request."""

from __future__ import annotations


class RefusedError(Exception):
    """The call is not allowed; the message says which part of it and becomes the engine-style 403 answer."""


class MalformedError(Exception):
    """The request is not HTTP as this proxy reads it; answered with 400."""
