"""Errors of a call, in words for a model."""

from __future__ import annotations

import re

from playwright.async_api import Error

_CALL = re.compile(r"\A[A-Z]\w*\.\w+: ")
_TIMEOUT = re.compile(r"Timeout (\d+)ms exceeded\.?")
_NETWORK = re.compile(r"net::ERR_[A-Z_]+")
_COUNT = re.compile(r"\A\d+ × ")
_LOG_NOISE = ("waiting ", "attempting", "retrying", "navigating to", "scrolling", "done ", "locator ", 'fill("')
_MOVED = ("context was destroyed", "Cannot find context", "Frame was detached", "Not attached to an active page")
_MEANINGS = {
    "net::ERR_NAME_NOT_RESOLVED": "its host name is not known here, or the sandbox has no network",
    "net::ERR_INTERNET_DISCONNECTED": "the sandbox has no network",
    "net::ERR_CONNECTION_REFUSED": "nothing listens there",
    "net::ERR_BLOCKED_BY_CLIENT": "it is not among the allowed domains",
    "net::ERR_CERT_AUTHORITY_INVALID": "its certificate is not trusted",
    "net::ERR_UNSAFE_PORT": "browsers refuse that port",
    "net::ERR_ABORTED": "it has nothing to show, or its loading was broken off",
    "net::ERR_EMPTY_RESPONSE": "it answered nothing",
    "net::ERR_INVALID_AUTH_CREDENTIALS": "it wants a user name and a password",
    "net::ERR_INVALID_HTTP_RESPONSE": "what is there speaks no HTTP",
    "net::ERR_TOO_MANY_REDIRECTS": "it leads from one address to the next without an end",
    "net::ERR_FILE_NOT_FOUND": "there is no such file",
}


class ActionError(Exception):
    """A call cannot be carried out as it is; the message says why, for the model."""


def in_words(error: Error) -> str:
    """What Playwright's error says, without its internals."""
    message = error.message.strip()
    head, _, log = message.partition("\nCall log:")
    lines = [line.strip() for line in head.strip().splitlines() if line.strip()] or [""]
    text = " ".join(lines[: 2 if lines[0].endswith(":") else 1])  # the next line, where the first only announces it
    in_seconds = lambda found: f"it was not possible within {int(found.group(1)) / 1000:g} s"  # noqa: E731
    first = _TIMEOUT.sub(in_seconds, _CALL.sub("", text))
    if "not available in an isolated browser context" in first:
        return "that page of the browser itself cannot be opened here"
    if has_moved(error):
        return "the page went on to another by itself in the middle of it; look at the page again"
    network = _NETWORK.search(first)
    if network is not None:
        address = first.partition(" at ")[2]
        meaning = _MEANINGS.get(network.group(), "")
        return f"{address or 'the address'} cannot be opened: {meaning + ', ' if meaning else ''}{network.group()}"
    lines = [_COUNT.sub("", line.strip().lstrip("- ").strip()) for line in log.splitlines()]
    relevant = [line for line in lines if line and not line.startswith(_LOG_NOISE)]
    unique = list(dict.fromkeys(relevant))[-4:]
    return f"{first} ({'; '.join(unique)})" if unique else first


def is_gone(error: Error) -> bool:
    """Whether the page or the browser ended in the middle of it."""
    words = ("has been closed", "Target crashed", "Page crashed", "Connection closed", "browser has been closed")
    return any(word in error.message for word in words)


def has_moved(error: Error) -> bool:
    """Whether the page went on to another document in the middle of it."""
    return any(words in error.message for words in _MOVED)


def sentence(words: str) -> str:
    """The words with a capital, unless they begin with something quoted, and one full stop."""
    first = words[:1].upper() if words.split(" ")[0].isalpha() else words[:1]
    return f"{first}{words[1:].rstrip('.')}."
