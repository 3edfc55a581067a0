"""Ready-made scripts for the model server: named, stateless, cheap (the bench runs on them)."""

from __future__ import annotations

from collections.abc import Callable

from agent_core.testing.model_request import ModelRequest
from agent_core.testing.model_turns import Turn, call, finish, say

Script = Callable[[ModelRequest], Turn]

_STEP_TEXTS = 1024
_STEPS = tuple(
    call("terminal", {"command": f"echo step {number}", "security_risk": "LOW"}) for number in range(_STEP_TEXTS)
)


_GIST = say("The steps so far.")


def instant(request: ModelRequest) -> Turn:
    """Answers every request with a short text."""
    del request
    return _READY


_READY = say("Ready.")


def echo_steps(count: int) -> Script:
    """A script that runs `count` commands ``echo step N`` after each user message, one per turn, then finishes.

    A request without tools, for a summary or a title, is answered by a few words.
    """

    def script(request: ModelRequest) -> Turn:
        if b'"tools":' not in request.content:
            return _GIST
        done = request.results_since_user()
        return _STEPS[done % _STEP_TEXTS] if done < count else finish(f"{count} steps done.")

    return script


def named(name: str) -> Script:
    """The script of that name: ``instant`` or ``steps:N``.

    Raises:
        ValueError: there is no such script.
    """
    if name == "instant":
        return instant
    kind, _, count = name.partition(":")
    if kind == "steps" and count.isdigit():
        return echo_steps(int(count))
    raise ValueError(f"no script named {name!r}: use instant or steps:N")
